"""What happens between two stages is the same however many processes share the pools."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from acpl.algorithms import acpl, surroundings
from acpl.errors import UserError
from acpl.functional.group import ALONE, Group
from acpl.task import Task
from tests.algorithms.method_tester import World
from tests.functional.threads import in_group

BUILDING = threading.Lock()  # weights are drawn from the one generator of all threads


def moved(method: str, group: Group, task: Task = Task.MULTI_LABEL, **settings: Any) -> dict[str, Tensor]:
    """The pools, what was said of whom, and the record, after the selection before stage 1."""
    with BUILDING:
        world = World(method, task, group=group, **settings)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    state = {f"pools.{name}": values for name, values in world.pools.state_dict().items()}
    if "targets" in world.method.state_dict():
        state["targets"] = world.method.state_dict()["targets"]
    return state | dict(record.candidates) | {name: torch.tensor(value) for name, value in record.summary.items()}


def same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=0, atol=0, equal_nan=True, msg=name)
    return True


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("acpl", {"k": 4}),
        ("acpl", {"k": 4, "density": "min-max", "high_component": "minimum", "features_from": "averaged"}),
        ("acpl", {"k": 50, "pseudo_label": "random-weight", "purification": False}),
        ("acpl-plus", {}),
        ("acpl-plus", {"centre": True, "relabel": True}),
        ("graph-xnet", {"k": 3}),
    ],
)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_process_moves_the_samples_that_one_would(method: str, settings: dict[str, Any], size: int) -> None:
    expected = moved(method, ALONE, **settings)
    for found in in_group(size, lambda group: moved(method, group, **settings)):
        assert same(found, expected)


@pytest.mark.parametrize("size", [1, 3])
def test_pools_too_large_for_memory_in_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = moved("acpl", ALONE, k=4)
    monkeypatch.setattr(surroundings, "_BLOCK_BYTES", 500)
    monkeypatch.setattr(surroundings, "_KEPT_BYTES", 0)
    for found in in_group(size, lambda group: moved("acpl", group, k=4)):
        assert same(found, expected)


@pytest.mark.parametrize("size", [1, 3])
def test_of_large_pools_evenly_spread_samples_are_recorded(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = moved("acpl", ALONE, k=4)
    monkeypatch.setattr(acpl, "RECORDED", 15)
    for found in in_group(size, lambda group: moved("acpl", group, k=4)):
        assert torch.equal(found["id"], whole["id"][::3])
        assert torch.equal(found["density"], whole["density"][::3])
        assert torch.equal(found["pools.selected"], whole["pools.selected"])


def test_an_inverted_file_says_how_near_it_came() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed: pip install 'acpl[faiss]'")
    expected, found = moved("acpl", ALONE, k=4), moved("acpl", ALONE, k=4, neighbours_by="ivf")
    assert (found.pop("recall"), found.pop("changed")) == (1, 0)  # so few anchors have one cell
    assert same(found, expected)
    for other in in_group(3, lambda group: moved("acpl", group, k=4, neighbours_by="ivf")):
        assert (other.pop("recall"), other.pop("changed")) == (1, 0)
        assert same(other, expected)


def test_without_faiss_the_inverted_file_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acpl, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"neighbours_by 'ivf' needs the package faiss-cpu: pip install 'acpl\[faiss\]'"
    ):
        acpl.ACPLSettings.parse({"neighbours_by": "ivf"})
