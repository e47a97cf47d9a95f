"""One self-contained page about a run."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from acpl.duration import duration
from acpl.report.first_screen import first_screen
from acpl.report.journey import journey
from acpl.report.judge import judge
from acpl.report.plots import balance_chart, density_histogram, feature_map
from acpl.report.run_data import Json, RunData, read_run


def write_report(run: Path, *, without_pictures: str | None = None) -> Path:
    """``report.html`` from what the run folder holds: with validation figures before ``evaluate``.

    ``without_pictures`` says why what was selected cannot be shown, where it cannot.
    """
    data = read_run(run)
    page = render(
        "page.html",
        title=f"{data.config['method']}{' (joined)' if data.joined else ''} on {_short_name(data.config['data'])}",
        run=data,
        first=first_screen(data),
        way=journey(data),
        selection=_selection(data),
        without_pictures=without_pictures,
        judge=judge(data),
        made=_made(data),
        embedded=_embedded(data),
    )
    return write_page(run / "report.html", page)


def render(template: str, **context: Any) -> str:
    """A template of this room as text; whatever it is given shows as text unless it is markup of ours."""
    return _environment().get_template(template).render(**context)


@cache
def _environment() -> Environment:
    """Kept, for compiling the templates takes longer than to fill them: a comparison writes many pages."""
    environment = Environment(
        loader=PackageLoader("acpl.report", "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    return environment


def write_page(target: Path, page: str) -> Path:
    """A page that is there whole or not at all."""
    beside = target.with_suffix(".part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(target)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return target


def _selection(run: RunData) -> list[Json]:
    """Each stage's charts."""
    if run.selection is None:
        return []
    return [
        {
            **stage,
            "histogram": density_histogram(stage["density"]) if stage["density"] else "",
            "balance_chart": balance_chart(run.selection["classes"], stage["balance"]),
            "map_chart": feature_map(stage["map"]) if stage["map"] else "",
        }
        for stage in run.selection["stages"]
    ]


def _embedded(run: RunData) -> Json:
    """What the page's script shows: cards, and the pictures on them."""
    selection, judged = run.selection or {}, run.judged or {}
    return {
        "classes": run.classes,
        "task": run.task,
        "cards": selection.get("cards", []),
        "pictures": selection.get("pictures", {}),
        "mistakes": judged.get("mistakes", []),
        "mistakePictures": judged.get("pictures", {}),
    }


def _made(run: RunData) -> Json:
    return {
        "versions": run.made.get("versions", {}),
        "device": run.made.get("device", ""),
        "command": _command(run),
        "evaluate": f"acpl evaluate {_quoted(run.path)}",
        "config": {key: value for key, value in run.config.items() if key != "settings"},
        "settings": run.config.get("settings") or {},
    }


def _command(run: RunData) -> str:
    """What makes such a run again."""
    if run.joined:
        return f"acpl join {' '.join(_quoted(Path(path)) for path in run.joined['runs'])} --out NEW_FOLDER"
    return f"acpl train --config {_quoted(run.path / 'config.yaml')} --out NEW_FOLDER"


def _short_name(data: object) -> str:
    """A data set's name, or the last two parts of a path."""
    return "/".join(part for part in Path(str(data)).parts[-2:] if part != "/") or str(data)


def _quoted(path: Path) -> str:
    text = str(path)
    return f"'{text}'" if " " in text else text
