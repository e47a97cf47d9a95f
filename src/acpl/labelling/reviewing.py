"""From a run to a review that can be served."""

from functools import partial
from pathlib import Path
from shlex import join

from acpl.data.workers import Progress, nothing
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError
from acpl.labelling.decisions import Decisions, Question
from acpl.labelling.label_table import LabelTable, images_of
from acpl.labelling.pictures import picture
from acpl.labelling.pool import Pool, look, open_pool
from acpl.labelling.queue import Order, build_queue
from acpl.labelling.server import ReviewServer
from acpl.task import Task

TABLE = "reviewed.csv"


class Review(ReviewServer):
    """A review that listens; ``serve_forever`` serves it, ``next_command`` trains on what was decided."""

    next_command: str


def open_review(
    run: Path,
    *,
    out: Path | None = None,
    order: Order = "suggested",
    limit: int = 1000,
    port: int = 0,
    device: str = "auto",
    progress: Progress = nothing,
) -> Review:
    """A review of a run's pseudo-labels; decisions go to ``out`` (default: ``reviewed.csv`` in the run's folder).

    One that was begun with the same ``out`` goes on where it was; another file of that name is refused.
    """
    RunFolder.open(run)
    target = out if out is not None else run / TABLE
    log = target.with_name(f"{target.stem}.decisions.csv")
    if target.suffix.lower() != ".csv":
        raise UserError(f"{target} should be a .csv file, for that is what train takes")
    if target.exists() and not log.exists():
        raise UserError(f"{target} exists and is not of a review; choose another --out, nothing is ever written over")
    if not target.parent.is_dir():
        raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    pool = open_pool(run, progress)
    queue = build_queue(look(pool, device=device), order=order, limit=limit)
    table = LabelTable(target, pool)
    images = images_of(pool, target.with_name(f"{target.stem}-images"), progress)
    classes = pool.card.classes
    questions = {item.id: Question(item.image, tuple(classes[i] for i in item.proposal)) for item in queue}
    decisions = Decisions(log, table, questions, task=Task(pool.card.task), classes=classes)
    review = Review(f"{run}", classes, queue, decisions, partial(picture, pool), port=port)
    review.next_command = _next_command(pool, table, images)
    return review


def _next_command(pool: Pool, table: LabelTable, images: Path | str) -> str:
    """The second round, with the task stated: labels could look like another one's by chance."""
    words = ["acpl", "train", "--data", str(table.path), "--images", str(images), "--task", pool.card.task]
    if table.needs_classes:
        words += ["--classes", ",".join(table.classes)]
    if pool.config.skip_bad:
        words.append("--skip-bad")
    return join(words)
