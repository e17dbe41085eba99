"""Settings for all tests: the verifier runs after every pass, and the tests have a separate object cache."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator

import guarded
import pytest

os.environ["SHLO_JIT_CHECK_PASSES"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


SLOW_SECONDS = 4 * 3600
"""Time limit of tests marked as slow; the limit of others is in `pyproject.toml`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases of sampled tests that do not run by default as slow, and gives slow tests a longer time limit."""
    seen: set[str] = set()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            # By their names, not their numbers: every n-th case might have one parameter in common.
            name = item.nodeid.partition("[")[0]
            if name in seen and zlib.crc32(item.nodeid.encode()) % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            seen.add(name)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Lets Ctrl-C interrupt a test and the processes that it starts.

    Processes that a shell or some runners start in the background ignore it, and a test that sends it would wait
    forever.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "SHLO_JIT_CACHE_DIR" not in os.environ:
        os.environ["SHLO_JIT_CACHE_DIR"] = str(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def guarded_memory() -> Iterator[None]:
    """Runs programs that the tests of a module compile in guarded memory as well; see `guarded.py`."""
    with guarded.everywhere():
        yield
