"""A run's model for other programs: one file, checked, and a card that says how to call it."""

import importlib.metadata
import logging
import platform
import shutil
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from acpl.data.store import ImageStore
from acpl.data.workers import Progress, nothing
from acpl.engine.beside import knows_more
from acpl.engine.building import network_of
from acpl.engine.predicting import FINAL, Predictor
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.training import source_of
from acpl.engine.writing import told, write_whole
from acpl.errors import UserError
from acpl.models import Looks, Network, look_at
from acpl.task import Task

Format = Literal["onnx", "torchscript", "safetensors"]
Floats = npt.NDArray[np.float64]
Call = Callable[[Tensor], Floats]
"""uint8 (n, channels, size, size) to probabilities (n, classes), by the exported file alone."""
TOLERANCE = 1e-4
CHECKED = 64
BATCHES = (1, 5)
"""Batches of several sizes, so that a file that took the first for the only one is found out."""
_LOOKS: dict[Looks, str] = {
    "one": "the image is looked at as it is",
    "mirrored": "mean of the probabilities of the image and of its left-right mirror image",
    "turned": "mean of the probabilities of the image turned by 0, 1, 2 and 3 quarters, each as it is and mirrored",
}
_FILES = {"onnx": "model.onnx", "torchscript": "model.ts", "safetensors": "model.safetensors"}


class Exported(NamedTuple):
    """Where the files are, and how far their outputs are from the run's own."""

    folder: Path
    file: Path
    difference: float
    images: int


class Callable8Bit(nn.Module):
    """uint8 images in, probabilities out: normalisation, activation and the mean over several looks are inside."""

    def __init__(self, network: Network, card: ModelCard) -> None:
        super().__init__()
        self.network = network
        self.task, self.looks = Task(card.task), card.looks
        self.classes = len(card.classes)
        mean, std = torch.tensor(card.mean), torch.tensor(card.std)
        self.register_buffer("scale", (1.0 / (255.0 * std)).view(1, -1, 1, 1))
        self.register_buffer("shift", (-mean / std).view(1, -1, 1, 1))
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """(n, classes) for uint8 (n, channels, size, size)."""
        normalised = images.float() * self.scale + self.shift
        _, said = look_at(normalised, self.network, looks=self.looks, task=self.task)
        return said[:, : self.classes]


def export_run(path: Path, form: Format, out: Path | None = None, progress: Progress = nothing) -> Exported:
    """Write the model and its card into a new folder; a file whose outputs differ is not left behind."""
    if form not in get_args(Format):
        raise UserError(f"format should be {', '.join(get_args(Format))}, but it is '{form}'")
    folder = RunFolder.open(path)
    if form == "onnx":
        _need("onnx", "onnxscript", "onnxruntime")
    target = out if out is not None else path / f"export-{form}"
    if target.exists():
        raise UserError(f"{target} exists; choose another --out, nothing is ever written over")
    # On the CPU in full precision: what the file is compared with should be the same everywhere.
    predictor = Predictor.load(folder, FINAL, "cpu", "32")
    images, part = _real_images(folder, progress)
    beside = target.with_name(target.name + ".part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{target} cannot be made: {error.strerror}") from None
    try:
        file = beside / _FILES[form]
        write = {"onnx": _onnx, "torchscript": _torchscript, "safetensors": _safetensors}[form]
        with told(target):
            call = write(predictor, images, file)
        difference = _difference(predictor, images, call)
        if not difference <= TOLERANCE:
            raise UserError(
                f"the exported model's probabilities differ from the run's by up to {difference:.2g} "
                f"on {len(images)} {part} images, more than {TOLERANCE:g}; nothing was exported"
            )
        checked = {"images": len(images), "part": part, "largest_difference": difference, "tolerance": TOLERANCE}
        _write_card(beside, folder, form, checked)
        beside.replace(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Exported(target, target / _FILES[form], difference, len(images))


def _real_images(folder: RunFolder, progress: Progress) -> tuple[Tensor, str]:
    """At most 64 images, spread over the validation part, or over the training part where there is none."""
    config, card = folder.config(), folder.card()
    colour = "grey" if card.channels == 1 else "rgb"
    source = source_of(config.model_copy(update={"colour": colour}), progress)
    part = "validation" if (source.manifest().table["part"] == "validation").any() else "train"
    store = source.open((part,)).images  # type: ignore[arg-type]
    chosen = torch.linspace(0, len(store.ids) - 1, min(CHECKED, len(store.ids))).long()
    return store.gather(store.ids[chosen]), part


def _difference(predictor: Predictor, images: Tensor, call: Call) -> float:
    store = ImageStore(torch.arange(len(images)), images)
    expected = predictor(store, store.ids)
    sizes = [*(size for size in BATCHES if size < len(images)), len(images)]
    starts = np.cumsum([0, *sizes[:-1]])
    found = [
        (call(images[a : a + n]), expected[a : a + n]) for a, n in zip(starts, sizes, strict=True) if a < len(images)
    ]
    if any(ours.shape != theirs.shape for ours, theirs in found):
        return float("inf")
    return float(np.max([np.abs(ours - theirs).max() for ours, theirs in found]))  # NaN if any is


def _onnx(predictor: Predictor, images: Tensor, file: Path) -> Call:
    import onnxruntime

    model = Callable8Bit(predictor.network, predictor.card).eval()
    # It warns of operators that it could not register for packages that are not there, and of its own workings.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (_example(predictor.card),),
            file,
            input_names=["images"],
            output_names=["probabilities"],
            dynamo=True,
            dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}},
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda batch: np.asarray(session.run(None, {"images": batch.numpy()})[0], dtype=np.float64)


