"""Settings for all tests: the verifier runs after every pass, and the object cache is the tests' own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import guarded
import pytest

os.environ["SHLO_JIT_CHECK_PASSES"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "SHLO_JIT_CACHE_DIR" not in os.environ:
        os.environ["SHLO_JIT_CACHE_DIR"] = str(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def guarded_memory() -> Iterator[None]:
    """Programs that the tests of a module compile run in guarded memory as well; see `guarded.py`."""
    with guarded.everywhere():
        yield
