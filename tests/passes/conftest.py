"""Runs all programs of these tests in guarded memory as well."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _guarded(guarded_memory: None) -> None:
    """See `guarded_memory`."""
