"""Result types of custom calls in which JAX writes ops whose shapes it does not know, once their operands are known."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.known_calls import reduce_window_of
from shlo_jit.ops.shapes import constant_ints


def types_of_call(op: Op) -> list[Type] | None:
    """What a call gives; None where it is none of these, or not known. Raises Violation."""
    function = _FUNCTIONS.get(op.attributes["call_target_name"])
    return None if function is None else function(op)


def _top_k(op: Op) -> list[Type] | None:
    x, k = op.operands[0].type, constant_ints(op.operands[1])
    if not isinstance(x, TensorType) or not x.shape or k is None or len(k) != 1:
        return None
    return [tensor((*x.shape[:-1], k[0]), result.tensor.dtype) for result in op.results]


def _random_bits(op: Op) -> list[Type] | None:
    state, bits = op.results
    shape = constant_ints(op.operands[1])
    return None if shape is None else [state.type, tensor(shape, bits.tensor.dtype)]


def _reduce_window(op: Op) -> list[Type] | None:
    meant = reduce_window_of(op)
    infer = OPS["stablehlo.reduce_window"].infer
    return None if meant is None or infer is None else list(infer(meant))


_FUNCTIONS: dict[str, Callable[[Op], list[Type] | None]] = {
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_rng_bit_generator": _random_bits,
    "stablehlo.dynamic_reduce_window": _reduce_window,
}
