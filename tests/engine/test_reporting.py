"""What the page is made of: gathered from real runs, and held against the files it is gathered from."""

import base64
import importlib.util
import json
import shutil
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.stats import norm
from tests.conftest import TINY

import acpl
from acpl.data.sources.phantoms import PhantomSource
from acpl.data.store import ImageStore
from acpl.engine.feature_sample import SAMPLE, FeatureSample, NoMap, principal_components
from acpl.engine.judged_figures import (
    confusion_counts,
    describing_columns,
    subgroups,
    worst_mistakes,
    wrong_company,
)
from acpl.engine.monitor import Quiet
from acpl.engine.pictures import SIDE, thumbnails
from acpl.engine.reporting import gather_again, keep, keep_features
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.selection_cards import CARDS, within_limit
from acpl.engine.selection_figures import _two_dimensions, selection_figures
from acpl.report import write_report


def gathered(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "report" / name).read_text())
    return found["found"] if name == "selection.json" else found


def stage(run: Path, number: int) -> pd.DataFrame:
    return pd.read_parquet(run / "stages" / f"{number:02d}.parquet")


def test_the_histogram_counts_every_candidate_at_its_level(chest_run: Path) -> None:
    for found in gathered(chest_run, "selection.json")["stages"]:
        table = stage(chest_run, found["stage"])
        assert found["candidates"] == len(table)
        assert found["selected"] == table["selected"].sum()
        levels = [sum(counts) for counts in found["density"]["counts"]]
        assert levels == [int((table["information"] == level).sum()) for level in range(3)]


def test_the_components_are_the_mixture_that_the_levels_were_read_from(lesions_run: Path) -> None:
    for found in gathered(lesions_run, "selection.json")["stages"]:
        table, parts = stage(lesions_run, found["stage"]), found["density"]["components"]
        assert sum(part["weight"] for part in parts) == pytest.approx(1)
        assert [part["mean"] for part in parts] == sorted((part["mean"] for part in parts), reverse=True)
        d = table["density"].to_numpy()
        likely = np.stack([part["weight"] * norm.pdf(d, part["mean"], part["sd"]) for part in parts])
        assert (likely.argmax(axis=0) == table["information"]).mean() > 0.95


def test_pseudo_labels_are_held_against_the_truth_that_training_never_saw(lesions_run: Path) -> None:
    manifest = PhantomSource("phantom-lesions", 60, 32).manifest()
    truth = dict(zip(manifest.ids, manifest.labels, strict=True))
    names = list(manifest.classes)
    for found in gathered(lesions_run, "selection.json")["stages"]:
        table = stage(lesions_run, found["stage"])
        chosen = table[table["selected"]]
        said = chosen[[f"pseudo_label.{name}" for name in names]].to_numpy().argmax(axis=1)
        right = [truth[n].argmax() == s for n, s in zip(chosen["id"], said, strict=True)]
        assert (found["judged"], found["right"]) == (len(chosen), sum(right))
        assert found["balance"]["measure"] == "truth"
        pool = np.stack([truth[n] for n in table["id"]])
        assert found["balance"]["pool"] == pytest.approx(pool.mean(axis=0), abs=1e-4)


def test_mistakes_that_phantoms_are_taught_with_are_not_taken_for_the_truth(tmp_path: Path) -> None:
    """The pool is judged by what the images show; what training was given is known as it was given."""
    run = acpl.train(out=tmp_path / "run", data="phantom-lesions", **{**TINY, "phantom_errors": 0.5})
    found = gathered(run, "selection.json")
    right, taught = (PhantomSource("phantom-lesions", 60, 32, errors=errors).manifest() for errors in (0.0, 0.5))
    assert (right.labels != taught.labels).any()
    table = stage(run, 1)
    pool = right.labels[np.isin(right.ids, table["id"])]
    assert found["stages"][0]["balance"]["pool"] == pytest.approx(pool.mean(axis=0), abs=1e-4)
    split = pd.read_csv(run / "split.csv")
    given = taught.labels[np.isin(taught.ids, split.loc[split["role"] == "labelled", "id"])]
    assert found["labelled"] == pytest.approx(given.mean(axis=0), abs=1e-4)
    (run / "report" / "selection.json").unlink()
    assert gather_again(run) is None
    assert gathered(run, "selection.json") == found


