"""The op table: every elementwise op on every element type it takes, compiled against the record's meaning.

One program per dtype computes all ops on the same operands: special values in all pairs, then random ones, in a length
that is no multiple of the vector width. Integers, comparisons and exact float operations agree bit for bit (except NaN
payloads); functions within the ulps given here, in the precision of the dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DTYPES, DType, tensor
from shlo_jit.ops import OPS, OpDef
from shlo_jit.reference.interpreter import evaluate

INTEGERS = [d.name for d in DTYPES.values() if d.is_integer]
FLOATS = [d.name for d in DTYPES.values() if d.is_float]
COMPLEX = ["complex<f32>", "complex<f64>"]
SMALL = [n for n in FLOATS if DTYPES[n].bits < 16]

COMPARISONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
ULPS = {
    "exponential": 1, "exponential_minus_one": 1, "log": 1, "log_plus_one": 1, "logistic": 2, "tanh": 2, "sine": 1,
    "cosine": 1, "tan": 2, "rsqrt": 1, "cbrt": 1, "power": 1, "atan2": 2,
}  # fmt: skip


def special_values(dtype: DType) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_integer:
        low = 0 if dtype.kind == "u" else -(2 ** (dtype.bits - 1))
        high = low + 2**dtype.bits - 1
        some = {low, low + 1, high, high - 1, 0, 1, 2, 3, dtype.bits, dtype.bits - 1, high // 3, high // 2, 5, 7}
        some |= {-1, -2, -3, low // 2} if low else set()
        return np.array([v for v in sorted(some) if low <= v <= high]).astype(dtype.numpy)
    if dtype.bits <= 8:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    bits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[dtype.name]
    tiny = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}[dtype.name]
    most = (2 - 2.0**-bits) * 2.0 ** (1 - tiny)
    size = [0.0, 2.0 ** (tiny - bits), 2.0**tiny, 2.0**-bits, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 100.25, 2.0**bits, most]
    size += [2.0 ** (bits - 1) + 0.5, 1 - 2.0**-bits, np.inf]
    return np.array([*size, *(-x for x in size), np.nan]).astype(dtype.numpy)


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs of special values, and random numbers of many magnitudes."""
    rng = np.random.default_rng(3)
    values = special_values(dtype)
    if dtype.bits == 8 and dtype.is_float:
        values = values[rng.permutation(256)[:40]]
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    n = 1003
    if dtype.is_integer or dtype.kind == "b":
        more = [rng.integers(0, 256, (n, dtype.itemsize), np.uint8) for _ in range(2)]
        if dtype.bits < 8:
            u, v = (m[:, 0].astype(np.int8).astype(dtype.numpy) for m in more)
        else:
            u, v = ((m % 2).astype(bool).ravel() if dtype.kind == "b" else m.view(dtype.numpy).ravel() for m in more)
    else:
        spread = 3 if dtype.bits >= 16 else 1
        u, v = ((rng.normal(size=n) * 10.0 ** rng.uniform(-spread, spread, n)).astype(dtype.numpy) for _ in range(2))
    return np.concatenate([x, u]), np.concatenate([y, v])


def program(dtype: DType, ops: tuple[str, ...], n: int) -> str:
    """Returns a function of two tensors with one result per op."""
    t, pred = f"tensor<{n}x{dtype}>", f"tensor<{n}xi1>"
    lines, results = [], []
    for op in ops:
        name, _, direction = op.partition(" ")
        full = name if "." in name else f"stablehlo.{name}"
        r = f"%r{len(results)}"
        if name == "compare":
            words = direction.split()
            kind = f", {words[1]}" if len(words) > 1 else ""
            lines.append(f"{r} = stablehlo.compare {words[0]}, %a, %b{kind} : ({t}, {t}) -> {pred}")
            results.append(pred)
            continue
        of = f"tensor<{n}x{result_of(OPS[full], dtype)}>"
        args, types = ("%a, %b", f"{t}, {t}") if len(OPS[full].operands) == 2 else ("%a", t)
        lines.append(f'{r} = "{full}"({args}) : ({types}) -> {of}')
        results.append(of)
    names = ", ".join(f"%r{k}" for k in range(len(results)))
    lines.append(f"return {names} : {', '.join(results)}")
    return f"func.func @main(%a: {t}, %b: {t}) -> ({', '.join(results)}) {{\n" + "\n".join(lines) + "\n}"


