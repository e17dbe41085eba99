"""Layout of the memory that the ranks of a grid share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.codegen.abi import ALIGNMENT, arena_bytes
from shlo_jit.codegen.objects import Compiled
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.collective.board import board_bytes
from shlo_jit.runtime.measured import profile_bytes

KEPT_RESULTS = 8
"""Number of calls whose results may be alive in shared memory; results of more calls are copied."""
KEPT_BYTES = 64 << 20
"""Minimum room for live results."""
HUGE = 2 << 20


class Block(NamedTuple):
    """Bytes at an offset."""

    offset: int
    nbytes: int


class ProfileBlock(NamedTuple):
    """Memory for the times of a program that records them: see `runtime/measured.py`; empty for others."""

    block: Block
    steps: int
    room: int


class RankLayout(NamedTuple):
    """Memory of one rank. Two tables of i64 hold the offsets of its arguments and results in a call."""

    input_table: Block
    output_table: Block
    inputs: tuple[Block, ...]
    outputs: tuple[Block, ...]
    arena: Block
    profile: ProfileBlock


class Layout(NamedTuple):
    """Layout of a grid."""

    board: Block
    ranks: tuple[RankLayout, ...]
    results: Block
    """Room for results that stay in place as long as they are referenced."""
    nbytes: int


class _Room:
    def __init__(self) -> None:
        self.at = 0

    def take(self, nbytes: int, align: int = ALIGNMENT) -> Block:
        offset = -(-self.at // align) * align
        self.at = offset + max(nbytes, 1)
        return Block(offset, nbytes)

    def ports(self, ports: Sequence[Port]) -> tuple[Block, ...]:
        return tuple(self.take(p.nbytes, HUGE if p.nbytes >= HUGE else ALIGNMENT) for p in ports)


def lay_out(programs: Sequence[Compiled], lanes: int, threads: int) -> Layout:
    """Returns the layout for one program per rank."""
    room = _Room()
    board = room.take(board_bytes(len(programs), lanes))
    ranks = []
    for program in programs:
        tables = room.take(8 * len(program.inputs)), room.take(8 * len(program.outputs))
        inputs, outputs = room.ports(program.inputs), room.ports(program.outputs)
        need = arena_bytes(program.arena_bytes, program.scratch, threads)
        arena = room.take(need, HUGE if need >= HUGE else 4096)
        steps, events = len(program.timed), tuning.TRACE_EVENTS if program.timed else 0
        noted = room.take(profile_bytes(steps, events) if steps else 0)
        ranks.append(RankLayout(*tables, inputs, outputs, arena, ProfileBlock(noted, steps, events)))
    a_call = sum(port.nbytes for program in programs for port in program.outputs)
    results = room.take(max(KEPT_BYTES, KEPT_RESULTS * a_call), HUGE)
    return Layout(board, tuple(ranks), results, room.at)
