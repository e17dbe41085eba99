"""Small floats against ml_dtypes: every pattern, every f16, boundaries and random f32."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from loops import compiled

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.lower.elements.registers import round_bf16
from shlo_jit.lower.elements.small_floats import FORMATS, decode, encode

NAMES = [*FORMATS, "f8E8M0FNU"]


@cache
def _decoder(name: str, n: int):
    return compiled(lambda b, x: decode(b, DTYPES[name], x), ["i8"], "float", n)


@cache
def _encoder(name: str, n: int):
    return compiled(lambda b, x: encode(b, DTYPES[name], x), ["float"], "i8", n)


def _patterns(name: str) -> np.ndarray:
    dtype = DTYPES[name]
    return np.arange(1 << dtype.bits, dtype=np.uint8)


def _inputs(name: str) -> np.ndarray:
    """Returns all f16 values, all values of the format, the midpoints between them and their neighbours, and random
    bits."""
    every_f16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    own = _patterns(name).view(DTYPES[name].numpy).astype(np.float64)
    own = np.unique(own[np.isfinite(own)])
    beyond = own[-1] + (own[-1] - own[-2]) * np.array([0.25, 0.5, 0.75, 1.0, 2.0])
    middle = np.concatenate([own, (own[1:] + own[:-1]) / 2, beyond, -beyond]).astype(np.float32)
    near = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)])
    random = np.random.default_rng(0).integers(0, 2**32, 1 << 20, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 2.0**-127], np.float32)
    x = np.concatenate([every_f16, middle, near, random, special])
    return np.concatenate([x, np.zeros(-len(x) % 16, np.float32)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("lanes", [1, 16, 32, 64])
@pytest.mark.parametrize("name", NAMES)
def test_decode_every_pattern(name: str, lanes: int) -> None:
    patterns = np.resize(_patterns(name), 256)
    got = _decoder(name, lanes)(patterns)
    want = patterns.view(DTYPES[name].numpy).astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    assert np.array_equal(got[number].view(np.uint32), want[number].view(np.uint32))


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("name", NAMES)
def test_encode_rounds_as_ml_dtypes(name: str, lanes: int) -> None:
    x = _inputs(name)
    got = _encoder(name, lanes)(x).view(np.uint8)
    with np.errstate(all="ignore"):
        want = x.astype(DTYPES[name].numpy).view(np.uint8)
    wrong = np.flatnonzero(got != want)
    assert wrong.size == 0, [(x[i], hex(x[i].view(np.uint32)), hex(got[i]), hex(want[i])) for i in wrong[:5]]


@pytest.mark.parametrize("name", NAMES)
def test_decode_then_encode_is_identity(name: str) -> None:
    patterns = _patterns(name)
    values = _decoder(name, 16)(patterns)
    again = _encoder(name, 16)(values).view(np.uint8)
    number = ~np.isnan(values)
    assert np.array_equal(again[number], patterns[number])


def test_round_bf16() -> None:
    x = np.concatenate(
        [_inputs("f8E5M2"), np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)]
    )
    x = x[: len(x) // 16 * 16]
    got = compiled(round_bf16, ["float"], "i16", 16)(x).view(np.uint16)
    want = x.astype(DTYPES["bf16"].numpy).view(np.uint16)
    number = ~np.isnan(x)
    assert np.array_equal(got[number], want[number])
    assert np.isnan(got.view(DTYPES["bf16"].numpy)[~number].astype(np.float32)).all()


ARITHMETIC = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
EXACT = {"maximum": np.maximum, "minimum": np.minimum}


@pytest.mark.parametrize("name", [*ARITHMETIC, *EXACT])
def test_bf16_arithmetic_on_every_pattern(name: str) -> None:
    """Compares with f32 that is rounded by ml_dtypes: every number and NaN, quiet or not, with some of each kind."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    others = np.array([0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3FFF, 0x4001, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80,
                       0x7F81, 0x7FBF, 0x7FC0, 0x7FFF, 0xFFFF, 0xFF81], np.uint16)  # fmt: skip
    x, y = (a.ravel() for a in np.meshgrid(patterns, others))
    bf16 = DTYPES["bf16"].numpy
    t = f"tensor<{x.size}xbf16>"
    text = f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
      %0 = stablehlo.{name} %x, %y : {t}
      return %0 : {t}
    }}"""
    got = shlo_jit.compile(text, cache=False)(x.view(bf16), y.view(bf16))
    with np.errstate(all="ignore"):
        function = (ARITHMETIC | EXACT)[name]
        want = function(x.view(bf16).astype(np.float32), y.view(bf16).astype(np.float32)).astype(bf16)
    both_nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), both_nan)
    if name in EXACT:  # numpy may return either of 0.0 and -0.0
        both_nan |= want == 0
    np.testing.assert_array_equal(got.view(np.uint16)[~both_nan], want.view(np.uint16)[~both_nan])


def test_bf16_signs_on_every_pattern() -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    t = "tensor<65536xbf16>"
    text = f"""func.func @main(%x: {t}) -> ({t}, {t}) {{
      %0 = stablehlo.negate %x : {t}
      %1 = stablehlo.abs %x : {t}
      return %0, %1 : {t}, {t}
    }}"""
    nan = np.isnan(x.view(DTYPES["bf16"].numpy))
    for got, want in zip(
        shlo_jit.compile(text, cache=False)(x.view(DTYPES["bf16"].numpy)), (x ^ 0x8000, x & 0x7FFF), strict=True
    ):
        np.testing.assert_array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(got.view(np.uint16)[~nan], want[~nan])
