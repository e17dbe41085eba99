"""Settings for all tests: the verifier runs after every pass, and the tests have a separate object cache."""

from __future__ import annotations

import gc
import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterator

import guarded
import pytest

os.environ["SHLO_JIT_CHECK_PASSES"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


SLOW_SECONDS = 4 * 3600
"""Time limit of tests marked as slow; the limit of others is in `pyproject.toml`."""

FEW_CASES, SHARE_OF_MANY = 3, 8
"""Tests with more cases than the former are sampled: about one in so many cases runs by default, the others are slow.
`pytest -m "slow or not slow"` runs all of them, and so does the mark `sampled(1)`."""
QUICK = tuple(f"tests/{folder}/" for folder in ("verify", "ops", "text", "builder", "bytecode"))
"""Folders with tests that compile nothing, or hardly anything: all of their cases run."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases of sampled tests that do not run by default as slow, and gives slow tests a longer time limit."""
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    seen: set[str] = set()
    for item in items:
        # By their names, not their numbers: every n-th case might have one parameter in common.
        name = item.nodeid.partition("[")[0]
        if name in seen and zlib.crc32(item.nodeid.encode()) % _share_of(item, cases[name]):
            item.add_marker(pytest.mark.slow)
        seen.add(name)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


def _share_of(item: pytest.Item, cases: int) -> int:
    """One in how many cases of a test runs by default."""
    sampled = item.get_closest_marker("sampled")
    if sampled is not None:
        return sampled.args[0]
    is_quick = item.nodeid.startswith(QUICK)
    return 1 if is_quick or cases <= FEW_CASES else SHARE_OF_MANY


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leaves what the collection of tests makes out of garbage collections: with some million objects, each
    `gc.collect()` of a test would take about a second."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


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