def test_a_card_shows_what_the_stage_file_says_and_its_nearest_anchors(chest_run: Path) -> None:
    found = gathered(chest_run, "selection.json")
    split = pd.read_csv(chest_run / "split.csv").set_index("id")
    labelled = set(split.index[split["role"] == "labelled"])
    assert found["cards"]
    for card in found["cards"]:
        row = stage(chest_run, card["stage"]).set_index("id").loc[card["id"]]
        assert row["selected"]
        assert card["name"] == split.loc[card["id"], "image"]
        assert card["density"] == pytest.approx(row["density"], abs=1e-4)
        for place, model, neighbours, label in card["rows"]:
            name = found["classes"][place]
            expected = [row[f"{kind}.{name}"] for kind in ("model", "neighbours", "pseudo_label")]
            assert [model, neighbours, label] == pytest.approx(expected, abs=1e-3)
        assert [anchor["id"] for anchor in card["anchors"]] == [row[f"nearest_{n}"] for n in (1, 2, 3)]
        joined = {
            int(number)
            for before in range(1, card["stage"])
            for number in stage(chest_run, before).query("joined_anchors")["id"]
        }
        assert {anchor["id"] for anchor in card["anchors"]} <= labelled | joined
        assert all(anchor["given"] == (anchor["id"] in labelled) for anchor in card["anchors"])
        assert str(card["id"]) in found["pictures"]


def test_the_most_informative_cards_are_the_sparsest_and_the_least_the_densest(chest_run: Path) -> None:
    cards = gathered(chest_run, "selection.json")["cards"]
    table = stage(chest_run, 1).query("selected")
    first = {
        kind: next(c for c in cards if c["stage"] == 1 and c["rank"].get(kind) == 0)
        for kind in ("informative", "typical")
    }
    assert first["informative"]["id"] == table.loc[table["density"].idxmin(), "id"]
    assert first["typical"]["id"] == table.loc[table["density"].idxmax(), "id"]


def test_too_many_cards_are_cut_to_those_that_stand_first() -> None:
    cards = [{"id": n, "rank": {"informative": n % 50}} for n in range(200)]
    assert [card["rank"]["informative"] for card in within_limit(cards, 8)] == [0, 1] * 4
    assert within_limit(cards, 500) == cards


def test_a_picture_is_small_and_is_the_image() -> None:
    pixels = torch.zeros(1, 1, 300, 200, dtype=torch.uint8)
    pixels[:, :, 150:] = 255
    square = torch.nn.functional.interpolate(pixels.float(), size=(300, 300)).byte()
    encoded = thumbnails(ImageStore(torch.tensor([7]), square), [7, 7])
    assert list(encoded) == ["7"]
    image = Image.open(BytesIO(base64.b64decode(encoded["7"]))).convert("L")
    assert image.size == (SIDE, SIDE)
    assert image.getpixel((5, 5)) < 20
    assert image.getpixel((5, SIDE - 5)) > 235


def test_a_sample_of_features_is_no_larger_whatever_the_pool() -> None:
    seen = FeatureSample()
    seen.note(torch.arange(20_000), torch.randn(20_000, 8))
    seen.note(torch.arange(20_000, 20_100), torch.randn(100, 8))
    table = seen.table()
    assert table is not None
    assert len(table) == SAMPLE + 100
    assert FeatureSample().table() is None


