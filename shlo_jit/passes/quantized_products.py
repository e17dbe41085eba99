"""Products of quantized tensors in integers: dot_general, dot, convolution.

    sum_k (x_k - zx) * (y_k - zy)  =  sum x*y  -  zy * sum x  -  zx * sum y  +  k * zx * zy

An operand whose `x - zx` fits i8 or ui8 is brought there, and has no zero point left; else the sums correct it. The
integer sum is exact, so that its product with both scales, rounded once to the expressed type, is what the
specification's float product approximates; it is then quantized like any float.

A float lhs makes a hybrid product: the rhs is dequantized.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import ConvDims, Dense, IntegerAttr, as_ints
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F64, I8, I32, I64, UI8, DType, QuantizedType, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.quantized import quantization
from shlo_jit.ops.shapes import constant_ints, constant_value
from shlo_jit.passes import expand_build as mk
from shlo_jit.passes.quantized_math import dequantize, quantize, scales_of, spread
from shlo_jit.passes.rewriter import Rewriter

BYTES = (I8, UI8)


@dataclass(frozen=True)
class Side:
    """An operand of an integer product: it stands for `value - zero`."""

    value: Value
    zero: int
    largest: int
    """Bound on the magnitude of value - zero."""


def bring(rw: Rewriter, x: Value, q: QuantizedType) -> Side | None:
    """The operand as bytes where its storage is at most that wide; None where it is wider, and must be converted."""
    zeros = q.zero_points
    low, high = min(q.storage.numpy_min - z for z in zeros), max(q.storage.numpy_max - z for z in zeros)
    largest = max(-low, high)
    if q.storage.bits > 8:
        return None
    if not any(zeros) and q.storage in BYTES:
        return Side(x, 0, largest)
    for dtype in BYTES:
        if dtype.numpy_min <= low and high <= dtype.numpy_max:
            x = mk.convert(rw, x, dtype)  # modulo 256, and so is the subtraction
            if any(zeros):
                x = mk.apply(rw, "subtract", x, spread(rw, x, dtype, np.asarray(zeros).astype(dtype.numpy), q.axis))
            return Side(x, 0, largest)
    if len(set(zeros)) > 1:
        return None
    return Side(mk.convert(rw, x, UI8 if q.storage.kind == "u" else I8), zeros[0], largest)


def subtracted(rw: Rewriter, x: Value, q: QuantizedType, dtype: DType) -> Value:
    """x - zero_point in a wide type."""
    wide = mk.convert(rw, x, I64 if q.storage.bits > 16 else I32)
    if any(q.zero_points):
        wide = mk.apply(rw, "subtract", wide, spread(rw, wide, wide.tensor.storage, q.zero_points, q.axis))
    return mk.convert(rw, wide, dtype)
