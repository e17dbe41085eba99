"""Random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shlo_jit.builder.arguments import TensorLike, constant_of, enum, integer, tensor_of, word
from shlo_jit.builder.binary import add
from shlo_jit.builder.comparisons import lt
from shlo_jit.builder.data import concatenate, convert_element_type, reshape, slice
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import RandomAlgorithm
from shlo_jit.builder.scope import emit, emit1
from shlo_jit.builder.shapes import ShapeLike, shape_text, static_type
from shlo_jit.ir.types import I64, UI64, tensor

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def rng_uniform(a: TensorLike, b: TensorLike, shape: ShapeLike) -> Value:
    """Uniformly distributed numbers in [a, b), of that shape: pred, integers or floats. They differ with every call
    (document: RngUniform)."""
    return _rng("UNIFORM", {"a": a, "b": b}, shape)


def rng_normal(mu: TensorLike, sigma: TensorLike, shape: ShapeLike) -> Value:
    """Normally distributed floats of that shape, with mean `mu` and standard deviation `sigma`. They differ with every
    call (document: RngNormal)."""
    return _rng("NORMAL", {"mu": mu, "sigma": sigma}, shape)


def _rng(distribution: str, parameters: dict[str, TensorLike], shape: ShapeLike) -> Value:
    t = static_type(shape)
    values = [tensor_of(x, name, t.storage) for name, x in parameters.items()]
    for name, v in zip(parameters, values, strict=True):
        if v.type != tensor((), t.dtype):
            raise wrong(name, f"expected a scalar of {t.dtype}, got {shape_text(v.type)}")
    extents = constant_of(np.asarray(t.extents, np.int64), I64)
    names = dict(zip(("a", "b"), parameters, strict=True))
    attributes = {"rng_distribution": enum("rng_distribution", distribution)}
    return emit1("stablehlo.rng", [*values, extents], attributes, names=names)


def rng_bit_generator(algorithm: RandomAlgorithm, initial_state: TensorLike, shape: ShapeLike) -> tuple[Value, Value]:
    """Returns the next state, and random bits of that shape, as integers or floats.

    `algorithm`: THREE_FRY with a state of u64[2], PHILOX with u64[2] or u64[3], or DEFAULT. The same state gives the
    same bits (document: RngBitGenerator).
    """
    state, t = tensor_of(initial_state, "initial_state"), static_type(shape)
    attributes = {"rng_algorithm": enum("rng_algorithm", word(algorithm, RandomAlgorithm, "algorithm"))}
    names = {"rng_algorithm": "algorithm", "output": "shape"}
    found = emit("stablehlo.rng_bit_generator", [state], attributes, results=[state.type, t], names=names)
    return found[0], found[1]


def rng_get_and_update_state(state: TensorLike, delta: int = 1) -> tuple[Value, Value]:
    """Returns a state, u64[2], and the next one.

    The state is a number of 128 bits, the low half first; the next one is greater by `delta`. A program has no
    variables, so the state is passed as a value (document: RngGetAndUpdateState).
    """
    x = tensor_of(state, "state")
    if x.type != tensor((2,), UI64):
        raise wrong("state", f"expected u64[2], got {shape_text(x.type)}")
    step = integer(delta, "delta")
    if not 0 <= step < 2**64:
        raise wrong("delta", f"expected a number of 64 bits, got {step}")
    low, high = (reshape(slice(x, [i], [i + 1]), ()) for i in range(2))
    more = add(low, step)
    carry = convert_element_type(lt(more, low), UI64)
    return x, concatenate([reshape(v, (1,)) for v in (more, add(high, carry))], 0)
