"""Every test has a separate object cache."""

import pytest

from shlo_jit.runtime.cache import ObjectCache


@pytest.fixture(autouse=True)
def _no_user_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "user"))


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "cache")
