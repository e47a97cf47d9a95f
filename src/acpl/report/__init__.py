"""Pictures and the page: reads a run folder and nothing else."""

from acpl.report.page import write_report

__all__ = ["write_report"]
