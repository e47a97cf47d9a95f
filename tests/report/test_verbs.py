"""``acpl report`` and ``acpl watch``, as a person calls them."""

import shutil
from pathlib import Path

import pytest
from tests import shell

import acpl
from acpl.data.sources.phantoms import PhantomSource


def test_report_says_where_the_page_is(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    (run / "report.html").unlink()
    done = shell.acpl("report", run)
    assert done.stdout == f"report: {run / 'report.html'}\n"
    assert (run / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "/nowhere"], "/nowhere is not a run folder"),
        (["watch", "/nowhere"], "/nowhere is not a run folder"),
        (["train", "--log", "tensorbord"], "unknown log 'tensorbord'; did you mean 'tensorboard'?"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = shell.acpl_imported(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_watch_shows_a_finished_run_and_returns(chest_run: Path) -> None:
    done = shell.acpl("watch", chest_run)
    assert done.returncode == 0
    assert "acpl on phantom-chest" in done.stdout
    assert "finished in" in done.stdout
    assert "stage 2" in done.stdout


def test_a_report_never_opens_the_test_part(chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    for name in ("evaluation.json", "predictions.csv", "report/selection.json", "report/judged.json"):
        (run / name).unlink()
    opened: list[str] = []
    real = PhantomSource.open

    def watched(source: PhantomSource, parts: tuple[str, ...]) -> object:
        opened.extend(parts)
        return real(source, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(PhantomSource, "open", watched)
    page = acpl.make_report(run).read_text()
    assert "test" not in opened
    assert opened
    assert "The test part has not been opened yet" in page
