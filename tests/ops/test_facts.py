"""Facts in the records against the numpy references of the ops."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DTYPES, DType, tensor
from shlo_jit.ops import OPS, OpDef

ELEMENTWISE = [record for record in OPS.values() if record.has("elementwise")]


def takes(record: OpDef, dtype: DType) -> bool:
    """Whether all operands may have an element type."""
    return all(kind.accepts(tensor((3,), dtype)) for kind in record.operand_kinds)


def with_fact(found: list[OpDef]) -> list:
    pairs = [(record, dtype) for record in found for dtype in DTYPES.values() if takes(record, dtype)]
    assert pairs
    return [pytest.param(record, dtype, id=f"{record.name}-{dtype}") for record, dtype in pairs]


def values(dtype: DType) -> np.ndarray:
    """Returns special values and random ones; all numbers of types of up to 8 bits."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_complex:
        parts = values(dtype.part)[:40]
        z = np.empty((len(parts), len(parts)), dtype.numpy)
        z.real, z.imag = parts[:, None], parts
        return z.reshape(-1)
    if dtype.bits <= 8:
        numbers = np.arange(1 << dtype.bits, dtype=np.uint8)
        if dtype.is_float:
            return numbers.view(dtype.numpy)
        return numbers.astype(np.int8).astype(dtype.numpy) if dtype.kind == "i" else numbers.astype(dtype.numpy)
    if dtype.is_integer:
        low = 0 if dtype.kind == "u" else -(2 ** (dtype.bits - 1))
        high = low + 2**dtype.bits - 1
        some = np.array([low, low + 1, 0, 1, 2, 3, high - 1, high], dtype.numpy)
        return np.concatenate([some, np.random.default_rng(0).integers(low, high, 200, dtype.numpy, endpoint=True)])
    one = np.asarray(1, dtype.numpy)
    with np.errstate(all="ignore"):
        least = np.asarray(1, f"u{dtype.itemsize}").view(dtype.numpy)
        some = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 100.25, 1e30, np.inf, np.nan]).astype(dtype.numpy)
        rest = (np.random.default_rng(0).standard_normal(200) * 100).astype(dtype.numpy)
    some = np.concatenate([some, [least, np.nextafter(one, one + one) if dtype.name != "bf16" else one]])
    return np.concatenate([some, -some, rest]).astype(dtype.numpy)


def applied(record: OpDef, *arrays: np.ndarray) -> np.ndarray:
    """Applies the record's reference."""
    dtype = next(d for d in DTYPES.values() if d.numpy == arrays[0].dtype)
    t = tensor(arrays[0].shape, dtype)
    assert record.reference is not None
    with np.errstate(all="ignore"):
        return record.reference(Op(record.name, [Value(t) for _ in arrays], [t]), *arrays)


def raw(x: np.ndarray) -> np.ndarray:
    """Returns the bits, with a single NaN, and complex numbers as their parts."""
    if x.dtype.kind == "c":
        x = np.ascontiguousarray(x).view(x.real.dtype)
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").copy()
    if x.dtype.kind != "b" and next(d for d in DTYPES.values() if d.numpy == x.dtype).is_float:
        bits[np.isnan(x.astype(np.float64))] = np.iinfo(bits.dtype).max
    return bits


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    some = values(dtype)
    some = some[np.random.default_rng(1).permutation(len(some))[:64]]
    x, y = np.meshgrid(some, some)
    return x.reshape(-1), y.reshape(-1)


@pytest.mark.parametrize(("record", "dtype"), with_fact([r for r in ELEMENTWISE if r.has("commutative")]))
def test_commutative(record: OpDef, dtype: DType) -> None:
    x, y = pairs(dtype)
    if dtype.is_complex:  # ordered numbers: no NaN, only one zero
        ordered = [np.isfinite(z) & (z.real != 0) & (z.imag != 0) for z in (x, y)]
        x, y = x[ordered[0] & ordered[1]], y[ordered[0] & ordered[1]]
    np.testing.assert_array_equal(raw(applied(record, x, y)), raw(applied(record, y, x)))


@pytest.mark.parametrize(("record", "dtype"), with_fact([r for r in ELEMENTWISE if r.has("idempotent")]))
def test_idempotent(record: OpDef, dtype: DType) -> None:
    x = values(dtype)
    np.testing.assert_array_equal(raw(applied(record, x, x)), raw(x))


@pytest.mark.parametrize(("record", "dtype"), with_fact([r for r in ELEMENTWISE if r.neutral is not None]))
def test_neutral(record: OpDef, dtype: DType) -> None:
    e = record.neutral_on(dtype)
    if e is None:  # then no number of a small type may be neutral
        assert dtype.is_complex or dtype.bits <= 8
        return
    x = values(dtype)
    filled = np.full(x.shape, np.asarray(e).astype(dtype.numpy))
    np.testing.assert_array_equal(raw(applied(record, filled, x)), raw(x))
    np.testing.assert_array_equal(raw(applied(record, x, filled)), raw(x))


def test_facts_are_of_ops_they_can_be_of() -> None:
    two = [r for r in OPS.values() if r.has("commutative") or r.has("idempotent") or r.neutral is not None]
    assert [r.name for r in two if len(r.operands) != 2 or not r.has("elementwise")] == []
    assert [r.name for r in OPS.values() if r.index_map is not None and (r.cost or r.has("elementwise"))] == []
    assert [r.name for r in OPS.values() if r.has("elementwise") and not r.cost] == []
