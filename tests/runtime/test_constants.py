"""Constants exist once: in the process, and in the object cache."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET, constant

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import walk
from shlo_jit.runtime import constants
from shlo_jit.runtime.build import build, from_cache
from shlo_jit.runtime.cache import ObjectCache, constant_key
from shlo_jit.runtime.constants import Resident
from shlo_jit.runtime.executable import Executable
from shlo_jit.text.literals import Literal

LARGE = np.arange(tuning.SHARED_CONSTANT_BYTES // 4, dtype=np.float32)


def resident(exe: Executable | None) -> Resident:
    assert exe is not None
    (found,) = exe._front.instance.loaded.constants
    return found


def stored(cache: ObjectCache) -> list[Path]:
    return sorted(cache.folder.glob("constant-*.shlo"))


def other_target():
    for name in ("x86-64-v3", "x86-64", "aarch64:generic"):
        try:
            check_runs_here(resolve(name))
        except ValueError:
            continue
        return resolve(name)
    raise AssertionError("no target but native runs here")


def test_programs_and_targets_share_memory(cache: ObjectCache) -> None:
    first = build(constant(LARGE), TARGET, key="a", cache=cache)
    second = build(constant(LARGE.reshape(-1, 2).copy()), other_target(), key="b", cache=cache)
    again = from_cache("a", TARGET, cache=cache)
    assert resident(first) is resident(second) is resident(again)
    assert resident(first).address % 64 == 0
    np.testing.assert_array_equal(second(), LARGE.reshape(-1, 2))
    assert first.memory.constants == LARGE.nbytes
    (path,) = stored(cache)
    assert LARGE.nbytes < path.stat().st_size < LARGE.nbytes + 4096
    assert cache.info().nbytes < 2 * LARGE.nbytes


def test_memory_goes_with_the_last_program(cache: ObjectCache) -> None:
    first, second = (build(constant(LARGE + 1), TARGET, key=key, cache=cache) for key in "ab")
    (digest,) = (d for d, found in constants._residents.items() if found is resident(first))
    del first
    gc.collect()
    assert digest in constants._residents
    del second
    gc.collect()
    assert digest not in constants._residents
    np.testing.assert_array_equal(from_cache("a", TARGET, cache=cache)(), LARGE + 1)


def test_small_constants_are_in_the_program_s_file(cache: ObjectCache) -> None:
    small = LARGE[:-1]
    exe = build(constant(small), TARGET, key="a", cache=cache)
    assert not stored(cache)
    assert resident(exe) is not resident(from_cache("a", TARGET, cache=cache))
    np.testing.assert_array_equal(from_cache("a", TARGET, cache=cache)(), small)


@pytest.mark.parametrize("harm", ["missing", "damaged", "truncated", "another", "open"])
@pytest.mark.sampled(3)
def test_without_its_constant_a_program_is_not_in_the_cache(cache: ObjectCache, harm: str) -> None:
    values = LARGE + 2
    build(constant(values), TARGET, key="a", cache=cache)
    gc.collect()
    (path,) = stored(cache)
    content = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "damaged":
        content[-100] ^= 1
        path.write_bytes(content)
    elif harm == "truncated":
        path.write_bytes(content[:-64])
    elif harm == "another":
        cache.store(path.stem, {"kind": "routine"}, [b""])
    else:
        path.chmod(0o666)
    if harm == "open":
        with pytest.warns(RuntimeWarning, match="others may write"):
            assert from_cache("a", TARGET, cache=cache) is None
        path.chmod(0o600)
    else:
        assert from_cache("a", TARGET, cache=cache) is None
        assert not path.exists()
    build(constant(values), TARGET, key="a", cache=cache)
    gc.collect()
    np.testing.assert_array_equal(from_cache("a", TARGET, cache=cache)(), values)


def test_constants_beyond_the_cache_s_limit_are_not_stored(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "small", limit=LARGE.nbytes - 1)
    build(constant(LARGE), TARGET, key="a", cache=cache)
    assert not stored(cache)
    assert not cache.has("a")


def test_use_of_a_program_is_use_of_its_constants(cache: ObjectCache) -> None:
    import os

    exe = build(constant(LARGE), TARGET, key="a", cache=cache)
    (path,) = stored(cache)
    assert path.stem == constant_key(path.stem.removeprefix("constant-"))
    os.utime(path, (1, 1))
    assert resident(from_cache("a", TARGET, cache=cache)) is resident(exe)
    assert path.stat().st_mtime > 1


def test_a_module_s_array_may_change_afterwards() -> None:
    text = f"""func.func @main() -> tensor<{LARGE.size}xf32> {{
      %0 = stablehlo.constant dense<1.0> : tensor<{LARGE.size}xf32>
      return %0 : tensor<{LARGE.size}xf32>
    }}"""
    module = shlo_jit.parse(text)
    (op,) = (op for op in walk(module.body) if op.name == "stablehlo.constant")
    values = LARGE.copy()
    op.attributes["value"] = Dense(op.attributes["value"].type, values)
    exe = shlo_jit.compile(module, cache=False)
    values[:] = 0
    np.testing.assert_array_equal(exe(), LARGE)


def test_a_literal_stays_known_when_an_equal_one_goes() -> None:
    """Two texts with the same literal: the first one goes, and the second one still has it."""
    first, second = (Literal(LARGE.view(np.uint8), "digest of the test", LARGE.nbytes, None) for _ in range(2))
    given = constants.GivenBytes(LARGE.view(np.uint8), "digest of the test")
    constants.bring([first, second])
    del first
    gc.collect()
    assert constants.brought("digest of the test") is second
    constants.bring([given])
    assert constants.brought("digest of the test") is given  # it is in memory
    del given, second
    gc.collect()
    assert constants.brought("digest of the test") is None
    assert "digest of the test" not in constants._brought
