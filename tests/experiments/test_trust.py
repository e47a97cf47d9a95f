"""How well what is said ranks the images of one information set."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from acpl.config import resolve
from acpl.data.manifest import Manifest
from acpl.engine.training import source_of
from acpl.experiments.reproduce.plan import Request
from acpl.experiments.reproduce.stage_tables import train_manifest
from acpl.experiments.reproduce.trust import _ranked
from acpl.task import Task


def test_patients_are_drawn_from_all_and_weigh_their_own_images() -> None:
    """The set holds one patient's images alone: drawn once or thrice, they rank as they do."""
    random = np.random.default_rng(0)
    groups = np.tile(["anna", "bert", "carl"], 20)
    table = pd.DataFrame({"image": [str(n) for n in range(60)], "group": groups, "part": "train"})
    labels = random.integers(0, 2, (60, 1)).astype(np.float32)
    manifest = Manifest(Task.MULTI_LABEL, ("Mass",), table, labels)
    said, mask = random.random((60, 1)), groups == "carl"
    found = _ranked(pd.DataFrame({"id": manifest.ids}), manifest, said, mask, 50)
    drawn = found.draws[~np.isnan(found.draws)]
    assert 20 < len(drawn) < 50  # in the others he was not drawn
    assert drawn == pytest.approx(np.full(len(drawn), found.point[0]))
    nobody = _ranked(pd.DataFrame({"id": manifest.ids}), manifest, said, np.zeros(60, dtype=bool), 50)
    assert np.isnan(nobody.point).all()
    assert nobody.draws.shape == found.draws.shape


def test_phantoms_are_judged_by_what_they_show_not_by_labels_with_mistakes() -> None:
    def truth(errors: float) -> np.ndarray:
        settings = {"data": "phantom-chest", "phantom_patients": 60, "phantom_errors": errors}
        request = Request("trust", (0.1,), 1, ("acpl",), settings=settings)
        return train_manifest(SimpleNamespace(request=request)).labels  # type: ignore[arg-type]

    taught = source_of(resolve("demo", phantom_patients=60, phantom_errors=0.5)).manifest().only(("train",)).labels
    assert (truth(0.5) == truth(0.0)).all()
    assert (truth(0.5) != taught).any()
