"""Work of fixed shape, recorded once and replayed: a GPU is then told of a thousand kernels in one go."""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Protocol
from weakref import WeakMethod

import torch

# Runs as written before the recording: libraries choose their kernels and the optimiser makes its state.
WARM_RUNS = 3


class Recording(Protocol):
    """Remembers what some work does to which memory, and does it again."""

    def record(self, work: Callable[[], object]) -> None:
        """Remember ``work`` without carrying it out."""
        ...

    def replay(self) -> None:
        """Do it again, on whatever its tensors hold now."""
        ...


class Repeated:
    """Work that is done many times: as it is written at first, then from a recording.

    It must read and write the same tensors each time, never look at a value, and keep what changes from one time to the
    next (counters, rates, random generators) in tensors or in ``generators``.
    """

    def __init__(self, work: Callable[[], object], recording: Recording | None) -> None:
        # A bound method is held weakly: its owner holds this, and a circle would keep a GPU's memory.
        self._work = WeakMethod(work) if isinstance(work, MethodType) else (lambda: work)
        self._recording = recording
        self._runs = 0
        self._stream: torch.cuda.Stream | None = None

    def __call__(self) -> None:
        """Do it once."""
        work = self._work()
        assert work is not None, "its owner is gone"
        if self._recording is None:
            work()
            return
        if self._runs < WARM_RUNS:
            self._run_beside(work)
        else:
            if self._runs == WARM_RUNS:
                self._recording.record(work)
            self._recording.replay()
        self._runs += 1

    def _run_beside(self, work: Callable[[], object]) -> None:
        """On a stream of its own, as CUDA wants what is recorded next to have run before; always the same one, since
        memory is kept for each."""
        if not torch.cuda.is_available():
            work()
            return
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream().wait_stream(self._stream)


class CudaRecording:
    """A CUDA graph. Recording carries nothing out."""

    def __init__(self, generators: Sequence[torch.Generator] = ()) -> None:
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)

    def record(self, work: Callable[[], object]) -> None:
        """Capture ``work`` on a stream of its own."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a recording has memory of its own, and takes none that lies unused elsewhere
        # Other threads may go on copying images meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        """Launch the graph."""
        self._graph.replay()
