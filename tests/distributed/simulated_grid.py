"""Runs programs on a grid of processes by the reference interpreter: a thread each, which exchange at collective
ops."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from shlo_jit.distributed.global_arrays import LocalProgram
from shlo_jit.ir.core import Module, Op
from shlo_jit.reference.interpreter import Interpreter, Regions


class Process(Interpreter):
    """One process. Its operands of a collective op are in `table`, which all processes share."""

    def __init__(self, module: Module, number: int, barrier: threading.Barrier, table: list[Any]):
        super().__init__(module)
        self.number = number
        self.barrier = barrier
        self.table = table

    def run(self, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        try:
            return self.call("main", *arrays)
        except BaseException:
            self.barrier.abort()
            raise

    def op(self, op: Op, arrays: list[Any], values: Any = None) -> tuple[Any, ...]:
        if op.name == "stablehlo.partition_id":
            return (np.uint32(self.number),)
        if op.name not in ("stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.collective_permute"):
            return super().op(op, arrays, values)
        return tuple(self.collective(op, x, values or {}) for x in arrays)

    def collective(self, op: Op, x: np.ndarray, values: Any) -> np.ndarray:
        everyone = self.exchange((op, x))
        assert all(other is op for other, _ in everyone), "processes meet at different ops"
        parts = [part for _, part in everyone]
        if op.name == "stablehlo.collective_permute":
            sources = [a for a, b in op.attributes["source_target_pairs"].array if b == self.number]
            return parts[sources[0]] if sources else np.zeros_like(x)
        (group,) = (row for row in op.attributes["replica_groups"].array.tolist() if self.number in row)
        if op.name == "stablehlo.all_gather":
            return np.concatenate([parts[i] for i in group], op.int("all_gather_dim"))
        total = parts[group[0]]
        for i in group[1:]:
            (total,) = Regions(self, op, values).map(0, total, parts[i])
        return total

    def exchange(self, mine: Any) -> list[Any]:
        """Returns the operands of every process."""
        self.table[self.number] = mine
        self.barrier.wait(20)
        found = list(self.table)
        self.barrier.wait(20)
        return found


def run_local(program: LocalProgram, arrays: list[np.ndarray], processes: int) -> list[np.ndarray]:
    """Returns the whole results of a program, given whole arguments."""
    barrier, table = threading.Barrier(processes), [None] * processes

    def one(number: int) -> tuple[np.ndarray, ...]:
        cut = zip(arrays, program.inputs, strict=True)
        mine = [a if tiles is None else tiles.part(a, number) for a, tiles in cut]
        types = [v.tensor.shape for v in program.module.function("main").block().arguments]
        assert [a.shape for a in mine] == types
        return Process(program.module, number, barrier, table).run(mine)

    with ThreadPoolExecutor(processes) as threads:
        results = list(threads.map(one, range(processes)))
    joined = zip(zip(*results, strict=True), program.outputs, strict=True)
    return [parts[0] if tiles is None else tiles.assemble(parts) for parts, tiles in joined]
