"""Lowers custom_call of machine code that users provide, as `schedule/custom_call.py` has decided. There is one call
for whole arrays, or one call per task for code that works by elements."""

from __future__ import annotations

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import CodeCall
from shlo_jit.fuse.plan import OpStep, lines_of
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.services import Services
from shlo_jit.schedule.custom_call import CodeSchedule
from shlo_jit.sizes import equal


def lower(low: Services, step: OpStep, schedule: CodeSchedule) -> None:
    code = schedule.code
    pointers = [low.pointer(v) for v in (*schedule.operands, *schedule.results)]
    count = len(schedule.operands)
    number = len(low.codes)
    low.codes.append(CodeCall(code.target, lines_of([step.op]), code.errors))
    if not code.by_elements:
        found = _call(low.b, code.symbol, pointers[:count], pointers[count:], [])
    elif equal(schedule.tasks.units, 0):
        return
    else:
        found = low.b.alloca("i64")
        low.b.store(i64(0), found)
        low.run_units(_kernel(low, schedule, count, len(pointers)), [*pointers, found], schedule.tasks)
        found = low.b.load("i64", found)
    _leave_where_it_failed(low, found, number)


def _kernel(low: Services, schedule: CodeSchedule, operands: int, pointers: int) -> str:
    """The name of `void (ptr operands..., ptr results..., ptr found, i64 first, i64 last)`, which stores the status of
    a failed task in `found`."""
    name = low.new_name(schedule.code.symbol + "_task")
    params = [("ptr", f"p{i}") for i in range(pointers)]
    params += [("ptr", "found"), ("i64", "first"), ("i64", "last")]
    b = low.module.function(name, params, attributes="nounwind")
    *places, found, first, last = b.params
    status = _call(b, schedule.code.symbol, places[:operands], places[operands:], [first, last])
    with b.if_(b.icmp("ne", status, i64(0))):
        b.line(f"store atomic i64 {status.text}, ptr {found.text} monotonic, align 8")
    b.ret()
    return name


def _call(b: Builder, symbol: str, operands: list[V], results: list[V], more: list[V]) -> V:
    tables = [address_table(b, values) for values in (operands, results)]
    return b.call("i64", symbol, [*tables, *more])


def _leave_where_it_failed(low: Services, found: V, number: int) -> None:
    """Ends the program if the code failed. Its error record has the number of the code and the code's status."""
    b = low.b
    failed = b.icmp("ne", found, i64(0))
    with b.if_(failed):
        abi.store_error(b, low.scope.instance, b.cast("trunc", found, "i32"), abi.FIRST_CODE - number)
    low.scope.leave_unless_ok(b.select(failed, i32(abi.Status.CODE_FAILED), i32(abi.Status.OK)))
