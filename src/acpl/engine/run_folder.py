"""The folder a run leaves behind: written once, read by everything that comes after."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from torch import Tensor

from acpl.config import Config, ThresholdRule
from acpl.data.decode import Aspect
from acpl.engine.writing import append_line, told, whole_lines, write_whole
from acpl.errors import UserError
from acpl.models import Looks
from acpl.settings import read_yaml
from acpl.task import Task

__all__ = ["ModelCard", "RunFolder", "write_whole"]

FEATURES = ".features-"
"""How folders begin that hold what a process needs while it selects, and nobody after it."""
STAGES = "stages"


@dataclass(frozen=True)
class ModelCard:
    """Everything that another program needs to call ``model.safetensors``."""

    task: str
    classes: list[str]
    backbone: str
    activation: str
    channels: int
    size: int
    mean: list[float]
    std: list[float]
    threshold: ThresholdRule | None
    """The rule by which a class is called; None in runs made before there were several."""
    normal_output: bool
    thresholds: list[float] | None = None
    """The probability from which each class is called; None: the most probable one is."""
    snapshot_thresholds: dict[str, list[float]] = field(default_factory=dict)
    """The same for each snapshot, where it has its own."""
    aspect: Aspect = "stretch"
    looks: Looks = "one"
    """The ways to look at an image over which features and probabilities are averaged."""
    networks: int = 1
    """How many answer together, with the mean of their probabilities."""
    clinical: dict[str, Any] | None = None
    """What the patient's data say of each class, which is added to what the image says; None: nothing is."""
    group_answers: float = 0.0
    """Share of an answer that is the mean over the images of the same patient or lesion."""
    temperature: float = 1.0
    """What the weights' logits were divided by when training was over; the weights have it in them."""

    def decision_rule(self, snapshot: str | None = None) -> Literal["argmax"] | list[float]:
        """What ``decide`` takes: ``argmax``, or a threshold a class; a snapshot's own where it has one."""
        thresholds = self.snapshot_thresholds.get(snapshot, self.thresholds) if snapshot else self.thresholds
        if thresholds is not None:
            return thresholds
        if isinstance(self.threshold, float):
            return [self.threshold] * len(self.classes)
        return "argmax" if self.task == Task.MULTI_CLASS else [0.5] * len(self.classes)


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunFolder":
        """A new folder that has its configuration from the first moment on; one that exists is refused."""
        with cls.whole(path) as folder:
            folder.write_config(config)
        return cls(path)

    @classmethod
    @contextmanager
    def whole(cls, path: Path) -> Iterator["RunFolder"]:
        """A folder to write to, which is at ``path`` when all was written, and nowhere if that fails."""
        cls.refuse_existing(path)
        beside = cls(path.with_name(f".{path.name}.{os.getpid()}.part"))
        try:
            beside.path.mkdir(parents=True)
            yield beside
            beside.path.rename(path)
        except OSError as error:
            raise UserError(f"{path} cannot be made: {error.strerror}") from None
        finally:
            shutil.rmtree(beside.path, ignore_errors=True)

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Nothing is ever written over."""
        if path.exists():
            raise UserError(f"{path} exists; choose another --out, nothing is ever written over")

    @classmethod
    def open_unfinished(cls, path: Path) -> "RunFolder":
        """The folder of a run that was cut short."""
        if not (path / "config.yaml").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.yaml")
        if (path / "model.safetensors").is_file():
            raise UserError(f"{path} holds a run that is done: there is nothing to resume")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process works on a run at a time; the lock goes with the process, however it ends."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.path} is being worked on by another process") from None
            for left in self.path.glob(f"{FEATURES}*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(folder)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A finished run's folder."""
        if not (path / "config.yaml").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.yaml")
        if not (path / "model.safetensors").is_file():
            raise UserError(f"{path} holds a run that did not finish: it has no model.safetensors")
        return cls(path)

    def remove_if_untrained(self) -> None:
        """Leave nothing behind of a run that was refused before it began."""
        with suppress(OSError):
            if {entry.name for entry in self.path.iterdir()} <= {"config.yaml"}:
                (self.path / "config.yaml").unlink(missing_ok=True)
                self.path.rmdir()

    def write_config(self, config: Config) -> None:
        """``config.yaml``: the whole configuration, resolved."""
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
        write_whole(self.path / "config.yaml", text.encode())

    def config(self) -> Config:
        """What the run was asked to do."""
        return Config.parse(read_yaml(self.path / "config.yaml"))

    def write_split(self, table: pd.DataFrame) -> None:
        """``split.csv``: id, image, role."""
        write_whole(self.path / "split.csv", table.to_csv(index=False).encode())

    def split(self) -> pd.DataFrame:
        """What ``split.csv`` says; names that look like numbers or like nothing stay names."""
        file = self.path / "split.csv"
        with _damage(file):
            return pd.read_csv(file, dtype={"image": str, "role": str}, keep_default_na=False)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """A CSV file."""
        write_whole(self.path / name, table.to_csv(index=False).encode())

    def append_event(self, event: Mapping[str, Any]) -> None:
        """One line of ``events.jsonl``."""
        append_line(self.path / "events.jsonl", json.dumps(event, allow_nan=True))

    def events_size(self) -> int:
        """How many bytes ``events.jsonl`` has."""
        file = self.path / "events.jsonl"
        return file.stat().st_size if file.exists() else 0

    def sync_events(self) -> None:
        """Put what was told so far on the disk: a checkpoint that is newer must not outlive it."""
        file = self.path / "events.jsonl"
        if file.exists():
            with told(file), file.open("rb") as handle:
                os.fsync(handle.fileno())

    def cut_events(self, size: int) -> None:
        """Forget the events after a checkpoint: what they tell will happen again."""
        if self.events_size() > size:
            os.truncate(self.path / "events.jsonl", size)

    def events(self) -> list[dict[str, Any]]:
        """Every event in order; a last one that a crash cut off is none."""
        file = self.path / "events.jsonl"
        with _damage(file):
            return [json.loads(line) for line in whole_lines(file)] if file.exists() else []

    def write_stage(self, index: int, columns: Mapping[str, Tensor], classes: list[str]) -> None:
        """``stages/NN.parquet``: a row a candidate; a column a class where a value has classes."""
        flat: dict[str, Any] = {}
        for name, values in columns.items():
            array = values.cpu().numpy()
            if array.ndim == 1:
                flat[name] = array
            else:
                flat |= {f"{name}.{label}": array[:, column] for column, label in enumerate(classes)}
        target = self.path / STAGES / f"{index:02d}.parquet"
        content = BytesIO()
        pd.DataFrame(flat).to_parquet(content, index=False)
        with told(target):
            target.parent.mkdir(exist_ok=True)
        write_whole(target, content.getvalue())

    def read_stage(self, index: int) -> pd.DataFrame:
        """A stage's table."""
        return self.read_parquet(f"{STAGES}/{index:02d}.parquet")

    def stage_numbers(self) -> list[int]:
        """The stages that have a table."""
        return sorted(int(file.stem) for file in (self.path / STAGES).glob("*.parquet") if file.stem.isdecimal())

    def read_parquet(self, name: str) -> pd.DataFrame:
        """A table of the folder."""
        file = self.path / name
        with _damage(file):
            return pd.read_parquet(file)

    def write_weights(self, name: str, weights: Mapping[str, Tensor]) -> None:
        """``NAME.safetensors``: weights that cannot run code."""
        from safetensors.torch import save

        write_whole(self.path / f"{name}.safetensors", save({k: v.cpu().contiguous() for k, v in weights.items()}))

    def read_weights(self, name: str) -> dict[str, Tensor]:
        """The weights under this name."""
        from safetensors.torch import load_file

        file = self.path / f"{name}.safetensors"
        with _damage(file):
            loaded: dict[str, Tensor] = load_file(file)
        return loaded

    def weight_names(self) -> list[str]:
        """Which weights there are: ``model`` and any stage's snapshot."""
        return sorted(file.stem for file in self.path.glob("*.safetensors"))

    def put_aside_broken_weights(self) -> list[str]:
        """What is wrong with each snapshot that cannot be read any more; it is called ``.broken`` from now on."""
        found = []
        for name in self.weight_names():
            try:
                self.read_weights(name)
            except UserError as reason:
                found.append(str(reason))
                file = self.path / f"{name}.safetensors"
                file.rename(file.with_suffix(".broken"))  # as a checkpoint is: what judges a run judges every snapshot
        return found

    def write_card(self, card: ModelCard) -> None:
        """``model.json``."""
        self.write_json("model.json", vars(card))

    def card(self) -> ModelCard:
        """What ``model.json`` says."""
        file = self.path / "model.json"
        with _damage(file):
            return ModelCard(**json.loads(file.read_text(encoding="utf-8")))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """A JSON file for people and programs."""
        write_whole(self.path / name, (json.dumps(value, indent=2) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What a JSON file holds; None where there is none."""
        file = self.path / name
        if not file.exists():
            return None
        with _damage(file):
            found = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no table of names and values")
        return found


class ElsewhereFolder(RunFolder):
    """The folder of a run as its other processes have it: nothing is read from it, nothing written to it.

    It may lie on another machine.
    """

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The first process has the lock."""
        yield

    def write_config(self, config: Config) -> None:
        """Nothing."""

    def write_split(self, table: pd.DataFrame) -> None:
        """Nothing."""

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Nothing."""

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Nothing."""

    def events_size(self) -> int:
        """0."""
        return 0

    def sync_events(self) -> None:
        """Nothing."""

    def cut_events(self, size: int) -> None:
        """Nothing."""

    def write_stage(self, index: int, columns: Mapping[str, Tensor], classes: list[str]) -> None:
        """Nothing."""

    def write_weights(self, name: str, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def weight_names(self) -> list[str]:
        """None."""
        return []

    def write_card(self, card: ModelCard) -> None:
        """Nothing."""

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Nothing."""

    def read_json(self, name: str) -> None:
        """None."""


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Whatever is raised while a run's file is read, as one sentence that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{file} could not be read: {error.strerror or error}") from None
    except Exception as error:  # safetensors, json and a dataclass each have their own
        raise UserError(f"{file} is damaged: {' '.join(str(error).split())[:200]}") from None
