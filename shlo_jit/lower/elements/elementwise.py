"""How elementwise ops are computed in registers: one function per op and kind of element, found in `EMITTERS`.

An emitter is called as emit(b, op, args): args are registers (`registers.py`) of equal lanes, one an operand, of the
operands' dtypes; it gives the register of the result. Integer arithmetic wraps; what the specification leaves open
is fixed here and documented in docs/architecture.md: x / 0 = -1 (all ones), x rem 0 = x, MIN / -1 = MIN, shifts past
the width give 0 (or the sign), float to integer saturates with NaN to 0.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import F32, DType
from shlo_jit.kernels import math
from shlo_jit.kernels.builder import Builder, V, bits, const, lanes, vector
from shlo_jit.lower.elements import complexes
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import Reg, from_f32, is_pair, register_type, to_f32

Emitter = Callable[[Builder, Op, list], Reg]


def _dtype(op: Op, i: int = 0) -> DType:
    return op.operands[i].tensor.storage


def is_narrow(dtype: DType) -> bool:
    """Floats that are computed in f32 and rounded."""
    return dtype.is_float and dtype.name not in ("f32", "f64")


def float_function(name: str) -> Callable[[Builder, DType, list[V]], V]:
    """A function of kernels/math on floats of any width."""

    def emit(b: Builder, dtype: DType, args: list[V]) -> V:
        if is_narrow(dtype):
            return from_f32(b, dtype, math.call(b, name, *(to_f32(b, dtype, a) for a in args)))
        return math.call(b, name, *args)

    return emit


def _arithmetic(instruction: str) -> Callable[[Builder, DType, list[V]], V]:
    def emit(b: Builder, dtype: DType, args: list[V]) -> V:
        if is_narrow(dtype):
            x, y = (to_f32(b, dtype, a) for a in args)
            return from_f32(b, dtype, getattr(b, instruction)(x, y))
        return getattr(b, instruction)(*args)

    return emit


def _nan_propagating(predicate: str) -> Callable[[Builder, DType, list[V]], V]:
    """maximum and minimum of IEEE-754-2019: NaN wins, -0 < +0."""
    name = "maximum" if predicate == "ogt" else "minimum"

    def emit(b: Builder, dtype: DType, args: list[V]) -> V:
        x, y = (to_f32(b, dtype, a) if is_narrow(dtype) else a for a in args)
        r = b.intrinsic(name, x.type, [x, y])
        return from_f32(b, dtype, r) if is_narrow(dtype) else r

    return emit


def _negate_float(b: Builder, dtype: DType, args: list[V]) -> V:
    (x,) = args
    if dtype.name in ("f16", "f32", "f64"):
        return b.fneg(x)
    return from_f32(b, dtype, b.fneg(to_f32(b, dtype, x)))


def _abs_float(b: Builder, dtype: DType, args: list[V]) -> V:
    (x,) = args
    if dtype.name in ("f16", "f32", "f64"):
        return b.intrinsic("fabs", x.type, [x])
    y = to_f32(b, dtype, x)
    return from_f32(b, dtype, b.intrinsic("fabs", y.type, [y]))


def _sign_float(b: Builder, dtype: DType, args: list[V]) -> V:
    x = to_f32(b, dtype, args[0]) if is_narrow(dtype) else args[0]
    one = b.intrinsic("copysign", x.type, [const(x.type, 1.0), x])
    special = b.fcmp("ueq", x, const(x.type, 0.0))  # zero keeps its sign, NaN stays
    r = b.select(special, x, one)
    return from_f32(b, dtype, r) if is_narrow(dtype) else r


# ---------------------------------------------------------------------------- integers
def _integer(method: str) -> Callable[[Builder, DType, list[V]], V]:
    return lambda b, dtype, args: getattr(b, method)(*args)


def _intrinsic(signed: str, unsigned: str) -> Callable[[Builder, DType, list[V]], V]:
    return lambda b, dtype, args: b.intrinsic(unsigned if dtype.kind == "u" else signed, args[0].type, args)


def _divide_int(b: Builder, dtype: DType, args: list[V]) -> V:
    x, y = args
    zero = b.icmp("eq", y, const(y.type, 0))
    if dtype.kind == "u":
        q = b.emit(x.type, f"udiv {x.type} {x.text}, {b.select(zero, const(y.type, 1), y).text}")
        return b.select(zero, const(x.type, -1), q)
    minus = b.icmp("eq", y, const(y.type, -1))
    safe = b.select(b.or_(zero, minus), const(y.type, 1), y)
    q = b.sdiv(x, safe)
    q = b.select(minus, b.sub(const(x.type, 0), x), q)
    return b.select(zero, const(x.type, -1), q)


def _remainder_int(b: Builder, dtype: DType, args: list[V]) -> V:
    x, y = args
    zero = b.icmp("eq", y, const(y.type, 0))
    if dtype.kind == "u":
        safe = b.select(zero, const(y.type, 1), y)
        return b.select(zero, x, b.emit(x.type, f"urem {x.type} {x.text}, {safe.text}"))
    minus = b.icmp("eq", y, const(y.type, -1))
    safe = b.select(b.or_(zero, minus), const(y.type, 1), y)
    return b.select(zero, x, b.srem(x, safe))


def _abs_int(b: Builder, dtype: DType, args: list[V]) -> V:
    (x,) = args
    return x if dtype.kind == "u" else b.intrinsic_with_flag("abs", x, False)


def _sign_int(b: Builder, dtype: DType, args: list[V]) -> V:
    (x,) = args
    positive = b.cast("zext", b.icmp("ne", x, const(x.type, 0)), x.type)
    return positive if dtype.kind == "u" else b.or_(b.ashr(x, dtype.bits - 1), positive)


def _power_int(b: Builder, dtype: DType, args: list[V]) -> V:
    """Square and multiply over the bits of the exponent; a negative one of a signed type gives 0, or +-1 for +-1."""
    x, y = args
    result, base = const(x.type, 1), x
    width = min(dtype.bits, 64)
    for k in range(width if dtype.kind == "u" else width - 1):
        bit = b.and_(b.lshr(y, k), const(y.type, 1))
        result = b.select(b.icmp("ne", bit, const(y.type, 0)), b.mul(result, base), result)
        if k + 1 < width:
            base = b.mul(base, base)
    if dtype.kind == "u":
        return result
    odd = b.icmp("ne", b.and_(y, const(y.type, 1)), const(y.type, 0))
    one = b.icmp("eq", x, const(x.type, 1))
    minus = b.icmp("eq", x, const(x.type, -1))
    inverse = b.select(one, x, b.select(minus, b.select(odd, x, const(x.type, 1)), const(x.type, 0)))
    return b.select(b.icmp("slt", y, const(y.type, 0)), inverse, result)


def _shift(method: str) -> Callable[[Builder, DType, list[V]], V]:
    def emit(b: Builder, dtype: DType, args: list[V]) -> V:
        x, y = args
        past = b.icmp("uge", y, const(y.type, dtype.bits))
        if method == "ashr":
            return b.ashr(x, b.select(past, const(y.type, dtype.bits - 1), y))
        return b.select(past, const(x.type, 0), getattr(b, method)(x, b.select(past, const(y.type, 0), y)))

    return emit


def _count_leading_zeros(b: Builder, dtype: DType, args: list[V]) -> V:
    return b.intrinsic_with_flag("ctlz", args[0], False)


def _mulhi(b: Builder, dtype: DType, args: list[V]) -> V:
    wide = f"i{2 * dtype.bits}"
    extend = "zext" if dtype.kind == "u" else "sext"
    x, y = (b.cast(extend, a, wide) for a in args)
    return b.cast("trunc", b.lshr(b.mul(x, y), dtype.bits), f"i{dtype.bits}")


# ---------------------------------------------------------------------------- by kind
Handler = Callable[[Builder, DType, list], Reg]


def by_kind(
    *, f: Handler | None = None, i: Handler | None = None, b: Handler | None = None, c: Handler | None = None
) -> Emitter:
    """An emitter that looks at the first operand's kind: float, integer, boolean, complex."""
    table = {"f": f, "i": i, "u": i, "b": b, "c": c}

    def emit(builder: Builder, op: Op, args: list) -> Reg:
        dtype = _dtype(op)
        handler = table.get(dtype.kind)
        if handler is None:
            raise UnsupportedError(diagnose(f"{op.name} of {dtype} is not supported", op.span))
        return handler(builder, dtype, args)

    HANDLERS[emit] = table
    return emit


