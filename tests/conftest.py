"""Settings for all tests: the verifier runs after every pass, and the object cache is the tests' own."""

from __future__ import annotations

import os

import pytest

os.environ["SHLO_JIT_CHECK_PASSES"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "SHLO_JIT_CACHE_DIR" not in os.environ:
        os.environ["SHLO_JIT_CACHE_DIR"] = str(tmp_path_factory.mktemp("objects"))
