"""Constant weights in narrower numbers: which arrays are such, which products read them so, and that results stay.

RANDOM_PROGRAMS=2000 pytest -m slow tests/passes/canonical/test_narrow_constants.py
"""

from __future__ import annotations

import random

import guarded
import ml_dtypes
import numpy as np
import pytest
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import walk
from shlo_jit.passes import core_functions
from shlo_jit.passes.canonical.exact_narrowing import narrowed

BITS = {"i4": 4, "ui4": 4, "i8": 8, "ui8": 8}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a few bytes are large enough."""
    monkeypatch.setattr(tuning, "NARROWED_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)


def integers_of(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = BITS[name]
    low = 0 if name[0] == "u" else -(1 << bits - 1)
    return rng.integers(low, low + (1 << bits), shape).astype(np.float32)


def widen(found, terms: int, shape: tuple[int, ...]) -> np.ndarray:
    wide = found.numbers.astype(np.float32)
    if found.scales is not None:
        wide = wide * np.expand_dims(found.scales, terms + 1)
    return wide.reshape(shape)


@pytest.mark.parametrize("seed", range(40))
def test_multiples_are_found(seed: int) -> None:
    """Whatever the scales, the groups, and the order of dimensions; most of all, the numbers are exact."""
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    name = choose.choice(list(BITS))
    groups, size, outputs = choose.choice((1, 2, 5)), choose.choice((64, 128)), choose.choice((1, 9, 70))
    q = integers_of(rng, name, (groups, size, outputs))
    s = np.exp2(rng.uniform(-30, 30, (groups, 1, outputs))).astype(np.float32)
    if choose.random() < 0.3 and name[0] == "i":
        s *= rng.choice(np.array([-1, 1], np.float32), s.shape)
    if choose.random() < 0.3:
        q[:, :, 0] = 0
    w = (q * s).reshape(groups * size, outputs)
    for terms, array in ((0, w), (1, np.ascontiguousarray(w.T))):
        found = narrowed(array, terms)
        assert found is not None and found.dtype.is_integer and found.dtype.bits <= BITS[name]
        np.testing.assert_array_equal(widen(found, terms, array.shape), array)


@pytest.mark.parametrize(("dtype", "name"), [(ml_dtypes.bfloat16, "bf16"), (np.float16, "f16")])
def test_halves_are_found(dtype: type, name: str) -> None:
    array = np.random.default_rng(0).standard_normal((300, 40)).astype(dtype)
    array[0, :4] = [np.inf, -np.inf, np.nan, -0.0]
    found = narrowed(array.astype(np.float32), 0)
    assert found is not None and found.dtype.name == name
    np.testing.assert_array_equal(found.numbers.view(np.uint16), array.view(np.uint16))


def test_other_numbers_are_not() -> None:
    """Nor are multiples of which a single one is a unit in the last place away."""
    rng = np.random.default_rng(1)
    assert narrowed(rng.standard_normal((256, 64), np.float32), 0) is None
    w = (integers_of(rng, "i8", (256, 64)) * rng.random(64, np.float32)).astype(np.float32)
    assert narrowed(w, 0) is not None
    w[200, 33] = np.nextafter(w[200, 33], np.float32(np.inf))
    assert narrowed(w, 0) is None
    w[200, 33] = np.nan
    assert narrowed(w, 0) is None


def text_of(w: np.ndarray, rows: int, more: str = "") -> str:
    k, n = w.shape
    t = f"tensor<{rows}x{n}xf32>"
    return f"""func.func @main(%x: tensor<{rows}x{k}xf32>) -> ({t}) {{
      %w = stablehlo.constant dense<"0x{w.tobytes().hex()}"> : tensor<{k}x{n}xf32>
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<{rows}x{k}xf32>, tensor<{k}x{n}xf32>) -> {t}
      {more}
      return %y : {t}
    }}"""


def types_of(text: str, **options) -> set[str]:
    """The types of the constants after all passes."""
    module = shlo_jit.parse(text)
    entry = module.function("main")
    assert entry is not None
    (core,) = core_functions(module, entry, **options)
    return {op.result.tensor.storage.name for op in walk(core.block()) if op.name == "stablehlo.constant"}


def weights(k: int = 128, n: int = 144) -> np.ndarray:
    rng = np.random.default_rng(2)
    return (integers_of(rng, "i4", (k, n)) * (rng.random(n, np.float32) + 0.5)).astype(np.float32)


def test_few_rows_read_narrow_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weights()
    assert "i4" in types_of(text_of(w, tuning.NARROWED_ROWS))
    assert "i4" not in types_of(text_of(w, tuning.NARROWED_ROWS + 1))
    assert {"i4", "i8"} & types_of(text_of(w, 7), rounded="int8")
    read = "%z = stablehlo.abs %w : tensor<128x144xf32>\n%u = stablehlo.reduce(%z init: %i) applies stablehlo.add across"
    read = f"%i = stablehlo.constant dense<0.0> : tensor<f32>\n{read} dimensions = [0] : (tensor<128x144xf32>, tensor<f32>)"
    read += " -> tensor<144xf32>\n%r = stablehlo.broadcast_in_dim %u, dims = [1] : (tensor<144xf32>) -> tensor<2x144xf32>"
    text = text_of(w, 2, read).replace("return %y", "%s = stablehlo.add %y, %r : tensor<2x144xf32>\nreturn %s")
    assert "i4" not in types_of(text), "something else reads the numbers"
    monkeypatch.setattr(tuning, "NARROWED_BYTES", w.nbytes + 1)
    assert "i4" not in types_of(text_of(w, 1)), "the cache keeps them"


@pytest.mark.parametrize("seed", range(12))
def test_results_stay(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_results_of_many_programs_stay() -> None:
    for seed in seeds(300):
        check(seed)


def check(seed: int) -> None:
    """Products with narrow numbers against those in f64, in guarded memory and for any number of threads."""
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    k, n, rows = choose.choice((96, 128, 320)), choose.choice((177, 200, 260)), choose.choice((1, 2, 4))
    kind = choose.choice(("i4", "i8", "bf16", "f16"))
    if kind in BITS:
        group = choose.choice((k, 16)) if kind == "i4" else k
        w = integers_of(rng, kind, (k // group, group, n)) * rng.uniform(0.5, 1, (k // group, 1, n)).astype(np.float32)
        w = w.reshape(k, n).astype(np.float32)
    else:
        dtype = ml_dtypes.bfloat16 if kind == "bf16" else np.float16
        w = rng.standard_normal((k, n)).astype(dtype).astype(np.float32)
    x = rng.standard_normal((rows, k), np.float32)
    text = text_of(w, rows)
    assert kind in types_of(text) or (kind == "i4" and "i8" in types_of(text))
    results = [np.asarray(guarded.compile(text, threads=threads)(x)) for threads in (1, 2, 3, 8)]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    bound = 2.0**-23 * k * (np.abs(x).astype(float) @ np.abs(w).astype(float))
    assert np.all(np.abs(results[0] - x.astype(float) @ w.astype(float)) <= bound)
