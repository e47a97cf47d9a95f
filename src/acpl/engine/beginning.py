"""What a run began with, written down when it does: nothing else is gone on with."""

import base64
import hashlib
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl import algorithms
from acpl.config import Config
from acpl.data.clinical import find_clinical
from acpl.data.manifest import Labels
from acpl.data.sources import Dataset
from acpl.data.store import ImageStore
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError

FILE = "beginning.json"
LOOKED_AT = 500
"""Images at most whose pictures are kept, evenly spread."""
SIDE = 8
"""Height and width of such a picture: enough to tell an image from another, in 64 bytes a channel."""
SAME = 2
"""Levels of 255 that a picture may differ by: another machine or library may decode an image a little differently."""
_SHOWN = 5
_CURE = "undo that, or begin a new run with another --out"


@dataclass(frozen=True)
class Beginning:
    """The settings and data that a run began with, as ``beginning.json`` has them."""

    settings: dict[str, Any]
    """The whole configuration."""
    task: str
    classes: list[str]
    rows: str
    """A checksum of each image's id, name and role."""
    columns: list[str]
    """A checksum of each class's labels."""
    labels: str
    """Four bytes for the labels of each image, in the order of the ids, packed."""
    channels: int
    pictures: dict[str, str]
    """Some images as training sees them, very small, by id."""
    beside: dict[str, str] = field(default_factory=dict)
    """A checksum of each column that is used beside the images, by name; a run of an older version has none."""
    edition: int = 1
    """Of the method; runs of versions that did not keep it are of the first."""

    @classmethod
    def of(cls, config: Config, dataset: Dataset, split: pd.DataFrame) -> "Beginning":
        """What is there now; ``split`` has a row for each of the data set's: id, image, role."""
        manifest = dataset.manifest
        labels = manifest.labels
        return cls(
            settings=config.model_dump(mode="json"),
            task=str(manifest.task),
            classes=list(manifest.classes),
            rows=_checksum(split[["id", "image", "role"]].to_csv(index=False).encode(errors="surrogateescape")),
            columns=[_checksum(_bytes(column)) for column in labels.T],
            labels=_packed(_marks(labels)),
            channels=dataset.images.channels,
            pictures=_pictures(dataset.images, manifest.ids),
            beside=_beside(manifest.table, config),
            edition=algorithms.edition(config.method),
        )

    @classmethod
    def kept_in(cls, folder: RunFolder) -> "Beginning | None":
        """What the run in ``folder`` began with; None where it has not begun, or did so before this was kept."""
        found = folder.read_json(FILE)
        if found is None:
            return None
        try:
            kept = cls(**found)
            Config.parse(kept.settings)
            _unpacked(kept.labels)
            dict(kept.beside)
        except (TypeError, ValueError, zlib.error, UserError):  # a field too many or few, or what is no such field
            raise UserError(
                f"{folder.path / FILE} is damaged: it does not say what the run began with; "
                "if nothing has changed since, remove it, and the run goes on without comparing"
            ) from None
        return kept

    def keep_in(self, folder: RunFolder) -> None:
        """``beginning.json``."""
        folder.write_json(FILE, vars(self))

    def refuse_other_settings(self, config: Config, may_change: Collection[str]) -> None:
        """UserError where ``config``, which a person may have edited, would lead to another result."""
        before, now = (_by_name(one) for one in (Config.parse(self.settings), config))
        free = {*may_change, "split_checksum"}  # who has which role is compared besides
        names = [name for name in {**before, **now} if name not in free and before.get(name) != now.get(name)]
        if names:
            shown = [f"{name} was {before.get(name)} and is {now.get(name)} now" for name in names[:_SHOWN]]
            changed = ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            raise UserError(f"config.yaml is not what this run began with: {changed}; {_CURE}")

    def refuse_another_edition(self, folder: RunFolder) -> None:
        """UserError where the method's code has been changed since, so that it would lead to another result."""
        method = Config.parse(self.settings).method
        if self.edition != (now := algorithms.edition(method)):
            raise UserError(
                f"{folder.path} was begun with edition {self.edition} of {method}, but this is edition {now}, "
                "which leads to another result; remove it, or begin a new run with another --out"
            )

    def refuse_other_data(self, now: "Beginning", before: pd.DataFrame, split: pd.DataFrame) -> None:
        """UserError where ``now`` holds other data; ``before`` and ``split`` are the splits of then and now."""
        changed = (
            _other_classes(self, now)
            or (_other_rows(before, split) if self.rows != now.rows else None)
            or _other_labels(self, now, split)
            or _other_beside(self, now)
            or _other_pictures(self, now, split)
        )
        if changed is not None:
            raise UserError(f"{now.settings['data']} has changed since this run began: {changed}; {_CURE}")


def _by_name(config: Config) -> dict[str, Any]:
    """Every setting, the method's own among them."""
    told = config.model_dump(mode="json")
    return {**told, **config.method_settings().model_dump(mode="json"), "settings": None}