HANDLERS: dict[Emitter, dict[str, Handler | None]] = {}
"""The handlers behind each emitter made by `by_kind`."""


def apply(b: Builder, name: str, dtype: DType, args: list) -> Reg:
    """Apply an op with operands of one dtype, by name, without an Op at hand (reducers)."""
    handler = HANDLERS[EMITTERS[name]][dtype.kind]
    assert handler is not None, (name, dtype)
    return handler(b, dtype, args)


def _compare(b: Builder, op: Op, args: list) -> Reg:
    direction = op.attributes["comparison_direction"]
    kind = op.attributes.get("compare_type")
    total = isinstance(kind, EnumAttr) and kind.value == "TOTALORDER"
    return compare(b, _dtype(op), direction.value, args[0], args[1], total)


def compare(b: Builder, dtype: DType, direction: str, x: Reg, y: Reg, total: bool = False) -> V:
    """i1 lanes of x `direction` y (EQ NE LT LE GT GE)."""
    word = direction.lower()
    if is_pair(x):
        return complexes.compare(b, direction, x, y)  # type: ignore[arg-type]
    assert isinstance(x, V) and isinstance(y, V)
    if dtype.is_float:
        if total:
            return b.icmp(word if word in ("eq", "ne") else "s" + word, _total(b, dtype, x), _total(b, dtype, y))
        if is_narrow(dtype):
            x, y = to_f32(b, dtype, x), to_f32(b, dtype, y)
        return b.fcmp("une" if direction == "NE" else "o" + word, x, y)
    sign = "" if word in ("eq", "ne") else "s" if dtype.kind in "ix" else "u"
    return b.icmp(sign + word, x, y)


