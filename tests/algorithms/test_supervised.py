"""The floor."""

from acpl.task import Task
from tests.algorithms.method_tester import MethodTester, World


class TestSupervised(MethodTester):
    name = "supervised"


def test_it_has_one_stage_as_long_as_all_of_acpls_or_as_told() -> None:
    stage = World("supervised", Task.MULTI_LABEL).method.stage(0)
    assert stage is not None
    assert stage.steps == 2 * (8 + 2 * 2)
    told = World("supervised", Task.MULTI_LABEL, steps=7).method.stage(0)
    assert told is not None
    assert told.steps == 7
