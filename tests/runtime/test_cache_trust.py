"""Trust of the object cache in its files, and effects of later changes of its files."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET, binary, constant

import shlo_jit
from shlo_jit.runtime import cache as cache_module
from shlo_jit.runtime.background_store import wait_for
from shlo_jit.runtime.build import build, from_cache
from shlo_jit.runtime.cache import ObjectCache

X = np.arange(4, dtype=np.float32)
SOMEBODY = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def stored(cache):
    """A cache with a program under "k"."""
    build(binary(4), TARGET, key="k", cache=cache)
    return cache


def refused(stored: ObjectCache, why: str) -> None:
    """Checks that the entry is ignored with one warning, and stays."""
    fresh = ObjectCache(stored.folder)
    with pytest.warns(RuntimeWarning, match=why) as seen:
        assert from_cache("k", TARGET, cache=fresh) is None
        assert from_cache("k", TARGET, cache=fresh) is None
    assert len(seen) == 1
    assert stored._path("k").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_others_may_write_is_not_loaded(stored, mode):
    stored._path("k").chmod(mode)
    refused(stored, "others may write.*k.shlo")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_others_may_write_is_not_used(stored, mode):
    stored.folder.chmod(mode)
    refused(stored, "others may write")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not ObjectCache(stored.folder).store("other", {}, [])


@as_root
def test_an_entry_of_another_user_is_not_loaded(stored):
    os.chown(stored._path("k"), SOMEBODY, SOMEBODY)
    refused(stored, "another user")


@as_root
def test_a_folder_of_another_user_is_not_used(stored):
    os.chown(stored.folder, SOMEBODY, SOMEBODY)
    refused(stored, "another user")


@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_what_we_write_is_ours_alone(tmp_path, mask):
    old = os.umask(mask)
    try:
        cache = ObjectCache(tmp_path / "a" / "b")
        assert cache.store("k", {}, [b"x"])
    finally:
        os.umask(old)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache._path("k").stat().st_mode & 0o777 == 0o600
    assert cache.lookup("k") is not None


def test_a_folder_at_a_link_is_used(stored, tmp_path):
    (tmp_path / "link").symlink_to(stored.folder)
    assert from_cache("k", TARGET, cache=ObjectCache(tmp_path / "link")) is not None


def take_name(path: Path, kind: str) -> None:
    target = path.rename(path.with_name("elsewhere"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "loop", "device"])
def test_what_is_no_file_is_passed_over(stored, kind):
    take_name(stored._path("k"), kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert from_cache("k", TARGET, cache=stored) is None
        exe = build(binary(4), TARGET, key="k", cache=stored)
        np.testing.assert_array_equal(exe(X, X), X * 2)
        stored.info()
        ObjectCache(stored.folder, limit=1).clear()


def test_an_entry_under_another_name_is_not_loaded(stored):
    stored._path("k").rename(stored._path("other"))
    assert from_cache("other", TARGET, cache=stored) is None


def largest(cache: ObjectCache) -> Path:
    """Returns the entry with the constants, the program's or a separate one."""
    return max(cache.folder.glob("*.shlo"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("count", [1000, 100_000, 3_000_000])
@pytest.mark.parametrize("change", ["truncate", "overwrite", "delete"])
def test_changes_to_a_file_do_not_reach_loaded_programs(cache, count, change):
    values = np.arange(count, dtype=np.float64)
    build(constant(values), TARGET, key="k", cache=cache)
    exe = from_cache("k", TARGET, cache=cache)
    path = largest(cache)
    if change == "truncate":
        os.truncate(path, 0)
    elif change == "overwrite":
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.write(b"\xff" * size)
    else:
        path.unlink()
    np.testing.assert_array_equal(exe(), values)


@pytest.mark.parametrize("at", [0.3, 0.6, 0.99])
def test_a_large_entry_that_is_damaged_is_deleted(cache, at):
    values = np.arange(3_000_000, dtype=np.float64)
    build(constant(values), TARGET, key="k", cache=cache)
    wait_for()
    path = largest(cache)
    with open(path, "r+b") as file:
        file.seek(int(path.stat().st_size * at))
        file.write(b"\x55")
    assert from_cache("k", TARGET, cache=cache) is None
    assert not path.exists()


def test_a_user_without_a_home(monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: "~/.cache/" + name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache_module._cache_in.cache_clear()
    assert cache_module._cache_in("", "").folder == tmp_path / f"shlo_jit-{os.geteuid()}"
    cache_module._cache_in.cache_clear()


FULL = """
import os, resource, sys, warnings
sys.path.insert(0, sys.argv[1])
from programs import TARGET, constant
import numpy as np
from shlo_jit.runtime.build import build
from shlo_jit.runtime.cache import ObjectCache
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
cache = ObjectCache(sys.argv[2])
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    exe = build(constant(np.arange(10_000.0)), TARGET, key="k", cache=cache)
assert exe().sum() == 49_995_000
assert len(seen) == 1 and "no object cache" in str(seen[0].message), seen
assert not [n for n in os.listdir(cache.folder) if "k.shlo" in n], os.listdir(cache.folder)
"""


def test_a_full_disk_is_no_error(tmp_path):
    command = [sys.executable, "-c", FULL, str(Path(__file__).parent), str(tmp_path / "c")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


TEXT = """
func.func @main(%x: tensor<40x60xf32>, %y: tensor<60x50xf32>) -> tensor<40x50xf32> {
  %0 = stablehlo.dot %x, %y : (tensor<40x60xf32>, tensor<60x50xf32>) -> tensor<40x50xf32>
  %1 = stablehlo.exponential %0 : tensor<40x50xf32>
  return %1 : tensor<40x50xf32>
}"""


def test_threads_comments_and_locations_make_no_other_entry():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 60), np.float32), rng.standard_normal((60, 50), np.float32)
    expected = shlo_jit.compile(TEXT, threads=1)(x, y)
    entries = cache_module.info().entries
    commented = TEXT.replace("\n  return", "\n  // says what comes\n  return").replace("f32>\n", 'f32> loc("a":1:2)\n')
    for text in (TEXT, commented):
        for threads in (1, 2, 7, 1000):
            exe = shlo_jit.compile(text, threads=threads)
            np.testing.assert_array_equal(exe(x, y), expected)
            assert exe.threads == threads
    assert cache_module.info().entries == entries
    assert "says what" not in exe.text("module")
    assert 'loc("a":1:2)' in exe.text("module")
