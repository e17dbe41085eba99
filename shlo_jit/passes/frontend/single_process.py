"""Collective ops where there is one process, and so one group with one member (specification, "Collective ops").

Needs: a program for one replica and one partition, host transfers as custom calls. Guarantees: no collective op
remains. What the op would combine is the operand alone:

    replica_id, partition_id                                     ->   0
    all_gather, all_reduce, all_to_all, reduce_scatter(x) ...    ->   x
    collective_permute(x)                                        ->   x where process 0 sends to itself, else zeros
    collective_broadcast(x), collective_reduce(x)                ->   x where process 0 is in a group, else zeros

Raises UnsupportedError at an op whose groups name another process.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

WHOLE = {"stablehlo." + n for n in "all_gather all_reduce all_to_all reduce_scatter cross-replica-sum".split()}
"""Ops that every process takes part in."""
PARTIAL = {"stablehlo.collective_broadcast", "stablehlo.collective_reduce"}
"""Ops that give zeros to a process in no group."""
TRANSFERS = {"stablehlo.send", "stablehlo.recv"}


def single_process(function: Op, _: Context) -> Op:
    """The function as a single process runs it."""
    return rewrite(function, _visit) if any(map(_is_collective, walk(function.block()))) else function


def _is_collective(op: Op) -> bool:
    record = OPS.get(op.name)
    return record is not None and record.has("collective")


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if op.name in ("stablehlo.replica_id", "stablehlo.partition_id"):
        t = op.result.type
        assert isinstance(t, TensorType)
        return [mk.constant(rw, t, 0)]
    if op.name in WHOLE:
        _members(op)
        return _handed_on(rw, op, operands)
    if op.name in PARTIAL:
        return _handed_on(rw, op, operands) if 0 in _members(op) else _zeros(rw, op)
    if op.name == "stablehlo.collective_permute":
        pairs = {(int(a), int(b)) for a, b in op.attributes["source_target_pairs"].array}
        _refuse(op, {n for pair in pairs for n in pair})
        return _handed_on(rw, op, operands) if (0, 0) in pairs else _zeros(rw, op)
    if op.name in TRANSFERS:
        raise UnsupportedError(diagnose(f"{op.name} to another device, but the program has one process", op.span))
    return None


def _members(op: Op) -> set[int]:
    """The processes that the op's groups name; a mesh is the processes there are."""
    groups = op.attributes.get("replica_groups")
    if not isinstance(groups, Dense):
        return {0}
    members = {int(n) for n in groups.array.reshape(-1)} - {-1}
    _refuse(op, members)
    return members


def _refuse(op: Op, processes: set[int]) -> None:
    if processes - {0}:
        most = max(processes)
        raise UnsupportedError(
            diagnose(
                f"{op.name} names process {most}, but the program is compiled for one process",
                op.span,
                hint="compile with num_replicas or num_partitions",
            )
        )


def _handed_on(rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
    """The operands, in the element types that the reduction promotes them to."""
    out = []
    for value, result in zip(operands, op.results, strict=False):  # a dynamic root comes after the data
        t = result.type
        assert isinstance(t, TensorType)
        out.append(mk.convert(rw, value, t.storage))
    return out


def _zeros(rw: Rewriter, op: Op) -> list[Value]:
    return [mk.constant(rw, r.tensor, 0) for r in op.results]
