"""Random numbers, by Philox from a state of each call: `torch.manual_seed` makes them repeatable.

They have the distributions of PyTorch's, not the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.dtypes import DTYPES, DType
from shlo_jit.ir.types import tensor
from shlo_jit.torch.aten.reductions import best_and_place
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.sorting import sorted_with_places
from shlo_jit.torch.aten.values import (
    BOOL,
    F32,
    F64,
    I64,
    cast,
    filled,
    iota,
    number,
    pair,
    sizes,
    slice_along,
    together,
    wide,
)


def _bits(call: Call, shape: Sequence[int], bits: int) -> Value:
    return b.rng_bit_generator("PHILOX", call.random_key(), tensor(tuple(shape), DTYPES[f"ui{bits}"]))[1]


def uniform(call: Call, shape: Sequence[int], dtype: DType) -> Value:
    """Numbers in [0, 1); both parts of complex numbers."""
    if dtype.kind == "c":
        return b.complex(uniform(call, shape, dtype.part), uniform(call, shape, dtype.part))
    bits = 64 if dtype == F64 else 32
    mantissa = {64: 53}.get(bits, 24)
    found = b.shift_right_logical(_bits(call, shape, bits), bits - mantissa)
    wide_type = F64 if bits == 64 else F32
    scaled = b.convert_element_type(found, wide_type) * number(2.0**-mantissa, wide_type)
    if dtype.bits < 32:  # rounding must not give 1
        digits = 8 if dtype.name == "bf16" else 11
        scale = number(2.0**digits, F32)
        scaled = b.floor(scaled * scale) / scale
    return cast(scaled, dtype)


def open_uniform(call: Call, shape: Sequence[int], dtype: DType) -> Value:
    """Numbers in (0, 1) of f32 or f64: the middles of equal intervals, which the type represents exactly."""
    digits = 52 if dtype == F64 else 23
    drawn = b.shift_right_logical(_bits(call, shape, dtype.bits), dtype.bits - digits)
    scale = number(2.0**-digits, dtype)
    return b.convert_element_type(drawn, dtype) * scale + scale * number(0.5, dtype)


def normal(call: Call, shape: Sequence[int], dtype: DType) -> Value:
    """Numbers of the normal distribution, by the inverse of the error function. The parts of complex numbers have half
    the variance."""
    if dtype.kind == "c":
        half = number(math.sqrt(0.5), dtype.part)
        return b.complex(normal(call, shape, dtype.part) * half, normal(call, shape, dtype.part) * half)
    kind = wide(dtype)
    x = open_uniform(call, shape, kind) * number(2, kind) - number(1, kind)
    return cast(b.erf_inv(x) * number(math.sqrt(2), kind), dtype)


@aten("rand", "rand_like")
def rand(call: Call, *_: object, **__: object) -> Value:
    """Numbers in [0, 1)."""
    return uniform(call, call.shape, call.dtype)


@aten("randn", "randn_like")
def randn(call: Call, *_: object, **__: object) -> Value:
    """Numbers of the normal distribution."""
    return normal(call, call.shape, call.dtype)


@aten("uniform")
def uniform_(call: Call, x: Value, low: float = 0.0, high: float = 1.0, **_: object) -> Value:
    """Numbers in [low, high)."""
    found = uniform(call, sizes(x), wide(x.element_type))
    dtype = found.element_type
    drawn = cast(found * number(high - low, dtype) + number(low, dtype), x.element_type)
    return b.min(drawn, filled(sizes(x), _below(high, x.element_type), x.element_type)) if high > low else drawn


def _below(limit: float, dtype: DType) -> float:
    """The greatest number of an element type that is less than a limit."""
    nearest = np.asarray(limit).astype(dtype.numpy)
    return float(nearest if float(nearest) < limit else np.nextafter(nearest, nearest.dtype.type(-np.inf)))


@aten("normal_functional", "normal.Tensor_float", "normal.Tensor_Tensor", "normal.float_Tensor")
def normal_(call: Call, mean: Any = 0.0, std: Any = 1.0, *more: float, **_: object) -> Value:
    """Numbers of the normal distribution with a mean and a standard deviation."""
    if call.target.endswith("functional.default"):
        mean, std = (std, more[0] if more else 1.0) if isinstance(mean, Value) else (mean, std)
    found = normal(call, call.shape, wide(call.dtype))
    _unused, middle, deviation = together(found.element_type, found, mean, std)
    return cast(found * deviation + middle, call.dtype)


@aten("prims::normal")
def primitive_normal(call: Call, shape: Sequence[int], *, mean: float, std: float, **_: object) -> Value:
    """Numbers of the normal distribution with a mean and a standard deviation."""
    found = normal(call, call.shape, wide(call.dtype))
    return cast(found * number(std, found.element_type) + number(mean, found.element_type), call.dtype)


@aten("rrelu_with_noise_functional")
def rrelu_with_noise(
    call: Call, x: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: object
) -> tuple[Value, Value]:
    """x where it is positive, elsewhere x times a random slope, or the middle one; and the slopes."""
    dtype = wide(x.element_type)
    y, one = cast(x, dtype), filled(sizes(x), 1, dtype)
    if not training:
        slopes = b.select(y > number(0, dtype), one, filled(sizes(x), (lower + upper) / 2, dtype))
        return cast(y * slopes, x.element_type), noise
    drawn = uniform(call, sizes(x), dtype) * number(upper - lower, dtype) + number(lower, dtype)
    slopes = b.select(y > number(0, dtype), one, drawn)
    return cast(y * slopes, x.element_type), cast(slopes, noise.element_type)


def _integers(call: Call, shape: Sequence[int], low: int, high: int) -> Value:
    count = max(1, high - low)
    bits = _bits(call, shape, 64)
    found = b.convert_element_type(b.rem(bits, filled(shape, count, bits.element_type)), I64)
    return found + number(low, I64)


@aten("randint", "randint_like")
def randint(call: Call, *given: Any, **_: object) -> Value:
    """Integers in [0, high)."""
    return cast(_integers(call, call.shape, 0, given[1] if isinstance(given[0], Value) else given[0]), call.dtype)


@aten("randint.low", "randint_like.low_dtype")
def randint_low(call: Call, *given: Any, **_: object) -> Value:
    """Integers in [low, high)."""
    low, high = given[1:3] if isinstance(given[0], Value) else given[:2]
    return cast(_integers(call, call.shape, low, high), call.dtype)


@aten("randperm")
def randperm(call: Call, n: int, **_: object) -> Value:
    """The numbers from 0 to n - 1 in random order."""
    keys = _bits(call, (n,), 64)
    found = b.sort([keys, iota((n,), 0)], lambda p, q, *_: p < q, 0, True)
    return cast(found[1], call.dtype)


@aten("bernoulli", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(call: Call, x: Value, p: Any = None, **_: object) -> Value:
    """1 with a probability, 0 otherwise; the probabilities are the elements if none is given."""
    drawn = uniform(call, sizes(x), F32)
    limit = together(F32, x if p is None else p, drawn)[0]
    return cast(drawn < limit, call.dtype)


@aten("native_dropout")
def native_dropout(call: Call, x: Value, p: float, train: bool | None = True) -> tuple[Value, Value]:
    """Every element with a probability of 1 - p, scaled by 1 / (1 - p), and 0 otherwise; and which ones stay."""
    if train is False or p == 0:
        return x, filled(sizes(x), True, BOOL)
    kept = uniform(call, sizes(x), F32) >= number(p, F32)
    dtype = wide(x.element_type)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    scaled = cast(x, dtype) * number(np.float64(scale), dtype) if p < 1 else filled(sizes(x), 0, dtype)
    return cast(b.select(kept, scaled, filled(sizes(x), 0, dtype)), x.element_type), kept


@aten("exponential")
def exponential(call: Call, x: Value, rate: float = 1.0, **_: object) -> Value:
    """Numbers of the exponential distribution."""
    found = uniform(call, sizes(x), wide(x.element_type))
    dtype = found.element_type
    return cast(-b.log1p(-found) / number(rate, dtype), x.element_type)


@aten("geometric")
def geometric(call: Call, x: Value, p: float, **_: object) -> Value:
    """Numbers of trials until the first success, of a probability p."""
    found = -b.log1p(-uniform(call, sizes(x), F32)) / number(-math.log1p(-p), F32)
    return cast(b.max(*pair(F32, b.ceil(found), 1)), x.element_type)


@aten("cauchy")
def cauchy(call: Call, x: Value, median: float = 0.0, sigma: float = 1.0, **_: object) -> Value:
    """Numbers of the Cauchy distribution."""
    angle = (uniform(call, sizes(x), F32) - number(0.5, F32)) * number(math.pi, F32)
    return cast(b.tan(angle) * number(sigma, F32) + number(median, F32), x.element_type)


@aten("log_normal")
def log_normal(call: Call, x: Value, mean: float = 1.0, std: float = 2.0, **_: object) -> Value:
    """Exponentials of numbers of the normal distribution."""
    dtype = wide(x.element_type)
    found = normal(call, sizes(x), dtype) * number(std, dtype) + number(mean, dtype)
    return cast(b.exp(found), x.element_type)


@aten("multinomial")
def multinomial(call: Call, x: Value, count: int, replacement: bool = False, **_: object) -> Value:
    """Indices drawn by weights, with or without replacement, by the greatest of exponential clocks."""
    weights = cast(x, wide(x.element_type))
    shape = (*sizes(x)[:-1], count, sizes(x)[-1]) if replacement else sizes(x)
    clocks = -b.log(open_uniform(call, shape, F32))
    own = b.broadcast_in_dim(weights, shape, (*range(x.ndim - 1), len(shape) - 1))
    never = filled(shape, -math.inf, F32)
    scores = b.select(own == number(0, own.element_type), never, cast(own, F32) / clocks)
    if replacement:
        return best_and_place(scores, len(shape) - 1, True)[1]
    return slice_along(sorted_with_places(scores, x.ndim - 1, True)[1], x.ndim - 1, 0, count)