@functools.cache
def outcome(name: str, ops: tuple[str, ...]) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Returns (op, compiled result, meaning) for each op."""
    dtype = DTYPES[name]
    if dtype.is_complex:
        part = operands(dtype.part)
        x = complex_of(*part, dtype)
        y = complex_of(part[1], part[0][::-1], dtype)
    else:
        x, y = operands(dtype)
    text = program(dtype, ops, x.size)
    got = shlo_jit.compile(text, cache=False)(x, y)
    want = evaluate(shlo_jit.parse(text), x, y)
    got = got if isinstance(got, tuple) else (got,)
    return list(zip(ops, got, want, strict=True))


def complex_of(re: np.ndarray, im: np.ndarray, dtype: DType) -> np.ndarray:
    z = np.empty(re.shape, dtype.numpy)
    z.real, z.imag = re, im
    return z


def raw(x: np.ndarray) -> np.ndarray:
    """Returns the bits, with all NaNs alike; complex numbers as their parts."""
    if x.dtype.kind == "c":
        x = np.ascontiguousarray(x).view(np.float32 if x.dtype == np.complex64 else np.float64)
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").copy()
    if next(d for d in DTYPES.values() if d.numpy == x.dtype).is_float:
        bits[np.isnan(x.astype(np.float64))] = np.iinfo(bits.dtype).max
    return bits


def assert_same(results: list[tuple[str, np.ndarray, np.ndarray]], x: np.ndarray, y: np.ndarray) -> None:
    wrong = {}
    for op, got, want in results:
        assert got.dtype == want.dtype, op
        a, b = raw(got), raw(want)
        bad = np.flatnonzero(a != b)
        if bad.size:
            i = bad[0] // (2 if got.dtype.kind == "c" else 1)
            wrong[op] = f"{bad.size} differ; first {x[i]} {y[i]}: {got[i]} but {want[i]}"
    assert not wrong, wrong


def result_of(record: OpDef, dtype: DType) -> DType:
    """Returns the element type of an op's result, for operands that all have one type."""
    t = tensor((3,), dtype)
    assert record.infer is not None
    (found,) = record.infer(Op(record.name, [Value(t) for _ in record.operands], [t]))
    return found.dtype  # type: ignore[union-attr]


def exact_ops(name: str) -> Iterator[str]:
    """Yields the ops that their records call exact on an element type; those with attributes have separate tests."""
    dtype = DTYPES[name]
    for record in OPS.values():
        plain = record.has("elementwise") and record.machine is not None and not record.has("chooses_result")
        free = not any(spec.required for spec in record.attributes.values()) and len(record.operands) <= 2
        takes = all(kind.accepts(tensor((3,), dtype)) for kind in record.operand_kinds)
        if plain and free and takes and record.is_exact_on(dtype):
            yield record.name
    for direction in COMPARISONS:
        yield f"compare {direction}"
        if dtype.is_float:
            yield f"compare {direction} TOTALORDER"


def test_what_is_known_to_be_exact() -> None:
    """A record that claims less exactness than it could would leave its op without a test."""
    for name, least in {"i1": 8, "i8": 21, "ui32": 19, "f32": 23, "bf16": 22, "complex<f64>": 8}.items():
        found = [op for op in exact_ops(name) if not op.startswith("compare")]
        assert len(found) >= least, found


