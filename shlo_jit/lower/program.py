"""A Plan to a Program: the entry function that runs the steps in order, and the kernels it calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Callback, Port, Program
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.forking import pause
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, all_steps
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.builder import Builder, ModuleText, V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.lower.control import leave_unless_ok, lower_control, write_part
from shlo_jit.lower.kernels import KERNELS, Kernel
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.pauses import Pauses
from shlo_jit.lower.scope import Scope
from shlo_jit.memory.planner import Planner
from shlo_jit.memory.scratch import Scratch
from shlo_jit.memory.storage import Copy, MemoryPlan, Storage, nbytes, read_inside
from shlo_jit.schedule.parts import PART_STEPS, Parts
from shlo_jit.schedule.space import Tile
from shlo_jit.schedule.work import is_short, step_work

INLINE_CONSTANT = 512
"""Bytes up to which a constant stands in the LLVM text."""
INLINE_KERNEL = 60
"""Lines of text up to which a kernel called once is inlined into the entry function: loops of tiny kernels then keep
their state in registers."""


@dataclass(eq=False)
class FunctionPlan:
    """A function in steps; its memory is planned when it is lowered."""

    name: str
    arguments: list[Value]
    plan: PlanBlock
    memory: MemoryPlan | None = None


@dataclass(frozen=True)
class Callee:
    """A function that has been lowered: its LLVM name, and what a call must know."""

    name: str
    arena: Scratch
    may_fail: bool
    work: int
    """Work on the way to its end, since it last looked at signals (see `pauses.py`)."""


class ProgramLowering:
    """State of one lowering; kernels in `lower/kernels` see it as `low`."""

    def __init__(
        self,
        functions: list[FunctionPlan],
        target: Target,
        known_calls: Callable[[str], bool],
        donate: frozenset[int] = frozenset(),
        on_routine: Callable[[Routine], None] = lambda routine: None,
    ):
        self.is_known_call = known_calls
        """Whether a custom call of that name can be made."""
        self.functions = functions
        """Callees before their callers; the last is the entry."""
        self.plan: PlanBlock
        """Of the function being lowered."""
        self.memory: MemoryPlan
        self.parts: Parts
        self.read: set[Value]
        """What its steps read and its blocks return."""
        self.callees: dict[str, Callee] = {}
        """Functions that have been lowered."""
        self.donate = donate
        self.target = target
        self.module = ModuleText(target)
        self.routines: dict[str, Routine] = {}
        self.on_routine = on_routine
        """Called with a routine when it turns out that the program needs it."""
        self.callbacks: list[Callback] = []
        self.array_numbers: dict[bytes, int] = {}
        """Digest of a kernel's own array -> its number among the constants."""
        self.externals: dict[str, None] = {}
        """Symbols that are defined when the program is loaded (see `codegen/lapack.py`)."""
        self.constants: list[np.ndarray] = []
        self.nests: dict[int, NestLowering] = {}
        self.scope: Scope
        """The function being written."""
        self.kernel_names: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.tables: dict[str, str] = {}
        """Text of a constant table -> its name."""
        self.step_functions: set[str] = set()
        """Names of the functions that run steps: the entry and its parts."""
        self.pauses: Pauses
        self.use_routines()

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

    def address(self, storage: Storage) -> V:
        scope = self.scope
        if id(storage) in scope.moved:
            return scope.moved[id(storage)]
        if storage.kind == "arena":
            return scope.b.offset(scope.arena, storage.number)
        if storage.kind == "none":
            return scope.arena
        if id(storage) not in scope.addresses:
            with scope.b.at_entry():
                scope.addresses[id(storage)] = self.fixed_address(storage)
        return scope.addresses[id(storage)]

    def fixed_address(self, storage: Storage) -> V:
        """Address of an argument, a result or a constant."""
        if storage.kind == "constant":
            return self.constant(self.memory.constants[storage.number])
        table = self.scope.args if storage.kind == "argument" else self.scope.results
        return self.b.load("ptr", self.b.element(table, "ptr", storage.number))

    def scratch(self, step: Step) -> V:
        """Address of the step's scratch memory."""
        return self.address(self.memory.scratch[id(step)])

    def use_routines(self) -> None:
        """Note all routines of the plans' kernels, before the rest of the work."""
        for function in self.functions:
            for step in all_steps(function.plan):
                if isinstance(step, OpStep):
                    for routine in self.kernel(step).routines(step.op, self.target):
                        self.use(routine)

    def kernel(self, step: OpStep) -> Kernel:
        """The kernel of a step. Raises UnsupportedError when there is none."""
        kernel = KERNELS.get(step.op.name)
        if kernel is None:
            raise UnsupportedError(diagnose(f"{step.op.name} has no lowering yet", step.op.span))
        return kernel

    def use(self, routine: Routine) -> Routine:
        """Note that the program calls a routine's symbols."""
        if routine.name not in self.routines:
            self.routines[routine.name] = routine
            self.on_routine(routine)
        for need in routine.needs:
            self.use(need)
        return routine

    def parallel(self, task: str, pointers: list[V], tasks: int) -> None:
        """Run `void task(ptr frame, i64 index, i64 worker)` for every index; the frame holds the pointers."""
        b = self.b
        frame = b.alloca("ptr", max(1, len(pointers)))
        for i, p in enumerate(pointers):
            b.store(p, b.element(frame, "ptr", i))
        b.call("void", "shlo_parallel", [V("ptr", f"@{task}"), frame, i64(tasks), self.thread_count])

    def new_name(self, hint: str) -> str:
        n = self.calls.get(hint, 0)
        self.calls[hint] = n + 1
        return f"{hint}.{n}" if n else hint

    def share(self, hint: str, name: str) -> str:
        """Name of the function in the module that has the same text as the function `name` just written; drops the
        copy. Twelve equal layers have one set of kernels."""
        text = self.module.functions[name]
        head, _, body = text.partition(f"@{name}(")
        key = hashlib.sha256((head + "@(" + body).encode()).hexdigest()
        known = self.kernel_names.setdefault(key, name)
        if known != name:
            del self.module.functions[name]
            self.calls[hint] -= 1
        return known

    # ------------------------------------------------------------------ entry
    def run(self) -> Program:
        *callees, entry = self.functions
        for i, function in enumerate(callees):
            self.function(f"function{i}", function)
        self.function(abi.ENTRY, entry, self.donate)
        self.inline_small_kernels()
        inputs = tuple(port(a) for a in entry.arguments)
        outputs = tuple(port(r) for r in self.plan.results)
        return Program(
            self.module.text(f'target triple = "{self.target.triple}"'),
            inputs,
            outputs,
            self.memory.arena_bytes,
            self.memory.shared,
            self.constants,
            self.callbacks,
            tuple(self.routines.values()),
            self.memory.aliases,
            self.memory.overwritten,
            tuple(self.externals),
            is_short(self.plan) and not self.callbacks,
        )

    def function(self, name: str, function: FunctionPlan, donated: frozenset[int] = frozenset()) -> None:
        """Plan a function's memory and write it."""
        self.plan = function.plan
        self.read = read_inside(self.plan)
        self.pauses = Pauses(self)
        self.memory = function.memory = Planner(self.plan, function.arguments, self.scratch_of, donated).run()
        self.parts = Parts(self.plan, self.memory)
        b = self.step_function(name, [*abi.PARAMETERS], internal=name != abi.ENTRY)
        self.scope = Scope(b)
        self.block(self.plan)
        self.copies(self.memory.block_end.get(id(self.plan), []))
        if name != abi.ENTRY:
            self.pauses.leave()
        b.ret(i32(abi.Status.OK))
        callee = Callee(name, self.memory.arena, self.scope.may_fail, self.pauses.since)
        self.callees[function.name] = callee

    def step_function(self, name: str, params: list[tuple[str, str]], internal: bool = False) -> Builder:
        """A builder for a function that runs steps."""
        self.step_functions.add(name)
        # Addresses that a loop exchanges point into the arena too.
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
        if array.nbytes <= INLINE_CONSTANT:
            name = f"constant{len(self.module.globals)}"
            raw = "".join(f"\\{byte:02X}" for byte in array.tobytes())
            n = max(1, array.nbytes)
            data = f'c"{raw}"' if array.nbytes else "zeroinitializer"
            self.module.define_global(name, f"private unnamed_addr constant [{n} x i8] {data}, align 64")
            return V("ptr", f"@{name}")
        self.constants.append(array)
        return self.scope.constant(len(self.constants) - 1)

    def constant_array(self, array: np.ndarray) -> V:
        """Address of a kernel's own constant array, at this place of the function being written."""
        key = hashlib.sha256(array.dtype.str.encode() + array.tobytes()).digest()
        if key not in self.array_numbers:
            self.constants.append(array)
            self.array_numbers[key] = len(self.constants) - 1
        return self.scope.constant(self.array_numbers[key])

    def table(self, values: list[int]) -> str:
        """Name of a constant array of i64."""
        text = ", ".join(f"i64 {v}" for v in values)
        text = f"private unnamed_addr constant [{len(values)} x i64] [{text}], align 8"
        if text not in self.tables:
            self.tables[text] = f"table{len(self.module.globals)}"
            self.module.define_global(self.tables[text], text)
        return self.tables[text]

    # ------------------------------------------------------------------ steps
    def block(self, block: PlanBlock) -> None:
        """The steps of a block; those of a long one are functions of their own."""
        runs = self.parts.runs(block)
        if runs is None:
            self.steps(block.steps)
            return
        for steps in runs:
            write_part(self, partial(self.steps, steps))

    def steps(self, steps: list[Step]) -> None:
        for step in steps:
            self.copies(self.memory.before.get(id(step), []))
            self.step(step)
            self.pauses.spend(step_work(step))
            pause()

    def copies(self, copies: list[Copy]) -> None:
        """Copies, in order; of many, so many to a function."""
        if len(copies) > PART_STEPS:
            for i in range(0, len(copies), PART_STEPS):
                write_part(self, partial(self.copies, copies[i : i + PART_STEPS]))
            return
        for c in copies:
            n = nbytes(c.source)
            if n:
                copy(self, self.pointer(c.target), self.pointer(c.source), n)

    def step(self, step: Step) -> None:
        if isinstance(step, NestStep):
            self.nest(step)
        elif isinstance(step, ControlStep):
            lower_control(self, step)
        elif isinstance(step, OpStep):
            self.kernel(step).lower(self, step)
        else:
            assert isinstance(step, ViewStep)

    def scratch_of(self, step: Step) -> Scratch:
        """Scratch a step wants; asked while memory is planned."""
        if isinstance(step, OpStep):
            return self.kernel(step).scratch(self, step)
        if isinstance(step, NestStep):
            return Scratch(self.lowering(step).plan.scratch_bytes())
        return Scratch()

    def aligned(self, step: NestStep) -> set[Value]:
        """Store targets that are aligned to a cache line where they are large; see `codegen/abi.py`."""
        return {v for v in step.writes if self.memory.storage[v].kind in ("arena", "result")}

    def lowering(self, step: NestStep) -> NestLowering:
        low = self.nests.get(id(step))
        if low is None:
            check_supported(step.nest)
            low = self.nests[id(step)] = NestLowering(step.nest, self.target)
        return low

    def nest(self, step: NestStep) -> None:
        if any(s.target.tensor.size == 0 for s in step.nest.stores) and step.nest.rows == 0:
            return
        low = self.lowering(step)
        schedule = low.schedule
        if schedule.units == 0:
            return
        groups: dict[int, list[Value]] = {}
        values = dict.fromkeys([*(k[0] for k in step.nest.loads), *(s.target for s in step.nest.stores)])
        for v in values:
            groups.setdefault(id(self.memory.storage[v]), []).append(v)
        buffers = [(f"p{i}", vs) for i, vs in enumerate(groups.values())]
        pointers = [self.pointer(vs[0]) for _, vs in buffers]
        if schedule.split:
            buffers.append(("scratch", []))
            pointers.append(self.scratch(step))
        hint = kernel_hint(step)
        name = self.new_name(hint)
        low.write(self.module, name, buffers, self.aligned(step))
        name = self.share(hint, name)
        if schedule.tasks == 1:
            self.b.call("void", name, [*pointers, i64(0), i64(schedule.units)], declare=False)
            return
        self.parallel(self.task_of(name, len(pointers), schedule.units, schedule.grain), pointers, schedule.tasks)
        if schedule.split:
            name = self.new_name(hint)
            low.write_finish(self.module, name, buffers)
            self.b.call("void", self.share(hint, name), [*pointers, i64(0), i64(1)], declare=False)

    def epilogue(self, step: NestStep, tile: Tile) -> tuple[V, V]:
        """A nest as the epilogue of a product: its function's address, and the frame to hand to it."""
        check_supported(step.nest)
        b, nest = self.b, step.nest
        values = list(dict.fromkeys([*(k[0] for k in nest.loads), *(s.target for s in nest.stores)]))
        hint = "epilogue_" + kernel_hint(step)
        name = self.new_name(hint)
        NestLowering(nest, self.target, tile).write_epilogue(self.module, name, values, tile)
        name = self.share(hint, name)
        frame = b.alloca("ptr", len(values))
        for i, v in enumerate(values):
            b.store(self.pointer(v), b.element(frame, "ptr", i))
        return V("ptr", f"@{name}"), frame

    def task_of(self, name: str, count: int, units: int, grain: int) -> str:
        """The task around a kernel: index to a range of units, pointers from the frame."""
        task = f"{name}.task.{units}.{grain}"
        if task in self.module.functions:
            return task
        b = self.module.function(task, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
        frame, index, _ = b.params
        pointers = [b.load("ptr", b.element(frame, "ptr", i)) for i in range(count)]
        first = b.mul(index, grain)
        b.call("void", name, [*pointers, first, b.min_(b.add(first, grain), units)], declare=False)
        b.ret()
        return task

    def callback(self, callback: Callback, operands: list[V], results: list[V]) -> None:
        """Call out."""
        b = self.b
        number = len(self.callbacks)
        self.callbacks.append(callback)
        tables = []
        for values in (operands, results):
            table = b.alloca("ptr", max(1, len(values)))
            for i, p in enumerate(values):
                b.store(p, b.element(table, "ptr", i))
            tables.append(table)
        function, handle = self.scope.field("callback"), self.scope.field("handle")
        leave_unless_ok(self, b.call_pointer("i32", function, [handle, i64(number), *tables]), number)

    def inline_small_kernels(self) -> None:
        """Mark short kernels for inlining, so that loops over tiny tensors run in registers."""
        for name, text in self.module.functions.items():
            if name not in self.step_functions and text.count("\n") <= INLINE_KERNEL and "alwaysinline" not in text:
                self.module.functions[name] = text.replace(" nounwind {", " nounwind alwaysinline {", 1)


def kernel_hint(step: NestStep) -> str:
    """A telling name: the ops that do the most, last first."""
    words = [n.op.name.partition(".")[2] for n in step.nest.nodes.values()]
    words = [w for w in dict.fromkeys(words) if w not in ("constant", "broadcast_in_dim", "reshape", "convert")]
    return "_".join([step.title, *words[:3]])


def port(value: Value) -> Port:
    t = value.type
    assert isinstance(t, TensorType)
    return Port(value.name, t.extents, t.storage)
