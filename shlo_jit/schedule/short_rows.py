"""Short rows of arrays that a matrix in registers is computed from, such as scales of groups, if lanes are terms (see
`operand_in_registers.py`): they are read a little at a time, so they are fetched, and converted, as a whole."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule
from shlo_jit.schedule.register_vectors import LINE
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.space import linear


def loops_around_lanes(s: InRegistersSchedule) -> list[int]:
    """The variables of the loops along k around that along the lanes, outermost first."""
    return [v for v in s.along if v != s.lanes and v not in s.short]


def row_bytes(s: InRegistersSchedule, key: Key) -> int:
    """Bytes from the first to the last element of an array that an output reads."""
    terms = sum((s.nest.extents[v] - 1) * c for v, c in linear(key).terms if v in s.along)
    return terms * bits_in_memory(key[0]) // 8


def short_rows(s: InRegistersSchedule) -> list[Key]:
    """Arrays of which an output reads few lines, a small part of one in each iteration of the loops around the
    lanes."""
    loops = loops_around_lanes(s)
    if not loops or loops[-1] in s.unrolled or s.terms_block is not None:
        return []

    def is_short(key: Key) -> bool:
        step = abs(linear(key).coefficient(loops[-1])) * bits_in_memory(key[0]) // 8
        most = tuning.COMPUTED_PREFETCH_LINES * LINE
        return not s.space.depends(key[1], {s.lanes}) and 0 < step <= LINE // 8 and row_bytes(s, key) <= most

    return [key for key in s.nest.loads if is_short(key)]


def converted_rows(s: InRegistersSchedule) -> dict[Key, Key]:
    """Short rows of f16 and bf16 that are only read to be converted to f32, with the results. All elements of a row are
    converted together: a vector of them takes as many instructions as one."""
    loops, found = loops_around_lanes(s), dict[Key, Key]()
    for key in short_rows(s) if s.dots is None else []:
        readers = [(result, node.op) for result, node in s.nest.nodes.items() if key in node.operands]
        offset = linear(key)
        is_row = offset.coefficient(loops[-1]) == 1 and not any(offset.coefficient(v) for v in (*loops[:-1], *s.short))
        if key[0].tensor.storage.name not in ("f16", "bf16") or offset.syms or key[1].conditions or not is_row:
            continue
        result, op = readers[0]
        if len(readers) == 1 and op.name == "stablehlo.convert" and result[0].tensor.storage.name == "f32":
            found[key] = result
    return found
