"""Lowers products on register tiles that compute an operand while they pack it, as `schedule/operand_in_panels.py` has
decided."""

from __future__ import annotations

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL, frame_of, write_epilogue, write_totals
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.services import Services
from shlo_jit.schedule.boxes import Boxes
from shlo_jit.schedule.operand_in_panels import InPanelsSchedule


def lower_in_panels(low: Services, step: ComputedOperandStep, s: InPanelsSchedule) -> None:
    b, op, strides, r = low.b, step.product.op, s.layout.operands, s.layout.result
    compute, computing = producer(low, step, s.boxes)
    work = low.scratch(step)
    if s.totals is not None:
        out, r = work, r._replace(matrix=0)
        epilogue, frame = write_totals(low, s.totals, work)
        work = b.offset(work, s.totals.nbytes)
    else:
        epilogue, frame = write_epilogue(low, s.epilogue)
        out = low.pointer(op.result)
    if s.written is not None:
        r = s.written.result
        out = b.offset(low.pointer(s.written.target), s.written.offset * op.result.tensor.storage.itemsize)
    # Its address is not read.
    left, right = (NULL if i == s.side else low.pointer(v) for i, v in enumerate(op.operands))
    box = reversed(s.boxes.strides)
    args = [
        left, *(i64(x) for x in strides[:3]), right, *(i64(x) for x in strides[3:]), i64(0),
        out, i64(r.row), i64(r.matrix), i64(r.batch), i64(r.m), i64(r.n), i64(s.layout.k), i64(0),
        work, epilogue, frame, NULL, i64(0), low.taken_job(), i64(1) if s.is_serial else low.thread_count,
        *(i64(int(x)) for x in s.blocking), compute, computing, *map(i64, box),
    ]  # fmt: skip
    b.call("void", s.symbol, args)
    if s.epilogue is not None and s.epilogue.is_late:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def producer(low: Services, step: ComputedOperandStep, boxes: Boxes) -> tuple[V, V]:
    """The address of the function that computes a box, and the frame to pass to it."""
    function, values = box_function(low, step, boxes)
    return function, frame_of(low, values)


def box_function(low: Services, step: ComputedOperandStep, boxes: Boxes) -> tuple[V, list[Value]]:
    """The address of the function that computes a box, and the values whose addresses its frame holds."""
    nest = boxes.producer.nest
    check_supported(nest)
    values = list(dict.fromkeys(v for v, _ in nest.loads))
    hint = f"{step.producer.hint}_operand"
    name = low.new_name(hint)
    writer = NestLowering(boxes.producer)
    layout = {"by_terms": boxes.by_terms, "symbolic": low.is_symbolic}
    writer.write_box(low.module, name, values, boxes.box, boxes.interleaved, **layout)
    return V("ptr", f"@{low.share(hint, name)}"), values
