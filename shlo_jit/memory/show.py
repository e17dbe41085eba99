"""Prints the memory plan: every storage with its bytes, its place, its lifetime in steps and its values. Also prints
the unavoidable copies, each with its reason."""

from __future__ import annotations

from collections.abc import Set

from shlo_jit.fuse.plan import PlanBlock, all_blocks, all_steps, labels_of
from shlo_jit.fuse.value_names import Names, type_text
from shlo_jit.ir.core import Value
from shlo_jit.memory.storage import Copy, MemoryPlan, Storage


def show_memory(plan: PlanBlock, memory: MemoryPlan, names: Names, stack: Set[int] = frozenset()) -> str:
    """Returns the plan's storages in the order of their lifetimes, its scratch memory, swaps and copies, as text.
    `stack`: the storages (by id) that live on the stack of the function that runs the steps."""
    values: dict[int, list[Value]] = {}
    storages: dict[int, Storage] = {}
    for value, storage in memory.storage.items():
        values.setdefault(id(storage), []).append(value)
        storages[id(storage)] = storage
    labels = labels_of(plan)
    clock = _clock(plan, memory, labels)
    ordered = sorted(storages.values(), key=lambda s: (s.first, s.number))
    rows = [("storage", "bytes", "at", "steps", "holds")]
    for s in ordered:
        holds = _holds(values[id(s)], names)
        if id(s) in stack:
            rows.append(("stack", f"{s.nbytes:,}", "", _life(s, clock), holds))
            continue
        holds += _sharers(s, [o for o in ordered if id(o) not in stack], values, names)
        rows.append((_word(s), f"{s.nbytes:,}", _place(s), _life(s, clock), holds))
    shared = [labels[key] for key, s in memory.scratch.items() if not s.nbytes]
    for key, s in memory.scratch.items():
        if s.nbytes:
            rows.append(("scratch", f"{s.nbytes:,}", _place(s), labels[key], f"of step {labels[key]}"))
    lines = [_summary(memory), "", *_table(rows)]
    if shared:
        lines.append(f"after the arena, for each thread of a call: scratch of steps {', '.join(shared)}")
    return "\n".join([*lines, *_copies(plan, memory, labels, names)])


def _clock(plan: PlanBlock, memory: MemoryPlan, labels: dict[int, str]) -> dict[int, str]:
    """Maps each moment of the lifetimes to the innermost step that runs then."""
    clock: dict[int, str] = {}
    for step in all_steps(plan):  # inner ones later
        begin, end = memory.times[id(step)]
        clock |= dict.fromkeys(range(begin, end + 1), labels[id(step)])
    return clock


def _sharers(s: Storage, storages: list[Storage], values: dict[int, list[Value]], names: Names) -> str:
    """Names the values that use the same bytes of the arena at other times."""
    if s.kind != "arena":
        return ""
    end = s.number + s.nbytes
    others = [
        o for o in storages if o is not s and o.kind == "arena" and o.number < end and s.number < o.number + o.nbytes
    ]
    shown = " ".join(names(values[id(o)][0]) for o in others[:4])
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return f"   (bytes also of {shown}{more})" if others else ""


def _summary(memory: MemoryPlan) -> str:
    scratch = max(memory.shared, key=lambda s: s.nbytes(1), default=None)
    more = f" and {scratch.fixed:,} + {scratch.per_thread:,} per thread" if scratch is not None else ""
    count = len(memory.constants)
    return f"arena {memory.arena_bytes:,} bytes{more}, {count} constant{'' if count == 1 else 's'}"


def _word(s: Storage) -> str:
    return s.kind if s.kind in ("arena", "none") else f"{s.kind} {s.number}"


def _place(s: Storage) -> str:
    return f"{s.number:,}" if s.kind == "arena" else ""


def _at(s: Storage) -> str:
    return f"{_word(s)} at {_place(s)}" if s.kind == "arena" else _word(s)


def _life(s: Storage, clock: dict[int, str]) -> str:
    """The first and the last step that use a storage."""
    if s.last < 0:
        return ""
    first = clock.get(s.first, "")
    last = clock.get(s.last, "end")
    return first if first == last else f"{first} to {last}"


def _holds(values: list[Value], names: Names) -> str:
    shown = "  ".join(f"{names(v)} {type_text(v)}" for v in values[:4])
    return shown + (f"  and {len(values) - 4} more" if len(values) > 4 else "")


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    return [
        f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d:<{widths[3]}}  {e}".rstrip()
        for a, b, c, d, e in rows
    ]


def _copies(plan: PlanBlock, memory: MemoryPlan, labels: dict[int, str], names: Names) -> list[str]:
    """Lines on copies before steps and at the ends of blocks, and on memory that loops swap."""
    lines: list[str] = []
    for step in all_steps(plan):
        label = labels[id(step)]
        for c in memory.before.get(id(step), []):
            lines.append(f"before step {label}: {_copy(c, names)}")
        for s, t in memory.swaps.get(id(step), []):
            lines.append(f"step {label}: {_at(s)} and {_at(t)}, {s.nbytes:,} bytes each, swapped every iteration")
    for block in all_blocks(plan):
        for c in memory.block_end.get(id(block), []):
            where = "at the end" if block is plan else "at the end of a region"
            lines.append(f"{where}: {_copy(c, names)}")
    return ["", *lines] if lines else []


def _copy(c: Copy, names: Names) -> str:
    how = f", {c.how}" if c.how.chunk else ""
    return f"copy {names(c.source)} {type_text(c.source)}{how}   ({c.why})"
