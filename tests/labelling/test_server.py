"""The review page over real HTTP: who is let in, what is written, and what a browser shows."""

import http.client
import json
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

import acpl
from acpl.labelling.reviewing import Review
from tests.browser.chromium import EXECUTABLE, Page
from tests.labelling.conftest import HOSTILE


@pytest.fixture
def review(files_run: Path) -> Iterator[Review]:
    """A review that is served."""
    server = acpl.review(files_run)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(
    review: Review, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """A request with these headers beside the usual ones, to a path after the token."""
    connection = http.client.HTTPConnection("127.0.0.1", review.port, timeout=20)
    sent = {"Host": f"127.0.0.1:{review.port}"}
    if method == "POST":
        sent |= {"Origin": f"http://127.0.0.1:{review.port}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    full = path.removeprefix("raw:") if path.startswith("raw:") else f"/{review.token}/{path}"
    connection.request(method, full, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, dict(answer.getheaders())


def test_it_listens_on_this_machine_alone(review: Review) -> None:
    assert review.server_address[0] == "127.0.0.1"
    assert review.url == f"http://127.0.0.1:{review.port}/{review.token}/"
    assert len(review.token) >= 32


def test_page_script_style_queue_and_images_are_served_with_strict_headers(review: Review) -> None:
    for path in ("", "review.js", "review.css", "queue.json"):
        status, content, headers = ask(review, path)
        assert status == 200
        assert content
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
    status, content, _ = ask(review, f"image/{review.queue[0].id}.png")
    assert status == 200
    with Image.open(BytesIO(content)) as image:
        assert image.size == (768, 768)


@pytest.mark.parametrize("path", ["raw:/", "raw:/queue.json", "raw:/wrong/queue.json", "raw:/wrong/image/0.png"])
def test_without_the_token_nothing_is_served(review: Review, path: str) -> None:
    status, content, _ = ask(review, path)
    assert status == 403
    assert review.token.encode() not in content


def test_a_foreign_host_name_is_refused_even_with_the_token(review: Review) -> None:
    for host in ("evil.example", f"evil.example:{review.port}", "127.0.0.1", f"127.0.0.1:{review.port + 1}"):
        assert ask(review, "queue.json", Host=host)[0] == 403
    assert ask(review, "queue.json", Host=f"localhost:{review.port}")[0] == 200


def test_another_origin_is_refused_and_nothing_is_written(review: Review) -> None:
    decision = {"id": review.queue[0].id, "labels": []}
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{review.port}", ""):
        assert ask(review, "queue.json", Origin=origin)[0] == 403
        assert ask(review, "decide", "POST", decision, Origin=origin)[0] == 403
    assert ask(review, "queue.json", Sec_Fetch_Site="cross-site")[0] == 403
    assert review.decisions.current == {}


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "image/../../config.yaml",
        "image/%2e%2e/config.yaml",
        "review.py",
        "image/999999.png",
        "image/-1.png",
        "config.yaml",
    ],
)
def test_only_what_the_page_needs_can_be_had(review: Review, path: str) -> None:
    assert ask(review, path)[0] == 404


def test_images_of_other_parts_are_not_shown(review: Review, files_run: Path) -> None:
    split = pd.read_csv(files_run / "split.csv")
    hidden = split["id"][split["role"] == "validation"].iloc[0]
    assert ask(review, f"image/{hidden}.png")[0] == 404


def test_corrections_land_in_the_table_and_undo_takes_them_back(review: Review, files_run: Path) -> None:
    item = review.queue[0]
    status, content, _ = ask(review, "decide", "POST", {"id": item.id, "labels": ["Mass"]})
    assert status == 200
    assert json.loads(content)["labels"] == ["Mass"]
    table = pd.read_csv(files_run / "reviewed.csv", dtype=str, keep_default_na=False).set_index("image")
    assert table.loc[item.image, ["Mass", HOSTILE]].tolist() == ["1", "0"]
    assert json.loads(ask(review, "queue.json")[1])["decided"] == {str(item.id): ["Mass"]}
    assert json.loads(ask(review, "undo", "POST", {})[1]) == {"id": item.id}
    assert json.loads(ask(review, "undo", "POST", {})[1]) == {"id": None}
    table = pd.read_csv(files_run / "reviewed.csv", dtype=str, keep_default_na=False).set_index("image")
    assert table.loc[item.image, ["Mass", HOSTILE]].tolist() == ["", ""]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"id": "0", "labels": []},
        {"id": True, "labels": []},
        {"id": 10**9, "labels": []},
        {"id": 0, "labels": "Mass"},
        {"id": 0, "labels": [1]},
    ],
)
def test_nonsense_is_refused_and_nothing_is_written(review: Review, body: Any) -> None:
    assert ask(review, "decide", "POST", body)[0] == 400
    assert ask(review, "decide", "POST", {"id": 0, "labels": []}, Content_Type="text/plain")[0] == 400
    assert ask(review, "elsewhere", "POST", {})[0] == 404
    assert review.decisions.current == {}


@pytest.mark.parametrize("length", ["70000", "-1", "x"])
def test_a_request_without_end_is_not_waited_for(review: Review, length: str) -> None:
    status, content, _ = ask(review, "decide", "POST", {"id": review.queue[0].id, "labels": []}, Content_Length=length)
    assert status == 400
    assert b"at most 65536 bytes" in content
    assert review.decisions.current == {}


@pytest.fixture
def browser() -> Iterator[Page]:
    """A page of a real browser."""
    if EXECUTABLE is None:
        pytest.skip("needs Chromium")
    with Page() as page:
        yield page


@pytest.mark.slow
def test_a_browser_shows_names_as_text_and_nothing_is_blocked(review: Review, browser: Page) -> None:
    browser.open(review.url)
    browser.wait_for("document.querySelectorAll('#classes button').length == 2")
    assert browser.run("document.querySelector('#classes button:nth-child(2) .name').textContent") == HOSTILE
    assert browser.run("document.title") == "acpl review"
    assert browser.run("document.querySelectorAll('#classes img').length") == 0
    browser.wait_for("document.getElementById('image').naturalWidth == 768")
    browser.wait_for("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert browser.run("document.getElementById('progress').textContent").startswith("image 1 of ")
    assert browser.errors == []


@pytest.mark.slow
def test_the_keyboard_is_enough_to_review(review: Review, browser: Page, files_run: Path) -> None:
    def saved(image: str) -> list[str]:
        table = pd.read_csv(files_run / "reviewed.csv", dtype=str, keep_default_na=False).set_index("image")
        return list(table.loc[image, ["Mass", HOSTILE]])

    browser.open(review.url)
    browser.wait_for("document.querySelectorAll('#classes button').length == 2")
    first, second = review.queue[:2]
    said = f"image 2 of {len(review.queue)} · 1 reviewed"
    at_the_second = f"document.getElementById('progress').textContent == '{said}'"
    browser.press("n")
    browser.press("2")
    browser.press("Enter")
    browser.wait_for(at_the_second)
    assert saved(first.image) == ["0", "1"]
    browser.press("n")
    browser.press("1")
    browser.press("Enter")
    browser.wait_for("document.getElementById('progress').textContent.endsWith('2 reviewed')")
    assert saved(second.image) == ["1", "0"]
    browser.press("u")
    browser.wait_for(at_the_second)
    assert saved(second.image) == ["", ""]
    browser.press("ArrowLeft")
    assert browser.run("document.getElementById('state').textContent") == f"✓ saved: {HOSTILE}"
    browser.press("ArrowRight")
    assert browser.run("document.getElementById('state').textContent") == ""
    assert browser.errors == []
