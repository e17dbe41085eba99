"""Every op that is not tied to a kind of number, on every element type: compiled against the reference interpreter.

One program per type computes all cases of `element_cases.py`. Copies and comparisons agree bit for bit. Sums have so
few
elements, and such values, that no order or intermediate precision changes them.
"""

from __future__ import annotations

import numpy as np
import pytest
from element_cases import Case, cases, program, types
from random_arrays import close, random_array

import shlo_jit
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.reference.interpreter import evaluate

DTYPES_OF = {d.numpy: d for d in DTYPES.values()}
NAMES = [n for n in DTYPES if n != "index"]
NUMBERS = [n for n in NAMES if n != "i1" and not DTYPES[n].is_complex]
SUMS = ("add", "dot", "sum", "einsum", "convolution", "outer", "multiply", "reduce_all")


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, exact: bool) -> np.ndarray:
    """Returns numbers that every type of the kind can represent; with `exact`, also their sums and products."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 2 if dtype.bits == 2 else 6, shape).astype(dtype.numpy)
    if dtype.kind == "c":
        return (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(dtype.numpy)
    if exact:
        return np.ones(shape).astype(dtype.numpy)
    choices = [0.25, 0.5, 1.0, 2.0] if dtype.name == "f8E8M0FNU" else [-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0]
    return rng.choice(np.array(choices), shape).astype(dtype.numpy)


def inputs(chosen: list[Case], dtype: DType) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    found = []
    for case in chosen:
        exact = any(word in case.name for word in SUMS)
        found += [values(rng, shape, d, exact and d is dtype) for _, shape, d in types(case.parameters, dtype)]
    return found


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Compares bit for bit; zeros of complex sums may differ in sign."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype.kind == "c":
        return np.array_equal(got, want)
    return got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(4)
def test_every_case(name: str) -> None:
    dtype = DTYPES[name]
    chosen = cases(dtype)
    text, arrays = program(chosen, dtype), inputs(chosen, dtype)
    want = evaluate(shlo_jit.parse(text), *arrays)
    got = shlo_jit.compile(text, cache=False, threads=2)(*arrays)
    assert not [c.name for c, g, w in zip(chosen, got, want, strict=True) if not same(g, w)]


def any_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Returns elements with arbitrary bits."""
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if dtype.bits >= 8:
        return raw.view(dtype.numpy).reshape(shape)
    low = raw[..., 0] & ((1 << dtype.bits) - 1)
    if dtype.kind == "f":
        return low.view(dtype.numpy)
    if dtype.kind == "i":
        low = (low.astype(np.int16) ^ (1 << (dtype.bits - 1))) - (1 << (dtype.bits - 1))
    return low.astype(np.int8).astype(dtype.numpy)


def is_equal(got: np.ndarray, want: np.ndarray) -> bool:
    """Compares integers: those narrower than a byte may have any bits above."""
    return DTYPES_OF[got.dtype].is_integer and np.array_equal(got, want)


def compiled_and_meant(lines: list[tuple[str, str]], parameters: str, arrays: list[np.ndarray]) -> list[tuple]:
    """Returns the results of op lines (op with `%a`, result type): (line, compiled, reference)."""
    body = [f"%r{k} = {line}" for k, (line, _) in enumerate(lines)]
    names, results = ", ".join(f"%r{k}" for k in range(len(lines))), ", ".join(t for _, t in lines)
    text = f"func.func @main({parameters}) -> ({results}) {{\n" + "\n".join(body) + f"\nreturn {names} : {results}\n}}"
    got = shlo_jit.compile(text, cache=False)(*arrays)
    want = evaluate(shlo_jit.parse(text), *arrays)
    if not isinstance(got, tuple):
        got = (got,)
    return list(zip([line for line, _ in lines], got, want, strict=True))


