"""Expansion of bitcast_convert between widths: shifts of the bits as unsigned integers.

    wide to narrow      element k of the new last dimension is x >> (k * bits)
    narrow to wide      the union of x_k << (k * bits)
    complex to complex  part by part

The lower bits come first, as they do in memory. There is no 6-bit integer type, so 6-bit floats and their bits (as ui8)
are converted to each other by table lookup.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DTYPES, F32, I1, UI8, UI32, DType, TensorType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_bitcast(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Expands one of the three forms; a bitcast that keeps the width is emitted directly."""
    x = operands[0]
    if not mk.is_static(x):
        return None
    source, target = x.tensor.storage, op.result.tensor.storage
    if source.bits == target.bits:
        return None
    if source.is_complex:
        return [_parts(rw, x, op.result.tensor)]
    if source.bits > target.bits:
        return [_split(rw, x, source, target)]
    return [_join(rw, x, target)]


def from_bits(rw: Rewriter, bits: Value, dtype: DType) -> Value:
    """Returns values of a dtype whose bits are the low bits of unsigned integers."""
    if dtype.bits == 6:
        low = mk.apply(rw, "and", bits, mk.splat_like(rw, bits, 63))
        return _looked_up(rw, np.arange(64, dtype=np.uint8).view(dtype.numpy), mk.convert(rw, low, UI32), dtype)
    pattern = _pattern(dtype)
    if dtype.kind == "b":
        bits = mk.apply(rw, "and", bits, mk.splat_like(rw, bits, 1))
    return _rebit(rw, mk.convert(rw, bits, pattern), dtype)


def _bits_of(rw: Rewriter, x: Value) -> Value:
    """Returns the bits of each element as an unsigned integer."""
    dtype = x.tensor.storage
    if dtype.bits != 6:
        return _rebit(rw, x, _pattern(dtype))
    # sign, exponent and 3 mantissa bits of the same number as f32 distinguish all values
    words = _rebit(rw, mk.convert(rw, x, F32), UI32)
    index = mk.apply(rw, "shift_right_logical", words, mk.splat_like(rw, words, 20))
    patterns = np.arange(64, dtype=np.uint8)
    table = np.zeros(1 << 12, np.uint8)
    table[patterns.view(dtype.numpy).astype(np.float32).view(np.uint32) >> 20] = patterns
    return _looked_up(rw, table, index, UI8)


def _looked_up(rw: Rewriter, table: np.ndarray, index: Value, dtype: DType) -> Value:
    """Returns the table's elements at the indices."""
    shape = mk.shape_of(index)
    numbers = StructAttr(
        "stablehlo.gather",
        (
            ("offset_dims", ()),
            ("collapsed_slice_dims", (0,)),
            ("start_index_map", (0,)),
            ("index_vector_dim", len(shape)),
        ),
    )
    values = mk.constant(rw, tensor(table.shape, dtype), table)
    attributes = {"dimension_numbers": numbers, "slice_sizes": mk.dims((1,)), "indices_are_sorted": False}
    return rw.emit1("stablehlo.gather", [values, index], tensor(shape, dtype), attributes)


def _pattern(dtype: DType) -> DType:
    """Returns the unsigned integer type for the bits of a dtype."""
    return I1 if dtype.kind == "b" else UI8 if dtype.bits == 6 else DTYPES[f"ui{dtype.bits}"]


def _rebit(rw: Rewriter, x: Value, dtype: DType) -> Value:
    """Emits bitcast_convert to a dtype of the same width."""
    return x if x.tensor.storage == dtype else rw.emit1("stablehlo.bitcast_convert", [x], mk.with_dtype(x, dtype))


def _split(rw: Rewriter, x: Value, source: DType, target: DType) -> Value:
    bits = _bits_of(rw, x)
    shape = (*mk.shape_of(x), source.bits // target.bits)
    wide = mk.broadcast(rw, bits, shape, range(len(shape) - 1))
    place = mk.iota(rw, wide.tensor, len(shape) - 1)
    amount = mk.apply(rw, "multiply", place, mk.splat_like(rw, place, target.bits))
    return from_bits(rw, mk.apply(rw, "shift_right_logical", wide, amount), target)


def _join(rw: Rewriter, x: Value, target: DType) -> Value:
    width = x.tensor.storage.bits
    bits = mk.convert(rw, _bits_of(rw, x), _pattern(target))
    shape, last = mk.shape_of(x), x.tensor.rank - 1
    total = None
    for k in range(shape[-1]):
        part = mk.reshape(rw, mk.slice_dim(rw, bits, last, k, k + 1), shape[:-1])
        if k:
            part = mk.apply(rw, "shift_left", part, mk.splat_like(rw, part, k * width))
        total = part if total is None else mk.apply(rw, "or", total, part)
    assert total is not None
    return from_bits(rw, total, target)


def _parts(rw: Rewriter, x: Value, out: TensorType) -> Value:
    """Converts complex<f64> to two complex<f32>, the real part and the imaginary part, or back."""
    source, target = x.tensor.storage.part, out.storage.part
    re, im = (rw.emit1(f"stablehlo.{name}", [x], mk.with_dtype(x, source)) for name in ("real", "imag"))
    shape = mk.shape_of(x)
    if source.bits > target.bits:
        halves = [_split(rw, part, source, target) for part in (re, im)]
        pairs = [mk.reshape(rw, h, (*shape, 1, 2)) for h in halves]
        both = mk.concatenate(rw, pairs, len(shape))
        ends = [mk.slice_dim(rw, both, len(shape) + 1, k, k + 1) for k in range(2)]
    else:
        pairs = [mk.reshape(rw, part, (*shape, 1)) for part in (re, im)]
        both = _join(rw, mk.concatenate(rw, pairs, len(shape)), target)
        ends = [mk.slice_dim(rw, both, len(shape) - 1, k, k + 1) for k in range(2)]
    ends = [mk.reshape(rw, end, out.extents) for end in ends]
    return rw.emit1("stablehlo.complex", ends, out)


RULES = {"stablehlo.bitcast_convert": expand_bitcast}