def test_principal_components_are_scikit_learns_on_unit_vectors() -> None:
    from sklearn.decomposition import PCA

    features = torch.randn(200, 12, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 13)
    unit = torch.nn.functional.normalize(features.double(), dim=1).numpy()
    ours, theirs = principal_components(features, 3).numpy(), PCA(3).fit_transform(unit)
    assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-5)
    assert torch.equal(principal_components(features), principal_components(features))


def test_looking_keeps_the_run_as_it_is(chest_run: Path) -> None:
    seen = pd.read_parquet(chest_run / "report" / "features-01.parquet")
    table = stage(chest_run, 1)
    assert set(table["id"]) <= set(seen["id"])
    found = gathered(chest_run, "selection.json")["stages"][0]["map"]["points"]
    assert len(found["selected"]) == table["selected"].sum()
    assert len(found["rest"]) == (~table["selected"]).sum()
    assert found["joined"] == []


def card(classes: int, task: str = "multi-label", thresholds: list[float] | None = None) -> ModelCard:
    names = [f"c{place}" for place in range(classes)]
    return ModelCard(task, names, "small", "relu", 1, 32, [0.5], [0.2], None, False, thresholds)


def table(images: int, **columns: Any) -> pd.DataFrame:
    ids = range(100, 100 + images)
    names = [f"image-{n}.png" for n in ids]
    return pd.DataFrame({"image": names, "group": [str(n) for n in ids], **columns}, index=pd.Index(ids))


def test_the_judges_numbers_are_those_of_the_predictions(chest_run: Path) -> None:
    shown, table = gathered(chest_run, "judged.json"), pd.read_csv(chest_run / "predictions.csv")
    for place, name in enumerate(shown["classes"]):
        has, called = table[f"truth.{name}"] == 1, table[f"decision.{name}"] == 1
        at = shown["at"][place]
        assert at["prevalence"] == pytest.approx(has.mean())
        if has.any():
            assert at["sensitivity"] == pytest.approx(called[has].mean(), abs=1e-4)
            assert shown["taken_for"]["counts"][place][place] == (has & ~called).sum()
        assert (shown["roc"][place] is None) == (has.nunique() < 2)
    assert {mistake["id"] for mistake in shown["mistakes"]} == set(map(int, shown["pictures"]))
    by_id = table.set_index("id")
    for mistake in shown["mistakes"]:
        name, row = shown["classes"][mistake["class"]], by_id.loc[mistake["id"]]
        assert row[f"truth.{name}"] == (mistake["kind"] == "miss")
        assert row[f"decision.{name}"] != row[f"truth.{name}"]


def test_confusion_counts_are_by_true_class_and_called_class() -> None:
    truth = np.eye(3)[[0, 0, 1, 2]]
    called = np.eye(3, dtype=bool)[[0, 1, 1, 0]]
    assert confusion_counts(truth, called)["counts"] == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_wrong_company_counts_what_is_called_beside_a_finding() -> None:
    truth = np.array([[1, 0], [1, 0], [1, 1], [0, 0], [0, 1]], dtype=float)
    called = np.array([[1, 1], [0, 1], [1, 1], [0, 1], [0, 0]], dtype=bool)
    found = wrong_company(truth, called)
    assert found["counts"] == [[1, 2], [0, 1], [0, 1]]
    assert found["of"] == [[3, 2], [1, 2], [1, 1]]


def test_the_worst_mistakes_are_the_surest_ones_one_a_patient() -> None:
    truth = np.array([[0], [0], [0], [1], [1]], dtype=float)
    score = np.array([[0.9], [0.95], [0.6], [0.1], [0.7]])
    about = table(5)
    about.loc[100, "group"] = about.loc[101, "group"]
    found = worst_mistakes(card(1, thresholds=[0.5]), about, truth, score, score >= 0.5)
    assert [(m["kind"], m["id"]) for m in found] == [("alarm", 101), ("alarm", 102), ("miss", 103)]


