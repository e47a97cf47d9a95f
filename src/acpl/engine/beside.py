"""What is known of images beside their pixels, by id: the patient's data, the patient's other images."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from acpl import functional
from acpl.config import Config
from acpl.data.clinical import ClinicalColumn, clinical_numbers, find_clinical
from acpl.data.manifest import Manifest
from acpl.engine.run_folder import ModelCard
from acpl.errors import UserError
from acpl.task import Task

_STEPS = 10**6


@dataclass(frozen=True)
class Clinical:
    """What the patient's data say of each class, learnt from the labelled images' rows: a model card's ``clinical``."""

    columns: list[ClinicalColumn]
    weights: Tensor
    usual: Tensor

    @classmethod
    def learnt(cls, names: tuple[str, ...], manifest: Manifest, labelled: npt.NDArray[np.bool_]) -> "Clinical":
        """From the rows where ``labelled`` is true; how a column becomes numbers is found in the training part."""
        training = (manifest.table["part"] == "train").to_numpy()
        columns = find_clinical(manifest.table[training], names)
        labels = torch.from_numpy(manifest.labels[labelled])
        exclusive = manifest.task is Task.MULTI_CLASS
        numbers = torch.from_numpy(clinical_numbers(manifest.table[labelled], columns))
        # Rounded, so that they are the same on every machine and in the card that is read again.
        weights = functional.fit_clinical(numbers, labels, exclusive=exclusive).mul(_STEPS).round().div(_STEPS)
        return cls(columns, weights, functional.usual_shares(labels, exclusive=exclusive))

    def numbers(self, table: pd.DataFrame) -> Tensor:
        """(rows, numbers) of a table with these columns; a UserError names one that it lacks."""
        return torch.from_numpy(clinical_numbers(table, self.columns))

    def evidence(self, table: pd.DataFrame, task: Task) -> Tensor:
        """(rows, classes) float32 log-odds for a table with these columns."""
        exclusive = task is Task.MULTI_CLASS
        found = functional.clinical_evidence(self.numbers(table), self.weights, self.usual, exclusive=exclusive)
        return found.float()

    def as_json(self) -> dict[str, Any]:
        """For a model card."""
        columns = [column.as_json() for column in self.columns]
        return {"columns": columns, "weights": self.weights.tolist(), "usual": self.usual.tolist()}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> "Clinical":
        """As :meth:`as_json` wrote it; a UserError where that was damaged since."""
        try:
            weights, usual = (torch.tensor(value[name], dtype=torch.float64) for name in ("weights", "usual"))
            columns = [ClinicalColumn.of_json(column) for column in value["columns"]]
            places = sum(3 if column.words is None else len(column.words) + 1 for column in columns) + 1
            if weights.shape != (places, len(usual)):
                raise ValueError("weights of another shape")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UserError(
                "model.json is damaged: what 'clinical' says of the patients' data cannot be read"
            ) from None
        return cls(columns, weights, usual)


