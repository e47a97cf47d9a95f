"""Images that are noise, in tables that say much of their patients, and runs on them."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.engine.beside.runs import SITES, train
from tests.noise import write_noise

import acpl


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of 40 patients, two images each, whose site tells which of three lesions they have, or two findings."""
    folder = tmp_path_factory.mktemp("noise")
    rows = []
    for number, name in enumerate(write_noise(folder, 80)):
        patient = number // 2
        kind = patient % 3
        part = "train" if patient < 20 else "val" if patient < 29 else "test"
        row = {"image": name, "patient": f"p{patient}", "split": part, "dx": "abc"[kind]}
        known = {"site": SITES[kind], "age": "" if number % 7 == 0 else str(30 + 10 * kind + number % 5)}
        rows.append(row | known | {"Mass": int(kind == 0), "Nodule": int(kind == 1)})
    table = pd.DataFrame(rows)
    table.drop(columns=["Mass", "Nodule"]).to_csv(folder / "lesions.csv", index=False)
    table.drop(columns="dx").to_csv(folder / "chests.csv", index=False)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACPL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def plain(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows nothing but the images; judged."""
    run = train(place, tmp_path_factory.mktemp("runs") / "plain")
    acpl.evaluate(run, resamples=2)
    return run


@pytest.fixture(scope="module")
def informed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the site and the age; judged."""
    run = train(place, tmp_path_factory.mktemp("runs") / "informed", clinical="site,age")
    acpl.evaluate(run, resamples=2)
    acpl.evaluate(run, part="validation", resamples=2)
    return run