@pytest.mark.parametrize("name", ["i1", *INTEGERS, *FLOATS, *COMPLEX])
@pytest.mark.sampled(4)
def test_exact(name: str) -> None:
    ops = tuple(exact_ops(name))
    if DTYPES[name].bits < 8 and DTYPES[name].is_float:  # NaN becomes a zero of either sign
        ops = tuple(o for o in ops if o != "stablehlo.remainder")
    dtype = DTYPES[name]
    if dtype.is_complex:
        part = operands(dtype.part)
        x, y = complex_of(*part, dtype), complex_of(part[1], part[0][::-1], dtype)
    else:
        x, y = operands(dtype)
    assert_same(outcome(name, ops), x, y)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Returns the distance in units of the last place; 0 for equal values and for two NaNs."""
    dtype = next(d for d in DTYPES.values() if d.numpy == got.dtype)
    kind = f"i{got.dtype.itemsize}"
    a, b = (np.ascontiguousarray(v).view(kind).astype(np.int64) for v in (got, want))
    least = -(1 << (dtype.bits - 1))
    a, b = (np.where(v < 0, least - v, v) for v in (a, b))
    wide_a, wide_b = got.astype(np.float64), want.astype(np.float64)
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    nan = np.isnan(wide_a) != np.isnan(wide_b)
    return np.where(same, 0, np.where(nan, 1 << 60, np.abs(a - b)))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_functions(name: str) -> None:
    dtype = DTYPES[name]
    x, y = operands(dtype)
    wrong = {}
    for op, got, want in outcome(name, tuple(ULPS)):
        distance = ulps(got, want)
        limit = ULPS[op] + 1 if dtype.bits >= 32 else 1  # the meaning itself is rounded
        if distance.max() > limit:
            i = int(distance.argmax())
            wrong[op] = f"{distance.max()} ulps at {x[i]!r} {y[i]!r}: {got[i]!r} but {want[i]!r}"
    assert not wrong, wrong


@pytest.mark.parametrize("source", ["i1", *INTEGERS, *FLOATS, *COMPLEX])
@pytest.mark.sampled(4)
def test_convert(source: str) -> None:
    """Converts to every other element type, in one program."""
    dtype = DTYPES[source]
    x = complex_of(*operands(dtype.part), dtype) if dtype.is_complex else operands(dtype)[0]
    powers = "f8E8M0FNU"  # ml_dtypes has no conversions between it and the other small floats
    small = source in SMALL
    targets = [t for t in ("i1", *INTEGERS, *FLOATS, *COMPLEX) if not (small and t in SMALL and powers in (source, t))]
    lines = [
        f"%r{k} = stablehlo.convert %a : (tensor<{x.size}x{source}>) -> tensor<{x.size}x{t}>"
        for k, t in enumerate(targets)
    ]
    results = ", ".join(f"tensor<{x.size}x{t}>" for t in targets)
    names = ", ".join(f"%r{k}" for k in range(len(targets)))
    text = f"func.func @main(%a: tensor<{x.size}x{source}>) -> ({results}) {{\n" + "\n".join(lines)
    text += f"\nreturn {names} : {results}\n}}"
    got = shlo_jit.compile(text, cache=False)(x)
    want = evaluate(shlo_jit.parse(text), x)
    assert_same(list(zip(targets, got, want, strict=True)), x, x)


@pytest.mark.parametrize("name", ["bf16", "f16", *SMALL])
def test_f64_rounds_once_to_narrow_floats(name: str) -> None:
    """Numbers just beside the midpoint of two neighbours, for which rounding to f32 first would give the wrong one."""
    dtype = DTYPES[name]
    values = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    middle = middle[np.abs(middle) > 1e-30]
    near = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    text = f"""func.func @main(%a: tensor<{near.size}xf64>) -> tensor<{near.size}x{name}> {{
      %0 = stablehlo.convert %a : (tensor<{near.size}xf64>) -> tensor<{near.size}x{name}>
      return %0 : tensor<{near.size}x{name}> }}"""
    got = shlo_jit.compile(text, cache=False)(near).astype(np.float64)
    n = middle.size
    low, high = values[:-1], values[1:]
    low, high = (v[np.abs((values[1:] + values[:-1]) / 2) > 1e-30] for v in (low, high))
    assert np.array_equal(got[n : 2 * n], high)
    assert np.array_equal(got[2 * n :], low)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", *SMALL])
def test_reduce_precision(name: str) -> None:
    dtype = DTYPES[name]
    x, _ = operands(dtype)
    formats = ((5, 10), (8, 7), (5, 2), (4, 3), (8, 23), (11, 52), (2, 0))
    t = f"tensor<{x.size}x{name}>"
    lines = [f"%r{k} = stablehlo.reduce_precision %a, format = e{e}m{m} : {t}" for k, (e, m) in enumerate(formats)]
    names, results = ", ".join(f"%r{k}" for k in range(len(formats))), ", ".join([t] * len(formats))
    text = f"func.func @main(%a: {t}) -> ({results}) {{\n" + "\n".join(lines) + f"\nreturn {names} : {results}\n}}"
    got = shlo_jit.compile(text, cache=False)(x)
    want = evaluate(shlo_jit.parse(text), x)
    assert_same([(str(f), g, w) for f, g, w in zip(formats, got, want, strict=True)], x, x)


@pytest.mark.parametrize("name", ["i1", *INTEGERS, *FLOATS, *COMPLEX])
def test_clamp_and_select(name: str) -> None:
    """Uses whole tensors, and bounds and predicate of rank 0."""
    dtype = DTYPES[name]
    if dtype.is_complex:
        part = operands(dtype.part)
        x, y = complex_of(*part, dtype), complex_of(part[1], part[0][::-1], dtype)
    else:
        x, y = operands(dtype)
    t, p = f"tensor<{x.size}x{name}>", f"tensor<{x.size}xi1>"
    s = f"tensor<{name}>"
    arguments = f"%a: {t}, %b: {t}, %c: {t}, %p: {p}, %q: tensor<i1>, %l: {s}, %h: {s}"
    text = f"""func.func @main({arguments}) -> ({t}, {t}, {t}, {t}) {{
      %0 = stablehlo.clamp %a, %b, %c : ({t}, {t}, {t}) -> {t}
      %1 = stablehlo.clamp %l, %b, %h : ({s}, {t}, {s}) -> {t}
      %2 = stablehlo.select %p, %a, %b : ({p}, {t}, {t}) -> {t}
      %3 = stablehlo.select %q, %a, %b : (tensor<i1>, {t}, {t}) -> {t}
      return %0, %1, %2, %3 : {t}, {t}, {t}, {t}
    }}"""
    chosen = np.arange(x.size) % 3 == 0
    arrays = x, y, np.roll(x, 7), chosen, np.asarray(True), x[x.size - 3], x[x.size - 2]
    got = shlo_jit.compile(text, cache=False)(*arrays)
    want = evaluate(shlo_jit.parse(text), *arrays)
    assert_same(list(zip(("clamp", "clamp scalar", "select", "select scalar"), got, want, strict=True)), x, y)
