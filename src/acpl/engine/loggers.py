"""What a run writes down, sent on to a tracker that a team uses: TensorBoard, MLflow, Weights & Biases.

Each is an extra that is imported only when it is asked for. Figures go where the tracker is set up to keep them,
which for the last two may be another machine: nothing is sent unless ``--log`` says so. No image is sent anywhere.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from acpl.engine.monitor import Monitor, Quiet
from acpl.errors import UserError
from acpl.settings import unknown

PROJECT = "acpl"


class TensorBoard(Quiet):
    """Event files in the run folder's ``tensorboard``."""

    def __init__(self) -> None:
        self._module = _needed("tensorboard", "torch.utils.tensorboard")
        self._writer: Any = None
        self._step = 0

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """The configuration as a text, and the file the figures go to."""
        self._writer = self._module.SummaryWriter(log_dir=str(folder / "tensorboard"))
        table = "\n".join(f"    {name}: {value}" for name, value in flat(config).items())
        self._writer.add_text("configuration", table)

    def event(self, event: Mapping[str, Any]) -> None:
        """A scalar a figure."""
        self._step = int(event.get("step", self._step))
        for name, value in figures(event).items():
            self._writer.add_scalar(name, value, self._step)

    def close(self) -> None:
        """Written out."""
        if self._writer is not None:
            self._writer.close()


class MLflow(Quiet):
    """A run of the experiment ``acpl``, wherever MLflow is set up to keep it."""

    def __init__(self) -> None:
        self._module = _needed("mlflow", "mlflow")
        self._begun = False
        self._step = 0

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """The configuration as parameters."""
        self._module.set_experiment(PROJECT)
        self._module.start_run(run_name=folder.name)
        self._begun = True
        self._module.log_params({name: str(value)[:500] for name, value in flat(config).items()})

    def event(self, event: Mapping[str, Any]) -> None:
        """A metric a figure."""
        self._step = int(event.get("step", self._step))
        self._module.log_metrics(figures(event), step=self._step)

    def close(self) -> None:
        """The run is over."""
        if self._begun:
            self._module.end_run()


class WandB(Quiet):
    """A run of the project ``acpl``; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self) -> None:
        self._module = _needed("wandb", "wandb")
        self._run: Any = None
        self._step = 0

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """The configuration, and the folder's name for the run's."""
        self._run = self._module.init(project=PROJECT, name=folder.name, dir=str(folder), config=dict(config))

    def event(self, event: Mapping[str, Any]) -> None:
        """All figures of an event at once."""
        self._step = int(event.get("step", self._step))
        self._run.log(figures(event), step=self._step)

    def close(self) -> None:
        """The run is over."""
        if self._run is not None:
            self._run.finish()


LOGGERS: dict[str, type[Quiet]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def find_loggers(names: Iterable[str]) -> list[Monitor]:
    """A monitor for each name; a UserError for one that is unknown or not installed."""
    found: list[Monitor] = []
    for name in names:
        if name not in LOGGERS:
            raise unknown("log", name, list(LOGGERS))
        found.append(LOGGERS[name]())
    return found


def figures(event: Mapping[str, Any]) -> dict[str, float]:
    """An event's numbers under the names that a tracker shows them by; what is undefined is left out."""
    if event["event"] == "epoch":
        found = {f"loss/{name}": value for name, value in event["losses"].items()}
        found |= {"validation/auroc": event.get("validation_auroc"), "run/seconds": event["seconds"]}
        found |= {"run/images": event.get("images")}
    elif event["event"] == "stage":
        skipped = ("event", "stage", "name", "time", "steps", "epoch_steps")
        found = {f"pools/{name}": value for name, value in event.items() if name not in skipped}
        found["run/stage"] = event["stage"]
    else:
        found = {}
    return {name: float(value) for name, value in found.items() if _is_number(value)}


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in one layer, the method's settings under their own names."""
    settings = config.get("settings") or {}
    return {name: value for name, value in config.items() if name != "settings"} | dict(settings)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _needed(extra: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as reason:
        message = f"--log {extra} needs the extra of that name: pip install 'acpl[{extra}]' ({reason})"
        raise UserError(message) from None
