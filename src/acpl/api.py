"""The public functions: what the shell's verbs do, for Python."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from acpl import algorithms, config
from acpl.data.check import check_source
from acpl.data.workers import Progress, nothing
from acpl.engine.comparing import differences, judged_part
from acpl.engine.crew import launched_crew
from acpl.engine.exporting import Exported, Format, export_run
from acpl.engine.joining import join_runs
from acpl.engine.judging import JudgedPart, is_judged, run_evaluation
from acpl.engine.launching import alone, at_work, speaks
from acpl.engine.loading import Model
from acpl.engine.loggers import find_loggers
from acpl.engine.monitor import Monitor, Quiet, Together
from acpl.engine.predicting import BadFile, run_prediction
from acpl.engine.processes import Processes
from acpl.engine.reporting import gather_again
from acpl.engine.restarting import as_changes, check_restarts, was_cut_short
from acpl.engine.run_folder import RunFolder
from acpl.engine.training import resume_training, run_training, source_of, take_part
from acpl.engine.writing import told as disk_told
from acpl.errors import UserError
from acpl.labelling.queue import Order
from acpl.labelling.reviewing import Review, open_review
from acpl.labelling.suggesting import write_suggestions
from acpl.report import write_comparison, write_report, write_side_by_side


def check_data(*, progress: Progress = nothing, **settings: Any) -> dict[str, Any]:
    """What would spoil a result, found before any training; ``settings`` are those of ``train`` that name the data.

    Every part is looked at, the test part too: nothing is learnt from it.
    """
    source = source_of(config.resolve(**settings), progress)
    result = check_source(source, progress=progress).as_dict()
    return {"said": list(source.said), **result}


def train(
    *,
    preset: str | None = None,
    file: str | Path | None = None,
    out: str | Path | None = None,
    monitor: Monitor | None = None,
    resume: str | Path | None = None,
    log: Sequence[str] = (),
    **settings: Any,
) -> Path:
    """Train and return the run folder.

    ``settings`` are fields of :class:`acpl.Config` or settings of the method; they win over ``file`` (YAML), which
    wins over ``preset``. Without ``out`` the run goes to a new folder below ``runs``. ``resume`` is the folder of a
    run that was cut short: it goes on exactly where it was, and no setting may differ. ``log`` names trackers that are
    told every figure: tensorboard, mlflow, wandb.

    With ``devices`` (and ``nodes``) several processes train together; under torchrun or srun each of them calls this,
    and all but the first take their part in silence. A run that torchrun starts again goes on from ``out``.
    """
    if resume is not None and (preset is not None or file is not None or out is not None):
        raise UserError("--resume takes its settings from the run: leave out preset, config and out")
    settings = {name: value for name, value in settings.items() if value is not None}
    target = Path(resume) if resume is not None else Path(out) if out is not None else None
    crew = launched_crew()
    if crew is None:
        alone()
        return _lead(preset, file, target, monitor, resume is not None, log, settings, None)
    with at_work(crew, target) as processes:
        if crew.rank == 0:
            return _lead(preset, file, target, monitor, resume is not None, log, settings, processes)
        take_part(processes)
    return processes.folder or Path()


def _lead(
    preset: str | None,
    file: str | Path | None,
    target: Path | None,
    monitor: Monitor | None,
    resume: bool,
    log: Sequence[str],
    settings: dict[str, Any],
    processes: Processes | None,
) -> Path:
    """Train as the only process, or as the first of several."""
    told = Together([monitor or Quiet(), *find_loggers(log)])
    try:
        if resume and target is not None:
            run = resume_training(target, told, settings, processes)
        else:
            resolved = config.resolve(preset, Path(file) if file is not None else None, **settings)
            check_restarts(target)
            if target is not None and was_cut_short(target):
                run = resume_training(target, told, as_changes(resolved, target), processes)
            else:
                folder = target or _new_folder(f"{resolved.data}-{resolved.method}")
                run = run_training(resolved, folder, told, processes)
    finally:
        told.close()
    if speaks():
        _write_page(run.path)
    return run.path


def join(
    runs: Sequence[str | Path], *, out: str | Path | None = None, device: str = "auto", progress: Progress = nothing
) -> Path:
    """Several runs as one model, which answers with the mean of their probabilities; its run folder.

    They must have been trained on the same parts of the same images, with the same network; the method may differ, and
    so may the seed. Without ``out`` it goes to a new folder below ``runs``.
    """
    paths = [Path(run) for run in runs]
    target = Path(out) if out is not None else _new_folder("joined")
    run = join_runs(paths, target, device=device, progress=progress)
    _write_page(run.path)
    return run.path


def evaluate(
    run: str | Path,
    *,
    against: str | Path | None = None,
    part: JudgedPart = "test",
    resamples: int = 2000,
    skip_bad: bool = False,
    device: str = "auto",
    progress: Progress = nothing,
) -> dict[str, Any]:
    """Judge a run on its test part, which nothing else opens; also written to ``evaluation.json``.

    ``against`` is another run on the same images: what this one has more or less than it is under that key. It is
    judged first where it has not been. ``part`` may be ``validation``, which settings were chosen on. ``skip_bad``
    leaves images out that cannot be read; the result counts them.
    """
    path, other = Path(run), None if against is None else Path(against)
    how: dict[str, Any] = {"resamples": resamples, "skip_bad": skip_bad, "device": device, "progress": progress}
    if other is not None and not is_judged(other, part):
        evaluate(other, part=part, **how)
    result = run_evaluation(path, part=part, against=other, **how)
    _write_page(path)
    return result


def make_report(
    run: str | Path,
    *more: str | Path,
    out: str | Path | None = None,
    resamples: int = 2000,
    progress: Progress = nothing,
) -> Path:
    """Write the page of a run, of a folder that ``compare`` made, or of several runs side by side; its path.

    Several runs must have been judged on the same images; differences are to the first. The test part is not opened.
    """
    paths = [Path(run), *map(Path, more)]
    if len(paths) == 1 and out is not None:
        raise UserError("a single folder's page is its own report.html; --out is for several runs")
    if len(paths) == 1 and (paths[0] / "table.csv").is_file() and (paths[0] / "plan.json").is_file():
        with disk_told(paths[0] / "report.html"):
            return write_comparison(paths[0])
    for path in paths:
        RunFolder.open(path)
    if len(paths) == 1:
        without = gather_again(paths[0], progress)
        with disk_told(paths[0] / "report.html"):
            return write_report(paths[0], without_pictures=without)
    part = judged_part(paths)
    target = Path(out) if out is not None else Path("comparison.html")
    if target.exists():
        raise UserError(f"{target} exists; choose another --out, nothing is ever written over")
    if not target.parent.is_dir():
        raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    found = differences(paths, part, resamples=resamples)
    with disk_told(target):
        return write_side_by_side(paths, found, part, target)


def watch(run: str | Path, *, once: bool = False, every: float = 2.0) -> None:
    """Show a run in the terminal as it goes, from its folder alone; ``once`` shows it as it is and returns."""
    from rich.console import Console

    from acpl.report.watching import watch_run

    path = Path(run)
    if not (path / "config.yaml").is_file():
        raise UserError(f"{path} is not a run folder: it has no config.yaml")
    watch_run(path, Console(), once=once, every=every)


def predict(
    run: str | Path,
    images: Sequence[str | Path],
    *,
    table: str | Path | None = None,
    device: str = "auto",
    progress: Progress = nothing,
    say: Callable[[str], object] = lambda sentence: None,
) -> tuple[pd.DataFrame, list[BadFile]]:
    """Probabilities and decisions for image files, folders or zips of them; and what could not be read, and why.

    ``table`` is a CSV with what the model knows beside the images (``clinical``, ``group_answers``), a row an image;
    ``say`` is told of images without a row.
    """
    known = None if table is None else Path(table)
    files = [Path(image) for image in images]
    return run_prediction(Path(run), files, table=known, device=device, progress=progress, say=say)


def load(run: str | Path, *, device: str = "auto") -> Model:
    """A run's final model: call it with arrays, PIL images or paths, and it answers as ``predict`` does."""
    return Model.load(Path(run), device)


