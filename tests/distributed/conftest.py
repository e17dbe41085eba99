"""What the tests of programs on several processes share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["threads", "processes"])
def transport(request: pytest.FixtureRequest) -> str:
    """How the ranks of a test run and meet."""
    return str(request.param)
