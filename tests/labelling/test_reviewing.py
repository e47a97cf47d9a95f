"""Queue, decisions and the table of labels, without a server."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import acpl
from acpl.labelling.pool import look, open_pool
from acpl.labelling.queue import build_queue, pseudo_labels
from tests.labelling.conftest import HOSTILE

QUICK = {"size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 1, "stage_epochs": 1, "k": 3, "device": "cpu"}


def table_of(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "reviewed.csv", dtype=str, keep_default_na=False).set_index("image")


def test_the_table_begins_as_the_original_one_with_parts(files_run: Path, file_data: Path) -> None:
    acpl.review(files_run).server_close()
    table, original = table_of(files_run), pd.read_csv(file_data / "labels.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == ["group", "split", "sex", "Mass", HOSTILE]
    assert table["Mass"].tolist() == original["Mass"].tolist()
    assert table["split"].tolist() == original["split"].tolist()


def test_a_decision_is_in_the_table_and_an_undone_one_is_not(files_run: Path) -> None:
    review = acpl.review(files_run)
    first, second = review.queue[:2]
    assert review.decisions.decide(first.id, ["Mass", HOSTILE]).labels == ("Mass", HOSTILE)
    review.decisions.decide(second.id, [])
    table = table_of(files_run)
    assert table.loc[first.image, ["Mass", HOSTILE]].tolist() == ["1", "1"]
    assert table.loc[second.image, ["Mass", HOSTILE]].tolist() == ["0", "0"]
    assert review.decisions.undo() == second.id
    assert table_of(files_run).loc[second.image, ["Mass", HOSTILE]].tolist() == ["", ""]
    review.decisions.decide(first.id, ["Mass"])
    review.decisions.undo()
    assert table_of(files_run).loc[first.image, ["Mass", HOSTILE]].tolist() == ["1", "1"]
    review.server_close()


def test_the_next_session_goes_on_where_the_last_one_stopped(files_run: Path) -> None:
    with acpl.review(files_run) as review:
        item = review.queue[0]
        review.decisions.decide(item.id, ["Mass"])
        review.decisions.decide(review.queue[1].id, ["Mass"])
        review.decisions.undo()
    log = files_run / "reviewed.decisions.csv"
    with log.open("a") as file:
        file.write("2026-01-01,3,torn")  # a crash in the middle of a write
    with acpl.review(files_run) as again:
        assert {key: found.labels for key, found in again.decisions.current.items()} == {item.id: ("Mass",)}
        assert again.decisions.undo() == item.id
    assert log.read_text().count("\n") == 5


def test_accepting_and_correcting_are_told_apart(files_run: Path) -> None:
    with acpl.review(files_run) as review:
        item = review.queue[0]
        proposed = [review.classes[place] for place in item.proposal]
        other = [name for name in review.classes if name not in proposed]
        assert review.decisions.decide(item.id, proposed).action == "accepted"
        assert review.decisions.decide(item.id, other).action == "corrected"


def test_what_cannot_be_is_refused(files_run: Path, lesions_run: Path, tmp_path: Path) -> None:
    with acpl.review(files_run) as review:
        with pytest.raises(ValueError, match="no image of this review"):
            review.decisions.decide(10**6, [])
        with pytest.raises(ValueError, match="no class"):
            review.decisions.decide(review.queue[0].id, ["Nodule"])
    with acpl.review(lesions_run, out=tmp_path / "lesions.csv") as review:
        for labels in ([], review.classes[:2]):
            with pytest.raises(ValueError, match="exactly one class"):
                review.decisions.decide(review.queue[0].id, labels)
    (tmp_path / "mine.csv").write_text("precious")
    with pytest.raises(acpl.UserError, match="not of a review"):
        acpl.review(files_run, out=tmp_path / "mine.csv")
    with pytest.raises(acpl.UserError, match="order should be"):
        acpl.review(files_run, order="random")  # type: ignore[arg-type]


def test_two_sessions_never_write_to_the_same_files(files_run: Path, tmp_path: Path) -> None:
    with acpl.review(files_run):
        with pytest.raises(acpl.UserError, match="another review is writing to"):
            acpl.review(files_run)
        acpl.review(files_run, out=tmp_path / "mine.csv").server_close()
    acpl.review(files_run).server_close()


def test_a_log_of_another_run_is_refused(files_run: Path) -> None:
    row = ["2026-01-01T00:00:00+00:00", "1", "another.png", "accepted", json.dumps(["Mass"])]
    log = files_run / "reviewed.decisions.csv"
    log.write_text("time,id,image,action,labels\n" + ",".join(row[:4]) + ',"[""Mass""]"\n')
    with pytest.raises(acpl.UserError, match="row 2 is no decision about this run"):
        acpl.review(files_run)


def test_suggested_images_come_first_then_pseudo_labelled_ones_by_disagreement(files_run: Path) -> None:
    sight = look(open_pool(files_run), device="cpu")
    plain = build_queue(sight, order="disagreement")
    pool = sight.pool
    given = pseudo_labels(pool.folder, pool.card, pool.manifest.ids[pool.unlabelled])[1] > 0
    assert [item.origin != "model" for item in plain] == sorted(given, reverse=True)
    gaps = [max(abs(a - b) for a, b in zip(item.model, item.neighbours, strict=True)) for item in plain[: given.sum()]]
    assert gaps == pytest.approx(sorted(gaps, reverse=True), abs=1e-3)
    suggested = acpl.suggest(files_run, budget=3, device="cpu")["id"].tolist()
    queue = build_queue(sight)
    assert [item.id for item in queue[:3]] == suggested
    assert [item.suggested for item in queue] == [True] * 3 + [False] * (len(plain) - 3)
    assert {item.id for item in queue} == {item.id for item in plain}
    assert len(build_queue(sight, limit=2)) == 2


def test_labels_that_the_run_was_not_shown_stay_hidden(lesions_run: Path, tmp_path: Path) -> None:
    with acpl.review(lesions_run, out=tmp_path / "reviewed.csv") as review:
        table = table_of(tmp_path)
        roles = pd.read_csv(lesions_run / "split.csv", dtype=str).set_index("image")["role"]
        classes = list(review.classes)
    for image, role in roles.items():
        assert (set(table.loc[image, classes]) == {""}) == (role == "unlabelled")
    assert (table[table["split"] == "test"][classes] != "").all(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "phantoms"])
def test_the_reviewed_table_trains_a_second_round_with_more_labels(
    kind: str, files_run: Path, lesions_run: Path, tmp_path: Path
) -> None:
    run = files_run if kind == "files" else lesions_run
    with acpl.review(run, out=tmp_path / "second.csv") as review:
        for item in review.queue[:4]:
            review.decisions.decide(item.id, [review.classes[0]])
        words = review.next_command
    import shlex

    given = shlex.split(words)
    options = dict(zip(given[2::2], given[3::2], strict=True))
    settings = {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}
    second = acpl.train(
        out=tmp_path / "second", cache=tmp_path / "cache", backbone="small", weights="none", **settings, **QUICK
    )
    before, after = (pd.read_csv(path / "split.csv", dtype=str) for path in (run, second))
    labelled = [set(split["image"][split["role"] == "labelled"]) for split in (before, after)]
    assert labelled[1] == labelled[0] | {item.image for item in review.queue[:4]}
    assert acpl.load(second, device="cpu").classes == review.classes
    assert acpl.evaluate(second, resamples=10, device="cpu")["images"] > 0


def test_columns_that_train_would_take_for_labels_or_names_are_left_out(file_data: Path, tmp_path: Path) -> None:
    table = pd.read_csv(file_data / "labels.csv", dtype=str, keep_default_na=False)
    table["Finding Labels"] = "Mass"
    table["implant"] = "1"
    table["site"] = "north"
    table.to_csv(tmp_path / "labels.csv", index=False)
    where = {"images": file_data / "scans", "cache": file_data / "cache", "backbone": "small", "weights": "none"}
    run = acpl.train(
        data=tmp_path / "labels.csv", classes=["Mass", HOSTILE], out=tmp_path / "run", method="supervised",
        **where, **{key: value for key, value in QUICK.items() if key != "k"},
    )  # fmt: skip
    with acpl.review(run) as review:
        assert review.decisions.decide(review.queue[0].id, ["Mass"]).labels == ("Mass",)
    assert list(table_of(run).columns) == ["group", "split", "sex", "site", "Mass", HOSTILE]
    found = acpl.check_data(data=str(run / "reviewed.csv"), images=file_data / "scans")
    assert any("2 label columns: Mass" in sentence for sentence in found["said"])


@pytest.fixture
def drawn(file_data: Path, tmp_path: Path) -> Path:
    """A table that names no parts, and a run on it."""
    table = pd.read_csv(file_data / "labels.csv", dtype=str, keep_default_na=False).drop(columns="split")
    table.to_csv(tmp_path / "labels.csv", index=False)
    places = {"images": file_data / "scans", "cache": file_data / "cache", "out": tmp_path / "run"}
    return acpl.train(data=str(tmp_path / "labels.csv"), **places, backbone="small", weights="none", **QUICK)


def test_parts_that_are_drawn_anew_are_not_judged_reviewed_suggested_from_or_joined_by(drawn: Path) -> None:
    """Labels that are added since move images from train to test: what was trained on would be judged."""
    acpl.evaluate(drawn, resamples=5)
    other = shutil.copytree(drawn, drawn.with_name("other"))
    joined = drawn.with_name("joined")

    def join(run: Path) -> None:
        acpl.join([run, other], out=joined)

    whole = (drawn / "evaluation.json").read_bytes()
    source = drawn.parent / "labels.csv"
    table = pd.read_csv(source, dtype=str, keep_default_na=False)
    blank = table.index[table["Mass"] == ""]
    table.loc[blank, ["Mass", HOSTILE]] = ["1", "0"]
    table.to_csv(source, index=False)
    for call in (acpl.evaluate, acpl.review, acpl.suggest, join):
        with pytest.raises(acpl.UserError, match=r"has changed since .* was trained: .* among them"):
            call(drawn)
    assert (drawn / "evaluation.json").read_bytes() == whole
    assert not list(drawn.glob("suggestions.*"))
    assert not joined.exists()
    trained = pd.read_csv(drawn / "split.csv").set_index("image")["role"]
    parts = {"labelled": "train", "unlabelled": "train", "validation": "validation"}
    table["split"] = [parts.get(str(trained.get(name)), "test") for name in table["image"]]
    table.to_csv(source, index=False)
    acpl.evaluate(drawn, resamples=5)  # the parts are named as they were
    acpl.review(drawn).server_close()
    acpl.suggest(drawn, budget=2)
    join(drawn)
    assert table_of(drawn).loc[table["image"][blank[0]], "Mass"] == "1"  # a label that came after training is kept


def test_a_table_that_was_edited_by_hand_is_not_written_over(files_run: Path) -> None:
    with acpl.review(files_run) as review:
        review.decisions.decide(review.queue[0].id, ["Mass"])
    table = files_run / "reviewed.csv"
    whole = table.read_text()
    table.write_text(whole.replace("\n", "\r\n"))  # as a spreadsheet may save it
    acpl.review(files_run).server_close()
    table.write_text(whole.replace(",1,", ",0,", 1))
    edited = table.read_text()
    with pytest.raises(acpl.UserError, match="is not as this review left it"):
        acpl.review(files_run)
    assert table.read_text() == edited
    table.write_text(whole)
    acpl.review(files_run).server_close()


def test_a_decision_that_a_crash_kept_out_of_the_table_is_written_there(files_run: Path) -> None:
    with acpl.review(files_run) as review:
        review.decisions.decide(review.queue[0].id, ["Mass"])
        before = (files_run / "reviewed.csv").read_bytes()
        review.decisions.decide(review.queue[1].id, ["Mass"])
        after = (files_run / "reviewed.csv").read_bytes()
    (files_run / "reviewed.csv").write_bytes(before)
    acpl.review(files_run).server_close()
    assert (files_run / "reviewed.csv").read_bytes() == after


def test_a_line_that_was_cut_within_a_letter_is_no_decision(files_run: Path) -> None:
    acpl.review(files_run).server_close()
    log = files_run / "reviewed.decisions.csv"
    with log.open("ab") as file:
        file.write("2026,3,rö".encode()[:-1])
    with acpl.review(files_run) as review:
        assert review.decisions.current == {}
    log.write_bytes(b"\xff\xfe\n")
    with pytest.raises(acpl.UserError, match="is no log of decisions"):
        acpl.review(files_run)
