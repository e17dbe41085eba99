"""Lowers products of a few vectors with a matrix that is computed in registers, as
`schedule/operand_in_registers.py` has decided."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import from_memory, memory_type
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue, write_totals
from shlo_jit.lower.kernels.units_in_registers import MakeChunkWriter, UnitWriter
from shlo_jit.lower.kernels.vector_sums import sum_vectors
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule


def lower_in_registers(
    low: Services, step: ComputedOperandStep, s: InRegistersSchedule, make_chunk_writer: MakeChunkWriter
) -> None:
    """Copies the vectors if they are read in another order or type, and runs the tasks."""
    check_supported(s.nest)
    b, op = low.b, step.product.op
    fields = shared_fields(b, s.scratch, low.scratch(step))
    source = low.pointer(op.operands[1 - step.operand.side])
    if s.vectors.is_copied:
        to = fields["vectors"]
        b.call("void", _copying(low, step, s), [source, to], declare=False)
        source = to
    out = fields["product"] if s.totals is not None else low.pointer(op.result)
    if s.written is not None:
        out = b.offset(low.pointer(s.written.target), s.written.offset * s.acc.itemsize)
    values = list(dict.fromkeys(v for v, _ in s.nest.loads))
    pointers = [*map(low.pointer, values), source, out]
    epilogue, frame = NULL, NULL
    if s.totals is not None:
        epilogue, frame = write_totals(low, s.totals, out)
    elif s.epilogue is not None:
        epilogue, frame = write_epilogue(low, s.epilogue)
    has_epilogue = epilogue is not NULL
    pointers += [frame] if has_epilogue else []
    hint = f"{step.producer.hint}_product"
    name = low.new_name(hint)
    writer = UnitWriter(low, s, name, values, epilogue if has_epilogue else None, make_chunk_writer)
    if s.parts == 1:
        writer.write(len(pointers))
        low.run_units(low.share(hint, name), pointers, s.tasks)
    else:
        pointers[len(values) + 1] = parts = fields["parts"]
        writer.write(len(pointers))
        low.run_units(low.share(hint, name), pointers, s.tasks)
        name = low.new_name("sum_of_parts")
        writer.write_sums(name)
        sums = [parts, out, *([frame] if has_epilogue else [])]
        low.run_units(low.share("sum_of_parts", name), sums, s.sum_tasks)
    if s.epilogue is not None and s.epilogue.is_late:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def _copying(low: Services, step: ComputedOperandStep, s: InRegistersSchedule) -> str:
    """Writes `void @name(ptr from, ptr to)`, which copies the vectors in the order of the loops. Returns its name."""
    name = low.new_name("vectors")
    b = low.module.function(name, [("ptr", "from"), ("ptr", "to")], noalias=True, attributes="nounwind")
    source, to = b.params
    side, strides = step.operand.side, s.strides
    row, along, batch = (
        (strides.a_rs, strides.a_cs, strides.a_bs) if side else (strides.b_cs, strides.b_rs, strides.b_bs)
    )
    order = sorted(s.along, key=lambda v: -s.vectors.along[v])
    loops = [(s.products, batch, s.vectors.batch), (s.rows, row, s.vectors.row)]
    loops += [(s.nest.extents[v], s.along[v] * along, s.vectors.along[v]) for v in order]

    def nested(loops: Sequence[tuple[int, int, int]], at: V, place: V) -> None:
        if not loops:
            x = from_memory(b, s.source, b.load(memory_type(s.source), b.element(source, memory_type(s.source), at)))
            y = convert(b, s.source, s.factor, x)
            assert isinstance(y, V)
            b.store(y, b.element(to, memory_type(s.factor), place))
            return
        (extent, read, written), *rest = loops
        with b.loop(0, extent) as i:
            nested(rest, b.add(at, b.mul(i, read)), b.add(place, b.mul(i, written)))

    nested([x for x in loops if x[0] != 1], i64(0), i64(0))
    if s.dots is not None and s.dots.row_padding and not s.are_outputs:
        sum_vectors(b, to, s.products * s.rows, s.vectors.row, s.dots.row_padding)
    b.ret()
    return low.share("vectors", name)
