"""Ops for the functions that lifted code calls: LLVM's intrinsics and the functions of libm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shlo_jit.custom.lift.ops import Ops, dtype_of
from shlo_jit.custom.lift.read import Instruction
from shlo_jit.custom.llvm_text import Refused
from shlo_jit.ir.core import Value
from shlo_jit.ir.dtypes import DTYPES

_OPS = {
    "fabs": "abs", "floor": "floor", "ceil": "ceil", "rint": "round_nearest_even", "nearbyint": "round_nearest_even",
    "roundeven": "round_nearest_even", "round": "round_nearest_afz", "sqrt": "sqrt", "cbrt": "cbrt",
    "exp": "exponential", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "sin": "sine",
    "cos": "cosine", "tan": "tan", "tanh": "tanh", "pow": "power", "atan2": "atan2", "fmod": "remainder",
    "maximum": "maximum", "minimum": "minimum", "ctpop": "popcnt",
}  # fmt: skip
_CHLO = {name: name for name in "acos acosh asin asinh atan atanh cosh sinh erf erfc lgamma".split()}
_IGNORED = ("llvm.assume", "llvm.dbg", "llvm.lifetime", "llvm.experimental.noalias")


def is_ignored(callee: str) -> bool:
    """Whether a call computes nothing."""
    return callee.startswith(_IGNORED)


def call(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Returns the value of a call. Raises Refused."""
    name = _plain_name(i.callee, i.type)
    if i.type == "i1" and name not in ("scmp", "ucmp"):
        raise Refused("calls-non-op", f"it calls {i.callee}, which has no StableHLO op")
    if name in _OPS:
        return ops.apply(_OPS[name], *operands)
    if name in _CHLO:
        return ops.apply(_CHLO[name], *operands, dialect="chlo")
    if name not in _RULES:
        raise Refused("calls-non-op", f"it calls {i.callee or 'an unknown function'}, which has no StableHLO op")
    return _RULES[name](ops, i, operands)


def _plain_name(callee: str, type: str) -> str:
    """Returns `exp` for `llvm.exp.f32`, `expf` and `exp`. For an intrinsic on integers, returns the part between the
    dots."""
    if callee.startswith("llvm."):
        words = callee.split(".")[1:]
        return ".".join(w for w in words if not _is_type(w))
    return callee[:-1] if type == "float" and callee.endswith("f") and callee != "erf" else callee


def _is_type(word: str) -> bool:
    return word[0] in "if" and word[1:].isdigit()


def _trunc(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Rounds toward zero and keeps the sign of zeros."""
    (x,) = operands
    down = ops.apply("floor", ops.apply("abs", x))
    return _with_sign(ops, down, x)


def _copysign(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return _with_sign(ops, *operands)


def _with_sign(ops: Ops, x: Value, sign: Value) -> Value:
    x, sign = ops.same_rank((x, sign))
    dtype = x.tensor.storage
    bits = DTYPES[f"i{dtype.bits}"]
    mask = 1 << (dtype.bits - 1)
    own = ops.apply("and", ops.bits(x, bits), ops.constant(bits, mask - 1))
    other = ops.apply("and", ops.bits(sign, bits), ops.constant(bits, mask))
    return ops.bits(ops.apply("or", own, other), dtype)


def _number(name: str, ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Returns the maximum or minimum of two values; of a NaN and a number, the number."""
    x, y = ops.same_rank(operands)
    return ops.select(ops.is_nan(x), y, ops.select(ops.is_nan(y), x, ops.apply(name, x, y)))


def _multiply_add(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Multiplies and adds; the result may be rounded twice."""
    x, y, z = operands
    return ops.apply("add", ops.apply("multiply", x, y), z)


def _exp2(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.apply("power", ops.like(operands[0], 2.0), operands[0])


def _powi(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.apply("power", operands[0], ops.convert(operands[1], operands[0].tensor.storage))


def _integer_op(name: str, unsigned: bool, ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.as_unsigned(name, *operands) if unsigned else ops.apply(name, *operands)


def _abs(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.apply("abs", operands[0])


def _leading(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.apply("count_leading_zeros", operands[0])


def _trailing(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Counts the ones below the lowest set bit."""
    x = operands[0]
    below = ops.apply("subtract", x, ops.like(x, 1))
    return ops.apply("popcnt", ops.apply("and", ops.rw.emit1("stablehlo.not", [x], x.type), below))


def _funnel(left: bool, ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Shifts two words as one. A shift past the width yields 0, as in StableHLO."""
    high, low, count = operands
    width = dtype_of(i.type).bits
    n = ops.apply("and", count, ops.like(count, width - 1))
    rest = ops.apply("subtract", ops.like(count, width), n)
    up, down = (n, rest) if left else (rest, n)
    return ops.apply("or", ops.apply("shift_left", high, up), ops.apply("shift_right_logical", low, down))


def _unsigned_difference(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Returns the difference of two unsigned integers, or 0 if it is negative."""
    greater = ops.apply("maximum", *map(ops.unsigned, operands))
    return ops.apply("subtract", ops.signed(greater), operands[1])


def _saturated(unsigned: bool, ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    dtype = dtype_of(i.type)
    if unsigned:
        return ops.signed(ops.convert(operands[0], DTYPES[f"u{dtype.name}"]))
    return ops.convert(operands[0], dtype)


def _order(signed: bool, ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    """Returns -1, 0 or 1."""
    x, y = operands if signed else map(ops.unsigned, operands)
    greater, less = (ops.convert(ops.compare(d, x, y), dtype_of(i.type)) for d in ("GT", "LT"))
    return ops.apply("subtract", greater, less)


Rule = Callable[[Ops, Instruction, list[Value]], Value]
_RULES: dict[str, Rule] = {
    "trunc": _trunc, "copysign": _copysign, "fmuladd": _multiply_add, "exp2": _exp2, "powi": _powi, "abs": _abs,
    "maxnum": partial(_number, "maximum"), "minnum": partial(_number, "minimum"),
    "fmax": partial(_number, "maximum"), "fmin": partial(_number, "minimum"),
    "smax": partial(_integer_op, "maximum", False), "smin": partial(_integer_op, "minimum", False),
    "umax": partial(_integer_op, "maximum", True), "umin": partial(_integer_op, "minimum", True),
    "ctlz": _leading, "cttz": _trailing, "fshl": partial(_funnel, True), "fshr": partial(_funnel, False),
    "usub.sat": _unsigned_difference, "fptosi.sat": partial(_saturated, False), "fptoui.sat": partial(_saturated, True),
    "scmp": partial(_order, True), "ucmp": partial(_order, False),
}  # fmt: skip
