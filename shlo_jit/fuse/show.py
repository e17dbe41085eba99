"""The Plan as text: one line a step, what is fused into it, what it reads and writes, and why it ended there.

0  row     16x1024 over 1024   subtract exponential divide ...     %arg0 -> %5 : returned
"""

from __future__ import annotations

from collections import Counter

from shlo_jit.deep import deeply
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.memory.storage import MemoryPlan


@deeply
def show_plan(plan: PlanBlock, memory: MemoryPlan) -> str:
    """The plan, and where its values live."""
    lines: list[str] = []
    names = _Names()
    _block(plan, memory, names, lines, 0)
    steps = Counter(line.split()[1] for line in lines if line.lstrip()[0].isdigit())
    total = ", ".join(f"{n} {kind}" for kind, n in steps.most_common())
    behind = max(memory.shared, key=lambda s: s.nbytes(1), default=None)
    more = f" and {behind.fixed:,} + {behind.per_thread:,} a thread" if behind is not None else ""
    size = f"arena {memory.arena_bytes:,} bytes{more}, {len(memory.constants)} constants"
    return "\n".join([f"{sum(steps.values())} steps: {total}; {size}", *lines])


class _Names:
    """Short unique names of values: their own, or a number."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()

    def __call__(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            base = value.name or "t"
            if value.op is not None and len(value.op.results) > 1:
                base += f"#{value.index}"
            name, k = base, 1
            while name in self.used:
                name, k = f"{base}.{k}", k + 1
            self.names[value] = name
            self.used.add(name)
        return "%" + name


def _block(block: PlanBlock, memory: MemoryPlan, names: _Names, lines: list[str], depth: int) -> None:
    pad = "    " * depth
    for i, step in enumerate(block.steps):
        copies = memory.before.get(id(step), [])
        for c in copies:
            lines.append(f"{pad}   copy    {names(c.source)} {_type(c.source)}")
        lines.append(f"{pad}{i:>3} {step.title:<10} {_body(step)}")
        reads = "  ".join(f"{names(v)} {_type(v)} {_where(v, memory)}" for v in step.reads)
        writes = "  ".join(f"{names(v)} {_type(v)} {_where(v, memory)}" for v in step.writes)
        lines.append(f"{pad}      reads   {reads or '-'}")
        lines.append(f"{pad}      writes  {writes or '-'}{_why(step)}")
        if isinstance(step, ControlStep):
            for k, inner in enumerate(step.blocks):
                lines.append(f"{pad}      region {k}:")
                _block(inner, memory, names, lines, depth + 2)
                for c in memory.block_end.get(id(inner), []):
                    lines.append(f"{pad}           copy    {names(c.source)} {_type(c.source)} to the next turn")
    if depth == 0:
        for c in memory.block_end.get(id(block), []):
            lines.append(f"{pad}   copy    {names(c.source)} {_type(c.source)} to the result")


def _body(step: Step) -> str:
    if isinstance(step, NestStep):
        return f"{_space(step.nest)}  {_ops(step.nest)}"
    if isinstance(step, OpStep) and step.epilogue is not None:
        return f"epilogue {_ops(step.epilogue.nest)}"
    return ""


def _space(nest: Nest) -> str:
    order = nest.order()
    rows = "x".join(str(nest.extents[v]) for v in order if v not in nest.reduce_vars) or "1"
    inner = "x".join(str(nest.extents[v]) for v in order if v in nest.reduce_vars)
    return f"{rows} over {inner}" if nest.reduce_vars else rows


def _ops(nest: Nest) -> str:
    words = [n.op.name.partition(".")[2] for n in reversed(nest.nodes.values())]
    counted = Counter(w for w in words if w != "constant")
    return " ".join(f"{w}*{n}" if n > 1 else w for w, n in counted.items()) or "copy"


def _type(value: Value) -> str:
    t = value.type
    if not isinstance(t, TensorType):
        return str(t)
    return "x".join([*(str(e) for e in t.extents), t.storage.name])


def _where(value: Value, memory: MemoryPlan) -> str:
    s = memory.storage.get(value)
    if s is None:
        return ""
    return f"@{s.number}" if s.kind == "arena" else f"[{s.kind} {s.number}]"


def _why(step: Step) -> str:
    if isinstance(step, NestStep) and step.nest.why:
        return f"   ({step.nest.why})"
    return ""