def _total(b: Builder, dtype: DType, x: V) -> V:
    """Bits as an integer that orders like IEEE's totalOrder."""
    width = 8 * dtype.itemsize
    own = b.bitcast(x, vector(f"i{width}", lanes(x.type)))
    if dtype.name == "f8E8M0FNU":  # without a sign, the bits are in order
        return b.xor(own, const(own.type, 0x80))
    if dtype.bits < width:
        own = b.shl(own, width - dtype.bits)
    flip = b.lshr(b.ashr(own, width - 1), 1)
    return b.xor(own, flip)


def _select(b: Builder, op: Op, args: list) -> Reg:
    p, x, y = args
    if is_pair(x):
        return tuple(b.select(p, u, v) for u, v in zip(x, y, strict=True))  # type: ignore[return-value]
    return b.select(p, x, y)


def _clamp(b: Builder, op: Op, args: list) -> Reg:
    low, x, high = args
    dtype = _dtype(op, 1)
    if dtype.is_complex:
        return complexes.call(b, "minimum", dtype, [complexes.call(b, "maximum", dtype, [x, low]), high])
    if dtype.is_float:
        return _nan_propagating("olt")(b, dtype, [_nan_propagating("ogt")(b, dtype, [x, low]), high])
    most, least = ("umax", "umin") if dtype.kind in "ub" else ("smax", "smin")
    return b.intrinsic(least, x.type, [b.intrinsic(most, x.type, [x, low]), high])


def _is_finite(b: Builder, op: Op, args: list) -> Reg:
    dtype = _dtype(op)
    x = to_f32(b, dtype, args[0]) if is_narrow(dtype) else args[0]
    magnitude = b.intrinsic("fabs", x.type, [x])
    return b.fcmp("olt", magnitude, const(x.type, float("inf")))


def _convert(b: Builder, op: Op, args: list) -> Reg:
    return convert(b, _dtype(op), op.result.tensor.storage, args[0])


def _bitcast_convert(b: Builder, op: Op, args: list) -> Reg:
    source, target = _dtype(op), op.result.tensor.storage
    if source.bits != target.bits or source.is_complex or target.is_complex:
        raise UnsupportedError(diagnose("bitcast_convert between widths has a kernel of its own", op.span))
    (x,) = args
    assert isinstance(x, V)
    t = register_type(target)
    if bits(x.type) != bits(t):  # i4 and f4, which is a byte
        return b.cast("zext" if bits(x.type) < bits(t) else "trunc", x, t)
    return b.bitcast(x, t)


def _complex(b: Builder, op: Op, args: list) -> Reg:
    return args[0], args[1]


def _real(b: Builder, op: Op, args: list) -> Reg:
    return args[0][0] if is_pair(args[0]) else args[0]


def _imag(b: Builder, op: Op, args: list) -> Reg:
    (x,) = args
    if is_pair(x):
        return x[1]
    return const(x.type, 0)


