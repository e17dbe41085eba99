"""Convolutions and windows of numbers that are not finite: random ones against the reference interpreter, and the same
bits for any number of threads. Calls are repeated in guarded memory (see `conftest.py`), of many one in four.

More of the random ones, with thresholds that lead small shapes to every strategy:

    SHLO_JIT_RANDOM_PROGRAMS=2500 pytest -m slow tests/lower/test_nonfinite.py

A program has eight operations; SHLO_JIT_RANDOM_FIRST is the first seed.
"""

from __future__ import annotations

import os
import re
from typing import Any

import guarded
import numpy as np
import pytest
from nonfinite_programs import Program, random_program
from nonfinite_programs import numbers as drawn_numbers

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate

FIRST = int(os.environ.get("SHLO_JIT_RANDOM_FIRST", "1000"))
PROGRAMS = int(os.environ.get("SHLO_JIT_RANDOM_PROGRAMS", "100"))
MOST_THREADS = 8
SPREAD = {"GEMM_SERIAL": 1, "DEPTHWISE_TASK": 64, "PARALLEL_WORK": 1, "TASK_WORK": 64}
"""Thresholds for which small shapes have tasks for several threads."""
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "several tasks": SPREAD,
    "small blocks": {
        **SPREAD, "CONV_CALL_K": 16, "CONV_TASK": 256, "CONV_TASKS": 1, "CONV_MARGINS": 1000, "WINDOW_UNROLLED": 2,
        "WINDOW_BLOCK": 16, "CONV_FEW_STEPS": 1, "CONV_ADJACENT_IMAGES": 2, "CONV_ADJACENT_WINDOW": 4,
    },
    "own tiles": {
        **SPREAD, "CONV_DEDICATED_TILE": 1, "CONV_EDGE_TILE": 1, "CONV_EDGE_SHARE": -1.0, "CONV_COLUMN_CALL": 0, "CONV_GATHER": 0,
        "CONV_KERNEL_BYTES": 1, "CONV_FAR_PIXELS": 16, "CONV_MARGINS": 1000,
    },
    "padding counted": {
        **SPREAD, "WINDOW_WIDE": 2, "WINDOW_SPARSE": 1, "CONV_DISTANT": 4,
        "DILATION_PHASES": 1,
    },
}  # fmt: skip


def set_all(patch: pytest.MonkeyPatch, setting: str) -> None:
    for name, value in SETTINGS[setting].items():
        patch.setattr(tuning, name, value)


def numbers(x: np.ndarray) -> np.ndarray:
    """Converts to f64, with the parts of complex numbers side by side."""
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    with np.errstate(invalid="ignore"):
        return np.stack([np.asarray(p).astype(np.float64) for p in parts])


def outputs(results: Any) -> list[np.ndarray]:
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def check(program: Program, what: object, is_guarded: bool = True) -> int:
    """Checks that the results are the reference's, with 1, 2, 3 and 8 threads. Returns the number of results."""
    compile = guarded.compile if is_guarded else guarded.plain_compile
    exe: Any = compile(program.text, threads=MOST_THREADS, cache=False)
    with np.errstate(all="ignore"):
        wanted = evaluate(shlo_jit.parse(program.text), *program.arguments)
    first: list[np.ndarray] = []
    for threads in (1, 2, 3, MOST_THREADS):
        exe._front.instance.record.threads = threads
        got = outputs(exe(*program.arguments))
        first = first or got
        for kind, x, y in zip(program.kinds, got, first, strict=True):
            assert x.tobytes() == y.tobytes(), f"{what}: {kind} has other bits with {threads} threads"
    for kind, got_one, wanted_one in zip(program.kinds, first, wanted, strict=True):
        x, y = numbers(got_one), numbers(wanted_one)
        assert np.array_equal(x, y, equal_nan=True), f"{what}: {kind} differs from the reference"
    return len(first)


