"""Combine all_reduce ops that could run at the same time, so that processes synchronize once for all of them.

Needs: process numbers, element types of results. Guarantees: a block has no two all_reduce ops that could be combined.
Such ops agree in groups, element type and body. No value flows between them, and no op between them has an effect. They
have less than tuning.COMBINED_BYTES in all, and no more operands than a message has room for. The combined op is at the
position of the last one, followed by the readers of its results. Ops that were started early stay separate. So do all
ops if processes run different programs, which would combine them differently.

    a = all_reduce(x); b = negate(a); c = all_reduce(y)   ->   a, c = all_reduce(x, y); b = negate(a)
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Region, Value, walk
from shlo_jit.ir.equality import equal_regions
from shlo_jit.ops.effects import acting
from shlo_jit.passes.canonical.collective_layouts import MOST_OPERANDS
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rebuilt


def combine_collectives(function: Op, context: Context) -> Op:
    """The function with fewer all_reduce ops."""
    count = sum(op.name == "stablehlo.all_reduce" for op in walk(function.block()))
    if count < 2 or not context.same_program:
        return function
    return rebuilt(function, _Combining(acting(function.block())).sweep(function.block()))


class _Window:
    """The ops starting from some all_reduce ops, which may be combined into one."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.members: list[Op] = []
        self.after: set[Op] = set()
        """Ops that need results of members."""
        self.results: set[Value] = set()
        """Results of the members, and of ops that need them."""

    def add(self, op: Op) -> None:
        if not self.results.isdisjoint(_read(op)):
            self.after.add(op)
            self.results.update(op.results)
        self.ops.append(op)

    def join(self, op: Op) -> None:
        self.ops.append(op)
        self.members.append(op)
        self.results.update(op.results)

    def takes(self, op: Op) -> bool:
        """Whether an all_reduce can be combined with the members."""
        if not self.members:
            return True
        first, together = self.members[0], [v for m in (*self.members, op) for v in m.operands]
        return (
            first.attributes["replica_groups"] == op.attributes["replica_groups"]
            and first.result.tensor.storage == op.result.tensor.storage
            and sum(v.tensor.nbytes for v in together) < tuning.COMBINED_BYTES
            and len(together) <= MOST_OPERANDS
            and self.results.isdisjoint(_read(op))
            and equal_regions(first.regions[0], op.regions[0])
        )

    def in_order(self) -> list[Op]:
        """Returns the ops in order, with the members adjacent at the position of the last one."""
        if len(self.members) < 2:
            return self.ops
        last = self.ops.index(self.members[-1])
        others = [op for op in self.ops[:last] if op not in self.members]
        before = [op for op in others if op not in self.after]
        return [*before, *self.members, *(op for op in others if op in self.after), *self.ops[last + 1 :]]


class _Combining(Rewriter):
    """Rewriter that first reorders the ops of every block."""

    def __init__(self, acting: set[Op]) -> None:
        super().__init__(lambda rw, op, operands: self.visit(op))
        self.acting = acting
        self.members: dict[Op, list[Op]] = {}
        """First op of a combination -> all of its ops."""
        self.made: dict[Op, list[Value]] = {}
        """Member -> the results that replace its own."""

    def run(self, ops: Sequence[Op]) -> None:
        super().run(self.ordered(ops))

    def ordered(self, ops: Sequence[Op]) -> list[Op]:
        out: list[Op] = []
        window = _Window()
        for op in ops:
            joins = _may_combine(op)
            if not joins and op not in self.acting and op is not ops[-1]:
                window.add(op)
                continue
            if not (joins and window.takes(op)):
                out += self.close(window)
                window = _Window()
            if joins:
                window.join(op)
            else:
                out.append(op)
        return out + self.close(window)

    def close(self, window: _Window) -> list[Op]:
        if len(window.members) > 1:
            self.members[window.members[0]] = window.members
        return window.in_order()

    def visit(self, op: Op) -> Sequence[Value] | None:
        if op in self.made:
            return self.made.pop(op)
        members = self.members.get(op)
        if members is None:
            return None
        operands = [self.get(v) for m in members for v in m.operands]
        types = [r.type for m in members for r in m.results]
        body = Region([self.sweep(b) for b in op.regions[0].blocks])
        results = self.emit(op.name, operands, types, op.attributes, [body])
        for m in members:
            self.made[m], results = results[: len(m.results)], results[len(m.results) :]
        return self.made.pop(op)


def _may_combine(op: Op) -> bool:
    if op.name != "stablehlo.all_reduce" or "started" in op.attributes:
        return False
    return all(v.tensor.is_fixed and v.tensor.nbytes for v in op.operands)


def _read(op: Op) -> list[Value]:
    """Returns the values that an op and the ops in its regions read."""
    return [*op.operands, *(v for r in op.regions for b in r.blocks for inner in walk(b) for v in inner.operands)]
