"""Where figures come from: the command, the machine, and how long it took."""

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acpl.engine.run_folder import write_whole
from acpl.experiments.cells import cores

ABOUT = "about.json"


class Account:
    """A comparison's ``about.json``: kept up to date, a session a call."""

    def __init__(self, folder: Path, **facts: Any) -> None:
        self.file = folder / ABOUT
        self._earlier = read_about(self.file).get("sessions", [])
        self._facts = {**facts, "machine": machine(), "torch": _torch()}
        self._begun = datetime.now(UTC)

    def write(self, cells: int) -> dict[str, Any]:
        """What is known now, ``cells`` having been run in this session."""
        gone = (datetime.now(UTC) - self._begun).total_seconds()
        now = {"begun": self._begun.strftime("%Y-%m-%d %H:%M UTC"), "seconds": round(gone), "cells": cells}
        sessions = [*self._earlier, now] if cells else self._earlier
        about = {**self._facts, "sessions": sessions, "seconds": sum(each["seconds"] for each in sessions)}
        write_whole(self.file, (json.dumps(about, indent=2) + "\n").encode())
        return about


def read_about(file: Path) -> dict[str, Any]:
    """What an account says; empty where there is none."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def sentence(about: Mapping[str, Any]) -> str:
    """For people: machine, versions, date, time."""
    sessions = about.get("sessions", [])
    parts = [str(about.get("machine", "unknown machine")), f"torch {about.get('torch', '?')}"]
    if sessions:
        parts += [f"{about['seconds'] / 60:.0f} minutes in all", str(sessions[-1]["begun"]).split(" ")[0]]
    return ", ".join(parts)


def machine() -> str:
    """The cores, and the GPU where there is one."""
    import torch

    text = f"{cores()} cores of {_processor()}"
    return f"{text}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else text


def _torch() -> str:
    import torch

    return str(torch.__version__)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or os.name
