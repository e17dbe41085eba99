"""The processes that ids represent: the grid, and the four strategies of the specification ("Collective ops").

A process of the grid has the number `replica_id * num_partitions + partition_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op

Groups = list[list[int]]
"""Groups of ids, or of process numbers. They may differ in size."""


class Grid(NamedTuple):
    """The processes that run a program."""

    num_replicas: int
    num_partitions: int

    @property
    def num_processes(self) -> int:
        return self.num_replicas * self.num_partitions

    def number(self, replica: int, partition: int) -> int:
        return replica * self.num_partitions + partition


class Strategy(NamedTuple):
    """A strategy to expand groups of ids into groups of processes."""

    numbered: str
    """Kind of the ids: `replica`, `partition` or `process`."""
    ids_of: Callable[[Grid], int]
    """Returns the number of ids."""
    expand: Callable[[Groups, Grid], Groups]


def _across_replicas(groups: Groups, grid: Grid) -> Groups:
    """Returns each group of replicas once per partition."""
    return [[grid.number(r, p) for r in group] for group in groups for p in range(grid.num_partitions)]


def _across_partitions(groups: Groups, grid: Grid) -> Groups:
    """Returns each group of partitions once per replica."""
    return [[grid.number(r, p) for p in group] for group in groups for r in range(grid.num_replicas)]


def _across_both(groups: Groups, grid: Grid) -> Groups:
    """Returns each group of replicas with all of their partitions; the replica changes fastest."""
    return [[grid.number(r, p) for p in range(grid.num_partitions) for r in group] for group in groups]


CROSS_REPLICA = Strategy("replica", lambda grid: grid.num_replicas, _across_replicas)
CROSS_PARTITION = Strategy("partition", lambda grid: grid.num_partitions, _across_partitions)
CROSS_REPLICA_AND_PARTITION = Strategy("replica", lambda grid: grid.num_replicas, _across_both)
FLATTENED_IDS = Strategy("process", lambda grid: grid.num_processes, lambda groups, grid: groups)

KNOW_GLOBAL_IDS = {"stablehlo." + n for n in "all_gather all_reduce reduce_scatter collective_reduce".split()}
"""Ops whose groups may span replicas and partitions; groups of all other ops span one of the two."""


def strategy_of(name: str, channel_id: int, use_global_device_ids: bool) -> Strategy:
    """Returns the strategy of an op (each op's section in the specification defines it)."""
    if channel_id <= 0:
        return CROSS_REPLICA
    if name not in KNOW_GLOBAL_IDS:
        return CROSS_PARTITION
    return FLATTENED_IDS if use_global_device_ids else CROSS_REPLICA_AND_PARTITION


def processes(op: Op, ids: Groups, strategy: Strategy, grid: Grid) -> Groups:
    """Returns the processes that an op's groups (or pairs) of ids represent. Raises UnsupportedError if one is outside
    of the grid."""
    count = strategy.ids_of(grid)
    most = max((n for group in ids for n in group), default=0)
    least = min((n for group in ids for n in group), default=0)
    if most >= count or least < 0:
        refuse_id(op, strategy.numbered, most if most >= count else least, count, grid)
    return strategy.expand(ids, grid)


def refuse_id(op: Op, numbered: str, number: int, count: int, grid: Grid) -> NoReturn:
    """Raises UnsupportedError for an id outside of the grid."""
    name = name_of(op)
    if grid.num_processes == 1:
        message = f"{name} names process {number}, but the program is compiled for one process"
        refuse(op, message, hint="compile with num_replicas or num_partitions")
    plural = {"replica": "replicas", "partition": "partitions", "process": "processes"}[numbered]
    are = f"are {count} {plural}" if count > 1 else f"is one {numbered}"
    refuse(op, f"{name} names {numbered} {number}, but there {are}", found=str(number), expected=f"0 to {count - 1}")


def name_of(op: Op) -> str:
    """Returns the name of an op in messages: the target of a custom call, or the StableHLO op of a transfer."""
    name = op.attributes["call_target_name"] if op.name == "stablehlo.custom_call" else op.name
    return name.replace("shlo_jit.", "stablehlo.")


def refuse(op: Op, message: str, *, hint: str = "", found: str = "", expected: str = "") -> NoReturn:
    raise UnsupportedError(
        diagnose(message, op.span, op=op.name, hint=hint, found=found, expected=expected, label="process-groups")
    )