@dataclass(frozen=True)
class Beside:
    """Evidence and groups by id; a row of zeros and a group of one image leave an answer as the image has it."""

    task: Task
    ids: Tensor
    """Ascending."""
    evidence: Tensor
    """(ids, outputs) float32 log-odds."""
    groups: Tensor
    """(ids,): whose image each is."""
    shared: float
    """Share of an answer that is the mean over its group."""
    taught: Tensor | None = None
    """(ids,): as ``groups``, where pseudo-labels are shared; an image that none is made for is a group of its own."""
    shared_in_teaching: float = 0.0
    """Share of a pseudo-label that is the mean over its group."""

    @classmethod
    def of(cls, card: ModelCard, table: pd.DataFrame, known: npt.NDArray[np.bool_] | None = None) -> "Beside | None":
        """For images that a model is to judge; ``table`` is indexed by id and has ``group``. None where the model asks
        for nothing. Of rows that are not ``known`` nothing is."""
        if card.clinical is None and card.group_answers == 0:
            return None
        task = Task(card.task)
        if card.clinical is None:
            evidence = torch.zeros(len(table), len(card.classes))
        else:
            evidence = Clinical.of_json(card.clinical).evidence(table, task)[:, : len(card.classes)]
        if known is not None:
            evidence[torch.from_numpy(~known)] = 0
        return cls._by_id(task, table, evidence, card.group_answers)

    @classmethod
    def in_training(
        cls, config: Config, clinical: Clinical | None, manifest: Manifest, roles: npt.NDArray[np.object_]
    ) -> "Beside | None":
        """For training and validation images: besides, what only pseudo-labels are made with."""
        shares = (config.group_answers, config.group_pseudo_labels)
        if clinical is None and not any(shares) and config.group_labels is None:
            return None
        codes = pd.factorize(manifest.groups)[0].astype(np.int64)
        labelled, unlabelled = (np.asarray(roles == role) for role in ("labelled", "unlabelled"))
        evidence = torch.zeros(len(manifest.table), len(manifest.classes))
        if clinical is not None:
            evidence += clinical.evidence(manifest.table, manifest.task)
            if config.clinical_in == "pseudo-labels":
                evidence[torch.from_numpy(~unlabelled)] = 0
        if config.group_labels is not None:
            evidence[torch.from_numpy(unlabelled)] += functional.group_label_evidence(
                torch.from_numpy(manifest.labels[labelled]),
                torch.from_numpy(codes[labelled]),
                torch.from_numpy(codes[unlabelled]),
                config.group_labels,
                exclusive=manifest.task is Task.MULTI_CLASS,
            )
        found = cls._by_id(manifest.task, manifest.table, evidence, config.group_answers)
        alone = codes.max(initial=-1) + 1 + np.arange(len(codes))
        order = np.argsort(manifest.table.index.to_numpy(), kind="stable")
        taught = torch.from_numpy(np.where(unlabelled, codes, alone)[order])
        return replace(found, taught=taught, shared_in_teaching=config.group_pseudo_labels)

    @classmethod
    def _by_id(cls, task: Task, table: pd.DataFrame, evidence: Tensor, shared: float) -> "Beside":
        ids, order = torch.from_numpy(table.index.to_numpy(dtype=np.int64, copy=True)).sort()
        groups = torch.from_numpy(pd.factorize(table["group"].to_numpy(dtype=object))[0].astype(np.int64))
        return cls(task, ids, evidence[order], groups[order], shared)

    def added(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(samples, outputs): the answers for these ids with what is known beside the images."""
        evidence = self.evidence[self._rows(ids)].to(probabilities.device)
        return functional.add_evidence(probabilities, evidence, exclusive=self._exclusive)

    def together(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(samples, outputs): the answers for all images to be judged, those of one group mixed with their mean."""
        groups = self.groups[self._rows(ids)].to(probabilities.device)
        return functional.share_answers(probabilities, groups, self.shared, exclusive=self._exclusive)

    def answers(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(samples, outputs): both, for all images to be judged."""
        return self.together(self.added(probabilities, ids), ids)

    def guesses(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(samples, outputs): what is said of a whole pool, that of a group's images mixed with their mean as their
        pseudo-labels are to be; of images that none is made for it stays as it is."""
        if self.taught is None or self.shared_in_teaching == 0:
            return probabilities
        groups = self.taught[self._rows(ids)].to(probabilities.device)
        return functional.share_answers(probabilities, groups, self.shared_in_teaching, exclusive=self._exclusive)

    @property
    def _exclusive(self) -> bool:
        return self.task is Task.MULTI_CLASS

    def _rows(self, ids: Tensor) -> Tensor:
        return torch.searchsorted(self.ids, ids.cpu())


class InSteps:
    """What is known of unlabelled images for pseudo-labels that are made in every step. It never looks at a value, so
    that a step with it can be recorded."""

    def __init__(self, beside: Beside, unlabelled: Tensor, device: torch.device) -> None:
        self._evidence = torch.zeros(int(beside.ids.max()) + 1, beside.evidence.shape[1])
        self._evidence[unlabelled] = beside.evidence[torch.searchsorted(beside.ids, unlabelled)]
        self._evidence = self._evidence.to(device)
        self._exclusive = beside.task is Task.MULTI_CLASS
        self._share = beside.shared_in_teaching
        self._numbered, self._groups = torch.zeros(len(self._evidence), dtype=torch.int64), 0
        if beside.taught is not None:
            names, numbers = torch.unique(beside.taught, return_inverse=True)
            self._numbered[beside.ids], self._groups = numbers, len(names)
        self._numbered = self._numbered.to(device)
        self.asked = self.asked_to_share = False
        """Whether the method makes such pseudo-labels; and remembers what it said."""

    def __call__(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(n, outputs): what is said of the samples with these ids, with what is known of the unlabelled ones."""
        self.asked = True
        return functional.add_evidence(probabilities, self._evidence[ids], exclusive=self._exclusive)

    def shared(self, remembered: Tensor, known: Tensor) -> Tensor:
        """(ids, outputs) by id: what is remembered, with that; of a group's unlabelled images mixed with their mean."""
        self.asked = self.asked_to_share = True
        exclusive, rows = self._exclusive, len(remembered)
        said = functional.add_evidence(remembered, self._evidence[:rows], exclusive=exclusive)
        return functional.share_known_answers(
            said, known, self._numbered[:rows], self._groups, self._share, exclusive=exclusive
        )


def of_no_use(config: Config, manifest: Manifest, roles: npt.NDArray[np.object_]) -> list[str]:
    """A sentence for each setting that can add nothing to these images."""
    found = []
    labelled, unlabelled = (set(manifest.groups[roles == role]) for role in ("labelled", "unlabelled"))
    if config.group_labels is not None and not labelled & unlabelled:
        found.append("group_labels adds nothing: nobody has both labelled and unlabelled images")
    if config.group_answers > 0 and manifest.table["group"].is_unique:
        found.append("group_answers adds nothing: no two images are of one patient or lesion")
    if config.group_pseudo_labels > 0 and len(unlabelled) == int((roles == "unlabelled").sum()):
        found.append("group_pseudo_labels adds nothing: no two unlabelled images are of one patient or lesion")
    return found


def taught_nobody(config: Config, in_steps: InSteps | None, *, between_stages: bool) -> list[str]:
    """A sentence for each setting of pseudo-labels that taught nothing, after a training that made them in its steps,
    between its stages or not at all."""
    why = f"added nothing: {config.method} made no pseudo-labels"
    found = []
    if not between_stages and (in_steps is None or not in_steps.asked):
        asked = {
            "clinical_in 'pseudo-labels'": config.clinical_in == "pseudo-labels",
            "group_labels": config.group_labels is not None,
        }
        found = [f"{name} {why}" for name in asked if asked[name]]
    if config.group_pseudo_labels > 0 and not between_stages and (in_steps is None or not in_steps.asked_to_share):
        found.append(f"group_pseudo_labels {why} between its stages")
    return found


def knows_more(card: ModelCard) -> bool:
    """Whether the model asks for more than the image."""
    return card.clinical is not None or card.group_answers > 0


def asked_for(card: ModelCard) -> str:
    """In words, what the model knows beside the image."""
    asked = [column.name for column in Clinical.of_json(card.clinical).columns] if card.clinical is not None else []
    return " and ".join([", ".join(asked)] * bool(asked) + ["whose images they are"] * (card.group_answers > 0))
