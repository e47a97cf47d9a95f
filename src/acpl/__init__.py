"""Accurate medical image classifiers from few labels: anti-curriculum pseudo-labelling and its rivals.

The names below are loaded when first used, so that the shell's help needs neither torch nor MONAI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acpl.api import check_data, evaluate, make_report, methods, predict, presets, train, watch
    from acpl.config import Config
    from acpl.errors import UserError
    from acpl.experiments.comparison import compare

__version__ = "0.1.0"

__all__ = [
    "Config",
    "UserError",
    "__version__",
    "check_data",
    "compare",
    "evaluate",
    "make_report",
    "methods",
    "predict",
    "presets",
    "train",
    "watch",
]

_HOME = {"Config": "acpl.config", "UserError": "acpl.errors", "compare": "acpl.experiments.comparison"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'acpl' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "acpl.api")), name)
