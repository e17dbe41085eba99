"""Sizes that change between iterations of a loop: if they have bounds, they become unknown in the types of its states.

while(%a = %x : tensor<2xf32>) { return concatenate %a, %y }   ->   %a : tensor<?xf32, #stablehlo.bounds<16>>
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.type_algebra import bounds_of, with_bounds


def after_iteration(op: Op, states: Sequence[Type], returned: Sequence[Type]) -> list[Type]:
    """Returns the types of a loop's states that hold for the next iteration, too, if an iteration with `states` returns
    values of the types `returned`. `op` is the loop as the program has it. Raises UnsupportedError for a size that
    changes and has no bound."""
    return [_together(op, i, *types) for i, types in enumerate(zip(states, returned, strict=True))]


def _together(op: Op, i: int, before: Type, after: Type) -> Type:
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return before
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return before
    pairs = list(zip(before.shape, after.shape, strict=True))
    changed = [d for d, (n, m) in enumerate(pairs) if n is not None and n != m and not _is_stated(op, i, d, m)]
    if not changed:
        return before
    stated = _stated_bounds(op, i, before.rank)
    for d in changed:
        if stated[d] is None:
            raise _unbounded(op, i, d, *pairs[d])
    bounds = [old if n is None else b for (n, _), old, b in zip(pairs, bounds_of(before), stated, strict=True)]
    return with_bounds(tuple(None if d in changed else n for d, (n, _) in enumerate(pairs)), before.dtype, bounds)


def _is_stated(op: Op, i: int, d: int, after: int | None) -> bool:
    """Whether a size that is known only at run time must equal the one that the program states."""
    stated = op.results[i].type
    return after is None and isinstance(stated, TensorType) and stated.shape is not None and stated.shape[d] is not None


def with_open_sizes(op: Op, states: Sequence[Type]) -> list[Type]:
    """Returns the types of a loop's states with all sizes that have bounds made unknown."""
    return [_opened(op, i, t) for i, t in enumerate(states)]


def _opened(op: Op, i: int, state: Type) -> Type:
    if not isinstance(state, TensorType) or state.shape is None:
        return state
    stated = _stated_bounds(op, i, state.rank)
    if all(n is None or b is None for n, b in zip(state.shape, stated, strict=True)):
        return state
    bounds = [old if n is None else b for n, old, b in zip(state.shape, bounds_of(state), stated, strict=True)]
    shape = tuple(n if b is None else None for n, b in zip(state.shape, bounds, strict=True))
    return with_bounds(shape, state.dtype, bounds)


def _stated_bounds(op: Op, i: int, rank: int) -> list[int | None]:
    """Returns the bounds that the program states for the sizes of a state."""
    types = [v.type for v in (op.results[i], op.operands[i])]
    limits = [bounds_of(t) for t in types if isinstance(t, TensorType) and t.shape is not None and t.rank == rank]
    return [min((b[d] for b in limits if b[d] is not None), default=None) for d in range(rank)]  # type: ignore[type-var]


def _unbounded(op: Op, i: int, d: int, before: int | None, after: int | None) -> UnsupportedError:
    name = f" (%{op.regions[1].block.arguments[i].name})"
    then = "a size that is only known at run time" if after is None else str(after)
    message = (
        f"while: state {i}{name} has {before} in dimension {d} before the first iteration, and {then} after it: "
        f"a state whose sizes change between iterations needs a bound (#stablehlo.bounds<...>), and is stored "
        f"in a buffer of that size"
    )
    return UnsupportedError(diagnose(message, op.span, op=op.name, label="size"))
