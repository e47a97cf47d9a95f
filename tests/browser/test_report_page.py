"""The report in a real browser: filters filter, nothing complains, nothing is asked of a network."""

import json
import shutil
from pathlib import Path

import pytest

from acpl.report import write_report
from tests.browser.chromium import EXECUTABLE, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt install chromium"),
]
CARDS = "[...document.querySelectorAll('#pseudo-labels-gallery .sample')]"


@pytest.fixture(scope="module")
def hostile_run(chest_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose labels and file names are HTML that would run a script if it were taken for such."""
    run = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(chest_run, run)
    bad = "</script><img src=x onerror=window.broken=1>"
    for name in ("evaluation.json", "model.json", "report/selection.json", "report/judged.json"):
        text = (run / name).read_text().replace("Effusion", bad).replace("phantom-chest-000", f"{bad}phantom-chest-000")
        (run / name).write_text(text)
    write_report(run)
    return run


def test_the_page_opens_without_a_complaint_and_asks_nothing_of_a_network(chest_run: Path, lesions_run: Path) -> None:
    for run in (chest_run, lesions_run):
        with Page(run / "report.html") as page:
            assert page.errors == []
            assert all(url.startswith(("file:", "data:")) for url in page.requests)
            assert page.run(f"{CARDS}.length") > 0
            pictures = "[...document.querySelectorAll('.sample img')]"
            page.run(f"Promise.all({pictures}.map(image => image.decode()))")
            assert page.run(f"{pictures}.every(image => image.naturalWidth > 0 && image.alt)")


def test_the_filters_show_what_they_say(chest_run: Path) -> None:
    cards = json.loads((chest_run / "report" / "selection.json").read_text())["found"]["cards"]
    choose = (
        "((field, value) => { const s = document.querySelector(`#pseudo-labels-gallery [data-filter=${field}]`);"
        " s.value = value; s.dispatchEvent(new Event('change')); })"
    )
    shown = f"{CARDS}.map(card => card.querySelector('.who').textContent)"
    with Page(chest_run / "report.html") as page:
        expected = sorted(
            (c for c in cards if "informative" in c["rank"]), key=lambda c: (c["rank"]["informative"], c["stage"])
        )
        assert page.run(shown) == [card["name"] for card in expected[:12]]
        page.run(f"{choose}('stage', '2')")
        assert page.run(shown) == [card["name"] for card in expected if card["stage"] == 2][:12]
        page.run(f"{choose}('stage', '')")
        for place in range(8):
            page.run(f"{choose}('class', '{place}')")
            assert page.run(shown) == [card["name"] for card in expected if place in card["said"]][:12]
        page.run(f"{choose}('class', '')")
        page.run("document.querySelector('[data-kind=disagreeing]').click()")
        gap = f"{CARDS}.map(card => Number(card.querySelector('.foot').textContent.match(/disagreement ([\\d.]+)/)[1]))"
        in_stage = f"{choose}('stage', '1'); {gap}"
        found = page.run(in_stage)
        assert found == sorted(found, reverse=True)
        assert page.errors == []


def test_wrong_ones_alone_are_red_and_say_so(chest_run: Path) -> None:
    with Page(chest_run / "report.html") as page:
        page.run("document.querySelector('[data-filter=wrong]').click()")
        marks = page.run(f"{CARDS}.map(card => card.className)")
        assert marks
        assert all("wrong" in mark for mark in marks)
        assert page.run(f"{CARDS}.every(card => /✗|truly/.test(card.textContent))")


def test_show_more_shows_more_until_there_is_no_more(lesions_run: Path) -> None:
    with Page(lesions_run / "report.html", width=390, height=844) as page:
        gallery = "document.getElementById('mistakes-gallery')"
        total = page.run(f"Number({gallery}.querySelector('.count').textContent.match(/of (\\d+)/)[1])")
        assert page.run(f"{gallery}.querySelectorAll('.sample').length") == min(6, total)
        for _ in range(total // 6 + 1):
            page.run(f"{gallery}.querySelector('.more').click()")
        assert page.run(f"{gallery}.querySelectorAll('.sample').length") == total
        assert page.run(f"{gallery}.querySelector('.more').hidden")


def test_a_stages_tab_shows_that_stage_alone(chest_run: Path) -> None:
    visible = "[...document.querySelectorAll('.panel')].filter(p => p.offsetHeight > 0).map(p => p.id)"
    with Page(chest_run / "report.html") as page:
        assert page.run(visible) == ["stage-1"]
        page.run("document.querySelector('[data-panel=stage-2]').click()")
        assert page.run(visible) == ["stage-2"]
    with Page(chest_run / "report.html", media="print") as page:
        assert page.run(visible) == ["stage-1", "stage-2"]


def test_labels_and_names_that_are_html_show_as_text(hostile_run: Path) -> None:
    with Page(hostile_run / "report.html") as page:
        assert page.errors == []
        assert page.run("window.broken") is None
        assert page.run("document.body.innerText.includes('</script><img src=x onerror=window.broken=1>')")
        assert page.run("document.querySelectorAll('img[src=x]').length") == 0


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False), (1280, True)])
def test_nothing_is_wider_than_the_screen_and_text_can_be_read(lesions_run: Path, width: int, dark: bool) -> None:
    with Page(lesions_run / "report.html", width=width, height=844, dark=dark) as page:
        assert page.run("document.documentElement.scrollWidth") <= width
        contrast = """(() => {
          const luminance = (colour) => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
              .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const colour = (name) => { const e = document.createElement('i'); e.style.color = `var(--${name})`;
            document.body.append(e); const found = getComputedStyle(e).color; e.remove(); return luminance(found); };
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const pairs = [['ink', 'bg'], ['ink', 'surface'], ['soft', 'bg'], ['soft', 'surface'], ['soft', 'wash'],
            ['accent', 'surface'], ['good', 'good-wash'], ['bad', 'bad-wash'], ['care', 'care-wash'],
            ['good', 'surface'], ['bad', 'surface']];
          return pairs.map(([a, b]) => [a, b, ratio(colour(a), colour(b))]).filter(([, , r]) => r < 4.5);
        })()"""
        assert page.run(contrast) == []


def test_the_button_changes_the_colours(chest_run: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with Page(chest_run / "report.html") as page:
        light = page.run(background)
        page.run("document.getElementById('theme').click()")
        assert page.run(background) != light
        page.run("document.getElementById('theme').click()")
        assert page.run(background) == light
