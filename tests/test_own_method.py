"""A method from outside the package, as docs/own-method.md shows it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[1] / "docs" / "own-method.md").read_text(encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that looks like where the guide's package was installed."""
    code = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    points = re.search(r"```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", GUIDE, re.DOTALL)
    assert code is not None
    assert points is not None
    (tmp_path / "sure.py").write_text(code[1], encoding="utf-8")
    info = tmp_path / "sure-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sure\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{points[1]}]\n{points[2].replace(chr(34), '')}")
    return tmp_path


def acpl(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from acpl.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )


@pytest.mark.slow
def test_it_is_listed_trained_and_judged_like_any_other(installed: Path) -> None:
    assert "entropy" in json.loads(acpl(installed, "methods", "--json").stdout)
    assert "--weight" in acpl(installed, "methods", "entropy").stdout
    tiny = "--phantom-patients 40 --size 32 --fraction 0.3 --steps 4 --device cpu --out run --weight 0.2"
    done = acpl(installed, "train", "--method", "entropy", *tiny.split())
    assert done.returncode == 0, done.stderr
    assert json.loads(acpl(installed, "evaluate", "run", "--json", "--resamples", "20").stdout)["method"] == "entropy"
    losses = [json.loads(line) for line in (installed / "run" / "events.jsonl").read_text().splitlines()]
    assert set(losses[-1]["losses"]) == {"labelled", "entropy"}


def test_one_that_cannot_be_imported_is_named(installed: Path) -> None:
    (installed / "sure.py").write_text("import nowhere_to_be_found\n")
    done = acpl(installed, "train", "--method", "entropy", "--out", "run")
    assert done.returncode == 2
    assert "method 'entropy' of sure:Entropy cannot be imported" in done.stderr
