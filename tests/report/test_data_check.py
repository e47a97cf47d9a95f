"""A data check as people read it."""

from typing import Any

import pytest
from rich.console import Console

from acpl.report.data_check import BAD_SHOWN, SHOWN, check_tables, sizes_sentence


def finding(kind: str, severity: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": kind, "severity": severity, "says": f"about {kind}", "items": items}


def shown(*findings: dict[str, Any], **changes: Any) -> str:
    part = {"images": 1200, "groups": 7, "labelled": 4, "unlabelled": 1196, "positives": {"A": 1, "[b]B": 3}}
    result = {
        "spoils": any(f["severity"] == "spoils" for f in findings),
        "task": "multi-label",
        "classes": ["A", "[b]B"],
        "parts": {"train": part},
        "together": [[1, 1], [1, 3]],
        "sizes": {"median": [8, 6], "smallest": [8, 6], "largest": [8, 6], "different": 1},
        "findings": list(findings),
    }
    console = Console(width=100)
    with console.capture() as captured:
        console.print(check_tables(result | changes))
    return captured.get()


def test_counts_balance_and_pairs_are_shown() -> None:
    text = shown()
    assert "1,200" in text
    assert "3 (75.00%)" in text
    assert "100.0%" in text
    assert "33.3%" in text
    assert "[b]B" in text
    assert "every image is 8 × 6 pixels" in text
    assert "nothing would spoil a result" in text


def test_what_spoils_comes_before_what_is_worth_knowing() -> None:
    text = shown(finding("x", "note", [{"k": 1}]), finding("y", "spoils", [{"k": 2}]))
    assert text.index("about y") < text.index("about x")
    assert "would spoil a result: 1; worth knowing: 1" in text


@pytest.mark.parametrize(("kind", "limit"), [("odd-size", SHOWN), ("bad-file", BAD_SHOWN)])
def test_a_long_list_is_cut_and_says_so(kind: str, limit: int) -> None:
    items = [{"image": f"image-{number}", "parts": ["train", "test"]} for number in range(limit + 5)]
    text = shown(finding(kind, "spoils", items))
    assert text.count("image-") == limit
    assert "and 5 more" in text
    assert "train, test" in text
    assert "more" not in shown(finding(kind, "spoils", items[:limit]))


def test_a_part_without_labels_and_data_without_images_can_be_shown() -> None:
    bare = {"images": 2, "groups": 2, "labelled": 0, "unlabelled": 2, "positives": {"A": 0, "[b]B": 0}}
    assert "–" in shown(parts={"train": bare}, together=None, sizes=None)


def test_different_sizes_are_said_from_smallest_to_largest() -> None:
    sizes = {"median": [20, 10], "smallest": [1, 2], "largest": [30, 40], "different": 3}
    assert sizes_sentence(sizes) == "3 sizes from 1 × 2 to 30 × 40 pixels, the median is 20 × 10"
