"""Lowers a plan to a Program: the entry function that runs the steps in order, and the kernels it calls."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial

import numpy as np

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Callback, CodeCall, Port, Program
from shlo_jit.forking import pause
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, StagedStep, Step, ViewStep, all_steps
from shlo_jit.ir import digests
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.control import leave_unless_ok, lower_control, write_part
from shlo_jit.lower.glue import mark_glue
from shlo_jit.lower.interrupts import Pauses
from shlo_jit.lower.kernels import kernel
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.parts import Parts
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.lower.readers import readers_of
from shlo_jit.lower.scalars import stack_scalars
from shlo_jit.lower.scope import Scope
from shlo_jit.lower.sizes import symbol_of, write_sizes
from shlo_jit.lower.timing import Timing
from shlo_jit.memory.storage import Copy, MemoryPlan, Storage, nbytes
from shlo_jit.schedule.kernel import NOTHING
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.panels import Region
from shlo_jit.schedule.schedule import Schedule
from shlo_jit.schedule.scratch import ScratchBytes
from shlo_jit.schedule.site import Site
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.schedule.work import is_short, step_work
from shlo_jit.sizes import NotSymbolic, Size, equal, hint_of, word_of


@dataclass(frozen=True)
class Callee:
    """A lowered function: its LLVM name, and the facts that its callers need."""

    name: str
    arena: ScratchBytes
    may_fail: bool
    work: int
    """Work on the path to its end, since its last check for signals (see `interrupts.py`)."""


class ProgramLowering:
    """State of one lowering; kernels in `lower/kernels` access it as `low`."""

    def __init__(self, functions: list[PlannedFunction], target: Target, timed: bool = False):
        self.functions = functions
        """Callees before their callers; the last is the entry."""
        self.plan: PlanBlock
        """The plan of the function being lowered."""
        self.schedule: Schedule
        self.memory: MemoryPlan
        self.parts: Parts
        self.stack_scalars: set[int]
        """Storages (by id) that live on the stack."""
        self.callees: dict[str, Callee] = {}
        """Functions that have been lowered."""
        self.target = target
        self.module = ModuleText(target)
        self.routines: dict[str, Routine] = {}
        self.callbacks: list[Callback] = []
        self.codes: list[CodeCall] = []
        self.sites: list[Site] = []
        """The program's collective ops."""
        self.site_numbers: dict[int, int] = {}
        """Maps a step (by id) to the number of its site."""
        self.channels: dict[int, int] = {}
        """Handles of the channels that the program sends and receives on, with their numbers from 1."""
        self.array_numbers: dict[str, int] = {}
        """Maps the digest of a kernel's constant array to its number among the constants."""
        self.externals: dict[str, None] = {}
        """Symbols that are defined when the program is loaded (see `runtime/lapack.py`)."""
        self.constants: list[np.ndarray] = []
        self.scope: Scope
        """The function being written."""
        self.kernel_names: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        """Maps the text of a constant table to its name."""
        self.step_functions: set[str] = set()
        """Names of the functions that run steps: the entry and its parts."""
        self.pauses: Pauses
        self.timing = Timing(self, timed)
        self.is_symbolic = symbol_of(functions[-1].arguments) is not None
        """Whether some sizes of the program are known only at the call."""

    # ------------------------------------------------------------------ services for kernels
    @property
    def b(self) -> Builder:
        return self.scope.b

    @property
    def thread_count(self) -> V:
        """The number of threads the call may use."""
        return self.scope.field("threads")

    def pointer(self, value: Value) -> V:
        """Address of a value's buffer, in the function being written."""
        return self.address(self.memory.storage[value])

    def truth(self, value: Value) -> V:
        """An i1 loaded from memory, or a constant."""
        if value.op is not None and value.op.name == "stablehlo.constant" and value not in self.memory.storage:
            return const("i1", bool(value.op.constant.array.reshape(-1)[0]))
        return self.b.icmp("ne", self.b.load("i8", self.pointer(value)), const("i8", 0))

    def address(self, storage: Storage) -> V:
        scope = self.scope
        if id(storage) in scope.moved:
            return scope.moved[id(storage)]
        if storage.kind == "arena" and id(storage) not in self.stack_scalars:
            return scope.b.offset(scope.arena, storage.number)
        if storage.kind == "none":
            return scope.arena
        if id(storage) not in scope.addresses:
            with scope.b.at_entry():
                scope.addresses[id(storage)] = self.fixed_address(storage)
        return scope.addresses[id(storage)]

    def fixed_address(self, storage: Storage) -> V:
        """Address of an argument, a result, a constant, or a scalar on the stack."""
        if storage.kind == "arena":
            return self.b.alloca(f"[{-(-storage.nbytes // 8)} x i64]", align=8)
        if storage.kind == "constant":
            return self.constant(self.memory.constants[storage.number])
        table = self.scope.args if storage.kind == "argument" else self.scope.results
        return self.b.load("ptr", self.b.element(table, "ptr", storage.number))

    def scratch(self, step: Step) -> V:
        """Address of the step's scratch memory; null if it has none."""
        storage = self.memory.scratch.get(id(step))
        return const("ptr", 0) if storage is None else self.address(storage)

    def site(self, step: Step, site: Site) -> int:
        """The number of the site at which a step exchanges messages."""
        number = self.site_numbers.setdefault(id(step), len(self.sites))
        if number == len(self.sites):
            self.sites.append(site)
        return number

    def channel_number(self, handle: int | None) -> int:
        """The number of a channel in the program; 0 for none."""
        return 0 if handle is None else self.channels.setdefault(handle, len(self.channels) + 1)

    def finish_of(self, number: int) -> OpStep:
        """The step of the current function that finishes the op with this start number."""
        steps = (s for s in all_steps(self.plan) if isinstance(s, OpStep) and s.op.results)
        return next(s for s in steps if s.op.int("started", -1) == number)

    @property
    def is_entry(self) -> bool:
        """Whether the entry is being written, or a part of it."""
        return self.plan is self.functions[-1].plan

    def use(self, routine: Routine) -> None:
        """Records that the program calls a routine's symbols."""
        self.routines[routine.name] = routine
        for need in routine.needs:
            self.use(need)

    def parallel(self, task: str, pointers: list[V], tasks: V | int, threads: V | None = None) -> None:
        """Runs `void task(ptr frame, i64 index, i64 worker)` for every index; the frame holds the pointers. `threads`:
        the maximum number of threads, if it is not the call's."""
        b = self.b
        pointers = [*pointers, self.scope.dims] if self.is_symbolic else pointers
        frame = b.alloca("ptr", max(1, len(pointers)))
        for i, p in enumerate(pointers):
            b.store(p, b.element(frame, "ptr", i))
        b.call(
            "void",
            "shlo_parallel",
            [V("ptr", f"@{task}"), frame, tasks if isinstance(tasks, V) else i64(tasks), threads or self.thread_count],
        )

    def run_tasks(self, task: str, pointers: list[V], tasks: Tasks) -> None:
        """Runs tasks of `grain` units each by `parallel`; if there are few units, on one thread."""
        threads = None
        if isinstance(tasks.work, Size):
            is_small = self.b.icmp("slt", i64(tasks.work), tuning.PARALLEL_WORK)
            threads = self.b.select(is_small, i64(1), self.thread_count)
        self.parallel(task, pointers, tasks.tasks, threads)

    def new_name(self, hint: str) -> str:
        return self.module.names.new(hint)

    def share(self, hint: str, name: str) -> str:
        """Shares equal functions. If the function `name` just written has the same text as an earlier one, it is
        dropped. Returns the name to call. So twelve equal layers have one set of kernels."""
        text = self.module.functions[name]
        head, _, body = text.partition(f"@{name}(")
        key = hashlib.sha256((head + "@(" + body).encode()).hexdigest()
        known = self.kernel_names.setdefault(key, name)
        self.timing.note_kernel(known)
        if known != name:
            del self.module.functions[name]
            self.module.names.release(hint, name)
        return known

    # ------------------------------------------------------------------ entry
    def run(self) -> Program:
        for function in self.functions:
            for routine in function.schedule.routines.values():
                self.use(routine)
        *callees, entry = self.functions
        for i, function in enumerate(callees):
            self.function(f"function{i}", function)
        self.function(abi.ENTRY, entry)
        self.inline_small_kernels()
        self.mark_glue_functions()
        inputs = tuple(port(a) for a in entry.arguments)
        outputs = tuple(port(r) for r in self.plan.results)
        if self.is_symbolic:
            write_sizes(self.module, self.memory, self.plan.results)
        return Program(
            self.module.text(f'target triple = "{self.target.triple}"'),
            inputs,
            outputs,
            0 if self.is_symbolic else self.memory.arena_bytes,
            () if self.is_symbolic else self.memory.shared,
            self.constants,
            self.callbacks,
            tuple(self.routines.values()),
            self.memory.aliases,
            self.memory.overwritten,
            tuple(self.externals),
            is_short(self.plan) and not (self.callbacks or self.sites or self.codes),
            symbol_of(entry.arguments),
            self.timing.result(),
            tuple(self.sites),
            tuple(self.channels),
            readers_of(entry) if self.sites else (),
            tuple(self.codes),
        )

    def function(self, name: str, function: PlannedFunction) -> None:
        self.plan, self.schedule, self.memory = function.plan, function.schedule, function.memory
        self.pauses = Pauses(self)
        self.parts = Parts(self.plan, self.memory)
        self.stack_scalars = stack_scalars(self.plan, self.memory, self.parts)
        b = self.step_function(name, [*abi.PARAMETERS], internal=name != abi.ENTRY)
        self.scope = Scope(b)
        with self.timing.function(function.name, self.plan, is_entry=name == abi.ENTRY):
            self.block(self.plan)
            self.finish(self.plan)
        if name != abi.ENTRY:
            self.pauses.leave()
        b.ret(i32(abi.Status.OK))
        callee = Callee(name, self.memory.arena, self.scope.may_fail, self.pauses.since)
        self.callees[function.name] = callee

    def step_function(self, name: str, params: list[tuple[str, str]], internal: bool = False) -> Builder:
        """A builder for a function that runs steps."""
        self.step_functions.add(name)
        # Addresses that a loop swaps point into the arena too.
        return self.module.function(
            name,
            params,
            "i32",
            linkage="internal" if internal else "",
            attributes="nounwind",
            noalias=len(params) == len(abi.PARAMETERS),
        )

    def constant(self, value: Value) -> V:
        assert value.op is not None
        array = np.ascontiguousarray(value.op.constant.array)
        if array.nbytes <= tuning.INLINE_CONSTANT_BYTES:
            name = f"constant{len(self.module.globals)}"
            raw = "".join(f"\\{byte:02X}" for byte in array.tobytes())
            n = max(1, array.nbytes)
            data = f'c"{raw}"' if array.nbytes else "zeroinitializer"
            self.module.define_global(name, f"private unnamed_addr constant [{n} x i8] {data}, align 64")
            return V("ptr", f"@{name}")
        self.constants.append(array)
        return self.scope.constant(len(self.constants) - 1)

    def constant_array(self, array: np.ndarray) -> V:
        """Address of a kernel's constant array, at this place of the function being written. The array is sealed
        against later changes."""
        array = np.ascontiguousarray(array)
        digests.seal(array)
        key = array.dtype.str + digests.digest(array)
        if key not in self.array_numbers:
            self.constants.append(array)
            self.array_numbers[key] = len(self.constants) - 1
        return self.scope.constant(self.array_numbers[key])

    def region(self, region: Region | None) -> tuple[V, V]:
        """Address and bytes of the memory that a kernel prefetches for the steps after it; null and 0 if there is
        none."""
        if region is None:
            return const("ptr", 0), i64(0)
        return self.constant_array(region.array), i64(region.nbytes)

    def table(self, values: list[int]) -> V:
        """Address of an array of i64: of a constant or, if it has sizes known only at the call, of a copy on the
        stack."""
        sizes = {i: v for i, v in enumerate(values) if isinstance(v, Size)}
        text = ", ".join(f"i64 {0 if i in sizes else v}" for i, v in enumerate(values))
        text = f"private unnamed_addr constant [{len(values)} x i64] [{text}], align 8"
        if text not in self.tables:
            self.tables[text] = f"table{len(self.module.globals)}"
            self.module.define_global(self.tables[text], text)
        constant = V("ptr", f"@{self.tables[text]}")
        if not sizes:
            return constant
        b = self.b
        copy = b.alloca("i64", len(values))
        b.memcpy(copy, constant, 8 * len(values))
        for i, size in sizes.items():
            b.store(i64(size), b.offset(copy, 8 * i), align=8)
        return copy

    # ------------------------------------------------------------------ steps
    def block(self, block: PlanBlock) -> None:
        """Writes the steps of a block; those of a long block become separate functions."""
        runs = self.parts.runs(block)
        if runs is None:
            self.steps(block.steps)
            return
        for steps in runs:
            write_part(self, partial(self.steps, steps))

    def steps(self, steps: list[Step]) -> None:
        for step in steps:
            copies = self.memory.before.get(id(step), [])
            with self.timing.copies(step, sum(nbytes(c.source) for c in copies)):
                self.copies(copies)
            with self.timing.step(step):
                try:
                    self.step(step)
                except NotSymbolic as refusal:
                    refusal.asked_by(step.place)
                    raise
            self.pauses.spend(hint_of(step_work(step)))
            pause()

    def finish(self, block: PlanBlock) -> None:
        """Emits the copies at the end of a block."""
        copies = self.memory.block_end.get(id(block), [])
        with self.timing.copies(None, sum(nbytes(c.source) for c in copies)):
            self.copies(copies)

    def copies(self, copies: list[Copy]) -> None:
        """Emits copies, in order. Many copies are split into several functions."""
        if len(copies) > tuning.PART_STEPS:
            for i in range(0, len(copies), tuning.PART_STEPS):
                write_part(self, partial(self.copies, copies[i : i + tuning.PART_STEPS]))
            return
        for c in copies:
            n = nbytes(c.source)
            if not equal(n, 0):
                copy(self, self.pointer(c.target), self.pointer(c.source), n)

    def step(self, step: Step) -> None:
        schedule = self.schedule[step]
        if isinstance(step, NestStep):
            assert isinstance(schedule, NestSchedule)
            self.nest(step, schedule)
        elif isinstance(step, ControlStep):
            lower_control(self, step)
        elif isinstance(step, OpStep | StagedStep):
            if schedule is not NOTHING:
                kernel(step.kind)(self, step, schedule)
        else:
            assert isinstance(step, ViewStep)

    def aligned(self, step: NestStep) -> set[Value]:
        """Stored values whose buffers are aligned to a cache line if they are large; see `codegen/abi.py`."""
        return {v for v in step.writes if self.memory.storage[v].kind in ("arena", "result")}

    def nest(self, step: NestStep, schedule: NestSchedule) -> None:
        if any(equal(s.target.tensor.size, 0) for s in step.nest.stores) and equal(step.nest.rows, 0):
            return
        if equal(schedule.tasks.units, 0):
            return
        low, hint = NestLowering(schedule), step.hint
        name, pointers, buffers = self.nest_kernel(step, schedule)
        self.run_units(name, pointers, schedule.tasks)
        if schedule.split is not None:
            name = self.new_name(hint)
            low.write_finish(self.module, name, buffers)
            self.b.call("void", self.share(hint, name), [*pointers, i64(0), i64(1)], declare=False)

    def nest_kernel(self, step: NestStep, schedule: NestSchedule) -> tuple[str, list[V], list[tuple[str, list[Value]]]]:
        """Writes the function of a nest's units. Returns its name, the addresses that it takes, and the values in
        each."""
        check_supported(step.nest)
        groups: dict[int, list[Value]] = {}
        values = dict.fromkeys([*(k[0] for k in step.nest.loads), *(s.target for s in step.nest.stores)])
        for v in values:
            groups.setdefault(id(self.memory.storage[v]), []).append(v)
        buffers = [(f"p{i}", vs) for i, vs in enumerate(groups.values())]
        pointers = [self.pointer(vs[0]) for _, vs in buffers]
        if self.is_symbolic:
            buffers.append(("dims", []))
            pointers.append(self.scope.dims)
        if schedule.split is not None:
            buffers.append(("scratch", []))
            pointers.append(self.scratch(step))
        hint = step.hint
        name = self.new_name(hint)
        NestLowering(schedule).write(self.module, name, buffers, self.aligned(step))
        return self.share(hint, name), pointers, buffers

    def run_units(self, name: str, pointers: list[V], tasks: Tasks) -> None:
        """Calls a kernel `void name(ptr pointers..., i64 first, i64 last)` for all units, in tasks."""
        b = self.b

        def serial() -> list[V]:
            b.call("void", name, [*pointers, i64(0), i64(tasks.units)], declare=False)
            return []

        def in_tasks() -> list[V]:
            self.parallel(self.task_of(name, len(pointers), tasks.units, tasks.grain), pointers, tasks.tasks)
            return []

        if tasks.is_one:
            serial()
        elif isinstance(tasks.work, Size):
            b.if_else(b.icmp("slt", i64(tasks.work), tuning.PARALLEL_WORK), serial, in_tasks)
        else:
            in_tasks()

    def task(self, name: str, count: int) -> Builder:
        """A builder for `void name(ptr frame, i64 index, i64 worker)`, which `parallel` runs with `count` pointers."""
        b = self.module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
        if self.is_symbolic:
            with b.at_entry():
                b.dims = b.load("ptr", b.element(b.params[0], "ptr", count))
        return b

    def task_of(self, name: str, count: int, units: int, grain: int) -> str:
        """The task around a kernel: maps the index to a range of units, and loads the pointers from the frame."""
        task = f"{name}.task.{word_of(units)}.{grain}"
        if task in self.module.functions:
            return task
        b = self.task(task, count)
        frame, index, _ = b.params
        pointers = [b.load("ptr", b.element(frame, "ptr", i)) for i in range(count)]
        first = b.mul(index, grain)
        b.call("void", name, [*pointers, first, b.min_(b.add(first, grain), units)], declare=False)
        b.ret()
        return task

    def callback(self, callback: Callback, operands: list[V], results: list[V]) -> None:
        """Emits a call of a callback on the host."""
        b = self.b
        number = len(self.callbacks)
        self.callbacks.append(callback)
        tables = [address_table(b, values) for values in (operands, results)]
        function, handle = self.scope.field("callback"), self.scope.field("handle")
        leave_unless_ok(self, b.call_pointer("i32", function, [handle, i64(number), *tables]), number)

    def inline_small_kernels(self) -> None:
        """Marks short kernels for inlining, so that loops over tiny tensors run in registers."""
        for name, text in self.module.functions.items():
            if (
                name not in self.step_functions
                and text.count("\n") <= tuning.INLINE_KERNEL_LINES
                and "alwaysinline" not in text
            ):
                self.module.functions[name] = text.replace(" nounwind {", " nounwind alwaysinline {", 1)

    def mark_glue_functions(self) -> None:
        """Marks long functions of steps as glue, which LLVM does not optimize."""
        inlined = {name for name, text in self.module.functions.items() if "alwaysinline" in text}
        for name in self.step_functions:
            self.module.functions[name] = mark_glue(self.module.functions[name], inlined)


def port(value: Value) -> Port:
    t = value.type
    assert isinstance(t, TensorType)
    return Port(value.name, tuple(abi.AT_CALL if isinstance(n, Size) else n for n in t.extents), t.storage)


def lower_program(functions: list[PlannedFunction], target: Target, *, timed: bool = False) -> Program:
    """Writes the functions of a program, callees before their callers, the entry last. `timed`: with code that records
    the time of each step."""
    return ProgramLowering(functions, target, timed).run()
