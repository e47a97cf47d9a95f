"""Pictures and the page: reads a run folder and nothing else."""

from acpl.report.page import write_report
from acpl.report.side_by_side import write_comparison, write_side_by_side

__all__ = ["write_comparison", "write_report", "write_side_by_side"]