def _other_classes(then: Beginning, now: Beginning) -> str | None:
    if then.task != now.task:
        return f"it was {then.task} and is {now.task} now"
    if then.classes == now.classes:
        return None
    gone = [name for name in then.classes if name not in now.classes]
    new = [name for name in now.classes if name not in then.classes]
    if not gone and not new:
        places = [place for place, name in enumerate(now.classes) if name != then.classes[place]]
        old, current = (_listed([names[place] for place in places]) for names in (then.classes, now.classes))
        return f"its classes come in another order, {current} where {old} were"
    parts = [f"{_listed(names)} {_verb(names)} {word}" for names, word in ((gone, "gone"), (new, "new")) if names]
    return "of its classes " + " and ".join(parts)


def _other_rows(before: pd.DataFrame, split: pd.DataFrame) -> str:
    then, now = (table.set_index(table["image"].astype(str)) for table in (before, split))
    gone, new = then.index.difference(now.index, sort=False), now.index.difference(then.index, sort=False)
    parts = [
        f"{_images(len(names), 'is', 'are')} {word}, {names[0]} among them"
        for names, word in ((gone, "gone"), (new, "new"))
        if len(names)
    ]
    if parts:
        return " and ".join(parts)
    for column, word in (("id", "row"), ("role", "role")):
        old, current = then[column].reindex(now.index).astype(str), now[column].astype(str)
        others = now.index[(old != current).to_numpy()]
        if len(others):
            name = others[0]
            said = f"{_images(len(others), 'has', 'have')} another {word}, {name} among them"
            return f"{said}: {old[name]} then, {current[name]} now"
    return "its rows are others"


def _other_labels(then: Beginning, now: Beginning, split: pd.DataFrame) -> str | None:
    if then.columns == now.columns:
        return None
    others = [place for place, column in enumerate(then.columns) if column != now.columns[place]]
    rows = np.flatnonzero(_unpacked(then.labels) != _unpacked(now.labels))
    names = _listed([then.classes[place] for place in others])
    said = f"of {len(split)} images {len(rows)} {'has' if len(rows) == 1 else 'have'} other labels of {names}"
    exchanged = [then.columns[place] for place in others] == [now.columns[place] for place in reversed(others)]
    if len(others) == 2 and exchanged:
        return f"{said}, each of which has the labels of the other now"
    return f"{said}, {split['image'].iloc[int(rows[0])]} among them"


def _other_beside(then: Beginning, now: Beginning) -> str | None:
    others = [name for name, cells in then.beside.items() if now.beside.get(name) != cells]
    if not others:
        return None
    return (
        f"its column {_listed(others)} says something else"
        if len(others) == 1
        else f"its columns {_listed(others)} say something else"
    )


def _other_pictures(then: Beginning, now: Beginning, split: pd.DataFrame) -> str | None:
    if then.channels != now.channels:
        return f"its images had {then.channels} channels and have {now.channels} now"
    both = [number for number in then.pictures if number in now.pictures]  # another version may look at others
    others = [number for number in both if not _alike(then.pictures[number], now.pictures[number])]
    if not others:
        return None
    name = split["image"][(split["id"] == int(others[0])).to_numpy()].iloc[0]
    said = f"of {len(both)} images that were looked at {len(others)}"
    return f"{said} {'is another' if len(others) == 1 else 'are others'}, {name} among them"


def _alike(one: str, other: str) -> bool:
    first, second = (np.frombuffer(base64.b64decode(picture), dtype=np.uint8).astype(int) for picture in (one, other))
    return first.shape == second.shape and int(np.abs(first - second).max(initial=0)) <= SAME


def _beside(table: pd.DataFrame, config: Config) -> dict[str, str]:
    """By what the cells say to training, however they are written."""
    columns = find_clinical(table[(table["part"] == "train").to_numpy()], config.clinical)
    said: dict[str, list[Any]] = {column.name: column.read(table[column.name]).tolist() for column in columns}
    if config.group_labels is not None or config.group_answers > 0 or config.group_pseudo_labels > 0:
        said["group"] = pd.factorize(table["group"].to_numpy(dtype=object))[0].tolist()
    return {name: _checksum(repr(cells).encode()) for name, cells in said.items()}


def _pictures(images: ImageStore, ids: npt.NDArray[np.int64]) -> dict[str, str]:
    chosen = torch.from_numpy(ids[np.linspace(0, len(ids) - 1, min(LOOKED_AT, len(ids))).astype(np.int64)])
    found: dict[str, str] = {}
    for part in torch.split(chosen, 64):
        small = torch.nn.functional.adaptive_avg_pool2d(images.gather(part).float(), SIDE).round().byte().numpy()
        found |= {str(n): base64.b64encode(one.tobytes()).decode() for n, one in zip(part.tolist(), small, strict=True)}
    return found


def _marks(labels: Labels) -> npt.NDArray[np.uint32]:
    """(images,): the same number for the same labels."""
    return np.array([zlib.crc32(_bytes(row)) for row in labels], dtype="<u4")


def _bytes(labels: npt.NDArray[np.float32]) -> bytes:
    """Of labels of one image or class; one that is blank is always the same bytes."""
    return np.where(np.isnan(labels), -1, labels).astype("<f4").tobytes()


def _packed(marks: npt.NDArray[np.uint32]) -> str:
    return base64.b64encode(zlib.compress(marks.tobytes())).decode()


def _unpacked(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u4")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _images(number: int, one: str, several: str) -> str:
    return f"1 image {one}" if number == 1 else f"{number} images {several}"


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
