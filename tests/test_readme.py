"""What the README shows is what a reader can do."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import acpl
from acpl.data.manifest import rows_known
from acpl.data.sources import SourceOptions, find_source

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
TABLE = re.search(r"```csv\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """The README's table, and an image for each of its rows."""
    assert TABLE is not None
    (tmp_path / "labels.csv").write_text(TABLE[1], encoding="utf-8")
    (tmp_path / "scans").mkdir()
    rng = np.random.default_rng(0)
    for line in TABLE[1].splitlines()[1:]:
        name = line.split(",")[0]
        image = Image.fromarray(rng.integers(0, 256, (40, 48), dtype=np.uint8))
        image.save(tmp_path / "scans" / name, format="png")
    return tmp_path


def test_the_table_of_six_rows_is_read_as_it_says(scans: Path) -> None:
    source = find_source(SourceOptions(str(scans / "labels.csv"), images=scans / "scans", parts=(1, 0, 0)))
    manifest = source.manifest()
    assert manifest.classes == ("Mass", "Nodule", "Effusion")
    assert manifest.task == "multi-label"
    assert rows_known(manifest.labels).tolist() == [True, True, True, False, False, True]
    assert manifest.groups.tolist() == ["anna", "anna", "bert", "carl", "dora", "dora"]


def test_the_commands_run_on_it(scans: Path) -> None:
    settings = {"data": scans / "labels.csv", "images": scans / "scans", "cache": scans / "cache"}
    assert acpl.check_data(**settings)["spoils"]  # six images are too few for three honest parts, and it says so
    run = acpl.train(
        **settings,
        out=scans / "run",
        parts=(1, 0, 0),
        size=32,
        backbone="small",
        weights="none",
        batch_size=2,
        warmup_epochs=1,
        stages=1,
        stage_epochs=1,
        k=2,
        device="cpu",
    )
    table, unreadable = acpl.predict(run, [scans / "scans"], device="cpu")
    assert len(table) == 6
    assert not unreadable
