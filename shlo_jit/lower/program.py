"""Lowers a plan to a Program: the entry function that runs the steps in order, and the kernels it calls."""

from __future__ import annotations

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Program
from shlo_jit.kernels.llvm_values import i32
from shlo_jit.kernels.target import Target
from shlo_jit.lower import interrupts
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.lower.ports import port
from shlo_jit.lower.readers import readers_of
from shlo_jit.lower.scope import Scope
from shlo_jit.lower.services import Callee, Services
from shlo_jit.lower.sizes import symbol_of, write_sizes
from shlo_jit.lower.step_functions import StepFunctions
from shlo_jit.lower.steps import StepWriter
from shlo_jit.schedule.work import is_short


def lower_program(functions: list[PlannedFunction], target: Target, *, timed: bool = False) -> Program:
    """Writes the functions of a program, callees before their callers, the entry last. `timed`: with code that records
    the time of each step."""
    *callees, entry = functions
    low = Services(entry, target, timed)
    for function in functions:
        for routine in function.schedule.routines.values():
            low.use(routine)
    step_functions = StepFunctions(low.module)
    for i, function in enumerate(callees):
        _write_function(low, step_functions, f"function{i}", function)
    _write_function(low, step_functions, abi.ENTRY, entry)
    step_functions.inline_small_kernels()
    step_functions.mark_glue()
    if low.is_symbolic:
        write_sizes(low.module, entry.memory, entry.plan.results)
    return _program(low)


def _write_function(low: Services, step_functions: StepFunctions, name: str, function: PlannedFunction) -> None:
    """Writes a function of the program, and records what its callers need to know."""
    plan, memory = function.plan, function.memory
    low.function = function
    is_entry = name == abi.ENTRY
    low.scope = scope = Scope(step_functions.new(name, [*abi.PARAMETERS], internal=not is_entry))
    writer = StepWriter(low, step_functions)
    with low.timing.function(scope, function.name, plan, is_entry):
        writer.block(plan)
        writer.finish(plan)
    if not is_entry:
        interrupts.end_function(scope)
    scope.b.ret(i32(abi.Status.OK))
    low.callees[function.name] = Callee(name, memory.arena, scope.may_fail, scope.work)


def _program(low: Services) -> Program:
    """The program of which all functions have been written."""
    entry, memory = low.entry, low.entry.memory
    return Program(
        low.module.text(f'target triple = "{low.target.triple}"'),
        tuple(port(a) for a in entry.arguments),
        tuple(port(r) for r in entry.plan.results),
        0 if low.is_symbolic else memory.arena_bytes,
        () if low.is_symbolic else memory.shared,
        low.constants,
        low.callbacks,
        tuple(low.routines.values()),
        memory.aliases,
        memory.overwritten,
        tuple(low.externals),
        is_short(entry.plan) and not (low.callbacks or low.sites or low.codes),
        symbol_of(entry.arguments),
        low.timing.result(),
        tuple(low.sites),
        tuple(low.channels),
        readers_of(entry) if low.sites else (),
        tuple(low.codes),
    )
