"""Every method, from the shell's configuration to test figures, on both phantoms."""

from pathlib import Path

import pytest

import acpl
from acpl import algorithms

TINY = {
    "phantom_patients": 40,
    "size": 32,
    "fraction": 0.3,
    "batch_size": 8,
    "warmup_epochs": 1,
    "stages": 2,
    "stage_epochs": 1,
    "device": "cpu",
    "steps": 12,
}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["phantom-chest", "phantom-lesions"])
@pytest.mark.parametrize("method", algorithms.names())
def test_it_trains_within_its_budget_and_is_judged(method: str, data: str, tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", data=data, method=method, **TINY)
    result = acpl.evaluate(run, resamples=20)
    assert result["method"] == method
    assert 0 <= result["auroc"]["low"] <= result["auroc"]["high"] <= 1
    last = (run / "events.jsonl").read_text().splitlines()[-1]
    assert '"step": 12,' in last or method in ("acpl", "acpl-plus")  # which end early when nothing is left


def test_every_method_says_what_it_is_and_documents_its_settings() -> None:
    for name, summary in acpl.methods().items():
        found = algorithms.find(name)
        assert found.name == name
        assert summary == found.summary
        assert summary
        assert all(field.description for field in found.Settings.model_fields.values())
        assert "steps" in found.Settings.model_fields
        # An option of the shell is one thing only.
        assert not set(found.Settings.model_fields) & set(acpl.Config.model_fields)
