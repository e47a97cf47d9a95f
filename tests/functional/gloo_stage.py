"""What one of several real processes runs: a stage of its part of the rows. Called with rank, size, folder."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from tests.functional.test_groups import sample, stage
from tests.functional.threads import parts
from torch import Tensor


class Gloo:
    """The least that a group needs, by torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def sum(self, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values)
        return values

    def least(self, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MIN)
        return values

    def gather(self, rows: Tensor) -> Tensor:
        found = [torch.empty(0)] * self.size
        dist.all_gather_object(found, rows)
        return torch.cat(found)

    def pass_on(self, rows: Tensor) -> Tensor:
        found = [torch.empty(0)] * self.size
        dist.all_gather_object(found, rows)
        return found[self.rank - 1]


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    rows = sample(200, 30, 6, seed=5)
    pieces = [parts(part, cut) for part, cut in zip(rows, ([0, 120], [7, 7], [7, 7], [0, 120]), strict=True)]
    torch.save(tuple(stage(*(part[rank] for part in pieces), 5, Gloo())), folder / f"{rank}.pt")  # type: ignore[arg-type]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
