"""What would spoil a result, found before any training."""

from dataclasses import replace
from typing import TYPE_CHECKING

from acpl.data.check.images import image_findings, measure_sizes
from acpl.data.check.labels import count_parts, count_together, label_findings
from acpl.data.check.result import CheckResult, Finding
from acpl.data.check.scan import scan_arrays, scan_files, scan_shards
from acpl.data.manifest import Manifest
from acpl.data.workers import Progress, nothing
from acpl.task import Task

if TYPE_CHECKING:
    from acpl.data.sources import Source

__all__ = ["CheckResult", "Finding", "check_source", "check_table"]


def check_source(source: "Source", *, progress: Progress = nothing) -> CheckResult:
    """What the table and every image of every part say; images that are files are all read."""
    from acpl.data.sources.files import FileSource  # brings torch, which the scan's processes do without
    from acpl.data.sources.shards import ShardSource

    if isinstance(source, ShardSource):
        facts = scan_shards(source, progress)  # first: the manifest is made of what was seen
        manifest = source.manifest()
    else:
        manifest = source.manifest()
        facts = scan_files(source, progress) if isinstance(source, FileSource) else scan_arrays(source, manifest)
    told = check_table(manifest)
    findings = [*image_findings(manifest, facts), *told.findings]
    return replace(told, sizes=measure_sizes(facts), findings=findings)


def check_table(manifest: Manifest) -> CheckResult:
    """What the table alone says; no image is looked at."""
    counts = count_parts(manifest)
    return CheckResult(
        task=manifest.task,
        classes=manifest.classes,
        parts=counts,
        together=count_together(manifest) if manifest.task is Task.MULTI_LABEL else None,
        sizes=None,
        findings=label_findings(manifest, counts),
    )
