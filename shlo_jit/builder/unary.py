"""Elementwise functions of one tensor.

Each takes a tensor of any shape and returns one of that shape and, unless its docstring says otherwise, of that element
type. Each raises BuilderError for other kinds of elements than the docstring names. `result_accuracy` is the required
accuracy of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import TensorLike, enum, integer, real_number, struct, word
from shlo_jit.builder.broadcasting import unary
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import AccuracyMode, ResultAccuracy, record_of

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Accuracy = ResultAccuracy | Mapping[str, Any] | None


def _accuracy(result_accuracy: Accuracy) -> dict[str, Any]:
    """The attribute of a requested accuracy."""
    if result_accuracy is None:
        return {}
    said = _checked(result_accuracy)
    mode = enum("result_accuracy_mode", said.mode)
    fields = {"atol": said.atol, "rtol": said.rtol, "ulps": said.ulps, "mode": mode}
    return {"result_accuracy": struct("stablehlo.result_accuracy", **fields)}


def _checked(result_accuracy: ResultAccuracy | Mapping[str, Any]) -> ResultAccuracy:
    said, argument = record_of(result_accuracy, ResultAccuracy, "result_accuracy"), "result_accuracy"
    tolerances = real_number(said.atol, argument), real_number(said.rtol, argument)
    mode = word(said.mode, AccuracyMode, argument)
    return ResultAccuracy(mode, *tolerances, integer(said.ulps, argument))  # type: ignore[arg-type]  one of the words


def _without_accuracy(result_accuracy: Accuracy) -> None:
    """Checks the accuracy of a function whose op has no such attribute: only the modes without tolerances are
    accepted."""
    if result_accuracy is not None and _checked(result_accuracy).mode == "TOLERANCE":
        raise wrong("result_accuracy", "this function does not support tolerances: its op has no such attribute")


def abs(operand: TensorLike) -> Value:
    """|x|; the modulus of complex numbers. Takes numbers (document: Abs)."""
    return unary("abs", operand)


def cbrt(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The cube root. Takes floats (document: Cbrt)."""
    return unary("cbrt", operand, attributes=_accuracy(result_accuracy))


def ceil(operand: TensorLike) -> Value:
    """The least integer that is not below x. Takes floats (document: Ceil)."""
    return unary("ceil", operand)


def clz(operand: TensorLike) -> Value:
    """Number of leading zero bits. Takes integers (document: Clz)."""
    return unary("count_leading_zeros", operand)


def cos(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The cosine. Takes floats and complex numbers (document: Cos)."""
    return unary("cosine", operand, attributes=_accuracy(result_accuracy))


def cosh(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The hyperbolic cosine. Takes floats and complex numbers (document: Cosh)."""
    _without_accuracy(result_accuracy)
    return unary("chlo.cosh", operand)


def erf(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The error function. Takes floats (document: Erf)."""
    _without_accuracy(result_accuracy)
    return unary("chlo.erf", operand)


def exp(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """e ** x. Takes floats and complex numbers (document: Exp)."""
    return unary("exponential", operand, attributes=_accuracy(result_accuracy))


def expm1(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """e ** x - 1, accurate near 0. Takes floats and complex numbers (document: Expm1)."""
    return unary("exponential_minus_one", operand, attributes=_accuracy(result_accuracy))


def floor(operand: TensorLike) -> Value:
    """The greatest integer that is not above x. Takes floats (document: Floor)."""
    return unary("floor", operand)


def imag(operand: TensorLike) -> Value:
    """The imaginary part, which is 0 for floats. Takes floats and complex numbers (document: Imag)."""
    return unary("imag", operand)


def is_finite(operand: TensorLike) -> Value:
    """Whether x is neither infinite nor NaN, as pred. Takes floats (document: IsFinite)."""
    return unary("is_finite", operand)


def log(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The natural logarithm. Takes floats and complex numbers (document: Log)."""
    return unary("log", operand, attributes=_accuracy(result_accuracy))


def log1p(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """log(1 + x), accurate near 0. Takes floats and complex numbers (document: Log1p)."""
    return unary("log_plus_one", operand, attributes=_accuracy(result_accuracy))


def logistic(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """1 / (1 + e ** -x). Takes floats and complex numbers (document: Logistic)."""
    return unary("logistic", operand, attributes=_accuracy(result_accuracy))


def neg(operand: TensorLike) -> Value:
    """-x. Takes numbers (document: Neg)."""
    return unary("negate", operand)


def not_(operand: TensorLike) -> Value:
    """The logical complement of pred, or the bitwise complement of integers. Takes pred and integers (document:
    Not)."""
    return unary("not", operand)


def population_count(operand: TensorLike) -> Value:
    """Number of bits that are 1. Takes integers (document: PopulationCount)."""
    return unary("popcnt", operand)


def real(operand: TensorLike) -> Value:
    """The real part, which is x for floats. Takes floats and complex numbers (document: Real)."""
    return unary("real", operand)


def round(operand: TensorLike) -> Value:
    """The nearest integer; halves are rounded away from 0. Takes floats (document: Round)."""
    return unary("round_nearest_afz", operand)


def round_nearest_afz(operand: TensorLike) -> Value:
    """The nearest integer; halves are rounded away from 0. Takes floats (document: RoundNearestAfz)."""
    return unary("round_nearest_afz", operand)


def round_nearest_even(operand: TensorLike) -> Value:
    """The nearest integer; halves are rounded to even. Takes floats (document: RoundNearestEven)."""
    return unary("round_nearest_even", operand)


def rsqrt(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """1 / sqrt(x). Takes floats and complex numbers (document: Rsqrt)."""
    return unary("rsqrt", operand, attributes=_accuracy(result_accuracy))


def sign(operand: TensorLike) -> Value:
    """-1, 0 or 1 (-0 and NaN are unchanged); x / |x| for complex numbers. Takes signed numbers (document: Sign)."""
    return unary("sign", operand)


def sin(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The sine. Takes floats and complex numbers (document: Sin)."""
    return unary("sine", operand, attributes=_accuracy(result_accuracy))


def sqrt(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The square root. Takes floats and complex numbers (document: Sqrt)."""
    return unary("sqrt", operand, attributes=_accuracy(result_accuracy))


def tan(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The tangent. Takes floats and complex numbers (document: Tan)."""
    return unary("tan", operand, attributes=_accuracy(result_accuracy))


def tanh(operand: TensorLike, result_accuracy: Accuracy = None) -> Value:
    """The hyperbolic tangent. Takes floats and complex numbers (document: Tanh)."""
    return unary("tanh", operand, attributes=_accuracy(result_accuracy))


def logical_not(operand: TensorLike) -> Value:
    """`not_` under the older document's name (LogicalNot)."""
    return unary("not", operand)
