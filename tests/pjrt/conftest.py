from __future__ import annotations

import pytest
from plugin_host import Host


@pytest.fixture(scope="session")
def host() -> Host:
    return Host()
