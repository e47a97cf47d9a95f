"""What is known beside the image, added to the answers of runs that had the images alone."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from acpl.config import Config, resolve
from acpl.data.manifest import Manifest, Part
from acpl.data.splits import checksum
from acpl.engine.training import source_of
from acpl.errors import UserError
from acpl.evaluation import Resampled, decide
from acpl.experiments.reproduce.entries import MEASURES, Floats, Said, entry, figures_of
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import PREDICTIONS, split_counts
from acpl.experiments.reproduce.plan import Planned
from acpl.task import Task

if TYPE_CHECKING:
    from torch import Tensor

ALONE = "the image alone"


def answering_alone(asked: Config) -> dict[str, Any]:
    """Fields of the runs that something is added to: they answer by the image alone. What taught them through
    pseudo-labels stays where ``clinical_in`` says that it is for these; else they know nothing beside the image."""
    if asked.clinical_in == "pseudo-labels":
        return {"group_answers": 0.0}
    return {"clinical": (), "group_labels": None, "group_pseudo_labels": 0.0, "group_answers": 0.0}


class _Way(NamedTuple):
    """What is added."""

    clinical: bool
    shared: float


def beside_table(gathered: Gathered) -> Made:
    """Each method's answers alone, with the patient's data, with the group's other images, and with both.

    The networks answered without them. What the patient's data say is
    learnt from the images that were labelled for that run.
    """
    asked = gathered.request.shared(gathered.request.fractions[0])
    ways = ways_of(asked)
    manifest = source_of(asked).manifest()
    found: dict[tuple[str, str, str], dict[int, Resampled]] = {}
    for row, column in gathered.places():
        for one in gathered.at(row, column):
            said = Said.read(gathered.folder(one) / PREDICTIONS)
            rule = _rule(one, said)
            for name, way in ways.items():
                score = _answers(said, way, one, gathered, asked, manifest)
                called = np.zeros_like(score) if rule is None else decide(score, rule).astype(np.float64)
                figures = figures_of(said, score, called, gathered.resamples)
                for measure in MEASURES if rule is not None else MEASURES[:1]:
                    found.setdefault((row, name, measure), {})[one.seed] = figures[measure]
    entries = [
        entry(row, name, measure, seeds, reference=None if name == ALONE else found[row, ALONE, measure])
        for (row, name, measure), seeds in found.items()
    ]
    return Made(entries, _notes(asked))


def ways_of(asked: Config) -> dict[str, _Way]:
    """What is added, by the name of its column; a UserError where nothing was asked for."""
    data, others = "the patient's data", "the group's images"
    found = {ALONE: _Way(False, 0.0)}
    if asked.clinical:
        found[data] = _Way(True, 0.0)
    if asked.group_answers:
        found[others] = _Way(False, asked.group_answers)
    if len(found) == 1:
        raise UserError(
            "beside needs what is to be added: --clinical COLUMNS of the table, --group-answers SHARE, or both"
        )
    return {**found, "both": _Way(True, asked.group_answers)} if len(found) == 3 else found


def _answers(said: Said, way: _Way, one: Planned, gathered: Gathered, asked: Config, manifest: Manifest) -> Floats:
    """(images, classes) as they are with what this way adds."""
    score = said.values("probability")
    if not way.clinical and way.shared == 0:
        return score
    import torch

    from acpl import functional

    exclusive = manifest.task is Task.MULTI_CLASS
    answers = torch.from_numpy(score).float()
    if way.clinical:
        evidence = _evidence(said, one, gathered, asked, manifest)
        answers = functional.add_evidence(answers, evidence, exclusive=exclusive)
    codes = torch.from_numpy(pd.factorize(said.groups)[0].astype(np.int64))
    shared: Floats = functional.share_answers(answers, codes, way.shared, exclusive=exclusive).double().numpy()
    return shared


def _evidence(said: Said, one: Planned, gathered: Gathered, asked: Config, manifest: Manifest) -> "Tensor":
    """(images, classes): what the patients' data say, learnt from the images that were labelled for this run."""
    from acpl.engine.beside import Clinical
    from acpl.engine.roles import draw_split

    parts: tuple[Part, ...] = ("train", "validation")
    opened = manifest.only(parts)
    split = draw_split(opened, resolve(**one.cell.settings))
    roles = split["role"].to_numpy(dtype=object)
    if checksum(split["id"].to_numpy(), roles) != split_counts(gathered.folder(one))["checksum"]:
        raise UserError(f"{one.cell.name} had other labels than this table gives it: it has changed since")
    learnt = Clinical.learnt(asked.clinical, opened, roles == "labelled")
    test = manifest.table[(manifest.table["part"] == "test").to_numpy()]
    rows = test.set_index(test["image"].astype(str)).loc[said.table.index.astype(str)]
    return learnt.evidence(rows, manifest.task)


def _rule(one: Planned, said: Said) -> Literal["argmax"] | list[float] | None:
    """How a class is called where that does not depend on the validation part's answers; None where it does."""
    config = resolve(**one.cell.settings)
    if isinstance(config.threshold, float):
        return [config.threshold] * len(said.classes)
    return "argmax" if said.exclusive and config.threshold in (None, "argmax") else None


def _notes(asked: Config) -> list[str]:
    had = "made its pseudo-labels with it" if asked.clinical_in == "pseudo-labels" else "had the images alone"
    notes = [f"Training {had}; what is known beside the images is added to the answers of its test images."]
    if asked.clinical:
        notes.append(f"The patient's data: {', '.join(asked.clinical)}, learnt from the labelled images' rows.")
    if asked.group_answers:
        notes.append(f"The group's images: {asked.group_answers:g} of an answer is the mean over the group's.")
    return notes
