"""Where and how exactly to compute."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from acpl.engine.memory import keep_freed_memory
from acpl.engine.threads import fit_threads
from acpl.errors import UserError


@dataclass(frozen=True)
class Device:
    """A device, and whether its networks run in bfloat16 where that is safe."""

    torch: torch.device
    mixed: bool

    @classmethod
    def choose(cls, name: str, precision: str, local_rank: int | None = None) -> "Device":
        """``auto`` takes the GPU where there is one, and mixed precision there.

        On a CPU threads fit the quota, and memory that is freed stays with the process.

        ``local_rank`` is this process's number on its machine where there are several: each takes a GPU of its own.
        """
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and local_rank is not None:
            # A scheduler may show each process its own GPU alone.
            name = f"cuda:{0 if torch.cuda.device_count() == 1 else local_rank}"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise UserError(f"device should be auto, cpu, cuda or cuda:N, but it is {name!r}") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(f"device {name} was asked for, but torch sees no GPU here")
        if device.type == "cpu":
            fit_threads()
            keep_freed_memory()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams, graphs and Triton go by the current one
        mixed = precision == "bf16-mixed" or (precision == "auto" and device.type == "cuda")
        return cls(device, mixed)

    @classmethod
    def check_several(cls, name: str, processes: int) -> None:
        """Refuse a device that so many processes of one machine cannot have one each of."""
        if name.startswith("cuda:"):
            raise UserError(f"device {name} is one GPU; several processes take one each: say cuda, or devices 1")
        cls.choose(name, "auto")
        gpus = torch.cuda.device_count() if name in ("auto", "cuda") and torch.cuda.is_available() else 0
        bound = gpus == 1 and "SLURM_LOCALID" in os.environ
        if 0 < gpus < processes and not bound:
            raise UserError(f"{processes} processes a machine were asked for, but it has {gpus} GPU; each needs one")

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Forward passes within run in the chosen precision."""
        # No cache: weights that were cast in a pass without gradients would be without them in the next one, too.
        with torch.autocast(self.torch.type, dtype=torch.bfloat16, enabled=self.mixed, cache_enabled=False):
            yield


def seed_everything(*numbers: int) -> int:
    """Seed torch's global generators from ``numbers``, and return another seed for the order and the augmentation.

    Called at each epoch with the run's seed, the stage and the epoch: what is random in an epoch depends on
    where it is in the run and on nothing that went before.
    """
    mixed = 0
    for number in numbers:
        mixed = (mixed * 1_000_003 + number + 1) % (2**62)
    torch.manual_seed(mixed)
    return mixed ^ 0x5EED
