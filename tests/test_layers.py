"""Who may know whom: the map in docs/architecture.md, held by the imports themselves."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "acpl"
LEAVES = {"duration", "errors", "task", "settings"}
MAY_KNOW = {
    "functional": set(),
    "evaluation": set(),
    "data": LEAVES,
    "models": LEAVES,
    "algorithms": LEAVES | {"functional", "models", "data"},
    "config": LEAVES | {"algorithms"},
    "engine": LEAVES | {"algorithms", "config", "data", "evaluation", "functional", "models"},
    "labelling": LEAVES | {"config", "data", "engine", "evaluation", "functional"},
    "report": {"duration", "errors", "settings"},
    "api": LEAVES | {"algorithms", "config", "data", "engine", "labelling", "report"},
    "completion": {"algorithms", "config"},
    "options": LEAVES | {"completion", "config"},
    "machine": set(),
    "estimator": LEAVES | {"api", "engine"},
    "cli": LEAVES
    | {"algorithms", "api", "completion", "config", "engine", "experiments", "machine", "options", "report"},
    "__main__": {"cli"},
    "experiments": LEAVES | {"algorithms", "api", "config", "data", "engine", "evaluation", "functional", "report"},
}


def rooms_imported(file: Path) -> set[str]:
    """The rooms of acpl that a file imports anywhere, typing-only imports included."""
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "acpl":
            names = [f"acpl.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = [node.module or ""]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("acpl.")}
    return rooms


@pytest.mark.parametrize("room", sorted(MAY_KNOW))
def test_a_room_knows_only_the_rooms_it_may(room: str) -> None:
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    assert files
    for file in files:
        assert rooms_imported(file) <= MAY_KNOW[room] | {room}, file


def test_every_room_has_a_rule() -> None:
    rooms = {entry.stem for entry in SOURCE.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(MAY_KNOW) | LEAVES
