"""The methods: one module each, one contract, found by name without importing any."""

from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import TYPE_CHECKING

from acpl.errors import UserError
from acpl.settings import unknown

if TYPE_CHECKING:
    from acpl.algorithms.contract import Method

ENTRY_POINTS = "acpl.methods"
"""Where another package names the methods it brings."""
_MODULES = {
    "acpl": ("acpl.algorithms.acpl", "ACPL"),
    "acpl-plus": ("acpl.algorithms.acpl_plus", "ACPLPlus"),
    "curriculum-labelling": ("acpl.algorithms.curriculum_labelling", "CurriculumLabelling"),
    "fixmatch": ("acpl.algorithms.fixmatch", "FixMatch"),
    "graph-xnet": ("acpl.algorithms.graph_xnet", "GraphXNet"),
    "mean-teacher": ("acpl.algorithms.mean_teacher", "MeanTeacher"),
    "mixmatch": ("acpl.algorithms.mixmatch", "MixMatch"),
    "mixup": ("acpl.algorithms.mixup", "MixUp"),
    "noteacher": ("acpl.algorithms.noteacher", "NoTeacher"),
    "pseudo-label": ("acpl.algorithms.pseudo_label", "PseudoLabel"),
    "s2mts2": ("acpl.algorithms.s2mts2", "S2MTS2"),
    "self-training": ("acpl.algorithms.self_training", "SelfTraining"),
    "src-mt": ("acpl.algorithms.src_mt", "SRCMT"),
    "ss-dcgan": ("acpl.algorithms.ss_dcgan", "SSDCGAN"),
    "supervised": ("acpl.algorithms.supervised", "Supervised"),
    "tcse": ("acpl.algorithms.tcse", "TCSE"),
    "temporal-ensembling": ("acpl.algorithms.temporal_ensembling", "TemporalEnsembling"),
    "ups": ("acpl.algorithms.ups", "UPS"),
}


def own_names() -> list[str]:
    """The methods of this package."""
    return sorted(_MODULES)


def names() -> list[str]:
    """Every method there is, by the name the configuration uses: our own, and what other packages bring."""
    return sorted({*own_names(), *(point.name for point in _brought())})


def find(name: str) -> "type[Method]":
    """The class behind a name; imports its module. A package cannot replace one of our own."""
    if name in _MODULES:
        module, attribute = _MODULES[name]
        found: type[Method] = getattr(import_module(module), attribute)
        return found
    for point in _brought():
        if point.name == name:
            try:
                brought: type[Method] = point.load()
            except Exception as error:
                raise UserError(f"method '{name}' of {point.value} cannot be imported: {error!r}") from error
            return brought
    raise unknown("method", name, names())


def edition(name: str) -> int:
    """Which edition of a method this is; one of another package that says nothing is in its first."""
    return getattr(find(name), "edition", 1)


def _brought() -> EntryPoints:
    return entry_points(group=ENTRY_POINTS)
