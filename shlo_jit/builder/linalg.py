"""Linear algebra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_jit.builder.arguments import TensorLike, enum, flag, integers, same_elements, tensor_of, word
from shlo_jit.builder.records import FftType, Transpose
from shlo_jit.builder.scope import emit1

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def cholesky(a: TensorLike, lower: bool = False) -> Value:
    """The triangular factor of symmetric (Hermitian) positive definite matrices of floats or complex numbers.

    The matrices are the last two dimensions. The result is l with a = l @ l.T if `lower`, u with a = u.T @ u otherwise.
    Only that triangle of a is read, and only that triangle of the result is defined (document: Cholesky).
    """
    return emit1("stablehlo.cholesky", [tensor_of(a, "a")], {"lower": flag(lower, "lower")})


def triangular_solve(
    a: TensorLike,
    b: TensorLike,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: Transpose = "NO_TRANSPOSE",
) -> Value:
    """Solves op(a) @ x = b if `left_side`, x @ op(a) = b otherwise, for every matrix of the last two dimensions.

    Only the `lower` or the upper triangle of a is read, and its diagonal is not read if `unit_diagonal`. `transpose_a`:
    the op, NO_TRANSPOSE, TRANSPOSE or ADJOINT (document: TriangularSolve).
    """
    x, y = same_elements({"a": a, "b": b})
    attributes = {
        "left_side": flag(left_side, "left_side"),
        "lower": flag(lower, "lower"),
        "unit_diagonal": flag(unit_diagonal, "unit_diagonal"),
        "transpose_a": enum("transpose", word(transpose_a, Transpose, "transpose_a")),
    }
    return emit1("stablehlo.triangular_solve", [x, y], attributes)


def fft(operand: TensorLike, fft_type: FftType, fft_length: Sequence[int]) -> Value:
    """The Fourier transform of the last one to three dimensions.

    `fft_type`: FFT or IFFT of complex numbers, RFFT of floats to complex numbers, IRFFT back. `fft_length`: the lengths
    of these dimensions in the time domain (document: Fft).
    """
    attributes = {
        "fft_type": enum("fft_type", word(fft_type, FftType, "fft_type")),
        "fft_length": list(integers(fft_length, "fft_length")),
    }
    return emit1("stablehlo.fft", [tensor_of(operand, "operand")], attributes)
