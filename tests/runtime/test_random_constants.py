"""Random programs with random arguments as constants: the same code and results as with these constants in the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_check import check
from random_programs import random_program
from random_runs import seeds

import shlo_jit

NAMES = ("index", "name", "percent")


def layout(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Returns an array with the same elements in other memory."""
    kind = rng.integers(6)
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1:
        return np.repeat(array, 2, axis=0)[::2] if array.ndim else array
    if kind == 2:
        return array.astype(array.dtype.newbyteorder(">"))
    if kind == 3:
        return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    copy = array.copy()
    copy.flags.writeable = bool(kind % 2)
    return copy


def key(rng: np.random.Generator, index: int, name: str) -> int | str:
    return {"index": index, "name": name, "percent": f"%{name}"}[rng.choice(NAMES)]


def bits(found: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in (found if isinstance(found, tuple) else (found,))]


def compare(seed: int, is_compared: bool) -> int:
    """Compares a program with some of its arguments as constants with its text, and that with the reference. Returns the
    number of constants."""
    rng = np.random.default_rng(seed)
    text, arrays = random_program(seed, 3 + seed % 12)
    names = [port.name for port in shlo_jit.compile(text, cache=False, threads=1).inputs]
    chosen = {i for i in range(len(arrays)) if rng.random() < 0.5}
    if rng.random() < 0.2:  # a splat
        chosen |= {0}
        arrays[0] = (
            np.broadcast_to(arrays[0].reshape(-1)[:1].reshape(()), arrays[0].shape) if arrays[0].size else arrays[0]
        )
    constants = {key(rng, i, names[i]): layout(rng, arrays[i]) for i in chosen}
    rest = [np.ascontiguousarray(array) for i, array in enumerate(arrays) if i not in chosen]
    exe = shlo_jit.compile(text, constants=constants, cache=bool(seed % 2), threads=1)
    assert [port.name for port in exe.inputs] == [name for i, name in enumerate(names) if i not in chosen]
    written = exe.text("module")  # type: ignore[call-arg]
    same = shlo_jit.compile(written, cache=False, threads=1)
    assert exe.text("lowered") == same.text("lowered"), f"seed {seed}"  # type: ignore[call-arg]
    assert bits(exe(*rest)) == bits(same(*rest)), f"seed {seed}"
    if is_compared:
        check(written, rest)
    return len(chosen)


def test_random_programs_with_constants() -> None:
    """RANDOM_PROGRAMS and RANDOM_FIRST set how many."""
    counts = [compare(seed, seed % 4 == 0) for seed in seeds(16)]
    assert sum(counts) >= len(counts) // 2


@pytest.mark.slow
def test_many_random_programs_with_constants() -> None:
    counts = [compare(seed + 10**6, True) for seed in seeds(1000)]
    assert sum(counts) >= len(counts) // 2
