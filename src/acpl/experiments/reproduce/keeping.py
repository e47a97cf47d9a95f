"""From planned cells to their small files under ``results``: what any table there has is not run again."""

import gzip
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from acpl.engine.run_folder import write_whole
from acpl.experiments.cells import run_cells
from acpl.experiments.reproduce.plan import Planned

PREDICTIONS = "predictions.csv.gz"
SMALL = ("config.yaml", "events.jsonl", PREDICTIONS, "evaluation.json")
"""What is kept of every run, the last one last: where it is, the others are."""
SPLIT = "split.json"
NOT_RUN = "not run yet"
MADE = "made.json"
"""How a run was made: versions, machine, seconds; from its folder ``report``."""


def run_and_keep(
    planned: Sequence[Planned],
    kept: Path,
    work: Path,
    *,
    prepare: Callable[[Planned, Path], None],
    jobs: int,
    say: Callable[[str], None],
    run: bool = True,
) -> dict[str, str]:
    """Run what is not kept yet and copy its small files; why cells failed, by their names.

    ``prepare`` is called with each finished run's folder before that. Without ``run`` only what is there is kept, and
    every other cell counts as ``NOT_RUN``.
    """
    for one in missing_cells(planned, kept):
        beside = kept_beside(one, kept)
        if beside is not None:
            copy_kept(beside, kept / one.cell.name)
    missing = missing_cells(planned, kept)

    def keep_finished() -> None:
        for one in missing:
            run = work / one.cell.name
            if (run / "evaluation.json").exists() and not is_kept(kept / one.cell.name, one.arm.more):
                prepare(one, run)
                keep(run, kept / one.cell.name, one.arm.more)

    def said(line: str) -> None:
        keep_finished()  # as each is done, for the machine that runs them may go away
        say(line)

    keep_finished()
    if not run:
        return dict.fromkeys((one.cell.name for one in missing_cells(planned, kept)), NOT_RUN)
    failed = run_cells([one.cell for one in missing], work, jobs=jobs, say=said, keep_going=True)
    keep_finished()
    return failed


def missing_cells(planned: Sequence[Planned], kept: Path) -> list[Planned]:
    """Each cell once, of those that ``results`` does not hold."""
    cells = {one.cell.name: one for one in planned}
    return [one for one in cells.values() if not is_kept(kept / one.cell.name, one.arm.more)]


def kept_beside(one: Planned, kept: Path) -> Path | None:
    """The same run in another table of these results: a name ends in a digest of all that decides what a run does."""
    others = sorted(kept.parent.parent.glob(f"*/{kept.name}/{one.cell.name}"))
    return next((run for run in others if is_kept(run, one.arm.more)), None)


def copy_kept(run: Path, target: Path) -> None:
    """All that a table keeps of a run, the file that tells that the others are there last."""
    last = SMALL[-1]
    shutil.copytree(run, target, dirs_exist_ok=True, ignore=lambda folder, _: [last] if Path(folder) == run else [])
    write_whole(target / last, (run / last).read_bytes())


def is_kept(folder: Path, more: Sequence[str] = ()) -> bool:
    """Whether all that is copied of a run is here."""
    return all((folder / name).exists() for name in (*SMALL, SPLIT, *more))


def keep(run: Path, target: Path, more: Sequence[str] = ()) -> None:
    """Copy a run's small files; weights, images and the split's rows stay where they are."""
    target.mkdir(parents=True, exist_ok=True)
    for name in more:
        if (run / name).is_dir():
            shutil.copytree(run / name, target / name, dirs_exist_ok=True)
        elif (run / name).exists():
            shutil.copyfile(run / name, target / name)
        else:  # a folder that a run did not need, as where it had nothing to select from
            (target / name).mkdir(exist_ok=True)
    roles = pd.read_csv(run / "split.csv", usecols=["role"])["role"].value_counts()
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    evaluation = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    split = {"checksum": config["split_checksum"], **{str(role): int(count) for role, count in roles.items()}}
    write_whole(target / SPLIT, (json.dumps(split) + "\n").encode())
    if (run / "report" / MADE).exists():
        write_whole(target / MADE, (run / "report" / MADE).read_bytes())
    said = {
        "config.yaml": yaml.safe_dump(_without_places(config), sort_keys=False).encode(),
        "evaluation.json": (json.dumps(_without_places(evaluation), indent=2) + "\n").encode(),
        PREDICTIONS: compact(run / "predictions.csv"),
    }
    for name in SMALL:
        write_whole(target / name, said[name] if name in said else (run / name).read_bytes())


def compact(predictions: Path) -> bytes:
    """Predictions in a fifth of the space and nothing lost: no digit more than float32 has, and packed."""
    table = pd.read_csv(predictions, dtype=str, keep_default_na=False)
    for name in [name for name in table.columns.astype(str) if name.startswith("probability.")]:
        values = table[name].astype(float)
        short = values.astype(np.float32)
        if (short.astype(float) == values).all():
            table[name] = [str(value) for value in short.to_numpy()]  # pandas would give each as a float of 64 bits
    return gzip.compress(table.to_csv(index=False).encode(), mtime=0)


def short(path: str) -> str:
    """A file by the last two parts of its path: enough to know it, and the same on every machine."""
    return "/".join(Path(path).parts[-2:])


def _without_places(values: dict[str, Any]) -> dict[str, Any]:
    """What is kept is shown to others: where things lay on this machine is not for them."""
    return {
        key: short(value) if isinstance(value, str) and Path(value).is_absolute() else value
        for key, value in values.items()
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """A kept run's events in order."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def seen_on_validation(folder: Path) -> float | None:
    """A kept run's mean AUROC on validation as its training saw it: of the model that it kept."""
    looks = [event.get("validation_auroc") for event in events(folder)]
    found = [float(figure) for figure in looks if figure is not None and not math.isnan(figure)]
    if not found:
        return None
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    return max(found) if config["keep"] == "best" else found[-1]


def made_by(folder: Path) -> dict[str, Any]:
    """What is known of how a kept run was made."""
    file = folder / MADE
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return known


def split_counts(folder: Path) -> dict[str, Any]:
    """A kept run's split: its checksum and how many images have each role."""
    found: dict[str, Any] = json.loads((folder / SPLIT).read_text(encoding="utf-8"))
    return found