def test_subgroups_are_judged_over_the_classes_that_all_of_them_have() -> None:
    rng = np.random.default_rng(0)
    truth = np.tile([[1.0, 1.0], [0.0, 0.0]], (60, 1))
    truth[:60, 1] = 0.0  # class 1 has no positives among the first half
    score = np.clip(truth * 0.5 + rng.random(truth.shape) * 0.5, 0, 1)
    about = table(120, Sex=["F"] * 60 + ["M"] * 60, site=["one"] * 119 + ["rare"])
    found = subgroups(about, truth, score, resamples=20)
    assert [kind["by"] for kind in found] == ["sex"]  # one site is no comparison
    assert found[0]["classes"] == 1
    assert [row["name"] for row in found[0]["rows"]] == ["F", "M"]
    assert all(row["low"] <= row["auroc"] <= row["high"] for row in found[0]["rows"])


def test_ages_are_put_into_spans_also_as_dicom_writes_them() -> None:
    truth = np.tile([[1.0], [0.0]], (60, 1))
    about = table(120, **{"Patient Age": ["019Y"] * 40 + ["45"] * 40 + ["88.0"] * 38 + ["", "unknown"]})
    found = subgroups(about, truth, truth * 0.8 + 0.1, resamples=5)
    assert [(row["name"], row["images"]) for row in found[0]["rows"]] == [
        ("0–19", 40),
        ("40–59", 40),
        ("80 and over", 38),
    ]


def test_describing_columns_are_found_by_their_names() -> None:
    assert describing_columns(["image", "Patient Gender", "age", "Hospital"]) == {
        "sex": "Patient Gender",
        "age": "age",
        "site": "Hospital",
    }
    assert describing_columns(["image", "message", "page"]) == {}


@pytest.mark.slow
def test_the_page_stays_small_whatever_the_pool_holds(tmp_path: Path) -> None:
    """Pictures of noise are the worst that can be packed; `benchmarks/report.py` measures 100,000 of them."""
    place = Path(__file__).parents[2] / "benchmarks" / "report.py"
    specification = importlib.util.spec_from_file_location("report_benchmark", place)
    assert specification is not None
    assert specification.loader is not None
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    dataset = benchmark.make_run(folder, 6000)
    found = selection_figures(folder, dataset, dataset.manifest, folder.config())
    assert found is not None
    assert len(found["cards"]) == CARDS  # as many as a page may have
    keep(folder, "selection.json", {"found": found})
    assert write_report(folder.path).stat().st_size < 15e6


class Damages(Quiet):
    """Writes junk over files of the run when its last stage begins, and remembers what is said."""

    def __init__(self, run: Path, *names: str) -> None:
        self.run, self.names = run, names
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        if stage == "stage 2":
            for name in self.names:
                assert (self.run / name).exists()
                (self.run / name).write_bytes(b"junk")