def suggest(
    run: str | Path,
    *,
    budget: int = 100,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress = nothing,
) -> pd.DataFrame:
    """The unlabelled images to have labelled next: of high information, unlike each other, one a patient.

    Also written as a CSV, ``suggestions.csv`` in the run's folder or ``out``, with a contact sheet (PNG) beside it.
    """
    target = Path(out) if out is not None else None
    return write_suggestions(Path(run), budget, target, device=device, progress=progress)


def review(
    run: str | Path,
    *,
    out: str | Path | None = None,
    order: Order = "suggested",
    limit: int = 1000,
    port: int = 0,
    device: str = "auto",
    progress: Progress = nothing,
) -> Review:
    """A page on 127.0.0.1 to accept or correct pseudo-labels; ``serve_forever`` of what is returned serves it.

    Decisions are saved at once to ``reviewed.csv`` in the run's folder or to ``out``, a table that ``train`` takes.
    """
    return open_review(
        Path(run),
        out=Path(out) if out is not None else None,
        order=order,
        limit=limit,
        port=port,
        device=device,
        progress=progress,
    )


def export(
    run: str | Path,
    format: Format = "onnx",  # noqa: A002 — the shell's option is called so too
    *,
    out: str | Path | None = None,
    progress: Progress = nothing,
) -> Exported:
    """The final model as ONNX, TorchScript or safetensors for other programs, checked on the run's own images.

    A new folder, ``export-FORMAT`` in the run's or ``out``, with ``model.json``, which says how to call it.
    """
    return export_run(Path(run), format, Path(out) if out is not None else None, progress)


def methods() -> dict[str, str]:
    """Every method's name, with one line on what it is."""
    return {name: algorithms.find(name).summary for name in algorithms.names()}


def presets() -> dict[str, dict[str, Any]]:
    """Every preset's name, with what it sets."""
    return {name: config.read_preset(name) for name in config.preset_names()}


def _write_page(run: Path) -> None:
    with disk_told(run / "report.html"):
        write_report(run)


def _new_folder(name: str) -> Path:
    return next(path for number in count(1) if not (path := Path("runs") / f"{name}-{number}").exists())
