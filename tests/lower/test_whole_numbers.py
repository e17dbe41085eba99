"""Floats of 16 bits that are known to be whole numbers: they are not rounded between ops, and have the reference's bits."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

INTEGERS = {"i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui32": np.uint32,
            "i64": np.int64}  # fmt: skip
N = 67


def random_program(seed: int) -> tuple[str, list[np.ndarray]]:
    """Sums, differences and products of converted integers and constants, some of which do not fit the type."""
    rng, made = random.Random(seed), np.random.default_rng(seed)
    dtype = rng.choice(("f16", "bf16"))
    t, heads, arrays, lines, known = f"tensor<{N}x{dtype}>", [], [], [], []
    for i in range(rng.choice((1, 2, 3))):
        source = rng.choice(list(INTEGERS))
        kind, name = f"tensor<{N}x{source}>", f"%a{i}"
        limits = ml_dtypes.iinfo(INTEGERS[source]) if source in ("i4", "ui4") else np.iinfo(INTEGERS[source])
        low, high = max(int(limits.min), -(1 << 40)), min(int(limits.max), 1 << 40)
        arrays.append(made.integers(low, high + 1, N).astype(INTEGERS[source]))
        heads.append(f"{name}: {kind}")
        if source in ("ui32", "i64", "i16") and rng.random() < 0.8:
            mask = rng.choice((1, 15, 63, 255))
            lines.append(f"%m{i} = stablehlo.constant dense<{mask}> : {kind}")
            lines.append(f"%n{i} = stablehlo.and {name}, %m{i} : {kind}")
            name = f"%n{i}"
        lines.append(f"%f{i} = stablehlo.convert {name} : ({kind}) -> {t}")
        known.append(f"%f{i}")
    for i in range(rng.choice((1, 2, 4, 6))):
        if rng.random() < 0.5:
            number = rng.choice((0.0, 1.0, -8.0, 127.0, 128.0, 0.5, 16.0, 300.0))
            lines.append(f"%c{i} = stablehlo.constant dense<{number}> : {t}")
            known.append(f"%c{i}")
        op = rng.choice(("add", "subtract", "multiply", "maximum", "negate"))
        operands = [rng.choice(known[-4:]) for _ in range(1 if op == "negate" else 2)]
        lines.append(f"%v{i} = stablehlo.{op} {', '.join(operands)} : {t}")
        known.append(f"%v{i}")
    body = "\n  ".join([*lines, f"return {known[-1]} : {t}"])
    return f"func.func @main({', '.join(heads)}) -> {t} {{\n  {body}\n}}", arrays


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_random_programs(target: str) -> None:
    for seed in range(60):
        text, arrays = random_program(seed)
        with np.errstate(all="ignore"):
            (want,) = evaluate(shlo_jit.parse(text), *arrays)
        got = shlo_jit.compile(text, target=target, cache=False)(*arrays)
        same = np.asarray(got).view(np.uint16) == np.asarray(want).view(np.uint16)
        assert np.all(same | np.isnan(np.asarray(want, np.float32))), f"program {seed}:\n{text}"


ZERO_POINT = """
func.func @main(%q: tensor<64xui8>, %s: tensor<64x{dtype}>) -> tensor<64x{dtype}> {{
  %m = stablehlo.constant dense<15> : tensor<64xui8>
  %n = stablehlo.and %q, %m : tensor<64xui8>
  %f = stablehlo.convert %n : (tensor<64xui8>) -> tensor<64x{dtype}>
  %z = stablehlo.constant dense<{zero}> : tensor<64x{dtype}>
  %d = stablehlo.subtract %f, %z : tensor<64x{dtype}>
  %y = stablehlo.multiply %d, %s : tensor<64x{dtype}>
  return %y : tensor<64x{dtype}>
}}"""


@pytest.mark.parametrize(("zero", "roundings"), [("8.0", 1), ("8.5", 2), ("3000.0", 2)])
def test_only_what_may_not_be_whole_is_rounded(zero: str, roundings: int) -> None:
    """Converted numbers below 16 and their difference to 8 are exact; 8.5 is no whole number, and 3,000 is too large."""
    exe = shlo_jit.compile(ZERO_POINT.format(dtype="f16", zero=zero), target="x86-64-v3", cache=False)
    text = exe.text("asm")
    assert text.count("vcvtps2ph") == roundings * text.count("vmulps") > 0