@pytest.mark.parametrize("setting", SETTINGS)
def test_random(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, setting)
    for seed in range(2):
        check(random_program(100 * list(SETTINGS).index(setting) + seed, 6), (setting, seed))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_many_random(setting: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv("SHLO_JIT_CHECK_PASSES")  # it takes most of the time
    set_all(monkeypatch, setting)
    place, failed, count = list(SETTINGS).index(setting), list[str](), 0
    for seed in range(FIRST + place, FIRST + PROGRAMS, len(SETTINGS)):
        try:
            count += check(random_program(seed), seed, seed % 4 == 0)
        except AssertionError as error:
            failed.append(str(error))
    with capsys.disabled():
        print(f"\n{setting}: {count} operations agree, {len(failed)} programs do not", *failed, sep="\n")
    assert not failed


ZERO_BLOCKS = {
    "a padded operand": "%a = stablehlo.pad %x, %zero, low = [0, 4], high = [3, 2], interior = [0, 0] "
    ": (tensor<MxKxT>, tensor<T>) -> tensor<PxLxT>",
    "a concatenated operand": "%a = stablehlo.concatenate %p, %q, dim = 1 : (tensor<PxKxT>, tensor<Px6xT>) -> tensor<PxLxT>",
    "blocks of zeros": "%a = stablehlo.select %mask, %wide, %zeros : tensor<PxLxi1>, tensor<PxLxT>",
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("rows, terms, columns", [(3, 5, 4), (29, 60, 40)])
@pytest.mark.parametrize("name", ZERO_BLOCKS)
def test_zero_blocks_of_products_meet_what_is_not_finite(
    name: str, rows: int, terms: int, columns: int, dtype: str
) -> None:
    text = f"""
func.func @main(%x: tensor<MxKxT>, %w: tensor<LxNxT>) -> tensor<PxNxT> {{
  %zero = stablehlo.constant dense<0.0> : tensor<T>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<T>) -> tensor<PxLxT>
  %p = stablehlo.pad %x, %zero, low = [0, 0], high = [3, 0], interior = [0, 0]
    : (tensor<MxKxT>, tensor<T>) -> tensor<PxKxT>
  %q = stablehlo.slice %zeros [0:P, 0:6] : (tensor<PxLxT>) -> tensor<Px6xT>
  %wide = stablehlo.pad %p, %zero, low = [0, 6], high = [0, 0], interior = [0, 0]
    : (tensor<PxKxT>, tensor<T>) -> tensor<PxLxT>
  %i = stablehlo.iota dim = 0 : tensor<PxLxi32>
  %j = stablehlo.iota dim = 1 : tensor<PxLxi32>
  %mask = stablehlo.compare GE, %i, %j : (tensor<PxLxi32>, tensor<PxLxi32>) -> tensor<PxLxi1>
  {ZERO_BLOCKS[name]}
  %y = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
    : (tensor<PxLxT>, tensor<LxNxT>) -> tensor<PxNxT>
  return %y : tensor<PxNxT>
}}"""
    sizes = {"M": rows, "P": rows + 3, "K": terms, "L": terms + 6, "N": columns}
    for letter, size in sizes.items():
        text = re.sub(rf"(?<=[<x: ]){letter}(?=[x,])", str(size), text)
    text = re.sub(r"(?<=[<x])T(?=>)", dtype, text)
    exe = shlo_jit.compile(text, cache=False)
    rng = np.random.default_rng(rows)
    for odd in (0.0, 0.02):
        x, w = drawn_numbers(rng, (rows, terms), dtype, odd), drawn_numbers(rng, (terms + 6, columns), dtype, odd)
        if odd:
            w[0, 0], w[-1, -1] = np.nan, np.inf
        with np.errstate(all="ignore"):
            (wanted,) = evaluate(shlo_jit.parse(text), x, w)
        assert np.array_equal(numbers(np.asarray(exe(x, w))), numbers(wanted), equal_nan=True)
        assert np.isnan(numbers(wanted)).any() == bool(odd)
