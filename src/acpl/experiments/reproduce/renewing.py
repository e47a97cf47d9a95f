"""Whether the table that a call would write may take the place of the one that is there."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from acpl.config import Config
from acpl.errors import UserError
from acpl.experiments.contents import data_digest
from acpl.experiments.reproduce.keeping import short

MADE = "made.json"
"""What a table was made of, beside it."""


def refuse_other_data(target: Path, config: Config, runs: Collection[str]) -> None:
    """Refuse to write a table of these data over one of others; ``runs`` are the names of those it would be made of.

    More seeds, methods and shares of labels, and other settings, renew what is there.
    """
    before = _before(target / MADE)
    if before is None:
        return
    name, digest = before.get("data"), before.get("data_digest")
    # In a table that has no digest yet a run that both have tells: its name ends in one of the data, among the rest.
    by_name = name == short(config.data) or any(one["run"] in runs for one in before.get("runs", ()))
    if by_name if digest is None else digest == data_digest(config):
        return
    here = short(config.data)
    of = f"of {name}, not of {here}" if name != here else f"of {here} with other content"
    raise UserError(f"{target} has a table {of}; to keep it, write to another folder: --out {_apart(target, config)}")


def _before(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{file} should say what the table beside it was made of; remove it if that may be replaced")
    return found


def _apart(target: Path, config: Config) -> Path:
    """Where the table of these data would lie beside the other: a folder named for them."""
    place = Path(config.data)
    name = place.resolve().parent.name if place.is_file() else place.name.rpartition(":")[2]
    name = re.sub(r"[^\w.-]+", "-", name).strip("-")
    out = target.parent
    return out / name if out.name != name else out.with_name(f"{name}-2")
