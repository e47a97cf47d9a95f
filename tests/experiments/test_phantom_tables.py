"""The phantoms' tables: who is compared with whom."""

from pathlib import Path

from tests.conftest import TINY

from acpl.engine.run_folder import RunFolder
from acpl.experiments.phantoms import run_phantoms


def test_supervised_training_gets_acpl_s_steps_with_its_last_and_with_its_best_epoch(tmp_path: Path) -> None:
    said: list[str] = []
    tiny = {name: value for name, value in TINY.items() if name != "k"}  # supervised training has none
    text = run_phantoms(tmp_path, seeds=1, jobs=1, say=said.append, **tiny)
    last, best, low = text.split("|---|---|---|---|---|---|")[1:]
    assert [part.count("phantom-chest | 0") for part in (last, best, low)] == [1, 1, 1]
    assert [part.count("phantom-lesions | 0") for part in (last, best, low)] == [1, 1, 0]
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == text
    for data in ("phantom-chest", "phantom-lesions"):
        acpl, plain, stopped = (
            RunFolder.open(tmp_path / f"{data}-{name}") for name in ("acpl-0", "supervised-0", "supervised-best-0")
        )
        assert plain.events()[-1]["step"] == stopped.events()[-1]["step"] == acpl.events()[-1]["step"]
        assert plain.config().keep == "last"
        assert stopped.config().keep == "best"
        assert plain.config().split_checksum == stopped.config().split_checksum == acpl.config().split_checksum
    said.clear()
    assert run_phantoms(tmp_path, seeds=1, jobs=1, say=said.append, **tiny) == text
    assert said == []  # nothing is run again
