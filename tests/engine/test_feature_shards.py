"""Rows in files are the rows that were written, and the files do not outlive them."""

import gc
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.conftest import TINY

import acpl
from acpl import functional
from acpl.algorithms.contract import Views
from acpl.algorithms.surroundings import surroundings
from acpl.engine import feature_shards, inference
from acpl.engine.feature_shards import RowsWriter, stored
from acpl.functional.group import ALONE


@settings(deadline=None, max_examples=30)
@given(
    batches=st.lists(st.integers(0, 9), max_size=6), width=st.integers(1, 3), most=st.integers(1, 40), data=st.data()
)
def test_rows_come_back_as_they_were_written(
    batches: list[int], width: int, most: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = RowsWriter(tmp_path_factory.mktemp("rows"), "some", width, shard_bytes=most)
    whole = torch.randn(sum(batches), width, generator=torch.Generator().manual_seed(0))
    for batch in whole.split(batches) if batches else ():
        writer.add(batch)
    found = writer.rows()
    assert (len(found), found.shape) == (len(whole), whole.shape)
    assert torch.equal(found[:], whole)
    start, stop = (data.draw(st.integers(0, len(whole))) for _ in range(2))
    assert torch.equal(found[start:stop], whole[start:stop])
    assert torch.equal(found[::2], whole[::2])
    if len(whole):
        some = torch.tensor(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)), dtype=torch.int64)
        assert torch.equal(found[some], whole[some])


def views(rows: int, seed: int) -> Views:
    generator = torch.Generator().manual_seed(seed)
    return Views(torch.randn(rows, 5, generator=generator), torch.rand(rows, 2, generator=generator))


def test_files_go_with_the_last_rows_that_need_them(tmp_path: Path) -> None:
    features, probabilities = stored([views(4, 0), views(4, 1)], 7, tmp_path)  # the last batch was filled up
    expected = torch.cat([views(4, 0).features, views(4, 1).features])[:7]
    assert torch.equal(features[:], expected)
    assert probabilities.shape == (7, 2)
    del features
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    del probabilities
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_look_that_fails_leaves_no_files(tmp_path: Path) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield views(4, 0)
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        stored(broken(), 8, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_stage_over_files_is_the_stage_over_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = views(300, 0)
    anchors, labels = views(40, 1)
    rows = stored([batch], 300, tmp_path).features
    expected = surroundings(batch.features, anchors, labels, 6, ALONE)
    monkeypatch.setattr("acpl.algorithms.surroundings._BLOCK_BYTES", 4000)
    monkeypatch.setattr("acpl.algorithms.surroundings._KEPT_BYTES", 0)
    found = surroundings(rows, anchors, labels, 6, ALONE)
    for name in ("density", "labels", "nearest"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    chosen = torch.arange(0, 300, 3)
    similarity, forward, backward = functional.mutual_nearest(batch.features, anchors, 6)
    assert torch.equal(expected.density, functional.density(similarity))
    wanted = functional.connections(forward[chosen], backward, chosen)
    assert torch.equal(found.connections(chosen), wanted)
    assert torch.equal(expected.connections(chosen), wanted)


def test_only_what_takes_too_much_of_the_memory_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_shards, "free_memory", lambda device: 4000)
    assert not feature_shards.is_too_large(10, 25, torch.device("cpu"))
    assert feature_shards.is_too_large(11, 25, torch.device("cpu"))
    monkeypatch.setattr(feature_shards, "free_memory", lambda device: None)
    assert not feature_shards.is_too_large(10**12, 25, torch.device("cpu"))
    assert inference.is_too_large is feature_shards.is_too_large


def test_a_run_whose_pools_are_stored_is_the_same_run(
    chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(inference, "is_too_large", lambda *_: looks.append(1) or True)
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
    assert looks
    assert (run / "split.csv").read_bytes() == (chest_run / "split.csv").read_bytes()
    first, second = load_file(chest_run / "model.safetensors"), load_file(run / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not list(run.glob(".features-*"))
