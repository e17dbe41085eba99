"""CHLO ops with operands of one type, mostly special functions. `passes/` expands them to StableHLO.

Special functions come from scipy, which only tests and the constant folder need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, FloatAttr, IntegerAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DTYPES, I1, DType, Type
from shlo_jit.ops import complex_math
from shlo_jit.ops.machine import ByKind, Computation, by_kind, call, elementary
from shlo_jit.ops.numeric import Array, Meaning, convert, dtype_of, function, meaning, result_type, widen_int, wrap
from shlo_jit.ops.record import Violation, define, required
from shlo_jit.ops.type_algebra import operand_type, same_type, with_element


def special(name: str) -> Callable[..., Any]:
    """Returns a function of scipy.special, which is imported on the first call."""

    def call(*xs: Array) -> Array:
        import scipy.special

        return getattr(scipy.special, name)(*xs)

    return call


def _polygamma(n: Array, x: Array) -> Array:
    """Reference of polygamma. The order must be a non-negative integer; other orders give NaN."""
    whole = (n >= 0) & (n == np.floor(n))
    return np.where(whole, special("polygamma")(np.where(whole, n, 0).astype(np.int64), x), np.nan)


def _zeta(x: Array, q: Array) -> Array:
    """Reference of the Hurwitz zeta function. At the poles q = 0, -1, ... it is infinite for even x."""
    pole = (q <= 0) & (q == np.floor(q))
    below = (q <= 0) & ~pole & (x != np.floor(x))
    value = np.where(q > 0, special("zeta")(x, np.where(q > 0, q, 1.0)), _zeta_below(x, q))
    value = np.where(pole, np.where(x % 2 == 0, np.inf, np.nan), value)
    value = np.where(below, np.nan, value)
    return np.where(x < 1, np.nan, np.where(x == 1, np.inf, value))


def _zeta_below(x: Array, q: Array) -> Array:
    """Computes zeta for q <= 0 by the recurrence zeta(x, q) = zeta(x, q + 1) + q^-x up to a positive q."""
    steps = np.where((q < 0) & (q > -1e4), -np.floor(q), 0).astype(np.int64)
    total = special("zeta")(x, np.where(q <= 0, q + steps + (q + steps == 0), 1.0))
    for k in range(int(steps.max()) if steps.size else 0):
        total = np.where(k < steps, total + np.power(np.where(q == 0, 1.0, q + k), -x), total)
    return total


def _lgamma(x: Array) -> Array:
    return np.where(np.isinf(x), np.inf, special("gammaln")(x))


def _digamma(x: Array) -> Array:
    """Reference of digamma. NaN at the poles, including zero."""
    pole = (x <= 0) & (x == np.floor(x))
    return np.where(pole, np.nan, special("psi")(np.where(pole, 1.0, x)))


def _traits(exact: str, machine: ByKind | Computation | None) -> set[str]:
    """Returns the traits of an op: inexact ones with a machine form are transcendental."""
    return {"elementwise"} if exact or machine is None else {"elementwise", "transcendental"}


def unary(
    name: str, kinds: str, reference: Meaning, machine: ByKind | None = None, *, exact: str = "", cost: int = 20
) -> None:
    """Defines an op of one operand whose result has the operand's type; without `machine` it is expressed with other
    ops."""
    define(
        f"chlo.{name}", operands=(f"operand: {kinds}",), results=(f"result: {kinds}",),
        traits=_traits(exact, machine), exact=exact, cost=cost, machine=machine, infer=same_type, rules=("unary",),
        reference=reference,
    )  # fmt: skip


def binary(
    name: str, kinds: str, reference: Meaning, machine: ByKind | Computation, *, exact: str = "", cost: int = 20
) -> None:
    """Defines an op whose two operands and result have one type."""
    define(
        f"chlo.{name}", operands=(f"lhs: {kinds}", f"rhs: {kinds}"), results=(f"result: {kinds}",),
        traits=_traits(exact, machine), exact=exact, cost=cost, machine=machine, infer=same_type, rules=("binary",),
        reference=reference,
    )  # fmt: skip


FLOAT = "float|complex|unranked"

unary("acos", FLOAT, function(np.arccos), elementary("acos"))
unary("acosh", FLOAT, function(np.arccosh), elementary("acosh"))
unary("asin", FLOAT, function(np.arcsin), elementary("asin"))
unary("asinh", FLOAT, function(np.arcsinh), elementary("asinh"))
unary("atan", FLOAT, function(np.arctan), elementary("atan"))
unary("atanh", FLOAT, function(np.arctanh), elementary("atanh"))
unary("cosh", FLOAT, function(np.cosh), elementary("cosh"))
unary("sinh", FLOAT, function(np.sinh), elementary("sinh"))
unary("tan", FLOAT, function(np.tan), elementary("tan"))
unary("conj", "float|complex|int|unranked", lambda op, x: np.conj(x) if dtype_of(x).kind == "c" else x)
unary("square", "int|float|complex|unranked", meaning(i=np.square, f=np.square, c=complex_math.square))
unary("erf", "float|unranked", function(special("erf")), by_kind(f=call("erf")))
unary("erfc", "float|unranked", function(special("erfc")), by_kind(f=call("erfc")))
unary("erf_inv", "float|unranked", function(special("erfinv")), by_kind(f=call("erf_inv")))
unary("lgamma", "float|unranked", function(_lgamma), by_kind(f=call("lgamma")))
unary("digamma", "float|unranked", function(_digamma), by_kind(f=call("digamma")))
unary("bessel_i1e", "float|unranked", function(special("i1e")), by_kind(f=call("bessel_i1e")))
unary("_asin_acos_kernel", "complex", lambda op, x: x, by_kind(c=call("asin_acos_kernel")))

binary("polygamma", "float|unranked", function(_polygamma), by_kind(f=call("polygamma")))
binary("zeta", "float|unranked", function(_zeta), by_kind(f=call("zeta")))


# next_after, mulhi


def next_after(x: Array, y: Array) -> Array:
    """Reference of next_after: the neighbor of x in the direction of y, computed on the bits of the format."""
    bits = x.view(f"i{x.dtype.itemsize}") if x.ndim else x.reshape(1).view(f"i{x.dtype.itemsize}").reshape(())
    one = bits.dtype.type(1)
    sign = np.array(1 << (dtype_of(x).bits - 1), np.uint64).astype(bits.dtype)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    grows = (wide_x > 0) == (wide_y > wide_x)
    stepped = np.where(grows, bits + one, bits - one)
    from_zero = np.where(wide_y > 0, one, sign | one)
    moved = np.where(wide_x == 0, from_zero, stepped).astype(bits.dtype)
    result = np.ascontiguousarray(moved).view(x.dtype).reshape(x.shape)
    nan = np.isnan(wide_x) | np.isnan(wide_y)
    return np.where(nan, (x + y).astype(x.dtype), np.where(wide_x == wide_y, y, result))


def mulhi(x: Array, y: Array) -> Array:
    """Reference of mulhi: the upper half of the double-width product."""
    bits = dtype_of(x).bits
    product = widen_int(x).astype(object) * widen_int(y).astype(object)
    high = np.asarray(product >> bits, object)
    unsigned_64 = dtype_of(x).kind == "u" and bits == 64
    return wrap(high.astype(np.uint64 if unsigned_64 else np.int64), x.dtype)


binary(
    "next_after", "float|unranked", lambda op, x, y: next_after(x, y), lambda m, x, y: m.next_after(x, y),
    exact="f", cost=10,
)  # fmt: skip
binary("mulhi", "int|unranked", lambda op, x, y: mulhi(x, y), by_kind(i="mulhi"), exact="i", cost=4)


# is_inf and similar tests


def _infer_pred(op: Op) -> list[Type]:
    return [with_element(operand_type(op, 0), I1)]


def _test(name: str, test: Callable[..., Any], machine: ByKind) -> None:
    define(
        f"chlo.{name}", operands=("operand: float|unranked",), results=("result: pred|unranked",),
        traits={"elementwise"}, exact="f", cost=2, infer=_infer_pred, machine=machine,
        reference=lambda op, x: np.asarray(test(x.astype(np.float64))),
    )  # fmt: skip


_test("is_inf", np.isinf, by_kind(f=lambda m, x: m.fcmp("oeq", m.fabs(x), m.number(float("inf")))))
_test("is_pos_inf", np.isposinf, by_kind(f=lambda m, x: m.fcmp("oeq", x, m.number(float("inf")))))
_test("is_neg_inf", np.isneginf, by_kind(f=lambda m, x: m.fcmp("oeq", x, m.number(float("-inf")))))


# constants


def _infer_constant(op: Op) -> list[Type]:
    value = op.attributes["value"]
    if not isinstance(value, Dense):
        raise Violation("attribute", "requires attribute 'value'")
    return [value.type]


def _infer_constant_like(op: Op) -> list[Type]:
    value = op.attributes["value"]
    return [with_element(operand_type(op, 0), _element_of(value))]


def _element_of(value: Any) -> DType:
    if isinstance(value, Dense):
        return value.type.storage
    if isinstance(value, FloatAttr | IntegerAttr):
        return DTYPES[value.type]
    raise Violation("attribute", "value of constant_like must be a number with a type")


def _constant_like(op: Op, x: Array) -> Array:
    value = op.attributes["value"]
    dtype = result_type(op).storage.numpy
    if isinstance(value, Dense):
        return np.full(x.shape, value.array.reshape(-1)[0], dtype)
    wide = np.asarray(value.value, np.float64 if isinstance(value, FloatAttr) else np.int64)
    return np.full(x.shape, convert(wide, dtype), dtype)


define(
    "chlo.constant", results=("output: tensor",), attributes={"value": required("dense")},
    infer=_infer_constant, reference=lambda op: op.constant.array, traits={"moves_data"},
)  # fmt: skip
define(
    "chlo.constant_like", operands=("operand: tensor|unranked",), results=("result: tensor|unranked",),
    attributes={"value": required("any")}, infer=_infer_constant_like, reference=_constant_like,
)  # fmt: skip
