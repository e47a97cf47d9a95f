"""The pseudo-labels worth a look, as cards for the report."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from acpl.engine.stage_table import Floats, StageTable

SHOWN = 12
"""Cards of a stage and kind, whatever their class."""
SHOWN_OF_A_CLASS = 4
CARDS = 400
"""Cards at most: with their anchors' pictures a page of a few megabytes."""
ROWS = 3
"""Classes listed on a card."""


def stage_cards(stage: StageTable, labels: Mapping[int, Floats]) -> list[dict[str, Any]]:
    """The extremes of each kind, over all classes and class by class; ``labels`` are the anchors' own, by id."""
    rows = np.flatnonzero(stage.selected)
    said = {int(row): stage.known.said(stage.pseudo_label[row]) for row in rows}
    ranks: dict[int, dict[str, int]] = {}
    for kind, score in _orders(stage).items():
        order = [int(row) for row in rows[np.argsort(score[rows], kind="stable")]]
        chosen = order[:SHOWN]
        for place in range(len(stage.known.classes)):
            chosen += [row for row in order if place in said[row]][:SHOWN_OF_A_CLASS]
        chosen += [row for row in order if not said[row]][:SHOWN_OF_A_CLASS]
        place_of = {row: place for place, row in enumerate(order)}
        for row in chosen:
            ranks.setdefault(row, {})[kind] = place_of[row]
    return [_card(stage, row, said[row], labels) | {"rank": rank} for row, rank in ranks.items()]


def within_limit(cards: list[dict[str, Any]], limit: int = CARDS) -> list[dict[str, Any]]:
    """The cards that stand first in their kind, when there are too many for a page."""
    first = sorted(range(len(cards)), key=lambda place: min(cards[place]["rank"].values()))[:limit]
    return [cards[place] for place in sorted(first)]


def _orders(stage: StageTable) -> dict[str, Floats]:
    """By kind: a number for each candidate, the smallest of which come first."""
    orders: dict[str, Floats] = {}
    if stage.density is not None:
        orders = {"informative": stage.density, "typical": -stage.density}
    if not np.isnan(stage.disagreement).all():
        orders["disagreeing"] = -stage.disagreement
    return orders or {"informative": np.arange(len(stage.ids), dtype=np.float64)}


def _card(stage: StageTable, row: int, said: list[int], labels: Mapping[int, Floats]) -> dict[str, Any]:
    known, number = stage.known, int(stage.ids[row])
    model, neighbours, pseudo = stage.model[row], stage.neighbours[row], stage.pseudo_label[row]
    truth = known.truth.get(number)
    is_true = None if truth is None else known.said(truth)
    order = sorted(range(len(pseudo)), key=lambda c: (c not in (is_true or []), c not in said, -pseudo[c]))
    return {
        "id": number,
        "name": known.names.get(number, str(number)),
        "stage": stage.number,
        "said": said,
        "truth": is_true,
        "right": None if truth is None else said == is_true,
        "density": None if stage.density is None else round(float(stage.density[row]), 4),
        "gap": _cell(stage.disagreement[row]),
        "anchor": bool(stage.joined[row]),
        "rows": [[c, _cell(model[c]), _cell(neighbours[c]), _cell(pseudo[c])] for c in order[:ROWS]],
        "anchors": [
            {
                "id": other,
                "name": known.names.get(other, str(other)),
                "said": known.said(labels[other]) if other in labels else None,
                "given": other in known.given,
            }
            for other in stage.nearest(row)
        ],
    }


def _cell(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 3)
