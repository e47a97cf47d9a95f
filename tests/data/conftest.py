"""What several tests of data share."""

from collections.abc import Iterator

import fsspec
import pytest


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()
