"""A launcher that starts a run's processes again after one was lost, with the same command: the run goes on."""

import os
from pathlib import Path
from typing import Any

from acpl.config import Config
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError


def check_restarts(out: Path | None) -> None:
    """Refuse a run that a restart would not find again."""
    if out is None and _number("TORCHELASTIC_MAX_RESTARTS") > 0:
        raise UserError("with torchrun --max-restarts, --out should name the run's folder: a restart goes on there")


def was_cut_short(out: Path) -> bool:
    """Whether ``out`` is this command's own run, which its launcher starts again."""
    return _number("TORCHELASTIC_RESTART_COUNT") > 0 and (out / "config.yaml").is_file()


def as_changes(config: Config, out: Path) -> dict[str, Any]:
    """What the command asks for, to be held against what the run in ``out`` began with."""
    began = RunFolder(out).config()
    asked = config.model_dump()
    if config.split_checksum is None:  # the run's own is written down when it begins
        asked["split_checksum"] = began.split_checksum
    asked |= asked.pop("settings")
    return {name: value for name, value in asked.items() if name not in ("devices", "nodes")}


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0
