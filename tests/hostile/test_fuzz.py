"""Files mutated at random, through the processes that read a user's files; ``python -m tests.hostile.fuzz`` goes on."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.breaking import mutated
from tests.hostile.corpus import sound
from tests.hostile.probe import Probe, probing

CASES = 60
"""For each of the corpus's files."""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    with probing(tmp_path_factory.mktemp("fuzz")) as probe:
        yield probe


@pytest.mark.slow
@pytest.mark.parametrize("name", sound())
@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_file_is_read_or_refused_in_one_line(name: str, probe: Probe, chance: random.Random) -> None:
    content = mutated(sound()[name], list(sound().values()), chance)
    for answer in probe(content):
        assert answer.reason.isprintable()
        assert answer.memory < 4_500_000_000
