"""Waiting for another process that is writing a large program into the object cache."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.runtime import background_store, claims
from shlo_jit.runtime.cache import ObjectCache

KEY = "0" * 64
WRITER = """
import os, sys, time
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.claims import claim
cache = ObjectCache(sys.argv[1])
claimed = claim(sys.argv[2], cache)
print("claimed", flush=True)
{then}
"""


def writer(cache: ObjectCache, then: str) -> subprocess.Popen[str]:
    """Starts a process that has claimed KEY and then runs `then`."""
    script = [sys.executable, "-c", WRITER.format(then=then), str(cache.folder), KEY]
    process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "claimed\n"
    return process


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def test_an_entry_that_is_being_written_is_waited_for(cache: ObjectCache) -> None:
    then = "time.sleep(0.5); cache.store(sys.argv[2], {'a': 1}, [b'blob']); claimed.release()"
    with writer(cache, then):
        assert cache.lookup(KEY) is None
        assert claims.claim(KEY, cache) is None
        assert claims.wait_for_others(KEY, cache)
        found = cache.lookup(KEY)
    assert found is not None and found[0] == {"a": 1}
    assert not os.path.lexists(cache.claim_path(KEY))


def test_a_writer_that_died_is_not_waited_for(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CACHE_WAIT_SECONDS", 60.0)
    with writer(cache, "os._exit(0)"):
        pass
    begun = time.monotonic()
    assert not claims.wait_for_others(KEY, cache)
    assert time.monotonic() - begun < 30
    assert not os.path.lexists(cache.claim_path(KEY))
    claimed = claims.claim(KEY, cache)
    assert claimed is not None
    claimed.release()


def test_waiting_has_an_end(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CACHE_WAIT_SECONDS", 0.1)
    with writer(cache, "sys.stdin.read(1)") as process:
        assert claims.wait_for_others(KEY, cache)
        process.kill()


def test_there_is_no_wait_without_file_locks(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim of a process that died there would look held forever."""
    monkeypatch.setattr(tuning, "CACHE_WAIT_SECONDS", 60.0)

    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    claimed = claims.claim(KEY, cache)
    assert claimed is not None
    begun = time.monotonic()
    assert not claims.wait_for_others(KEY, cache)
    assert time.monotonic() - begun < 30
    claimed.release()
    assert not os.path.lexists(cache.claim_path(KEY))


@pytest.mark.parametrize("obstacle", ["folder", "link", "file"])
def test_what_is_no_claim_is_not_waited_for(cache: ObjectCache, obstacle: str) -> None:
    if obstacle == "folder":
        os.makedirs(cache.claim_path(KEY))
    elif obstacle == "link":
        cache.make_folder()
        os.symlink("/nowhere", cache.claim_path(KEY))
    else:
        cache.folder.write_text("a file where the folder belongs")
    assert claims.claim(KEY, cache) is None
    assert not claims.wait_for_others(KEY, cache)


def test_a_program_is_claimed_until_it_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Observed from the thread that writes it."""
    monkeypatch.setattr(tuning, "BACKGROUND_STORE_BYTES", 0)
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    seen: list[bool] = []
    store = ObjectCache.store

    def watched(self: ObjectCache, key: str, *rest: object) -> bool:
        seen.append(os.path.lexists(self.claim_path(key)))
        return store(self, key, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ObjectCache, "store", watched)
    function = shlo_jit.compile("func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }")
    background_store.wait_for()
    assert any(seen)
    assert not [*(tmp_path / "cache").glob(".*.claim")]
    np.testing.assert_array_equal(function(np.ones(3, np.float32)), np.ones(3, np.float32))
