"""Runs all programs of these tests in guarded memory, too. The exceptions are modules that declare their calls
`STATEFUL`: each call draws other numbers, or has external effects."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _guarded(request: pytest.FixtureRequest) -> None:
    if not getattr(request.module, "STATEFUL", False):
        request.getfixturevalue("guarded_memory")
