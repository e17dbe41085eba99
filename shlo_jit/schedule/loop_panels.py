"""Matrices that products in a loop read in every iteration: packed once, before the loop.

    W = ...
    while ...:              W packed into panels here
        h = h @ W           reads the panels

The panels are in the loop's memory, and the product reads them as it reads those of a constant. A product inside nested
loops uses the outermost loop that does not compute its matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, OpStep, PlanBlock, all_blocks
from shlo_jit.ir.core import Value
from shlo_jit.sizes import Size


def loops_of(plan: PlanBlock) -> dict[int, ControlStep]:
    """Maps each product in a loop, by id() of its step, to the loop before which its second operand is packed. A loop
    packs at most `LOOP_PANELS` bytes of matrices."""
    found: dict[int, ControlStep] = {}
    bytes_of: dict[int, dict[Value, int]] = {}
    for step, loops in _products(plan, ()):
        matrix = step.op.operands[1]
        is_constant = matrix.op is not None and matrix.op.name == "stablehlo.constant"
        loop = next((loop for loop, inside in loops if matrix not in inside), None)
        if is_constant or loop is None or isinstance(matrix.tensor.size, Size) or matrix.tensor.size == 0:
            continue
        taken = bytes_of.setdefault(id(loop), {})
        taken[matrix] = matrix.tensor.size * matrix.tensor.storage.itemsize
        if sum(taken.values()) <= tuning.LOOP_PANELS:
            found[id(step)] = loop
        else:
            del taken[matrix]
    return found


def _products(
    block: PlanBlock, loops: tuple[tuple[ControlStep, frozenset[Value]], ...]
) -> Iterator[tuple[OpStep, tuple[tuple[ControlStep, frozenset[Value]], ...]]]:
    """Yields the products in loops. Each comes with its loops and the values computed in them, outermost first."""
    for step in block.steps:
        if isinstance(step, OpStep) and step.kind == "stablehlo.dot_general" and loops:
            yield step, loops
        elif isinstance(step, ControlStep):
            is_loop = step.op.name == "stablehlo.while"
            around = (*loops, (step, _made_inside(step))) if is_loop else loops
            for inner in step.blocks:
                yield from _products(inner, around)


def _made_inside(loop: ControlStep) -> frozenset[Value]:
    """Arguments and results of all ops in a loop's regions."""
    blocks = [b.block for inner in loop.blocks for b in all_blocks(inner)]
    made = {v for b in blocks for v in b.arguments}
    return frozenset(made | {v for b in blocks for op in b.ops for v in op.results})
