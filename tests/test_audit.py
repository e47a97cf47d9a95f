"""The look-up of known vulnerabilities: it fails over one, and says so where there is nobody to ask."""

import importlib.util
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


def answers(monkeypatch: pytest.MonkeyPatch, *told: tuple[str, str]) -> list[list[str]]:
    """Let pip-audit print these, one pair of outputs a call; the commands it was called with."""
    calls: list[list[str]] = []
    coming = iter(told)

    def run(command: list[str], **_: object) -> SimpleNamespace:
        calls.append(command)
        out, err = next(coming)
        return SimpleNamespace(stdout=out, stderr=err)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


GONE = "requests.exceptions.ConnectionError: Failed to resolve the host\n"
UNKNOWN = json.dumps({"dependencies": [{"name": "a", "skip_reason": "not found"}]})


@pytest.mark.parametrize("answer", ["", "{}", "Traceback"])
def test_without_an_answer_it_says_that_nothing_was_looked_up(
    answer: str, audit: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, (answer, GONE), (answer, GONE))
    assert audit.main(Path("constraints.txt")) == 0
    assert "nothing was looked up (requests.exceptions.ConnectionError: Failed" in capsys.readouterr().out


@pytest.mark.parametrize("first", [("", GONE), (UNKNOWN, "")])
def test_where_the_first_service_does_not_know_the_second_is_asked(
    first: tuple[str, str], audit: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = answers(monkeypatch, first, (json.dumps({"dependencies": KNOWN}), ""))
    assert audit.main(Path("constraints.txt")) == 1
    assert [call[-1] for call in calls] == ["pypi", "osv"]


def test_pins_that_cannot_be_read_fail(audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pins.txt").write_text("this is no pin\n")
    assert audit.main(tmp_path / "pins.txt") == 1
    assert "audit: pip-audit failed" in capsys.readouterr().out


class Osv(BaseHTTPRequestHandler):
    """A service that knows one flaw, in the words of the real one."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = asked["package"]["name"], asked["version"]
        package = {"name": name, "ecosystem": "PyPI"}
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}]
        flaw = {"id": "PYSEC-1", "summary": "bad", "affected": [{"package": package, "ranges": ranges}]}
        content = json.dumps({"vulns": [flaw]} if (name, version) == ("flawed", "1.0") else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("pin", "code", "words"), [("1.0", 1, "flawed 1.0 has PYSEC-1"), ("2.0", 0, "0 vulnerab")])
def test_pip_audit_itself_asks_a_service_and_a_finding_fails(
    pin: str, code: int, words: str, audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pins.txt").write_text(f"flawed=={pin}\nsound==3.1\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        service = ("-s", "osv", "--osv-url", f"http://127.0.0.1:{server.server_port}/v1/query")
        assert audit.main(tmp_path / "pins.txt", [service]) == code
        server.shutdown()
    said = capsys.readouterr().out
    assert words in said
    assert "2 packages looked up" in said