def _reduce_precision(b: Builder, op: Op, args: list) -> Reg:
    """Round to fewer exponent and mantissa bits, to nearest even; overflow gives infinity, subnormals flush to zero.
    A NaN is kept, or becomes an infinity where no mantissa bit is left."""
    dtype = _dtype(op)
    x = to_f32(b, dtype, args[0]) if is_narrow(dtype) else args[0]
    wide = F32 if is_narrow(dtype) else dtype
    r = reduce_precision(b, wide, x, op.int("exponent_bits"), op.int("mantissa_bits"))
    return from_f32(b, dtype, r) if is_narrow(dtype) else r


def reduce_precision(b: Builder, dtype: DType, x: V, exponent_bits: int, mantissa_bits: int) -> V:
    width, mantissa, exponent = (32, 23, 8) if dtype.name == "f32" else (64, 52, 11)
    t = vector(f"i{width}", lanes(x.type))
    own = b.bitcast(x, t)
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        lsb = b.and_(b.lshr(own, drop), const(t, 1))
        own = b.add(own, b.add(lsb, const(t, (1 << (drop - 1)) - 1)))
        own = b.and_(own, const(t, -1 << drop))
    if exponent_bits < exponent:
        sign_bit = 1 << (width - 1)
        bias, reduced = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        field = ((1 << exponent) - 1) << mantissa
        e = b.and_(own, const(t, field))
        sign = b.and_(own, const(t, sign_bit))
        over = b.icmp("ugt", e, const(t, (bias + reduced) << mantissa))
        under = b.icmp("ule", e, const(t, (bias - reduced) << mantissa))
        own = b.select(over, b.or_(sign, const(t, field)), own)
        own = b.select(under, sign, own)
    rounded, nan = b.bitcast(own, x.type), x
    if mantissa_bits == 0:
        infinity = const(t, ((1 << exponent) - 1) << mantissa)
        nan = b.bitcast(b.or_(b.and_(b.bitcast(x, t), const(t, -1 << (width - 1))), infinity), x.type)
    return b.select(b.fcmp("uno", x, x), nan, rounded)


def _math(name: str, c: Handler | None = None) -> Emitter:
    return by_kind(f=float_function(name), c=c)


def _complex_function(name: str) -> Handler:
    return lambda b, dtype, args: complexes.call(b, name, dtype, args)


def _test(predicate: Callable[[Builder, V], V]) -> Emitter:
    def emit(b: Builder, op: Op, args: list) -> Reg:
        dtype = _dtype(op)
        return predicate(b, to_f32(b, dtype, args[0]) if is_narrow(dtype) else args[0])

    return emit


def _is_inf(b: Builder, x: V) -> V:
    return b.fcmp("oeq", b.intrinsic("fabs", x.type, [x]), const(x.type, float("inf")))


_and, _or, _xor = (_integer(m) for m in ("and_", "or_", "xor"))
_not = _integer("not_")

