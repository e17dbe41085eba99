"""A cache of its own for each test, and measurements by formula."""

from __future__ import annotations

from pathlib import Path

import pytest
from modelled_bench import ModelledBench

from shlo_jit.autotune import tune


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def modelled(monkeypatch: pytest.MonkeyPatch) -> type[ModelledBench]:
    """Makes `tune` take times from a model in place of a clock."""
    monkeypatch.setattr(tune, "ProgramBench", ModelledBench)
    monkeypatch.setattr(ModelledBench, "started", [])
    return ModelledBench
