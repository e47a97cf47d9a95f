"""The same tuning allowance for every method: as many settings to choose among, declared here, judged on validation.

The first candidate of every method is itself as it stands: its defaults, which are the published values where those
are known, and what the preset says. The others vary the setting that its authors, or those who ran it on medical
images, name as the one that matters. A method that has none, supervised training among them, and a method of another
package that declares no ``tuning`` of its own, varies the weight decay, which all share.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpl import algorithms
from acpl.engine.run_folder import write_whole
from acpl.errors import UserError
from acpl.experiments.cells import Cell, is_done, read_evaluation

Settings = Mapping[str, Any]

SHARED: tuple[Settings, ...] = ({"weight_decay": 1e-4}, {"weight_decay": 1e-3}, {"weight_decay": 1e-5})
GRIDS: dict[str, tuple[Settings, ...]] = {
    # K is what the paper set on validation: 200, 100 or 50 by data and fraction.
    "acpl": ({"k": 10}, {"k": 50}, {"k": 200}),
    "acpl-plus": ({"consistency": 1.0}, {"balance": 0.5}, {"sharpen": 0.5}),
    "curriculum-labelling": ({"fresh": False}, {"share": 0.5}, {"share": 0.1}),
    "fixmatch": ({"confidence": 0.8}, {"weight": 0.3}, {"confidence": 0.7}),
    "graph-xnet": ({"k": 30}, {"alpha": 0.9}, {"fresh": True}),
    # 100 for CIFAR-10, 1 in the dermatology release.
    "mean-teacher": ({"weight": 1.0}, {"weight": 100.0}, {"weight": 3.0}),
    "mixmatch": ({"weight": 1.0}, {"weight": 75.0}, {"concentration": 0.2}),
    "mixup": ({"concentration": 0.2}, {"concentration": 1.0}, {"weight": 0.3}),
    "noteacher": ({"sigma_label": 0.5}, {"sigma_label": 2.0}, {"sigma_label": 0.25}),
    "pseudo-label": ({"confidence": 0.8}, {"weight": 0.3}, {"confidence": 0.7}),
    "s2mts2": ({"pretraining": 0.5}, {"weight": 1.0}, {"pretraining": 0.15}),
    "self-training": ({"hard": True}, {"fresh": True}, {"hard": False}),
    "src-mt": ({"weight": 10.0}, {"relation": 0.1}, {"class_weights": False}),
    "ss-dcgan": ({"weight": 0.01}, {"weight": 1.0}, {"weight": 0.03}),
    "tcse": ({"noise": 0.1}, {"weight": 1.0}, {"noise": 0.0}),
    # 30 times the labelled share in the release.
    "temporal-ensembling": ({"weight": 1.0}, {"weight": 30.0}, {"momentum": 0.9}),
    "ups": ({"fresh": False}, {"positive": 0.5, "positive_spread": 0.1}, {"positive": 0.9}),
}
MOST = 1 + len(SHARED)
"""As many as every method has."""


@dataclass(frozen=True)
class Choice:
    """What a method is given."""

    settings: Settings
    tried: int
    """Among how many that could be judged."""

    @classmethod
    def of(cls, record: Sequence[Mapping[str, Any]]) -> "Choice":
        """As it is kept in a file."""
        tried = sum(row["validation_auroc"] is not None for row in record)
        return cls(next(row["settings"] for row in record if row["chosen"]), tried)


AS_IT_STANDS = Choice({}, 1)


def candidates(method: str, count: int, told_apart_by: Callable[[Settings], object] = repr) -> list[Settings]:
    """The first ``count`` settings that a method may be given; the first is empty, the method as it stands.

    One that is the same run as an earlier one, by ``told_apart_by``, makes room for the next.
    """
    if not 1 <= count <= MOST:
        raise UserError(f"tune should be from 1 to {MOST}, the settings that every method has, but it is {count}")
    declared: Sequence[Settings] | None = getattr(algorithms.find(method), "tuning", None) or GRIDS.get(method)
    found = [{}, *(declared or SHARED)]
    if len(found) < count:
        raise UserError(f"method '{method}' declares {len(found)} settings to choose among, but tune is {count}")
    distinct: dict[object, Settings] = {}
    for one in found:
        distinct.setdefault(told_apart_by(one), one)
    return list(distinct.values())[:count]


def tuning_cells(method: str, fraction: float, offered: Sequence[Settings], settings: Settings) -> list[Cell]:
    """A cell for each candidate, on seed 0's split, judged on validation alone."""
    return [
        Cell(
            f"tuning/{method}-{fraction:g}-{number}",
            {**settings, **extra, "method": method, "fraction": fraction, "seed": 0},
            part="validation",
        )
        for number, extra in enumerate(offered)
    ]


def refuse_without_validation(known: int, data: str) -> None:
    """Nothing can be chosen where no validation image has a label."""
    if known == 0:
        raise UserError(f"tune chooses on the validation part, but {data} has none")


def chosen_before(file: Path, offered: Sequence[Settings]) -> Choice | None:
    """What was chosen once among these, if any could be judged."""
    if not file.exists():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    before = Choice.of(record)
    return before if before.tried and [row["settings"] for row in record] == [dict(one) for one in offered] else None


def choose(
    folder: Path,
    cells: Sequence[Cell],
    offered: Sequence[Settings],
    failed: Mapping[str, str],
    file: Path,
    known: Mapping[str, float] | None = None,
) -> Choice:
    """The candidate that is best on validation, the earlier of equals; what was found is kept in ``file``.

    What was chosen once stays chosen, for runs have been trained with it: a candidate that failed then and is done now
    comes too late. ``known`` has the figures, by name, of cells that need no folder. Where all failed it is the method
    as it stands, which will then fail in sight of all.
    """
    if before := chosen_before(file, offered):
        return before
    figures = [None if cell.name in failed else _figure(folder, cell, known or {}) for cell in cells]
    best = max(range(len(cells)), key=lambda number: (figures[number] is not None, figures[number] or 0.0, -number))
    record = [
        {"settings": dict(extra), "validation_auroc": figure, "failed": failed.get(cell.name), "chosen": place == best}
        for place, (cell, extra, figure) in enumerate(zip(cells, offered, figures, strict=True))
    ]
    write_whole(file, (json.dumps(record, indent=2) + "\n").encode())
    return Choice.of(record)


def _figure(folder: Path, cell: Cell, known: Mapping[str, float]) -> float | None:
    if not is_done(folder, cell):
        return known.get(cell.name)
    figure: float | None = read_evaluation(folder, cell)["auroc"]["mean"]
    return figure
