"""Spreading labels over many images never holds an n × n matrix."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from acpl import functional

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

torch.set_num_threads(1)
features = torch.randn(20_000, 8, generator=torch.Generator().manual_seed(0))
seeds = torch.zeros(20_000, 4)
seeds[:4] = torch.eye(4)
functional.spread(functional.affinity(features[:100], 2), seeds[:100])
before = peak()
reached = functional.spread(functional.affinity(features, 10), seeds)
assert (reached.sum(dim=1) > 0).float().mean() > 0.9
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="asks the system for the peak of its memory")
def test_twenty_thousand_images_take_a_fraction_of_the_dense_matrix() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    dense = 4 * 20_000**2
    assert int(done.stdout) < dense / 3
