"""A step that does not fit on the card: the sentence names a batch size, and that one fits. Skipped without a GPU."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.conftest import TINY

import acpl
from acpl.errors import UserError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ALLOWED = 4 * 2**30


@pytest.fixture
def little_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(ALLOWED / torch.cuda.get_device_properties(0).total_memory)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("method", ["supervised", "acpl", "fixmatch"])
def test_the_batch_size_that_is_named_fits(method: str, tmp_path: Path, little_memory: None) -> None:
    settings = {
        **TINY,
        "device": "cuda",
        "size": 128,
        "backbone": "densenet121",
        "method": method,
        "k": 3 if method == "acpl" else None,
    }
    with pytest.raises(
        UserError, match=r"has too little memory for batch_size 1024 .* batch_size \d+ would fit"
    ) as said:
        acpl.train(out=tmp_path / "large", batch_size=1024, **settings)
    found = re.search(r"batch_size (\d+) would fit", str(said.value))
    assert found is not None
    assert int(found[1]) < 1024
    acpl.train(out=tmp_path / "fits", batch_size=int(found[1]), **settings)
