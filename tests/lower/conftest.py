"""All programs of these tests run in guarded memory as well, but those of modules that say that calls are `STATEFUL`:
each draws other numbers, or does something to the outside."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _guarded(request: pytest.FixtureRequest) -> None:
    if not getattr(request.module, "STATEFUL", False):
        request.getfixturevalue("guarded_memory")