def _torchscript(predictor: Predictor, images: Tensor, file: Path) -> Call:
    model = Callable8Bit(predictor.network, predictor.card).eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch warns of tracing's limits, which the check below would find
        content = BytesIO()  # to a file torch would write by itself, and say little of a disk that is full
        torch.jit.save(torch.jit.trace(model, _example(predictor.card), check_trace=False), content)  # type: ignore[no-untyped-call]
        write_whole(file, content.getvalue())
        loaded = torch.jit.load(str(file))  # type: ignore[no-untyped-call]

    def call(batch: Tensor) -> Floats:
        with torch.no_grad():
            answer: Floats = loaded(batch).double().numpy()
        return answer

    return call


def _safetensors(predictor: Predictor, images: Tensor, file: Path) -> Call:
    from safetensors.torch import load_file, save

    state = {name: value.cpu().contiguous() for name, value in predictor.network.state_dict().items()}
    write_whole(file, save(state, metadata={"made_by": f"acpl {_version('acpl')}"}))
    network = network_of(predictor.card)
    network.load_state_dict(load_file(file))
    model = Callable8Bit(network, predictor.card).eval()

    def call(batch: Tensor) -> Floats:
        with torch.no_grad():
            answer: Floats = model(batch).double().numpy()
        return answer

    return call


def _example(card: ModelCard) -> Tensor:
    # Two, for torch takes a dimension of one for a constant.
    return torch.zeros(2, card.channels, card.size, card.size, dtype=torch.uint8)


def _write_card(target: Path, folder: RunFolder, form: Format, checked: dict[str, Any]) -> None:
    """``model.json``: everything that another program needs to call the file beside it."""
    config, card = folder.config(), folder.card()
    inside = form != "safetensors"
    activation = "softmax" if card.task == Task.MULTI_CLASS else "sigmoid"
    rule = card.decision_rule()
    outputs = len(card.classes) + card.normal_output
    described: dict[str, Any] = {
        "format": form,
        "file": _FILES[form],
        "task": card.task,
        "classes": card.classes,
        "input": {
            "name": "images",
            "dtype": "uint8" if inside else "float32, normalised as below",
            "shape": ["batch", card.channels, card.size, card.size],
            "layout": "batch, channels, height, width; any batch size",
            "channels": "grey" if card.channels == 1 else "red, green, blue",
            "range": [0, 255],
        },
        "preprocessing": {
            "size": card.size,
            "resize": "bicubic with antialiasing (Pillow's BICUBIC)",
            "aspect": card.aspect,
            "aspect_means": {
                "stretch": "width and height are each brought to size",
                "crop": "the square in the middle is brought to size",
                "pad": "the longer side is brought to size, black fills up both sides of the shorter",
            }[card.aspect],
            "wider_than_8_bits": "stretched from the image's least value to its greatest, to 0…255",
            "dicom": "its own rescale and window, MONOCHROME1 inverted",
            "transparency": "over black",
            "orientation": "upright, by the EXIF tag",
        },
        "normalisation": {
            "in_file": inside,
            "formula": "(pixel / 255 - mean) / std, channel by channel",
            "mean": card.mean,
            "std": card.std,
        },
        "looks": {"in_file": inside, "averaged_over": card.looks, "means": _LOOKS[card.looks]},
        "output": {
            "name": "probabilities" if inside else "logits",
            "dtype": "float32",
            "shape": ["batch", len(card.classes) if inside else outputs],
            "activation": activation,
            "activation_in_file": inside,
        },
        "decision": {
            "rule": "argmax" if rule == "argmax" else "probability >= threshold",
            "thresholds": None if rule == "argmax" else dict(zip(card.classes, rule, strict=True)),
        },
        "beside_the_image": {
            "in_file": False,
            "clinical": card.clinical,
            "group_answers": card.group_answers,
            "means": "evidence in log-odds that `acpl predict --table` adds to the file's probabilities, and the share "
            "of an answer that is the mean over a patient's or lesion's images",
        }
        if knows_more(card)
        else None,
        "network": {
            "backbone": card.backbone,
            "activation": card.activation,
            "outputs": outputs,
            "networks": card.networks,
        },
        "trained": {"data": config.data, "method": config.method, "seed": config.seed},
        "checked": checked,
        "versions": {"acpl": _version("acpl"), "python": platform.python_version(), "torch": torch.__version__},
    }
    if card.normal_output and not inside:
        described["output"]["last_output"] = "No Finding; not one of the classes, left out of the decisions"
    if form == "onnx":
        described["versions"] |= {name: _version(name) for name in ("onnx", "onnxscript", "onnxruntime")}
        described["opset"] = _opset(target / _FILES[form])
    if form == "safetensors":
        described["network"]["build"] = (
            f"{_build_text(card, outputs)}; load_state_dict; eval(); its .logits are the output"
        )
    RunFolder(target).write_json("model.json", described)


def _build_text(card: ModelCard, outputs: int) -> str:
    one = (
        f"acpl.models.build_classifier({card.backbone!r}, channels={card.channels}, classes={outputs}, "
        f"activation={card.activation!r})"
    )
    if card.networks == 1:
        return one
    return f"acpl.models.Joined([{one} for _ in range({card.networks})], acpl.task.Task({card.task!r}))"


def _opset(file: Path) -> int:
    import onnx

    return int(onnx.load(str(file)).opset_import[0].version)


def _need(*packages: str) -> None:
    missing = [name for name in packages if _version(name) is None]
    if missing:
        raise UserError(f"format 'onnx' needs {', '.join(missing)}: pip install 'acpl[export]'")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
