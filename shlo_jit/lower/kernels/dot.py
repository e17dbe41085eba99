"""Lowers dot_general to calls of the shared GEMM routine, as `schedule/products.py` has decided."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue
from shlo_jit.lower.kernels.key_range import keys_of_rows
from shlo_jit.lower.kernels.keys_in_registers import write_keys
from shlo_jit.lower.kernels.loop_panels import packed
from shlo_jit.lower.kernels.viewed import operand_address
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.products import InRange, ProductSchedule


def lower(low: Services, step: OpStep, schedule: ProductSchedule) -> None:
    lower_product(low, step, schedule, low.scratch(step))


def lower_product(low: Services, step: OpStep, schedule: ProductSchedule, work: V) -> None:
    """Writes the calls of a product. `work`: the address of its scratch memory."""
    op, b, s, r = step.op, low.b, schedule, schedule.result
    if s.ranged is not None:
        lower_in_range(low, step, s, s.ranged, work)
        return
    lhs, rhs = (o.tensor.extents for o in op.operands)
    item = [o.tensor.storage.itemsize for o in op.operands]
    item_c = op.result.tensor.storage.itemsize
    epilogue, frame = write_epilogue(low, s.epilogue)

    def call(left: V, right: V, out: V) -> None:
        args = [
            left, *(i64(x) for x in s.strides[:3]), right, *(i64(x) for x in s.strides[3:]),
            i64(int(s.has_panels)), out, i64(r.row), i64(r.matrix), i64(r.batch), i64(r.m), i64(r.n),
            i64(s.k), i64(0), work, epilogue, frame, *low.region(s.prefetched), low.taken_job(),
            i64(1) if s.decisions.is_alone else low.thread_count, *map(i64, s.given or ()),
        ]  # fmt: skip
        b.call("void", s.symbol, args)

    def loops(dims: list[tuple[int, int]], left: V, right: V, out: V, block: int) -> None:
        """Loops over the outer batch dimensions; `block` is the elements of C inside the current one."""
        if not dims:
            call(left, right, out)
            return
        (dl, dr), *rest = dims
        count = lhs[dl]
        inner = block // count
        with b.loop(0, count, 1, "batch") as i:
            loops(
                rest,
                b.offset(left, b.mul(i, strides_of(lhs)[dl] * item[0])),
                b.offset(right, b.mul(i, strides_of(rhs)[dr] * item[1])),
                b.offset(out, b.mul(i, inner * item_c)),
                inner,
            )

    dims = list(zip(s.roles.lhs_batch[: s.looped], s.roles.rhs_batch[: s.looped], strict=True))
    left, right = (_address(low, s, side, v) for side, v in enumerate(op.operands))
    out = low.pointer(op.result)
    if s.written is not None:
        out = b.offset(low.pointer(s.written.target), s.written.offset * item_c)
    loops(dims, left, right, out, op.result.tensor.size)
    if s.epilogue is not None and s.epilogue.is_late:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def lower_in_range(low: Services, step: OpStep, s: ProductSchedule, ranged: InRange, work: V) -> None:
    """Writes a batch of products as tasks, one for each, which compute the terms or columns that their rows need."""
    op, r, strides = step.op, s.result, s.strides
    size_a, size_b, size_c = (v.tensor.storage.itemsize for v in (*op.operands, op.result))
    values = (_address(low, s, 0, op.operands[0]), _address(low, s, 1, op.operands[1]), low.pointer(op.result))
    pointers = [work, *values, low.pointer(ranged.starts), low.pointer(ranged.ends)]
    name = low.new_name("product_in_range")
    b = low.task(name, len(pointers))
    frame, index, worker = b.params
    scratch, left, right, out, starts, ends = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(6))
    keys = s.k if ranged.is_terms else r.n
    low_key, high_key = keys_of_rows(b, (starts, ends), keys, b.mul(index, r.m), i64(r.m), tuning.RANGED_STEP)
    left = b.offset(left, b.mul(index, strides.a_bs * size_a))
    right = b.offset(right, b.mul(index, strides.b_bs * size_b))
    out = b.offset(out, b.mul(index, r.matrix * size_c))
    if ranged.keys is not None:
        function = write_keys(low, ranged.keys, "keys")
        columns = (i64(0), i64(r.n)) if ranged.is_terms else ()
        b.call("void", function, [right, left, out, low_key, high_key, *columns], declare=False)
    else:
        own = worker_fields(b, s.scratch, scratch, worker)["work"]
        _call_in_range(b, s, ranged, (left, right, out), (low_key, high_key), own)
    b.ret()
    low.parallel(low.share("product_in_range", name), pointers, r.batch)


def _call_in_range(
    b: Builder, s: ProductSchedule, ranged: InRange, at: tuple[V, V, V], keys: tuple[V, V], work: V
) -> None:
    """Calls the routine for a range of the terms or columns. `at`: the addresses of both operands and the result."""
    (left, right, out), (low_key, high_key), r, strides = at, keys, s.result, s.strides
    size_a, size_b, size_c = map(itemsize, (s.types.a, s.types.b, s.types.acc))
    count, zero, one = b.sub(high_key, low_key), i64(0), i64(1)
    n, k = i64(r.n), count
    if ranged.is_terms:
        left = b.offset(left, b.mul(low_key, strides.a_cs * size_a))
        right = b.offset(right, b.mul(low_key, strides.b_rs * size_b))
    else:
        n, k = count, i64(s.k)
        right = b.offset(right, b.mul(low_key, strides.b_cs * size_b))
        out = b.offset(out, b.mul(low_key, size_c))
    args = [left, i64(strides.a_rs), i64(strides.a_cs), zero, right, i64(strides.b_rs), i64(strides.b_cs), zero, zero]
    args += [out, i64(r.row), zero, one, i64(r.m), n, k, zero, work, NULL, NULL, NULL, zero, NULL, one]
    b.call("void", s.symbol, args)


def _address(low: Services, s: ProductSchedule, side: int, operand: Value) -> V:
    """Address of the first element of an operand, or of its panels."""
    if side == 1 and s.has_panels:
        return _panels(low, s)
    viewed = next((v for v in s.viewed if v.side == side), None)
    return operand_address(low, viewed, side, operand)


def _panels(low: Services, s: ProductSchedule) -> V:
    """Address of the second operand as panels."""
    if s.prepacked is not None:
        return low.constant_array(s.prepacked)
    assert s.loop is not None
    loop, matrices = s.loop
    return packed(low, loop, matrices)
