"""Expansion of rng: numbers of a distribution from the bits of a generator that the program keeps running.

The bits are Threefry's (see `random.py`) under a key that counts the draws: the first rng that an instance of a program
runs has key 0, the next one 1, and so on over all of its calls. A new instance starts from 0 again (an executable has
one instance). So a program returns new numbers in every call, and the same sequence in every process.

    UNIFORM  floats  a + (b - a) u,  u = the leading bits / 2^24 (2^53 for f64), in [a, b)
             ints    a + (bits (b - a)) / 2^32, rounded down; 64-bit ones a + bits mod (b - a)
             bools   a random bit selects a or b
    NORMAL   mu + sigma sqrt(-2 log(1 - u)) cos(2 pi v)                                          (Box and Muller, 1958)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DTYPES, F32, F64, UI32, UI64, DType, TensorType, tensor
from shlo_jit.ops.known_calls import DRAW
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_rng(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """rng(a, b) = numbers in [a, b), or with mean a and standard deviation b"""
    out = op.result.type
    if not isinstance(out, TensorType) or not out.is_static:
        return None
    a, b, _ = operands
    dtype = out.storage
    distribution = op.attributes["rng_distribution"]
    assert isinstance(distribution, EnumAttr)
    (state,) = rw.emit("stablehlo.custom_call", [], [tensor((2,), UI64)], {
        "call_target_name": DRAW, "has_side_effect": True
    })  # fmt: skip
    if dtype.is_float:
        wide = F64 if dtype.bits == 64 else F32
        x, y = (_spread(rw, mk.convert(rw, v, wide), out) for v in (a, b))
        make = _normal if distribution.value == "NORMAL" else _uniform
        found = mk.convert(rw, make(rw, state, x, y), dtype)
        if distribution.value == "NORMAL":
            return [found]
        # rounding may reach the excluded upper bound
        low, high = _spread(rw, a, out), _spread(rw, b, out)
        inside = mk.compare(rw, "LT", found, high)
        return [_select(rw, inside, found, low)]
    x, y = _spread(rw, a, out), _spread(rw, b, out)
    if dtype.kind == "b":
        return [_either(rw, state, x, y)]
    return [_integer(rw, state, x, y)]


def _spread(rw: Rewriter, value: Value, like: TensorType) -> Value:
    return mk.broadcast(rw, value, like.extents, ())


def _select(rw: Rewriter, condition: Value, x: Value, y: Value) -> Value:
    return rw.emit1("stablehlo.select", [condition, x, y], x.type)


def _bits(rw: Rewriter, state: Value, shape: Sequence[int], dtype: DType) -> Value:
    algorithm = {"rng_algorithm": EnumAttr("stablehlo", "rng_algorithm", "THREE_FRY")}
    return rw.emit("stablehlo.rng_bit_generator", [state], [state.type, tensor(shape, dtype)], algorithm)[1]


def _unit(rw: Rewriter, bits: Value, dtype: DType) -> Value:
    """Converts words to floats in [0, 1), equally spaced."""
    kept = 53 if dtype.bits == 64 else 24
    word = bits.tensor.storage
    leading = mk.apply(rw, "shift_right_logical", bits, mk.splat_like(rw, bits, word.bits - kept))
    x = mk.convert(rw, leading, dtype)
    return mk.apply(rw, "multiply", x, mk.splat_like(rw, x, 2.0**-kept))


def _words(dtype: DType) -> DType:
    return UI64 if dtype.bits == 64 else UI32


def _uniform(rw: Rewriter, state: Value, a: Value, b: Value) -> Value:
    dtype = a.tensor.storage
    u = _unit(rw, _bits(rw, state, mk.shape_of(a), _words(dtype)), dtype)
    return mk.apply(rw, "add", a, mk.apply(rw, "multiply", u, mk.apply(rw, "subtract", b, a)))


def _normal(rw: Rewriter, state: Value, mean: Value, deviation: Value) -> Value:
    dtype, shape = mean.tensor.storage, mk.shape_of(mean)
    both = _bits(rw, state, (2, *shape), _words(dtype))
    u, v = (_unit(rw, mk.reshape(rw, mk.slice_dim(rw, both, 0, k, k + 1), shape), dtype) for k in range(2))
    log = mk.apply(rw, "log", mk.apply(rw, "subtract", mk.splat_like(rw, u, 1.0), u))
    radius = mk.apply(rw, "sqrt", mk.apply(rw, "multiply", log, mk.splat_like(rw, log, -2.0)))
    angle = mk.apply(rw, "cosine", mk.apply(rw, "multiply", v, mk.splat_like(rw, v, 2 * np.pi)))
    return mk.apply(rw, "add", mean, mk.apply(rw, "multiply", deviation, mk.apply(rw, "multiply", radius, angle)))


def _either(rw: Rewriter, state: Value, a: Value, b: Value) -> Value:
    bits = _bits(rw, state, mk.shape_of(a), UI32)
    coin = mk.compare(rw, "LT", bits, mk.splat_like(rw, bits, 1 << 31))
    return _select(rw, coin, a, b)


def _integer(rw: Rewriter, state: Value, a: Value, b: Value) -> Value:
    """Differences are taken as unsigned integers, so that they wrap around correctly. An empty interval returns a."""
    dtype = a.tensor.storage
    unsigned = DTYPES[f"ui{dtype.bits}"]

    def as_unsigned(x: Value) -> Value:
        return x if dtype == unsigned else rw.emit1("stablehlo.bitcast_convert", [x], mk.with_dtype(x, unsigned))

    start = as_unsigned(a)
    extent = mk.convert(rw, mk.apply(rw, "subtract", as_unsigned(b), start), UI64)
    if dtype.bits == 64:
        bits = _bits(rw, state, mk.shape_of(a), UI64)
        one = mk.splat_like(rw, extent, 1)
        offset = mk.apply(rw, "remainder", bits, mk.apply(rw, "maximum", extent, one))
    else:
        bits = mk.convert(rw, _bits(rw, state, mk.shape_of(a), UI32), UI64)
        product = mk.apply(rw, "multiply", bits, extent)
        offset = mk.apply(rw, "shift_right_logical", product, mk.splat_like(rw, product, 32))
    found = mk.apply(rw, "add", start, mk.convert(rw, offset, unsigned))
    if dtype != unsigned:
        found = rw.emit1("stablehlo.bitcast_convert", [found], mk.with_dtype(found, dtype))
    return _select(rw, mk.compare(rw, "LT", a, b), found, a)


RULES = {"stablehlo.rng": expand_rng}
