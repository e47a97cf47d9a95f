"""What the kept tables of stages hold: every candidate, what was said of it, and whether it was selected."""

from pathlib import Path

import pandas as pd

from acpl.data.manifest import Manifest, Part
from acpl.engine.training import source_of, true_manifest
from acpl.experiments.reproduce.gathered import Gathered
from acpl.experiments.reproduce.plan import Planned


def train_manifest(gathered: Gathered) -> Manifest:
    """The training images whose true labels are known, ids ascending."""
    parts: tuple[Part, ...] = ("train",)
    shared = gathered.request.shared(gathered.request.fractions[0])
    manifest = true_manifest(shared, source_of(shared).manifest().only(parts))
    return manifest.keep(manifest.known)


def with_stages(gathered: Gathered) -> list[Planned]:
    """The finished cells that selected at least once."""
    cells = [one for place in gathered.places() for one in gathered.at(*place)]
    return [one for one in cells if stages_of(gathered.folder(one))]


def stages_of(folder: Path) -> list[pd.DataFrame]:
    """A kept run's tables, the first stage's first."""
    return [pd.read_parquet(file) for file in sorted((folder / "stages").glob("*.parquet"))]


def all_reasons(gathered: Gathered) -> list[str]:
    """Why cells are missing, of all places."""
    return [reason for place in gathered.places() for reason in gathered.reasons(*place)]


def labels_said(gathered: Gathered) -> str:
    """The share of labels, in words."""
    return f"{100 * gathered.request.fractions[0]:g} % of the labels"