def test_files_that_are_damaged_while_it_trains_cost_their_part_of_the_report_and_no_model(
    chest_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    files = ("stages/01.parquet", "report/features-02.parquet", "warm-up.safetensors")
    monitor = Damages(run, *files)
    acpl.train(out=run, data="phantom-chest", monitor=monitor, **TINY)
    said = [line for line in monitor.said if line.startswith(("left out", "put aside"))]
    table, features, weights = (f"{run / name} is damaged: " for name in files)
    assert [line.partition("damaged: ")[0] + "damaged: " for line in said] == [
        f"put aside: {weights}",
        f"left out of the report: {table}",
        f"left out of the report: {features}",
    ]
    found = gathered(run, "selection.json")
    assert [shown["stage"] for shown in found["stages"]] == [2]
    assert found["stages"][0]["map"] is None
    assert found["stages"][0]["density"] == gathered(chest_run, "selection.json")["stages"][1]["density"]
    page = (run / "report.html").read_text()
    for start in (table, features):
        assert f"Left out of this page: {start}" in page
    assert not (run / "warm-up.safetensors").exists()
    assert (run / "warm-up.broken").read_bytes() == b"junk"
    assert RunFolder(run).card().snapshot_thresholds == {}
    assert "snapshots" not in acpl.evaluate(run, resamples=5)


def test_a_report_of_damaged_files_is_gathered_again_as_far_as_it_can_be(chest_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(chest_run, tmp_path / "run"))
    whole = (run / "report" / "selection.json").read_bytes()
    for damage in (b'{"found":', b"[]", b"\xff"):
        (run / "report" / "selection.json").write_bytes(damage)
        assert gather_again(run) is None
        assert (run / "report" / "selection.json").read_bytes() == whole
    (run / "stages" / "02.parquet").write_bytes(b"junk")
    (run / "report" / "selection.json").unlink()
    page = acpl.make_report(run).read_text()
    assert f"Left out of this page: {run / 'stages' / '02.parquet'} is damaged: " in page
    assert [shown["stage"] for shown in gathered(run, "selection.json")["stages"]] == [1]


def test_a_stage_s_table_that_is_damaged_is_named_where_it_is_needed(chest_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(chest_run, tmp_path / "run"))
    assert RunFolder(run).stage_numbers() == [1, 2]
    (run / "stages" / "01.parquet").write_bytes(b"junk")
    (run / "stages" / "notes.parquet").write_bytes(b"of a person")
    assert RunFolder(run).stage_numbers() == [1, 2]
    with pytest.raises(acpl.UserError, match=r"stages/01\.parquet is damaged: "):
        acpl.review(run)


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (torch.rand(2, 8), "2 images with 8 features are too few"),
        (torch.rand(9, 1), "9 images with 1 features are too few"),
        (torch.full((9, 8), torch.nan), "some features are no numbers"),
    ],
)
def test_a_map_that_cannot_be_drawn_says_why(features: torch.Tensor, reason: str, tmp_path: Path) -> None:
    seen = FeatureSample()
    seen.note(torch.arange(len(features)), features)
    with pytest.raises(NoMap, match=reason):
        seen.table()
    assert keep_features(RunFolder(tmp_path), 3, seen) == f"no map of the features before stage 3: {reason}"
    assert not (tmp_path / "report").exists()
    assert keep_features(RunFolder(tmp_path), 3, FeatureSample()) is None  # nothing was looked at


def unconverged(features: torch.Tensor, components: int = 2) -> torch.Tensor:
    raise torch.linalg.LinAlgError("the algorithm failed to converge")


def test_training_goes_on_without_a_map_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpl.engine.feature_sample.principal_components", unconverged)
    run = tmp_path / "run"
    monitor = Damages(run)
    acpl.train(out=run, data="phantom-chest", monitor=monitor, **{**TINY, "stages": 1})
    sentence = "no map of the features before stage 1: the directions that vary most were not found"
    assert sentence in monitor.said
    assert not list((run / "report").glob("features-*"))
    assert (run / "model.safetensors").exists()
    assert f"Left out of this page: {sentence}" in (run / "report.html").read_text()


def test_a_map_that_umap_cannot_draw_is_drawn_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def __init__(self, random_state: int) -> None: ...

        def fit_transform(self, components: np.ndarray) -> np.ndarray:
            return np.full((len(components), 2), np.nan)

    class Refuses(Lost):
        def fit_transform(self, components: np.ndarray) -> np.ndarray:
            raise TypeError("k must be less than the number of samples")

    class Finds(Lost):
        def fit_transform(self, components: np.ndarray) -> np.ndarray:
            return components[:, :2] + 1

    components = np.random.default_rng(0).random((6, 4))
    for kind, how, added in ((Lost, "PCA", 0), (Refuses, "PCA", 0), (Finds, "UMAP", 1)):
        monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=kind))
        name, places = _two_dimensions(components)
        assert name == how
        assert np.array_equal(places, components[:, :2] + added)
