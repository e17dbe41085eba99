"""The plan as text: the steps in order, the ops fused into each, the values it reads and writes, and why these are in
memory.

1 row        8 over 32   divide broadcast_in_dim exponential subtract ...
    reads   %x 8x32xf32
    writes  %y 8x32xf32   (the program or region returns it [returned])
"""

from __future__ import annotations

from collections import Counter

from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import (
    OPTIMIZATIONS,
    ComputedOperandStep,
    NestStep,
    OpStep,
    PlanBlock,
    RowBlocksStep,
    SegmentsStep,
    StagedStep,
    Step,
    all_steps,
    labels_of,
    lines_of,
    source_ops,
)
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.value_names import Names, type_text
from shlo_jit.ir.core import Value
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal

EPILOGUE_INPUT = Reason("epilogue-input", "only the epilogue reads it, a tile at a time while that is in the cache")
SEGMENTS = Reason("read-in-segments", "never in memory as a whole: the product reads its segments")
BLOCK = Reason("row-block", "never in memory as a whole: the other stages read it one block of rows at a time")
OPERAND = Reason(
    "computed-operand", "never in memory as a whole: the product computes its elements where it reads them"
)
LINES = Reason("line-buffer", "never in memory as a whole: the next stage reads its lines from a line buffer")


def show_plan(plan: PlanBlock, names: Names) -> str:
    """Returns the steps of a plan as text."""
    head = f"{summary(plan)}; value names are those of the stage core, not of the program's text"
    lines, labels = [head], labels_of(plan)
    for step in all_steps(plan):
        lines += _step(step, labels[id(step)], names)
    return "\n".join(lines)


def summary(plan: PlanBlock) -> str:
    """Returns a summary: `3 steps: 2 loop, 1 dot_general`."""
    steps = Counter(step.title for step in all_steps(plan))
    total = ", ".join(f"{n} {kind}" for kind, n in steps.most_common())
    return f"{steps.total()} step{'' if steps.total() == 1 else 's'}{': ' if total else ''}{total}"


def _step(step: Step, label: str, names: Names) -> list[str]:
    """Returns the lines of a step, indented by the control flow around it."""
    pad = "    " * (label.count(".") // 2)
    where = lines_of(source_ops(step))
    body = "   ".join(text for text in (_body(step), f"({where})" if where else "") if text)
    lines = [f"{pad}{label:>3} {step.title:<10} {body}".rstrip()]
    reads = "  ".join(f"{names(v)} {type_text(v)}" for v in step.reads)
    lines.append(f"{pad}      reads   {reads or '-'}")
    for value in _in_segments(step):
        lines.append(f"{pad}      segments  {names(value)} {type_text(value)}   ({SEGMENTS})")
    if isinstance(step, StagedStep):
        lines += [f"{pad}      {line}".rstrip() for part in step.parts for line in _stage(step, part, names)]
    for value in step.writes:
        why = _why_written(step, value)
        lines.append(f"{pad}      writes  {names(value)} {type_text(value)}{f'   ({why})' if why else ''}")
    return lines + [f"{pad}      {what}   ({refusal})" for what, refusal in _refusals(step)]


def _stage(step: StagedStep, part: Step, names: Names) -> list[str]:
    """Returns the lines of a stage: what it computes, and the values that exist only for one block of rows or for some
    lines."""
    is_sum = isinstance(step, RowBlocksStep) and part in step.sums
    lines = [f"stage   {'sums over rows, ' if is_sum else ''}{part.title}   {_body(part)}"]
    if isinstance(part, RowBlocksStep):
        lines += [f"  {line}" for inner in part.parts for line in _stage(part, inner, names)]
    label, why = ("lines", LINES)
    if isinstance(step, RowBlocksStep):
        label, why = ("block", BLOCK)
    elif isinstance(step, ComputedOperandStep):
        label, why = ("operand", OPERAND)
    product = None if part.host is None else part.host.op.result
    inside = [v for v in part.writes if v in step.inside and v is not product]
    return lines + [f"  {label}  {names(v)} {type_text(v)}   ({why})" for v in inside]


def _why_written(step: Step, value: Value) -> Reason | None:
    """Returns why a value is in memory. An epilogue reads its input one tile at a time, unless it runs late."""
    if step.host is not None and value is step.host.op.result:
        return EPILOGUE_INPUT
    return step.why.get(value)


def _refusals(step: Step) -> list[tuple[str, Refusal]]:
    """Returns the optimizations that were refused for a step, and why."""
    if isinstance(step, RowBlocksStep):
        found = [("row blocks", part.refused.get("row blocks")) for part in step.products]
    elif isinstance(step, StagedStep):
        return _refusals(step.parts[-1])
    else:
        found = [(what, step.refused.get(what)) for what in OPTIMIZATIONS]
    return [(f"no {what}", refusal) for what, refusal in found if refusal is not None]


def _in_segments(step: Step) -> list[Value]:
    """Returns the operands of products that are read in segments."""
    return [p.segments.whole for p in (step, *step.parts) if isinstance(p, SegmentsStep)]


def _body(step: Step) -> str:
    if isinstance(step, NestStep):
        return f"{_space(step.nest)}   {_ops(step.nest)}"
    if isinstance(step, RowBlocksStep):
        return f"{step.batch} x {step.rows} rows" if not equal(step.batch, 1) else f"{step.rows} rows"
    if not isinstance(step, OpStep):
        return ""
    return f"and on its tiles {_ops(step.epilogue.nest)}" if step.epilogue is not None else ""


def _space(nest: Nest) -> str:
    order = nest.order()
    rows = "x".join(str(nest.extents[v]) for v in order if v not in nest.reduce_vars) or "1"
    inner = "x".join(str(nest.extents[v]) for v in order if v in nest.reduce_vars)
    return f"{rows} over {inner}" if nest.reduce_vars else rows


def _ops(nest: Nest) -> str:
    words = [n.op.name.partition(".")[2] for n in reversed(nest.nodes.values())]
    counted = Counter(w for w in words if w != "constant")
    return " ".join(f"{w}*{n}" if n > 1 else w for w, n in counted.items()) or "copy"
