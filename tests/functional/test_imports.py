import subprocess
import sys


def test_the_functions_need_torch_and_numpy_alone() -> None:
    code = "import sys, acpl.functional; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert "torch" in loaded
    assert not loaded & {"pydantic", "pandas", "monai", "sklearn", "scipy", "typer", "yaml"}
