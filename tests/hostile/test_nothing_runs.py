"""No file is a program: what could run one is called nowhere, and a file that holds one is refused unrun."""

import ast
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

import acpl
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError
from acpl.models.pretrained import read_state
from acpl.settings import _PlainLoader

SOURCE = Path(__file__).parents[2] / "src" / "acpl"
BETWEEN_OWN_PROCESSES = {"data/workers.py"}
"""Where pickles go through pipes between processes that this program started; none comes from a file."""
NEVER_IMPORTED = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
NEVER_CALLED = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "pd.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
}
NEEDS = {
    "torch.load": ("weights_only", True),
    "torch.hub.load_state_dict_from_url": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "np.lib.format.read_array": ("allow_pickle", False),
}
FILES = sorted(SOURCE.rglob("*.py"))


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a function that has a name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_calls_nothing_that_runs_what_it_reads(file: Path) -> None:
    if str(file.relative_to(SOURCE)) not in BETWEEN_OWN_PROCESSES:
        assert not imported(file) & NEVER_IMPORTED
    for name, call in calls(file):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        assert name not in NEVER_CALLED, ast.unparse(call)
        assert not (isinstance(given.get("shell"), ast.Constant) and given["shell"].value), ast.unparse(call)
        if name in NEEDS:
            argument, value = NEEDS[name]
            found = given.get(argument)
            assert isinstance(found, ast.Constant), ast.unparse(call)
            assert found.value is value, ast.unparse(call)


def test_settings_are_read_by_a_safe_loader() -> None:
    assert issubclass(_PlainLoader, yaml.SafeLoader)


def test_the_rule_above_sees_what_it_forbids(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import torch\ntorch.load(x)\nimport pickle\n")
    assert [name for name, _ in calls(file)] == ["torch.load"]
    assert imported(file) == {"torch", "pickle"}


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_the_trap_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".safetensors", ""])
@pytest.mark.parametrize("packed", [True, False])
def test_weights_that_would_run_code_are_refused_unrun(suffix: str, packed: bool, tmp_path: Path) -> None:
    file = tmp_path / f"weights{suffix}"
    if packed:
        torch.save({"conv.weight": torch.zeros(2), "extra": Trap(tmp_path / "ran")}, file)
    else:
        file.write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    with pytest.raises(UserError, match="does not hold weights that can be loaded safely"):
        read_state(file)
    with pytest.raises(UserError, match="does not hold weights that can be loaded safely"):
        acpl.train(out=tmp_path / "run", data="phantom-chest", phantom_patients=20, size=32, weights=str(file))
    assert not (tmp_path / "ran").exists()


def test_a_run_folder_of_a_stranger_runs_nothing(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    (run / "model.safetensors").write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    for checkpoint in (run / "checkpoints").glob("*.pt"):
        torch.save({"stage": 0, "x": Trap(tmp_path / "ran")}, checkpoint)
    (run / "config.yaml").write_text("seed: !!python/object/apply:os.mkdir ['ran']\n")
    folder = RunFolder.open(run)
    with pytest.raises(UserError):
        folder.config()
    with pytest.raises(UserError, match=r"model\.safetensors"):
        folder.read_weights("model")
    with pytest.raises(UserError):
        acpl.evaluate(run, resamples=10, device="cpu")
    assert not (tmp_path / "ran").exists()
