"""Arrays that a matrix in registers is computed from, and that a task reads in the order of their addresses (see
`operand_in_registers.py`): hardware prefetches them."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.short_rows import row_bytes
from shlo_jit.schedule.space import linear


def adjoin(s: InRegistersSchedule, key: Key) -> bool:
    """Whether the elements of an array for one output follow those for the output before it in memory, if lanes are
    terms."""
    offset = linear(key)
    terms = sum((s.nest.extents[v] - 1) * offset.coefficient(v) for v in s.along)
    return offset.coefficient(s.cut) == terms + 1


def are_terms_sequential(s: InRegistersSchedule, key: Key) -> bool:
    """Whether hardware prefetches the terms of later outputs: of one output after the other, or of short rows. That
    comes too late for narrow elements, which take much arithmetic per line."""
    if s.terms_block is not None or bits_in_memory(key[0]) < 16 or not adjoin(s, key):
        return False
    return s.together == 1 or row_bytes(s, key) < tuning.SEQUENTIAL_ROW_BYTES


def are_outputs_sequential(s: InRegistersSchedule, key: Key, loop: int) -> bool:
    """Whether hardware prefetches the outputs of later iterations of a loop along k, if lanes are outputs: those of
    wide elements that adjoin."""
    offset = linear(key)
    is_whole = s.chunk >= s.nest.extents[s.lanes] and not s.inner
    row = s.nest.extents[s.lanes] * offset.coefficient(s.lanes)
    return is_whole and bits_in_memory(key[0]) >= 32 and offset.coefficient(loop) == row
