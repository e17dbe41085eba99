"""Elementwise functions of StableHLO and CHLO that the documents do not have; and `op`, for any other operation.

Each takes a tensor (or two of one shape and element type) of floats, and returns one of that shape and element type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import TensorLike, listed
from shlo_jit.builder.broadcasting import binary, unary
from shlo_jit.builder.calls import attribute
from shlo_jit.builder.control import values_of
from shlo_jit.builder.errors import BuilderError, wrong
from shlo_jit.builder.scope import emit
from shlo_jit.builder.shapes import ShapeLike, type_of
from shlo_jit.ops import OPS
from shlo_jit.ops.name_hints import hint_for

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def acos(operand: TensorLike) -> Value:
    """The angle in [0, pi] whose cosine x is; complex numbers too."""
    return unary("chlo.acos", operand)


def acosh(operand: TensorLike) -> Value:
    """The inverse hyperbolic cosine; complex numbers too."""
    return unary("chlo.acosh", operand)


def asin(operand: TensorLike) -> Value:
    """The angle in [-pi/2, pi/2] whose sine x is; complex numbers too."""
    return unary("chlo.asin", operand)


def asinh(operand: TensorLike) -> Value:
    """The inverse hyperbolic sine; complex numbers too."""
    return unary("chlo.asinh", operand)


def atan(operand: TensorLike) -> Value:
    """The angle in [-pi/2, pi/2] whose tangent x is; complex numbers too."""
    return unary("chlo.atan", operand)


def atanh(operand: TensorLike) -> Value:
    """The inverse hyperbolic tangent; complex numbers too."""
    return unary("chlo.atanh", operand)


def bessel_i1e(operand: TensorLike) -> Value:
    """The modified Bessel function of order 1, times e ** -|x|."""
    return unary("chlo.bessel_i1e", operand)


def conj(operand: TensorLike) -> Value:
    """The conjugate of complex numbers; floats themselves."""
    return unary("chlo.conj", operand)


def digamma(operand: TensorLike) -> Value:
    """The derivative of `lgamma`."""
    return unary("chlo.digamma", operand)


def erf_inv(operand: TensorLike) -> Value:
    """The inverse of `erf`."""
    return unary("chlo.erf_inv", operand)


def erfc(operand: TensorLike) -> Value:
    """1 - erf(x), exact for large x."""
    return unary("chlo.erfc", operand)


def is_inf(operand: TensorLike) -> Value:
    """Whether x is infinite, as pred."""
    return unary("chlo.is_inf", operand)


def lgamma(operand: TensorLike) -> Value:
    """The logarithm of the absolute value of the gamma function."""
    return unary("chlo.lgamma", operand)


def next_after(lhs: TensorLike, rhs: TensorLike) -> Value:
    """The next representable float after lhs in the direction of rhs."""
    return binary("chlo.next_after", lhs, rhs)


def polygamma(lhs: TensorLike, rhs: TensorLike) -> Value:
    """The derivative of `digamma` of order lhs at rhs."""
    return binary("chlo.polygamma", lhs, rhs)


def sinh(operand: TensorLike) -> Value:
    """The hyperbolic sine; complex numbers too."""
    return unary("chlo.sinh", operand)


def square(operand: TensorLike) -> Value:
    """x * x; also for integers."""
    return unary("chlo.square", operand)


def zeta(lhs: TensorLike, rhs: TensorLike) -> Value:
    """The sum of (rhs + k) ** -lhs over k = 0, 1, 2 ..."""
    return binary("chlo.zeta", lhs, rhs)


def op(
    name: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
    shapes: Sequence[ShapeLike] | None = None,
) -> tuple[Value, ...]:
    """Adds any operation of StableHLO or CHLO without a region, by its full name, and returns its results.

    name: such as "stablehlo.einsum". attributes: under StableHLO's names. Numbers, truth values, strings and lists are
    converted as the operation's record requires; others as in `composite_call`. shapes: types of the results, if
    operands and attributes do not determine them. Raises BuilderError for an unknown name, and for violations of the
    specification.
    """
    if name not in OPS:
        raise wrong("name", f"there is no operation {name!r}", hint=hint_for(str(name)))
    values = [v for i, x in enumerate(listed(operands, "operands")) for v in values_of(x, f"operands[{i}]")[0]]
    own = OPS[name].attributes
    said = {key: x if key in own else attribute(x, f"attributes[{key!r}]") for key, x in (attributes or {}).items()}
    types = None if shapes is None else [type_of(s, f"shapes[{i}]") for i, s in enumerate(shapes)]
    try:
        return emit(name, values, said, results=types)
    except ValueError as error:
        if isinstance(error, BuilderError):
            raise
        raise wrong("shapes", str(error)) from None
