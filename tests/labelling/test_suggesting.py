"""Which images to label next."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import acpl
from acpl.labelling.pool import Sight, look, open_pool
from acpl.labelling.suggesting import suggest_from
from tests.conftest import TINY


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> Sight:
    """A pool large enough to choose from."""
    run = tmp_path_factory.mktemp("runs") / "lesions"
    acpl.train(out=run, data="phantom-lesions", **{**TINY, "phantom_patients": 200, "fraction": 0.15, "stages": 1})
    return look(open_pool(run), device="cpu")


def spread(sight: Sight, rows: np.ndarray) -> float:
    """Mean distance of each image to the nearest other one of the choice."""
    unit = sight.features[rows] / sight.features[rows].norm(dim=1, keepdim=True)
    distance = 1 - unit @ unit.T
    return float(distance.fill_diagonal_(9).amin(dim=1).mean())


def test_suggestions_are_sparser_and_more_diverse_than_random_ones(sight: Sight) -> None:
    budget = 12
    chosen = suggest_from(sight, budget).rows
    rng = np.random.default_rng(0)
    random = [rng.choice(len(sight.density), budget, replace=False) for _ in range(40)]
    assert sight.density[chosen].mean() < min(sight.density[rows].mean() for rows in random)
    assert spread(sight, chosen) > np.median([spread(sight, rows) for rows in random])


def test_of_images_that_are_nearly_the_same_only_one_is_suggested() -> None:
    # Six kinds of image, of three patients each: the three sparsest are all of one kind.
    kinds = torch.eye(8)[2:].repeat_interleave(3, dim=0) + 0.001 * torch.arange(18)[:, None]
    kinds[:, 0] += torch.arange(6).repeat_interleave(3) * 0.1
    labelled = torch.eye(8)[:1]
    density = torch.nn.functional.cosine_similarity(kinds, labelled).double().numpy()
    table = pd.DataFrame({"image": [f"{n}.png" for n in range(18)], "group": [f"p{n}" for n in range(18)]})
    pool = SimpleNamespace(
        manifest=SimpleNamespace(table=table), unlabelled=np.arange(18), card=SimpleNamespace(classes=["a", "b"])
    )
    nothing = np.zeros((18, 2))
    sight = Sight(pool, kinds, labelled, nothing, nothing, np.zeros((18, 1), dtype=np.int64), density)  # type: ignore[arg-type]
    assert set(np.argsort(density)[:3] // 3) == {0}
    assert set(suggest_from(sight, 6).rows // 3) == set(range(6))


def test_no_patient_is_suggested_twice_and_no_labelled_image_at_all(sight: Sight) -> None:
    table = suggest_from(sight, 1000).table
    assert table["group"].is_unique
    pool = sight.pool
    assert len(table) == pool.manifest.table.iloc[pool.unlabelled]["group"].nunique()
    assert not set(table["id"]) & set(pool.manifest.ids[pool.labelled])


def test_the_ranks_are_those_of_the_density(sight: Sight) -> None:
    found = suggest_from(sight, 10)
    expected = [(sight.density < sight.density[row]).sum() + 1 for row in found.rows]
    assert found.table["information_rank"].tolist() == expected
    assert found.table.filter(like="probability.").sum(axis=1).to_numpy() == pytest.approx(1)


def test_the_same_run_gives_the_same_files_each_time(lesions_run: Path, tmp_path: Path) -> None:
    first = acpl.suggest(lesions_run, budget=5, out=tmp_path / "a.csv", device="cpu")
    acpl.suggest(lesions_run, budget=5, out=tmp_path / "b.csv", device="cpu")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "a.png").read_bytes() != b""
    read = pd.read_csv(tmp_path / "a.csv", dtype={"group": str})
    assert list(read.columns[:5]) == ["id", "image", "group", "density", "information_rank"]
    assert read["id"].tolist() == first["id"].tolist()
    with Image.open(tmp_path / "a.png") as sheet:
        assert sheet.width > 400


def test_nothing_is_written_over_and_a_budget_of_none_is_refused(lesions_run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("precious")
    with pytest.raises(acpl.UserError, match="exists; choose another"):
        acpl.suggest(lesions_run, out=tmp_path / "mine.csv")
    with pytest.raises(acpl.UserError, match="budget should be at least 1"):
        acpl.suggest(lesions_run, budget=0, out=tmp_path / "other.csv")
    with pytest.raises(acpl.UserError, match=r"should be a \.csv file"):
        acpl.suggest(lesions_run, out=tmp_path / "folder")


def test_a_data_set_that_has_changed_since_is_refused(lesions_run: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(lesions_run, run)
    split = pd.read_csv(run / "split.csv")
    split["image"] = split["image"] + "x"
    split.to_csv(run / "split.csv", index=False)
    with pytest.raises(acpl.UserError, match="does not hold the images"):
        acpl.suggest(run)