EMITTERS: dict[str, Emitter] = {
    "stablehlo.add": by_kind(f=_arithmetic("fadd"), i=_integer("add"), b=_or, c=_complex_function("add")),
    "stablehlo.subtract": by_kind(f=_arithmetic("fsub"), i=_integer("sub"), b=_xor, c=_complex_function("subtract")),
    "stablehlo.multiply": by_kind(f=_arithmetic("fmul"), i=_integer("mul"), b=_and, c=_complex_function("multiply")),
    "stablehlo.divide": by_kind(f=_arithmetic("fdiv"), i=_divide_int, c=_complex_function("divide")),
    "stablehlo.remainder": by_kind(f=float_function("remainder"), i=_remainder_int),
    "stablehlo.maximum": by_kind(
        f=_nan_propagating("ogt"), i=_intrinsic("smax", "umax"), b=_or, c=_complex_function("maximum")
    ),
    "stablehlo.minimum": by_kind(
        f=_nan_propagating("olt"), i=_intrinsic("smin", "umin"), b=_and, c=_complex_function("minimum")
    ),
    "stablehlo.power": by_kind(f=float_function("pow"), i=_power_int, c=_complex_function("power")),
    "stablehlo.atan2": by_kind(f=float_function("atan2"), c=_complex_function("atan2")),
    "stablehlo.and": by_kind(i=_and, b=_and),
    "stablehlo.or": by_kind(i=_or, b=_or),
    "stablehlo.xor": by_kind(i=_xor, b=_xor),
    "stablehlo.not": by_kind(i=_not, b=_not),
    "stablehlo.shift_left": by_kind(i=_shift("shl")),
    "stablehlo.shift_right_logical": by_kind(i=_shift("lshr")),
    "stablehlo.shift_right_arithmetic": by_kind(i=_shift("ashr")),
    "stablehlo.negate": by_kind(
        f=_negate_float, i=lambda b, d, a: b.sub(const(a[0].type, 0), a[0]), c=_complex_function("negate")
    ),
    "stablehlo.abs": by_kind(f=_abs_float, i=_abs_int, c=_complex_function("abs")),
    "stablehlo.sign": by_kind(f=_sign_float, i=_sign_int, c=_complex_function("sign")),
    "stablehlo.popcnt": by_kind(i=lambda b, d, a: b.intrinsic("ctpop", a[0].type, a)),
    "stablehlo.count_leading_zeros": by_kind(i=_count_leading_zeros),
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.is_finite": _is_finite,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.complex": _complex,
    "stablehlo.real": _real,
    "stablehlo.imag": _imag,
    "stablehlo.reduce_precision": _reduce_precision,
    "chlo.is_inf": _test(_is_inf),
    "chlo.is_pos_inf": _test(lambda b, x: b.fcmp("oeq", x, const(x.type, float("inf")))),
    "chlo.is_neg_inf": _test(lambda b, x: b.fcmp("oeq", x, const(x.type, float("-inf")))),
    "chlo.mulhi": by_kind(i=_mulhi),
    "chlo._asin_acos_kernel": by_kind(c=_complex_function("asin_acos_kernel")),
}
for _name, _function in {
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.logistic": "logistic",
    "stablehlo.tanh": "tanh",
    "stablehlo.sine": "sin",
    "stablehlo.cosine": "cos",
    "stablehlo.tan": "tan",
    "stablehlo.sqrt": "sqrt",
    "stablehlo.rsqrt": "rsqrt",
    "stablehlo.cbrt": "cbrt",
    "stablehlo.ceil": "ceil",
    "stablehlo.floor": "floor",
    "stablehlo.round_nearest_afz": "round_nearest_afz",
    "stablehlo.round_nearest_even": "round_nearest_even",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.bessel_i1e": "bessel_i1e",
    "chlo.cosh": "cosh",
    "chlo.sinh": "sinh",
    "chlo.tan": "tan",
    "chlo.digamma": "digamma",
    "chlo.erf": "erf",
    "chlo.erfc": "erfc",
    "chlo.erf_inv": "erf_inv",
    "chlo.lgamma": "lgamma",
    "chlo.polygamma": "polygamma",
    "chlo.zeta": "zeta",
}.items():
    EMITTERS[_name] = _math(_function, _complex_function(_function))


def _next_after(b: Builder, op: Op, args: list) -> Reg:
    dtype = _dtype(op)
    if dtype.name in ("f32", "f64"):
        return math.call(b, "next_after", *args)
    return next_after_bits(b, dtype, args[0], args[1])


def next_after_bits(b: Builder, dtype: DType, x: V, y: V) -> V:
    """The neighbour of x towards y, for floats whose bits order like integers."""
    fx, fy = to_f32(b, dtype, x), to_f32(b, dtype, y)
    t = vector(f"i{8 * dtype.itemsize}", lanes(x.type))
    own, other = b.bitcast(x, t), b.bitcast(y, t)
    sign = const(t, 0 if dtype.name == "f8E8M0FNU" else 1 << (dtype.bits - 1))
    zero = b.fcmp("oeq", fx, const(fx.type, 0.0))
    up = b.fcmp("olt", fx, fy)
    negative = b.icmp("ne", b.and_(own, sign), const(t, 0))
    step = b.select(b.xor(up, negative), const(t, 1), const(t, -1))
    least = b.or_(b.and_(other, sign), const(t, 1))
    r = b.select(zero, least, b.add(own, step))
    r = b.select(b.fcmp("oeq", fx, fy), other, r)
    r = b.select(b.fcmp("uno", fx, fx), own, b.select(b.fcmp("uno", fy, fy), other, r))
    return b.bitcast(r, x.type)


EMITTERS["chlo.next_after"] = _next_after


def emit(b: Builder, op: Op, args: list) -> Reg:
    """Compute an elementwise op. Raises UnsupportedError at the op's line where it has no emitter."""
    emitter = EMITTERS.get(op.name)
    if emitter is None:
        raise UnsupportedError(diagnose(f"{op.name} has no lowering", op.span))
    return emitter(b, op, args)
