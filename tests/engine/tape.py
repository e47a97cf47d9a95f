"""A recording for tensors on any device: notes every operation and the memory it touched, and carries them out again.

The CPU's stand-in for a CUDA graph: what a step does in Python between two operations is not repeated, so that a
number which is counted there, a value that is looked at, or a tensor that is replaced shows up in the tests.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LookedAtAValueError(AssertionError):
    """Recorded work may not depend on what a tensor holds."""


class Tape:
    """Operations with the very tensors they read and wrote."""

    def __init__(self) -> None:
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self._done_by_recording = False

    def record(self, work: Callable[[], object]) -> None:
        with _Listener(self.operations):
            work()
        self._done_by_recording = True

    def replay(self) -> None:
        if self._done_by_recording:  # unlike a CUDA graph, listening carries the work out
            self._done_by_recording = False
            return
        with torch.no_grad():
            for operation, arguments, options, results in self.operations:
                again = operation(*arguments, **options)
                for before, now in zip(tree_leaves(results), tree_leaves(again), strict=True):
                    if isinstance(before, Tensor) and before.data_ptr() != now.data_ptr():
                        before.copy_(now)


class _Listener(TorchDispatchMode):
    def __init__(self, operations: list[tuple[Any, Any, Any, Any]]) -> None:
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = operation.name()
        if name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"):
            raise LookedAtAValueError(f"{name} waits for the device")
        results = operation(*arguments, **(options or {}))
        self.operations.append((operation, arguments, options or {}, results))
        return results
