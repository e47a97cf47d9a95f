"""A data set's check as tables for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHOWN = 20
"""Items listed of a finding; --json has them all."""
BAD_SHOWN = 1000
"""Bad files are what a person mends one by one, so many more of them are listed."""
PAIRS = 10
"""Pairs of classes listed that occur together."""


def check_tables(result: Mapping[str, Any]) -> Group:
    """What the parts hold, which classes occur together, and the findings, worst first."""
    blocks: list[RenderableType] = [parts_table(result), balance_table(result)]
    if result["together"] is not None and len(result["classes"]) > 1:
        blocks.append(together_table(result))
    if result["sizes"] is not None:
        blocks.append(Text(sizes_sentence(result["sizes"])))
    findings = sorted(result["findings"], key=lambda finding: bool(finding["severity"] != "spoils"))
    blocks += [block for finding in findings for block in (Text(), finding_block(finding))]
    return Group(*blocks, Text(), verdict(result))


def parts_table(result: Mapping[str, Any]) -> Table:
    """A row a part: images, groups, labelled and unlabelled rows."""
    count = len(result["classes"])
    title = f"{result['task']}, {count} {'class' if count == 1 else 'classes'}"
    table = _table(title, ["part"], ["images", "groups", "labelled", "unlabelled"])
    for part, held in result["parts"].items():
        cells = (f"{held[key]:,}" for key in ("images", "groups", "labelled", "unlabelled"))
        table.add_row(Text(part), *cells)
    return table


def balance_table(result: Mapping[str, Any]) -> Table:
    """A row a class: its positives in each part, and their share of the part's labelled rows."""
    parts = result["parts"]
    table = _table("positives among the labelled rows", ["class"], list(parts))
    for name in result["classes"]:
        counts = ((held["positives"][name], held["labelled"]) for held in parts.values())
        cells = (f"{n:,} ({n / labelled:6.2%})" if labelled else "–" for n, labelled in counts)
        table.add_row(Text(name), *cells)
    return table


def together_table(result: Mapping[str, Any]) -> Table:
    """The pairs of classes that occur together most often, and what share of each has the other."""
    classes, together = result["classes"], result["together"]
    pairs = [(together[a][b], a, b) for a in range(len(classes)) for b in range(a + 1, len(classes)) if together[a][b]]
    pairs.sort(key=lambda pair: -pair[0])
    table = _table(
        "classes that occur together most often", ["class", "and"], ["images", "of the first", "of the second"]
    )
    for both, a, b in pairs[:PAIRS]:
        shares = (f"{both / together[c][c]:.1%}" for c in (a, b))
        table.add_row(Text(classes[a]), Text(classes[b]), f"{both:,}", *shares)
    return table


def sizes_sentence(sizes: Mapping[str, Any]) -> str:
    """How large the images are."""
    size = {name: "{} × {}".format(*sizes[name]) for name in ("median", "smallest", "largest")}
    if sizes["different"] == 1:
        return f"every image is {size['median']} pixels"
    return (
        f"{sizes['different']:,} sizes from {size['smallest']} to {size['largest']} pixels, "
        f"the median is {size['median']}"
    )


def finding_block(finding: Mapping[str, Any]) -> Group:
    """A finding's sentence, and a row for each thing it concerns."""
    items = finding["items"]
    shown = items[: BAD_SHOWN if finding["kind"] == "bad-file" else SHOWN]
    style = "bold red" if finding["severity"] == "spoils" else "bold"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for key in items[0]:
        table.add_column(key, overflow="fold")
    for item in shown:
        table.add_row(*(Text(_cell(value)) for value in item.values()))
    lines: list[RenderableType] = [Text.assemble((finding["severity"], style), ": ", finding["says"])]
    lines.append(Padding(table, (0, 0, 0, 2)))
    if len(shown) < len(items):
        lines.append(Text(f"  and {len(items) - len(shown):,} more; --json lists them all"))
    return Group(*lines)


def verdict(result: Mapping[str, Any]) -> Text:
    """The last line: may one train on this?"""
    spoiling = sum(finding["severity"] == "spoils" for finding in result["findings"])
    notes = len(result["findings"]) - spoiling
    if spoiling:
        return Text(f"would spoil a result: {spoiling}; worth knowing: {notes}", style="bold red")
    return Text(f"nothing would spoil a result; worth knowing: {notes}", style="bold green")


def _table(title: str, left: list[str], right: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
