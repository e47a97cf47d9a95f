"""What the machine has, each check by itself."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acpl import machine as module
from acpl.cli import app
from acpl.data.sources import SourceOptions
from acpl.data.sources.files import cache_folder

ROOT = Path(__file__).parents[1]


def requirement(text: str) -> str:
    return text.partition(">")[0].partition("=")[0].strip()


def test_every_extra_of_the_package_is_looked_at_with_all_its_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = {name: sorted(map(requirement, packages)) for name, packages in extras.items() if name != "dev"}
    assert {name: sorted(extra.packages) for name, extra in module.EXTRAS.items()} == declared


def test_a_missing_package_comes_with_the_command_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = module.Extra("a purpose", {"no-such-package": "nothing"}, "'acpl[nothing]'")
    check = module._optional("extra nothing", extra)
    assert (check.state, check.remedy) == ("missing", "pip install 'acpl[nothing]'")


def test_a_package_that_crashes_on_import_is_called_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = module._optional("extra x", module.Extra("a purpose", {"pytest": "crashing"}, "'acpl[x]'"))
    assert check.state == "broken"
    assert "cannot be imported" in check.said


def test_a_check_that_fails_does_not_stop_the_others() -> None:
    def fails() -> module.Check:
        raise OSError("the disk is on fire")

    (check,) = module._isolated("disk", fails, True)
    assert (check.state, check.required) == ("broken", True)
    assert check.said == "could not be looked at: the disk is on fire"


def test_the_cache_is_the_one_that_decoding_uses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path))
    (tmp_path / "images.u8").write_bytes(b"x" * 10)
    assert str(cache_folder(SourceOptions("x"))) in module._cache().said
    assert "in 1 files" in module._cache().said


@pytest.mark.slow
def test_the_shell_prints_json_with_python_torch_device_and_extras() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {"Python", "acpl", "PyTorch", "device", "CPU", "memory", "disk", "cache", "Chromium"} <= set(checks)
    assert {f"extra {name}" for name in module.EXTRAS} <= set(checks)
    assert checks["Python"]["said"].startswith(sys.version.split()[0])


def test_without_torch_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = module.Check("PyTorch", "missing", "not installed", "pip install torch", required=True)
    monkeypatch.setattr(module, "doctor", lambda: [missing])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "pip install torch" in done.stdout


def test_the_public_name_stays_a_function_however_often_it_is_asked_for() -> None:
    import acpl

    assert callable(acpl.doctor)
    assert callable(acpl.doctor)
