"""cholesky, triangular_solve and fft (specification, sections of the same names)."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import C64, C128, F32, F64, DType, TensorType, Type
from shlo_jit.ops.numeric import Array, convert, dtype_of, result_dtype
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.type_algebra import (
    bounds_of,
    compatible_elements,
    compatible_shapes,
    operand_type,
    operand_types,
    same_dim,
    type_text,
    with_bounds,
)


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if dtype_of(x).kind == "c" else np.float64)


def _extents(t: TensorType) -> str:
    """Returns the extents as text, such as `2, ?`."""
    return ", ".join("?" if n is None else str(n) for n in t.shape or ())


# cholesky


def _infer_cholesky(op: Op) -> list[Type]:
    t = operand_type(op, 0)
    if t.shape is None:
        return [t]
    if t.rank < 2:
        raise Violation("C2", f"argument 'a' must have rank >= 2, got shape {_extents(t)}.")
    if not same_dim(t.shape[-2], t.shape[-1]):
        raise Violation("C3", f"minor dimensions of 'a' must have equal size, got shape {_extents(t)}.")
    return [t]


def cholesky(a: Array, lower: bool) -> Array:
    """Reference of cholesky, column by column. A matrix that is not positive definite gives NaN. The other triangle is
    zero."""
    wide = _wide(a)
    if not lower:
        wide = np.conj(np.swapaxes(wide, -1, -2))
    n = wide.shape[-1]
    out = np.zeros_like(wide)
    for j in range(n):
        known = out[..., j, :j]
        diagonal = np.real(wide[..., j, j]) - np.sum(np.abs(known) ** 2, axis=-1)
        root = np.sqrt(np.where(diagonal > 0, diagonal, np.nan))
        out[..., j, j] = root
        below = wide[..., j + 1 :, j] - np.sum(out[..., j + 1 :, :j] * np.conj(known)[..., None, :], axis=-1)
        out[..., j + 1 :, j] = below / root[..., None]
    return out if lower else np.conj(np.swapaxes(out, -1, -2))


define(
    "stablehlo.cholesky", section="cholesky",
    operands=("a: float|complex|quant",), results=("result: float|complex|quant",),
    attributes={"lower": optional("bool", False)}, infer=_infer_cholesky,
    reference=lambda op, a: convert(cholesky(a, bool(op.attributes.get("lower", False))), result_dtype(op)),
)  # fmt: skip

# triangular_solve


def _infer_triangular_solve(op: Op) -> list[Type]:
    a, b = operand_types(op)
    if not compatible_elements(a.dtype, b.dtype):
        raise Violation(
            "C1", f"requires the same element type for all operands, got '{type_text(a)}' and '{type_text(b)}'"
        )
    if op.attributes["transpose_a"].value == "TRANSPOSE_INVALID":
        raise Violation("transpose_a", "Invalid transpose option value for triangular solve")
    if a.shape is None or b.shape is None:
        return [b]
    if a.rank < 2:
        raise Violation("C2", f"operand 'a' must have rank >= 2, but got '{type_text(a)}'")
    if a.rank != b.rank:
        raise Violation("C2", f"operands must have equal rank, but got '{type_text(a)}' and '{type_text(b)}'")
    if not same_dim(a.shape[-2], a.shape[-1]):
        raise Violation("C3", f"two minor dimensions of operand 'a' must be compatible, but got '{type_text(a)}'")
    left = bool(op.attributes["left_side"])
    if not same_dim(a.shape[-1], b.shape[-2 if left else -1]):
        raise Violation(
            "C3",
            f"shared dimension of operands 'a' and 'b' does not match, but got '{type_text(a)}' and '{type_text(b)}'",
        )
    if not compatible_shapes(a.shape[:-2], b.shape[:-2]):
        raise Violation(
            "C3",
            f"leading batch dimensions of the operands must be same, but got '{type_text(a)}' and '{type_text(b)}'",
        )
    return [b]


def triangular_solve(a: Array, b: Array, *, left: bool, lower: bool, unit: bool, transpose: str) -> Array:
    """Reference of triangular_solve: substitution row by row. Only the given triangle of `a` is read."""
    matrix, right = _wide(a), _wide(b)
    if transpose != "NO_TRANSPOSE":
        matrix, lower = np.swapaxes(matrix, -1, -2), not lower
        matrix = np.conj(matrix) if transpose == "ADJOINT" else matrix
    if not left:  # x op(a) = b  is  op(a)^T x^T = b^T
        matrix, right, lower = np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2), not lower
    x = np.array(right)
    n = matrix.shape[-1]
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        rest = np.sum(matrix[..., i, done][..., None] * x[..., done, :], axis=-2)
        row = right[..., i, :] - rest
        x[..., i, :] = row if unit else row / matrix[..., i, i][..., None]
    return x if left else np.swapaxes(x, -1, -2)


def _triangular_solve(op: Op, a: Array, b: Array) -> Array:
    x = triangular_solve(
        a,
        b,
        left=bool(op.attributes["left_side"]),
        lower=bool(op.attributes["lower"]),
        unit=bool(op.attributes["unit_diagonal"]),
        transpose=op.attributes["transpose_a"].value,
    )
    return convert(x, result_dtype(op))


define(
    "stablehlo.triangular_solve", section="triangular_solve",
    operands=("a: float|complex|quant", "b: float|complex|quant"), results=("result: float|complex|quant",),
    attributes={
        "left_side": required("bool"),
        "lower": required("bool"),
        "unit_diagonal": required("bool"),
        "transpose_a": required("enum transpose"),
    },
    infer=_infer_triangular_solve, reference=_triangular_solve,
)  # fmt: skip

# fft


def _fft_element(op: Op, t: TensorType, kind: str) -> DType:
    """Returns the element type of the result by C2."""
    assert isinstance(t.dtype, DType)
    if kind == "RFFT":
        if t.dtype not in (F32, F64):
            raise Violation("C2", f"RFFT requires f32 or f64 input type, but is given '{t.dtype}'.")
        return C64 if t.dtype == F32 else C128
    if not t.dtype.is_complex:
        raise Violation("C2", f"FFT/IFFT/IRFFT take a complex tensor as input, but is given '{type_text(t)}'.")
    return t.dtype.part if kind == "IRFFT" else t.dtype


def _infer_fft(op: Op) -> list[Type]:
    t, kind, lengths = operand_type(op, 0), op.attributes["fft_type"].value, op.ints("fft_length")
    if not 1 <= len(lengths) <= 3:
        raise Violation("C3", f"rank must be between 1 and 3, but got {len(lengths)}.")
    element = _fft_element(op, t, kind)
    if t.shape is None:
        return [op.results[0].type]
    if t.rank < len(lengths):
        raise Violation("C1", f"operand rank must not be less than fft rank of {len(lengths)}, got '{type_text(t)}'.")
    inner = t.shape[-len(lengths) :]
    got = _extents(t)
    wanted = ", ".join(map(str, lengths))
    if kind == "RFFT":
        if not compatible_shapes(inner, lengths) and 0 not in t.shape:
            raise Violation(
                "C4", f"RFFT requires innermost dimensions to be compatible with fft_length. Got: {got} "
                f"but wanted {wanted}."
            )  # fmt: skip
    elif not compatible_shapes(inner[:-1], lengths[:-1]):
        raise Violation(
            "C4", f"{kind} requires non-final dimensions to be compatible with fft_length. Got: {got} but fft_length "
            f"is {wanted}."
        )  # fmt: skip
    elif kind == "IRFFT" and inner[-1] not in (None, 0, lengths[-1] // 2 + 1):
        raise Violation(
            "C4", "IRFFT requires innermost dimension to be compatible with fft_length[-1]/2+1. "
            f"Got: {inner[-1]} but fft_length is {wanted}."
        )  # fmt: skip
    elif kind in ("FFT", "IFFT") and not same_dim(inner[-1], lengths[-1]):
        raise Violation(
            "C4", f"{kind} requires innermost dimensions to be compatible with fft_length. Got: {got} "
            f"but fft_length is {wanted}."
        )  # fmt: skip
    last = t.shape[-1]
    if kind == "RFFT":
        last = 0 if last == 0 else lengths[-1] // 2 + 1
    elif kind == "IRFFT":
        last = 0 if last == 0 else lengths[-1]
    return [with_bounds((*t.shape[:-1], last), element, bounds_of(t))]


def _fft(op: Op, x: Array) -> Array:
    kind, lengths = op.attributes["fft_type"].value, op.ints("fft_length")
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    wide = _wide(x)
    if 0 in x.shape or 0 in lengths:
        return np.zeros(op.results[0].type.extents, result_dtype(op))  # type: ignore[attr-defined]
    transform = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    return transform(wide, s=lengths, axes=axes).astype(result_dtype(op))


define(
    "stablehlo.fft", section="fft",
    operands=("operand: float|complex",), results=("result: float|complex",),
    attributes={"fft_type": required("enum fft_type"), "fft_length": required("ints")},
    infer=_infer_fft, reference=_fft,
)  # fmt: skip
