"""What counters of a loop are in each iteration, if they depend on constants only: the loop is run for them alone.

    i = 0; while i < 4 { k = 3 - i; ...; i = i + 1 }     k is 3, 2, 1, 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shlo_jit.ir.core import Op, Value
from shlo_jit.passes.simplify import computed
from shlo_jit.passes.weights import is_computable

Arrays = dict[Value, np.ndarray]
ELEMENTS = 16
"""Maximum elements of the tensors that are computed."""
OPS_RUN = 1 << 15
"""Maximum ops that are computed for a loop. Bounds compile time: a third of a second."""


def iterations(loop: Op, wanted: Sequence[Value], most: int) -> list[tuple[int, ...]] | None:
    """Returns scalars of a loop's body for all iterations. None if they depend on more than constants and counters, or
    if there are more iterations than `most`."""
    condition, body = loop.block(0), loop.block(1)
    (predicate,) = condition.terminator.operands
    tests, steps = _Program([predicate]), _Program(wanted)
    states: set[int] = set()
    while True:  # a state depends on those that its next value is computed from
        found = {i for i, a in enumerate(condition.arguments) if a in tests.leaves}
        found |= {i for i, a in enumerate(body.arguments) if a in steps.leaves}
        if found == states:
            break
        states = found
        steps.add([body.terminator.operands[i] for i in states])
    given: Arrays = {}
    inside = {*condition.arguments, *body.arguments}
    for v in [*(loop.operands[i] for i in states), *((tests.leaves | steps.leaves).keys() - inside)]:
        constant = _constant(v)
        if constant is None:
            return None
        given[v] = constant
    now = {i: given[loop.operands[i]] for i in states}
    rows: list[tuple[int, ...]] = []
    while True:
        arrays = tests.run(given | {condition.arguments[i]: x for i, x in now.items()})
        if not bool(arrays[predicate]):
            return rows
        if len(rows) == most or len(rows) * (len(tests.ops) + len(steps.ops)) > OPS_RUN:
            return None
        arrays = steps.run(given | {body.arguments[i]: x for i, x in now.items()})
        rows.append(tuple(int(arrays[v]) for v in wanted))
        now = {i: arrays[body.terminator.operands[i]] for i in now}


class _Program:
    """Ops that compute some values, and the values that these depend on: its leaves."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.ops: dict[Op, None] = {}
        self.leaves: dict[Value, None] = {}
        self.add(values)

    def add(self, values: Sequence[Value]) -> None:
        """Adds the ops that compute more values, after those that they depend on."""
        todo = list(values)
        while todo:
            value = todo[-1]
            op = value.op
            if op is None or not _is_small(op):
                self.leaves[value] = None
            elif op not in self.ops:
                before = [v for v in op.operands if v not in self.leaves and v.op not in self.ops]
                if before:
                    todo += before
                    continue
                self.ops[op] = None
            todo.pop()

    def run(self, given: Mapping[Value, np.ndarray]) -> Arrays:
        """Returns the values of the leaves and of all ops."""
        arrays = dict(given)
        with np.errstate(all="ignore"):
            for op in self.ops:
                t = op.result.tensor
                found = computed(op, [arrays[v] for v in op.operands])
                arrays[op.result] = np.asarray(found, t.storage.numpy).reshape(t.extents)
        return arrays


def _is_small(op: Op) -> bool:
    return is_computable(op) and all(v.tensor.size <= ELEMENTS for v in (*op.operands, op.result))


def _constant(value: Value) -> np.ndarray | None:
    """Returns the elements of a small constant."""
    op = value.op
    if op is None or op.name != "stablehlo.constant" or not op.result.tensor.is_fixed:
        return None
    return op.constant.array if op.result.tensor.size <= ELEMENTS else None
