"""Services for the writers of kernels: addresses, scratch memory, constants, names, and tasks for threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shlo_jit import tuning
from shlo_jit.codegen.program import Callback, CodeCall
from shlo_jit.fuse.plan import OpStep, PlanBlock, Step, all_steps
from shlo_jit.ir import digests
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import jobs
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.lower.scope import Scope
from shlo_jit.lower.sizes import symbol_of
from shlo_jit.lower.timing import Timing
from shlo_jit.memory.storage import MemoryPlan, Storage
from shlo_jit.schedule.panels import Region
from shlo_jit.schedule.schedule import Schedule
from shlo_jit.schedule.scratch import ScratchBytes
from shlo_jit.schedule.site import Site
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size, word_of


@dataclass(frozen=True)
class Callee:
    """A lowered function: its LLVM name, and the facts that its callers need."""

    name: str
    arena: ScratchBytes
    may_fail: bool
    work: int
    """Work on the path to its end, since its last check for signals (see `interrupts.py`)."""


class Services:
    """State of the program being written, and what kernels need of it; they access it as `low`. It knows nothing of the
    order in which steps are lowered."""

    def __init__(self, entry: PlannedFunction, target: Target, timed: bool = False):
        self.entry = entry
        """The program's entry, with its arguments and results."""
        self.function: PlannedFunction
        """The function being lowered."""
        self.scope: Scope
        """The LLVM function being written: the entry, a function that it calls, or a part of one."""
        self.callees: dict[str, Callee] = {}
        """Functions that have been lowered."""
        self.target = target
        self.module = ModuleText(target)
        self.timing = Timing(self.module, timed)
        self.job: V | None = None
        """The record in which the step being written describes its tasks, if it shares a parallel region."""
        self.finishing: list[Callable[[], object]] | None = None
        """What to emit after the tasks of the region being written; None outside of regions."""
        self.is_symbolic = symbol_of(entry.arguments) is not None
        """Whether some sizes of the program are known only at the call."""
        self.routines: dict[str, Routine] = {}
        self.callbacks: list[Callback] = []
        self.codes: list[CodeCall] = []
        self.externals: dict[str, None] = {}
        """Symbols that are defined when the program is loaded (see `runtime/lapack.py`)."""
        self.sites: list[Site] = []
        """The program's collective ops."""
        self.channels: dict[int, int] = {}
        """Handles of the channels that the program sends and receives on, with their numbers from 1."""
        self.constants: list[np.ndarray] = []
        self._site_numbers: dict[int, int] = {}
        """Maps a step (by id) to the number of its site."""
        self._array_numbers: dict[str, int] = {}
        """Maps the digest of a kernel's constant array to its number among the constants."""
        self._kernel_names: dict[str, str] = {}
        """Maps the digest of a function's text to its name."""
        self._tables: dict[str, str] = {}
        """Maps the text of a constant table to its name."""

    # ------------------------------------------------------------------ the function being written
    @property
    def b(self) -> Builder:
        return self.scope.b

    @property
    def plan(self) -> PlanBlock:
        return self.function.plan

    @property
    def schedule(self) -> Schedule:
        return self.function.schedule

    @property
    def memory(self) -> MemoryPlan:
        return self.function.memory

    @property
    def is_entry(self) -> bool:
        """Whether the entry is being written, or a part of it."""
        return self.function is self.entry

    @property
    def thread_count(self) -> V:
        """The number of threads the call may use."""
        return self.scope.field("threads")

    def finish_of(self, number: int) -> OpStep:
        """The step of the current function that finishes the op with this start number."""
        steps = (s for s in all_steps(self.plan) if isinstance(s, OpStep) and s.op.results)
        return next(s for s in steps if s.op.int("started", -1) == number)

    # ------------------------------------------------------------------ memory
    def pointer(self, value: Value) -> V:
        """Address of a value's buffer, in the function being written."""
        return self.address(self.memory.storage[value])

    def truth(self, value: Value) -> V:
        """An i1 loaded from memory, or a constant."""
        if value.op is not None and value.op.name == "stablehlo.constant" and value not in self.memory.storage:
            return const("i1", bool(value.op.constant.array.reshape(-1)[0]))
        return self.b.icmp("ne", self.b.load("i8", self.pointer(value)), const("i8", 0))

    def address(self, storage: Storage) -> V:
        """Address of a storage, in the function being written."""
        scope = self.scope
        if id(storage) in scope.moved:
            return scope.moved[id(storage)]
        if storage.kind == "arena" and id(storage) not in self.function.stack:
            return scope.b.offset(scope.arena, storage.number)
        if storage.kind == "none":
            return scope.arena
        if id(storage) not in scope.addresses:
            with scope.b.at_entry():
                scope.addresses[id(storage)] = self._fixed_address(storage)
        return scope.addresses[id(storage)]

    def _fixed_address(self, storage: Storage) -> V:
        """Address of an argument, a result, a constant, or a scalar on the stack."""
        if storage.kind == "arena":
            return self.b.alloca(f"[{-(-storage.nbytes // 8)} x i64]", align=8)
        if storage.kind == "constant":
            return self._constant(self.memory.constants[storage.number])
        table = self.scope.args if storage.kind == "argument" else self.scope.results
        return self.b.load("ptr", self.b.element(table, "ptr", storage.number))

    def scratch(self, step: Step) -> V:
        """Address of the step's scratch memory; null if it has none."""
        storage, before = self.memory.scratch.get(id(step)), self.memory.scratch_before.get(id(step))
        if storage is None:
            return const("ptr", 0)
        place = self.address(storage)
        if before is None:
            return place
        return self.b.offset(place, self.b.add(self.b.mul(self.thread_count, before.per_thread), before.fixed))

    # ------------------------------------------------------------------ constants
    def _constant(self, value: Value) -> V:
        assert value.op is not None
        constant = value.op.constant
        array = constant.packed if value.tensor.is_packed else np.ascontiguousarray(constant.array)
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
        if key not in self._array_numbers:
            self.constants.append(array)
            self._array_numbers[key] = len(self.constants) - 1
        return self.scope.constant(self._array_numbers[key])

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
        if text not in self._tables:
            self._tables[text] = f"table{len(self.module.globals)}"
            self.module.define_global(self._tables[text], text)
        constant = V("ptr", f"@{self._tables[text]}")
        if not sizes:
            return constant
        b = self.b
        copy = b.alloca("i64", len(values))
        b.memcpy(copy, constant, 8 * len(values))
        for i, size in sizes.items():
            b.store(i64(size), b.offset(copy, 8 * i), align=8)
        return copy

    # ------------------------------------------------------------------ functions of kernels
    def new_name(self, hint: str) -> str:
        return self.module.names.new(hint)

    def share(self, hint: str, name: str) -> str:
        """Shares equal functions. If the function `name` just written has the same text as an earlier one, it is
        dropped. Returns the name to call. So twelve equal layers have one set of kernels."""
        text = self.module.functions[name]
        head, _, body = text.partition(f"@{name}(")
        key = hashlib.sha256((head + "@(" + body).encode()).hexdigest()
        known = self._kernel_names.setdefault(key, name)
        self.timing.note_kernel(known)
        if known != name:
            del self.module.functions[name]
            self.module.names.release(hint, name)
        return known

    def use(self, routine: Routine) -> None:
        """Records that the program calls a routine's symbols."""
        self.routines[routine.name] = routine
        for need in routine.needs:
            self.use(need)

    # ------------------------------------------------------------------ tasks
    def after_tasks(self, emit: Callable[[], object]) -> None:
        """Emits what a step does when its tasks are done: now, or at the end of its region."""
        if self.finishing is None:
            emit()
        else:
            self.finishing.append(emit)

    def taken_job(self) -> V:
        """The record in which the step describes its only tasks; null if it runs them. To be asked for once a step."""
        job, self.job = self.job, None
        return jobs.NULL if job is None else job

    def parallel(self, task: str, pointers: list[V], tasks: V | int, threads: V | None = None) -> None:
        """Runs `void task(ptr frame, i64 index, i64 worker)` for every index; the frame holds the pointers. `threads`:
        the maximum number of threads, if it is not the call's. A step that shares a region describes the tasks."""
        b = self.b
        pointers = [*pointers, self.scope.dims] if self.is_symbolic else pointers
        frame = b.alloca("ptr", max(1, len(pointers)))
        for i, p in enumerate(pointers):
            b.store(p, b.element(frame, "ptr", i))
        if self.job is not None:
            count = tasks if isinstance(tasks, V) else i64(tasks)
            jobs.record(b, self.taken_job(), V("ptr", f"@{task}"), frame, count)
            return
        b.call(
            "void",
            "shlo_parallel",
            [V("ptr", f"@{task}"), frame, tasks if isinstance(tasks, V) else i64(tasks), threads or self.thread_count],
        )

    def run_tasks(self, task: str, pointers: list[V], tasks: Tasks) -> None:
        """Runs tasks of `grain` units each by `parallel`; if there are few units, on one thread."""
        threads = None
        if isinstance(tasks.work, Size):
            is_small = self.b.icmp("slt", i64(tasks.work), tasks.least_work)
            threads = self.b.select(is_small, i64(1), self.thread_count)
        self.parallel(task, pointers, tasks.tasks, threads)

    def run_units(self, name: str, pointers: list[V], tasks: Tasks) -> None:
        """Calls a kernel `void name(ptr pointers..., i64 first, i64 last)` for all units, in tasks."""
        b = self.b

        def serial() -> list[V]:
            b.call("void", name, [*pointers, i64(0), i64(tasks.units)], declare=False)
            return []

        def in_tasks() -> list[V]:
            self.parallel(self.task_of(name, len(pointers), tasks.units, tasks.grain), pointers, tasks.tasks)
            return []

        if tasks.is_one and self.job is None:
            serial()
        elif isinstance(tasks.work, Size):
            b.if_else(b.icmp("slt", i64(tasks.work), tasks.least_work), serial, in_tasks)
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

    # ------------------------------------------------------------------ the host and other processes
    def callback(self, callback: Callback, operands: list[V], results: list[V]) -> None:
        """Emits a call of a callback on the host."""
        b = self.b
        number = len(self.callbacks)
        self.callbacks.append(callback)
        tables = [address_table(b, values) for values in (operands, results)]
        function, handle = self.scope.field("callback"), self.scope.field("handle")
        self.scope.leave_unless_ok(b.call_pointer("i32", function, [handle, i64(number), *tables]), number)

    def site(self, step: Step, site: Site) -> int:
        """The number of the site at which a step exchanges messages."""
        number = self._site_numbers.setdefault(id(step), len(self.sites))
        if number == len(self.sites):
            self.sites.append(site)
        return number

    def channel_number(self, handle: int | None) -> int:
        """The number of a channel in the program; 0 for none."""
        return 0 if handle is None else self.channels.setdefault(handle, len(self.channels) + 1)
