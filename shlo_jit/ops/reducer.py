"""Reduction regions: their constraints, and folding with them.

`reference` functions of ops with regions get `run`, a `RegionRunner`: `run(i, *arrays)` evaluates region i, and
`run.map(i, *arrays)` evaluates a region over rank-0 tensors once for every element of equally shaped arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shlo_jit.ir.core import Block, Op
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.numeric import Array, convert
from shlo_jit.ops.record import Violation
from shlo_jit.ops.type_algebra import (
    Shape,
    compatible,
    compatible_shapes,
    element_text,
    expressed,
    is_promotable,
    same_dim,
    type_text,
)


class RegionRunner(Protocol):
    """Interface by which a reference runs its op's regions."""

    def __call__(self, region: int, *arrays: Array) -> tuple[Array, ...]: ...

    def map(self, region: int, *arrays: Array) -> tuple[Array, ...]: ...


def block_of(op: Op, region: int, label: str) -> Block:
    """Returns the block of a region. Raises Violation if it is missing or empty."""
    if len(op.regions) <= region or not op.regions[region].blocks:
        raise Violation(label, "op requires one region" if region == 0 else f"op requires region {region}")
    block = op.block(region)
    if not block.ops:
        raise Violation(label, "empty block: expect at least a terminator")
    return block


def returned_types(block: Block) -> list[Type]:
    """Returns the types of the values that a region returns."""
    return [v.type for v in block.terminator.operands]


def check_reducer(
    block: Block, inputs: Sequence[TensorType], inits: Sequence[TensorType], allowed: Shape, label: str
) -> list[TensorType]:
    """Checks that a body has type (E..., E...) -> (E...) with E promotable from the inputs. Returns its result types.

    `allowed` is the part of the op's result shape that the arguments may have; empty in nearly all programs.
    """
    n, arguments = len(inputs), block.arguments
    if len(arguments) != 2 * n:
        raise Violation(
            label, f"Reduction-region must take {2 * n} parameters, but takes {len(arguments)} parameter(s)"
        )
    results = returned_types(block)
    if not results:
        raise Violation(label, "The reduction-region expected to return some value(s)")
    if len(results) != n:
        raise Violation(label, f"Reduction-region here must produce {n} tensors, but produces {len(results)} instead")
    for t in results:
        if not isinstance(t, TensorType):
            raise Violation(
                label,
                f"Reduction-region here must produce tensor-typed result(s), but produces '{type_text(t)}' instead",
            )
    for i, (result, source, init) in enumerate(zip(results, inputs, inits, strict=True)):
        assert isinstance(result, TensorType)
        for index in (i, n + i):
            if not compatible(arguments[index].type, result):
                raise Violation(
                    label,
                    f"The type of reduction-region's parameter at index {index} is different than the corresponding "
                    f"result type: '{type_text(arguments[index].type)}' vs '{type_text(result)}'",
                )
        _check_against_init(result, init, i, label)
        _check_against_input(arguments[n + i].type, source, n + i, n, allowed, label)
    return results  # type: ignore[return-value]


def _check_against_init(result: TensorType, init: TensorType, index: int, label: str) -> None:
    both = f"'{type_text(result)}' vs '{type_text(init)}'"
    if not is_promotable(init.dtype, result.dtype):
        raise Violation(
            label,
            f"The element-type of reduction-region's result type at index {index} is expected to be promotable from "
            f"the op's corresponding init-value element-type: {both}",
        )
    if not compatible_shapes(result.shape, init.shape):
        raise Violation(
            label,
            f"The shape of reduction-region's result type at index {index} differs from the op's corresponding "
            f"init-value type: {both}",
        )


def _check_against_input(
    argument: Type, source: TensorType, index: int, count: int, allowed: Shape, label: str
) -> None:
    """Checks argument `index` of a body over `count` inputs, which is an element of `source`."""
    assert isinstance(argument, TensorType)
    if not is_promotable(source.dtype, argument.dtype):
        raise Violation(
            label,
            f"The element-type of reduction-region's argument at index {index} is expected to be promotable from "
            f"'{element_text(source.dtype)}', but got '{element_text(argument.dtype)}'",
        )
    if argument.shape is None or source.shape is None:
        return
    if len(argument.shape) > len(allowed):
        raise Violation(
            label,
            f"The rank of reduction-region's argument at index {index} is expected to be <= {len(allowed)}, "
            f"got {len(argument.shape)}",
        )
    left = iter(allowed)
    for extent in argument.shape:
        if not any(same_dim(extent, n) for n in left):
            raise Violation(
                label,
                f"The shape of reduction-region's argument at index {index} is not compatible with that of reduce-op's "
                f"input-parameter at index {index - count}: what is left of it is {list(allowed)}",
            )


def body_dtypes(block: Block, n: int) -> list[np.dtype]:
    """Returns the numpy dtypes of the accumulators of a body over `n` values."""
    return [expressed(a.type.dtype).numpy for a in block.arguments[:n]]  # type: ignore[union-attr]


LINE = 1024
"""Lines longer than this are folded in chunks of this length, then the results of the chunks are folded."""


def fold(run: RegionRunner, region: int, values: Sequence[Array], inits: Sequence[Array]) -> tuple[Array, ...]:
    """Reduces the last axis of each of `values` with a body, from left to right, starting with `inits`."""
    kept = values[0].shape[:-1]
    result = tuple(np.broadcast_to(i, kept) for i in inits)
    level = list(values)
    while (count := level[0].shape[-1]) > LINE:
        whole = count // LINE * LINE
        chunks = [v[..., :whole].reshape(*kept, -1, LINE) for v in level]
        rest = [v[..., whole:] for v in level]
        merged = _fold_line(run, region, chunks)
        level = list(merged)
        if whole < count:
            level = [np.concatenate([m, r[..., None]], -1)
                     for m, r in zip(merged, _fold_line(run, region, rest), strict=True)]  # fmt: skip
    for k in range(level[0].shape[-1]):
        result = run.map(region, *result, *[v[..., k] for v in level])
    return result


def _fold_line(run: RegionRunner, region: int, values: Sequence[Array]) -> tuple[Array, ...]:
    """Reduces the last axis, from left to right, starting with its first element."""
    result = tuple(v[..., 0] for v in values)
    for k in range(1, values[0].shape[-1]):
        result = run.map(region, *result, *[v[..., k] for v in values])
    return result


def converted(arrays: Sequence[Array], dtypes: Sequence[np.dtype]) -> list[Array]:
    """Implements `to_destination_type` for a body over wider elements."""
    return [convert(a, d) for a, d in zip(arrays, dtypes, strict=True)]
