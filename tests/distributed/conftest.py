"""Fixtures of the tests of programs on several processes."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["threads", "processes"])
def transport(request: pytest.FixtureRequest) -> str:
    """Transport of a test's ranks."""
    return str(request.param)
