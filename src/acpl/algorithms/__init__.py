"""The methods: one module each, one contract, found by name without importing any."""

from importlib import import_module
from typing import TYPE_CHECKING

from acpl.settings import unknown

if TYPE_CHECKING:
    from acpl.algorithms.contract import Method

_MODULES = {
    "acpl": ("acpl.algorithms.acpl", "ACPL"),
    "curriculum-labelling": ("acpl.algorithms.curriculum_labelling", "CurriculumLabelling"),
    "fixmatch": ("acpl.algorithms.fixmatch", "FixMatch"),
    "graph-xnet": ("acpl.algorithms.graph_xnet", "GraphXNet"),
    "mean-teacher": ("acpl.algorithms.mean_teacher", "MeanTeacher"),
    "mixmatch": ("acpl.algorithms.mixmatch", "MixMatch"),
    "mixup": ("acpl.algorithms.mixup", "MixUp"),
    "noteacher": ("acpl.algorithms.noteacher", "NoTeacher"),
    "pseudo-label": ("acpl.algorithms.pseudo_label", "PseudoLabel"),
    "self-training": ("acpl.algorithms.self_training", "SelfTraining"),
    "src-mt": ("acpl.algorithms.src_mt", "SRCMT"),
    "supervised": ("acpl.algorithms.supervised", "Supervised"),
    "tcse": ("acpl.algorithms.tcse", "TCSE"),
    "temporal-ensembling": ("acpl.algorithms.temporal_ensembling", "TemporalEnsembling"),
    "ups": ("acpl.algorithms.ups", "UPS"),
}


def names() -> list[str]:
    """Every method there is, by the name the configuration uses."""
    return sorted(_MODULES)


def find(name: str) -> "type[Method]":
    """The class behind a name; imports its module."""
    if name not in _MODULES:
        raise unknown("method", name, _MODULES)
    module, attribute = _MODULES[name]
    found: type[Method] = getattr(import_module(module), attribute)
    return found
