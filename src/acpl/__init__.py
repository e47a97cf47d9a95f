"""Accurate medical image classifiers from few labels: anti-curriculum pseudo-labelling and its rivals.

The names below are loaded when first used, so that the shell's help needs neither torch nor MONAI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acpl.api import (
        check_data,
        evaluate,
        export,
        join,
        load,
        make_report,
        methods,
        predict,
        presets,
        review,
        suggest,
        train,
        watch,
    )
    from acpl.config import Config
    from acpl.errors import UserError
    from acpl.estimator import ACPLClassifier
    from acpl.experiments.comparison import compare
    from acpl.experiments.reproduce.reproduction import reproduce
    from acpl.machine import doctor

__version__ = "0.1.0"

__all__ = [
    "ACPLClassifier",
    "Config",
    "UserError",
    "__version__",
    "check_data",
    "compare",
    "doctor",
    "evaluate",
    "export",
    "join",
    "load",
    "make_report",
    "methods",
    "predict",
    "presets",
    "reproduce",
    "review",
    "suggest",
    "train",
    "watch",
]

_HOME = {
    "ACPLClassifier": "acpl.estimator",
    "Config": "acpl.config",
    "UserError": "acpl.errors",
    "compare": "acpl.experiments.comparison",
    "doctor": "acpl.machine",
    "reproduce": "acpl.experiments.reproduce.reproduction",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'acpl' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "acpl.api")), name)
