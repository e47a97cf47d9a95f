"""Which processes train together, and which of them this one is, as Lightning Fabric finds it in the environment."""

import logging
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from acpl.errors import UserError

PATIENCE = timedelta(minutes=10)
"""How long one exchange may take: a process that dies is found at once, one that hangs after this."""
_NEEDED = "more than one process needs Lightning Fabric: pip install 'acpl[distributed]'"
# What launchers write: how many processes they have started.
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "JSM_NAMESPACE_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True)
class Crew:
    """The processes of a run."""

    rank: int
    """This one's number among all, from 0."""
    size: int
    local_rank: int
    """This one's number on its machine, from 0."""
    devices: int
    """Processes a machine."""
    starts_others: bool
    """Whether this process is to start the others of its machine: nobody else has."""
    environment: Any
    """Fabric's word on it."""

    @property
    def nodes(self) -> int:
        """Machines."""
        return self.size // self.devices


def launched_crew() -> Crew | None:
    """The processes that a launcher (torchrun, srun and others) or a person has started; None where nobody has."""
    if not any(_number(name) > 1 for name in _SIZES):
        return None
    environment = _environment()
    if not environment.creates_processes_externally:
        return None
    plain = type(environment).__name__ == "LightningEnvironment"
    size = _number("WORLD_SIZE") if plain else environment.world_size()
    if size <= 1:
        return None
    devices = _number("LOCAL_WORLD_SIZE") or _number("SLURM_NTASKS_PER_NODE") or size
    if size % devices:
        raise UserError(f"{size} processes do not part evenly into machines of {devices}")
    local = environment.local_rank()
    rank = environment.node_rank() * devices + local if plain else environment.global_rank()
    return Crew(rank, size, local, devices, False, environment)


def own_crew(devices: int, nodes: int) -> Crew | None:
    """The processes that this one is to start on its machine, one of ``nodes``; None where it is alone."""
    if devices * nodes == 1:
        return None
    environment = plain_environment()
    if nodes > 1 and not {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"} <= os.environ.keys():
        raise UserError(
            f"nodes is {nodes}: start the same command on each machine with MASTER_ADDR and MASTER_PORT (the first "
            "machine's address and a free port there) and NODE_RANK (0, 1, …) in its environment, or let torchrun or "
            "srun start it"
        )
    node = environment.node_rank() if nodes > 1 else 0
    if node >= nodes:
        raise UserError(f"NODE_RANK is {node}, but nodes is {nodes}: it should be 0 to {nodes - 1}")
    return Crew(node * devices, nodes * devices, 0, devices, devices > 1, environment)


def check_number(devices: int, nodes: int, crew: Crew) -> None:
    """Refuse numbers that are not the launcher's; both may stay 1 where there is one."""
    if devices * nodes not in (1, crew.size):
        raise UserError(
            f"devices {devices} × nodes {nodes} make {devices * nodes} processes, but the launcher has started "
            f"{crew.size}; leave both out"
        )


def plain_environment() -> Any:
    """What Fabric finds in the variables that are set for each process by hand, or by us."""
    try:
        from lightning_fabric.plugins.environments import LightningEnvironment
    except ImportError:
        raise UserError(_NEEDED) from None
    return LightningEnvironment()


def check_batch_size(batch_size: int, size: int, what: str = "batch_size", *, even: bool = False) -> None:
    """Refuse a batch that cannot be shared out evenly, and name sizes that can; ``even``: in parts of even size."""
    if even and size > 1 and batch_size % (2 * size):
        raise UserError(
            f"cutmix pairs a batch's images, and {what} {batch_size} gives {size} processes no even number each; "
            f"{(batch_size // (2 * size) + 1) * 2 * size} does"
        )
    if batch_size % size:
        less, more = batch_size // size * size, (batch_size // size + 1) * size
        fits = f"{less} or {more} can" if less else f"{more} can"
        raise UserError(f"{what} {batch_size} cannot be shared out evenly among {size} processes; {fits}")


@contextmanager
def connected(crew: Crew) -> Iterator[None]:
    """Meet the others: torch's process group, over gloo; gone afterwards, as is what it wrote to the environment."""
    import torch
    import torch.distributed as dist
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    before, threads = dict(os.environ), torch.get_num_threads()
    # So that Fabric starts nobody: we have, and we watch over them. Its own launcher would end all without a word.
    os.environ |= {"LOCAL_RANK": str(crew.local_rank), "NODE_RANK": str(crew.rank // crew.devices)}
    os.environ["MASTER_PORT"] = str(crew.environment.main_port)
    if (interface := interface_towards(crew.environment.main_address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    strategy = DDPStrategy(process_group_backend="gloo", timeout=PATIENCE, cluster_environment=crew.environment)
    fabric = Fabric(accelerator="cpu", devices=crew.devices, num_nodes=crew.nodes, strategy=strategy)
    try:
        if dist.is_torchelastic_launched() and (attempt := _number("TORCHELASTIC_RESTART_COUNT")) > 0:
            _meet_apart_from_earlier_attempts(crew, attempt)
        fabric.launch()
        yield
    finally:
        with suppress(Exception):  # where another process is gone, leaving in order may fail
            dist.destroy_process_group()
        torch.set_num_threads(threads)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _meet_apart_from_earlier_attempts(crew: Crew, attempt: int) -> None:
    """torchrun keeps one store for all attempts: who reads too early finds the address of a process that is gone."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", crew.rank, crew.size, timeout=PATIENCE))
    own = PrefixStore(f"attempt {attempt}", store)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=size, timeout=PATIENCE)


def interface_towards(address: str) -> str | None:
    """The network interface by which this machine reaches ``address``; None where that cannot be told.

    gloo goes by the machine's name otherwise, which often leads to an address that others do not reach.
    """
    import fcntl

    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                found = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return None


def _environment() -> Any:
    try:
        from lightning_fabric.plugins.environments import (
            LightningEnvironment,
            LSFEnvironment,
            MPIEnvironment,
            SLURMEnvironment,
            TorchElasticEnvironment,
        )
    except ImportError:
        raise UserError(_NEEDED) from None

    try:
        for kind in (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment):  # Fabric's own order
            # A batch script's own process, which srun did not start, has all variables but this one.
            if kind is SLURMEnvironment and "SLURM_STEP_ID" not in os.environ:
                continue
            if kind.detect():
                return kind()
    except RuntimeError as error:
        raise UserError(f"the launcher's environment: {' '.join(str(error).split())}") from None
    return LightningEnvironment()


def _number(name: str) -> int:
    """A variable that should hold a number; 0 where it does not."""
    text = os.environ.get(name, "").split("(")[0]  # SLURM writes 4(x2)
    return int(text) if text.isdecimal() else 0
