"""Reference semantics of collective ops ("Collective ops" of the specification).

Straight-line functions run on all processes of a grid simultaneously. A process is a pair (replica, partition).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.collective import channel_id
from shlo_jit.reference.interpreter import Interpreter, Regions

Process = tuple[int, int]
Everywhere = dict[Process, Any]
"""A value for each process."""


class Grid:
    """Runs functions. `run` takes and returns arrays by process, in the order of process numbers."""

    def __init__(self, replicas: int, partitions: int):
        self.replicas, self.partitions = range(replicas), range(partitions)
        self.all = [(r, p) for r in self.replicas for p in self.partitions]
        self.values: dict[Value, Everywhere] = {}

    # ------------------------------------------------------------------ strategies
    def cross_replica(self, groups: Any) -> list[list[Process]]:
        return [[(r, p) for r in group] for group in groups for p in self.partitions]

    def cross_partition(self, groups: Any) -> list[list[Process]]:
        return [[(r, p) for p in group] for group in groups for r in self.replicas]

    def cross_replica_and_partition(self, groups: Any) -> list[list[Process]]:
        return [[(r, p) for p in self.partitions for r in group] for group in groups]

    def flattened_ids(self, groups: Any) -> list[list[Process]]:
        return [[divmod(n, len(self.partitions)) for n in group] for group in groups]

    def groups(self, op: Op) -> list[list[Process]]:
        attribute, channel = op.attributes.get("replica_groups"), channel_id(op)
        if op.name == "stablehlo.custom_call":
            config = configuration(op)
            attribute, channel = config["replica_groups"], config.get("channel_id", 0)
        assert isinstance(attribute, Dense)
        rows = [[int(n) for n in row if n != -1] for row in attribute.array]
        word = op.name.removeprefix("stablehlo.")
        both = word in ("all_gather", "all_reduce", "reduce_scatter", "collective_reduce")
        partial = word in ("collective_broadcast", "collective_reduce")
        if channel > 0 and both and op.attributes.get("use_global_device_ids"):
            return self.flattened_ids(rows)
        if channel <= 0 or both:
            strategy, ids = self.cross_replica_and_partition if channel > 0 else self.cross_replica, self.replicas
        else:
            strategy, ids = self.cross_partition, self.partitions
        return strategy(rows if partial or any(rows) else [list(ids)])

    # ------------------------------------------------------------------ running
    def run(self, function: Op, arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
        values = self.values = {}
        for i, argument in enumerate(function.block().arguments):
            values[argument] = {p: np.asarray(own[i]) for p, own in zip(self.all, arguments, strict=True)}
        for op in function.block().ops[:-1]:
            results = self.op(op, [values[v] for v in op.operands])
            values.update(zip(op.results, results, strict=True))
        return [[values[v][p] for v in function.block().terminator.operands] for p in self.all]

    def op(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        word = op.name.removeprefix("stablehlo.")
        if word == "custom_call":
            word = op.attributes["call_target_name"]
        rule = RULES.get(word)
        if rule is not None:
            return rule(self, op, operands)
        found = {}
        for p in self.all:
            outside = {v: x[p] for v, x in self.values.items()}
            found[p] = Interpreter().op(op, [x[p] for x in operands], outside)
        return [{p: found[p][i] for p in self.all} for i in range(len(op.results))]

    # ------------------------------------------------------------------ results of each op
    def ids(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        return [{p: np.uint32(p[op.name.endswith("partition_id")]) for p in self.all}]

    def all_gather(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        d = op.int("all_gather_dim")
        return [
            {p: np.concatenate([x[q] for q in group], d) for group in self.groups(op) for p in group} for x in operands
        ]

    def reduced(self, op: Op, i: int, x: Everywhere, group: list[Process]) -> Any:
        dtype = op.block().terminator.operands[0].tensor.storage.numpy
        total = x[group[0]].astype(dtype)
        outside = {v: value[group[0]] for v, value in self.values.items()}
        for q in group[1:]:
            (total,) = Regions(Interpreter(), op, outside).map(0, total, x[q].astype(dtype))
        return total

    def all_reduce(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        groups = self.groups(op)
        return [{p: self.reduced(op, i, x, g) for g in groups for p in g} for i, x in enumerate(operands)]

    def cross_replica_sum(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        (x,) = operands
        return [{p: np.sum([x[q] for q in g], 0, x[p].dtype) for g in self.groups(op) for p in g}]

    def reduce_scatter(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        (x,), d = operands, op.int("scatter_dimension")
        return [
            {p: np.split(self.reduced(op, 0, x, g), len(g), d)[i] for g in self.groups(op) for i, p in enumerate(g)}
        ]

    def all_to_all(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        split, concat = op.int("split_dimension"), op.int("concat_dimension")
        return [
            {
                p: np.concatenate([np.split(x[q], len(g), split)[i] for q in g], concat)
                for g in self.groups(op)
                for i, p in enumerate(g)
            }
            for x in operands
        ]

    def collective_broadcast(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        roots: Everywhere | None = operands.pop() if op.attributes.get("has_dynamic_root") else None
        out = []
        for i, x in enumerate(operands):
            found = {p: np.zeros_like(x[p]) for p in self.all}
            found |= {p: x[g[0 if roots is None else roots[p][i]]] for g in self.groups(op) for p in g}
            out.append(found)
        return out

    def collective_reduce(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        roots: Everywhere | None = operands.pop() if op.attributes.get("has_dynamic_root") else None
        out = []
        for i, x in enumerate(operands):
            found = {p: np.zeros(x[p].shape, op.results[i].tensor.storage.numpy) for p in self.all}
            for g in self.groups(op):
                root = g[0 if roots is None else roots[g[0]][i]]
                found[root] = self.reduced(op, i, x, g)
            out.append(found)
        return out

    def collective_permute(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        pairs = op.attributes["source_target_pairs"].array.tolist()
        pairs = self.cross_replica(pairs) if channel_id(op) <= 0 else self.cross_partition(pairs)
        return [{p: np.zeros_like(x[p]) for p in self.all} | {b: x[a] for a, b in pairs} for x in operands]

    def ragged_all_to_all(self, op: Op, operands: list[Everywhere]) -> list[Everywhere]:
        """For each member of the group, as many updates: rows of the sender's input to positions in that member's
        output."""
        x, out, starts, sizes, targets, _ = operands
        found = {p: out[p].copy() for p in self.all}
        for group in self.groups(op):
            for sender in group:
                rows = zip(*(t[sender].reshape(len(group), -1) for t in (starts, sizes, targets)), strict=True)
                for receiver, (start, size, target) in zip(group, rows, strict=True):
                    for a, n, b in zip(start, size, target, strict=True):
                        found[receiver][b : b + n] = x[sender][a : a + n]
        return [found]


RULES = {
    "replica_id": Grid.ids,
    "partition_id": Grid.ids,
    "cross-replica-sum": Grid.cross_replica_sum,
    "shlo_jit.start": lambda grid, op, operands: [],
    **{
        name: getattr(Grid, name)
        for name in (
            "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "collective_reduce",
            "ragged_all_to_all", "reduce_scatter",
        )
    },
}  # fmt: skip