@pytest.mark.parametrize("source", [n for n in NAMES if n != "i1"])
@pytest.mark.sampled(4)
def test_bitcast(source: str) -> None:
    """Converts to every type that several elements of the source fill, or that several of which fill the source."""
    a = DTYPES[source]
    for count in (1, 2, 3, 4, 8, 16, 32):
        lines = []
        for target, b in DTYPES.items():
            if target in ("index", "i1") or a.is_complex != b.is_complex:
                continue
            if a.bits * count == b.bits and count > 1:
                lines.append((f"tensor<3x5x{count}x{source}>", f"tensor<3x5x{target}>"))
            elif a.bits == b.bits * count:
                inner = f"{count}x" if count > 1 else ""
                lines.append((f"tensor<3x5x{source}>", f"tensor<3x5x{inner}{target}>"))
        for operand in dict.fromkeys(t for t, _ in lines):
            shape = tuple(
                int(n) for n in operand[7:].split("x")[: 3 if operand.count("x") - source.count("x") == 3 else 2]
            )
            x = any_bits(np.random.default_rng(2), shape, a)
            chosen = [(f"stablehlo.bitcast_convert %a : ({s}) -> {t}", t) for s, t in lines if s == operand]
            for line, got, want in compiled_and_meant(chosen, f"%a: {operand}", [x]):
                assert got.tobytes() == want.tobytes() or is_equal(got, want), line


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.sampled(4)
def test_random_bits(name: str) -> None:
    """Types narrower than 32 bits have the low bits of a word."""
    t = f"tensor<3x5x{name}>"
    text = f"""func.func @main(%a: tensor<2xui64>) -> (tensor<2xui64>, {t}, {t}, tensor<0x{name}>, tensor<{name}>) {{
      %0, %1 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, {t})
      %2, %3 = stablehlo.rng_bit_generator %0, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, {t})
      %4, %5 = stablehlo.rng_bit_generator %2, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<0x{name}>)
      %6, %7 = stablehlo.rng_bit_generator %4, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<{name}>)
      return %6, %1, %3, %5, %7 : tensor<2xui64>, {t}, {t}, tensor<0x{name}>, tensor<{name}>
    }}"""
    state = np.array([5, 2**64 - 3], np.uint64)
    got, want = shlo_jit.compile(text, cache=False)(state), evaluate(shlo_jit.parse(text), state)
    for g, w in zip(got, want, strict=True):
        assert g.tobytes() == w.tobytes() or is_equal(g, w)


@pytest.mark.parametrize("name", NUMBERS)
def test_top_k(name: str) -> None:
    dtype = DTYPES[name]
    x = any_bits(np.random.default_rng(3), (3, 21), dtype)
    t = f"tensor<3x21x{name}>"
    text = f"""func.func @main(%a: {t}) -> (tensor<3x4x{name}>, tensor<3x4xi32>) {{
      %0:2 = chlo.top_k(%a, k = 4) : {t} -> (tensor<3x4x{name}>, tensor<3x4xi32>)
      return %0#0, %0#1 : tensor<3x4x{name}>, tensor<3x4xi32>
    }}"""
    (got, places), (want, indices) = shlo_jit.compile(text, cache=False)(x), evaluate(shlo_jit.parse(text), x)
    assert np.array_equal(places, indices)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", [n for n in NAMES if DTYPES[n].is_float and DTYPES[n].bits < 32])
def test_factors_of_narrow_floats(name: str) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(4)
    a, b = (np.eye(4) * 4 + 0.25).astype(dtype.numpy), np.abs(random_array(rng, (4, 3), dtype))
    t, u = f"tensor<4x4x{name}>", f"tensor<4x3x{name}>"
    solve = "left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>"
    lines = [
        ("stablehlo.cholesky %a, lower = true : " + t, t),
        (f'"stablehlo.triangular_solve"(%a, %b) <{{{solve}}}> : ({t}, {u}) -> {u}', u),
    ]
    for _, got, want in compiled_and_meant(lines, f"%a: {t}, %b: {u}", [a, b]):
        close(got, want, dtype)
