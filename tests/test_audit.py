"""The look-up of known vulnerabilities: it fails over one, and says so where there is nobody to ask."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "audit.py"


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"]}
KNOWN = [{"name": "a", "version": "1.0", "vulns": [FLAW]}, {"name": "b", "version": "1.0", "vulns": []}]


def test_a_known_vulnerability_fails(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report(KNOWN) == 1
    assert "a 1.0 has PYSEC-1, mended in 2.0" in capsys.readouterr().out


def test_one_that_is_accepted_does_not(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    audit.ACCEPTED["CVE-1"] = "the function is not called"
    assert audit.report(KNOWN) == 0
    assert "2 packages looked up; 0 vulnerabilities" in capsys.readouterr().out


def test_an_index_that_knows_none_is_not_taken_for_good_news(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.report([{"name": "a", "skip_reason": "not found"}]) == 0
    assert "1 not looked up" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["", "{}", "Traceback"])
def test_without_an_answer_it_says_that_nothing_was_looked_up(
    answer: str, audit: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(stdout=answer, stderr="Failed to resolve the host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: told)
    assert audit.main(Path("constraints.txt")) == 0
    assert "nothing was looked up (Failed to resolve the host)" in capsys.readouterr().out
