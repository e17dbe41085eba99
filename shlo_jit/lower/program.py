"""A Plan to a Program: the entry function that runs the steps in order, and the kernels it calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from shlo_jit.codegen.program import FIRST_CONSTANT_SLOT, Callback, Port, Program
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.memory import Planner
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, all_steps
from shlo_jit.fuse.storage import Copy, MemoryPlan, Storage, nbytes
from shlo_jit.fuse.work import is_short, step_work
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.builder import Builder, ModuleText, V, const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.lower.kernels import KERNELS, Kernel
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.nest import NestLowering, check_supported
from shlo_jit.lower.pauses import Pauses
from shlo_jit.lower.space import Tile

INLINE_CONSTANT = 512
"""Bytes up to which a constant stands in the LLVM text."""
INLINE_KERNEL = 60
"""Lines of text up to which a kernel called once is inlined into the entry function: loops of tiny kernels then keep
their state in registers."""


class ProgramLowering:
    """State of one lowering; kernels in `lower/kernels` see it as `low`."""

    def __init__(
        self,
        plan: PlanBlock,
        arguments: list[Value],
        target: Target,
        threads: int,
        known_calls: Callable[[str], bool],
        donate: frozenset[int] = frozenset(),
        on_routine: Callable[[Routine], None] = lambda routine: None,
    ):
        self.is_known_call = known_calls
        """Whether a custom call of that name can be made."""
        self.plan = plan
        self.arguments = arguments
        self.target = target
        self.threads = threads
        self.module = ModuleText(target)
        self.routines: dict[str, Routine] = {}
        self.on_routine = on_routine
        """Called with a routine when it turns out that the program needs it."""
        self.callbacks: list[Callback] = []
        self.array_slots: dict[bytes, int] = {}
        self.externals: dict[str, None] = {}
        """Symbols that are defined when the program is loaded (see `runtime/lapack.py`)."""
        self.constants: list[np.ndarray] = []
        self.nests: dict[int, NestLowering] = {}
        self.kernel_names: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.pointer_cache: dict[int, V] = {}
        self.moved: dict[int, V] = {}
        """Addresses of storages that loops around the place being written exchange."""
        self.nests: dict[int, NestLowering] = {}
        self.pauses = Pauses(self)
        self.use_routines()
        self.memory: MemoryPlan = Planner(plan, arguments, self.scratch_bytes, donate).run()

    # ------------------------------------------------------------------ services for kernels
    @property
    def b(self) -> Builder:
        return self.main

    def pointer(self, value: Value) -> V:
        """Address of a value's buffer, in the entry function."""
        return self.address(self.memory.storage[value])

    def address(self, storage: Storage) -> V:
        b = self.main
        if id(storage) in self.moved:
            return self.moved[id(storage)]
        if storage.kind == "arena":
            return b.offset(self.arena, storage.number)
        if storage.kind == "none":
            return self.arena
        return self.pointer_cache[id(storage)]

    def scratch(self, step: Step) -> V:
        """Address of the step's scratch memory."""
        return self.address(self.memory.scratch[id(step)])

    def use_routines(self) -> None:
        """Note all routines of the plan's kernels, before the rest of the work."""
        for step in all_steps(self.plan):
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
        b = self.main
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
        params = [("ptr", "args"), ("ptr", "results"), ("ptr", "arena"), ("ptr", "context")]
        b = self.module.function("shlo_main", params, "i32", linkage="", attributes="nounwind", noalias=True)
        self.main = b
        args, results, self.arena, self.context = b.params
        self.thread_count = b.load("i64", self.context)
        for storage in dict.fromkeys(self.memory.storage.values()):
            self.enter(storage, args, results)
        self.block(self.plan)
        self.copies(self.memory.block_end.get(id(self.plan), []))
        b.ret(V("i32", "0"))
        self.inline_small_kernels()
        inputs = tuple(port(a) for a in self.arguments)
        outputs = tuple(port(r) for r in self.plan.results)
        return Program(
            self.module.text(f'target triple = "{self.target.triple}"'),
            inputs,
            outputs,
            self.memory.arena_bytes,
            self.constants,
            self.callbacks,
            tuple(self.routines.values()),
            self.memory.aliases,
            self.memory.overwritten,
            tuple(self.externals),
            is_short(self.plan) and not self.callbacks,
        )

    def enter(self, storage: Storage, args: V, results: V) -> None:
        """Load the addresses that do not change: arguments, results, constants."""
        b = self.main
        if storage.kind in ("argument", "result"):
            table = args if storage.kind == "argument" else results
            p = b.load("ptr", b.element(table, "ptr", storage.number))
        elif storage.kind == "constant":
            p = self.constant(self.memory.constants[storage.number])
        else:
            return
        self.pointer_cache[id(storage)] = p

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
        slot = FIRST_CONSTANT_SLOT + len(self.constants) - 1
        return self.main.load("ptr", self.main.element(self.context, "ptr", slot))

    def constant_array(self, array: np.ndarray) -> V:
        """Address of a kernel's own constant array, at this place of the entry function."""
        key = hashlib.sha256(array.dtype.str.encode() + array.tobytes()).digest()
        if key not in self.array_slots:
            self.constants.append(array)
            self.array_slots[key] = FIRST_CONSTANT_SLOT + len(self.constants) - 1
        return self.main.load("ptr", self.main.element(self.context, "ptr", self.array_slots[key]))

    def table(self, values: list[int]) -> str:
        """Name of a constant array of i64."""
        text = ", ".join(f"i64 {v}" for v in values)
        text = f"private unnamed_addr constant [{len(values)} x i64] [{text}], align 8"
        for name, line in self.module.globals.items():
            if line.endswith(text):
                return name
        name = f"table{len(self.module.globals)}"
        self.module.define_global(name, text)
        return name

    # ------------------------------------------------------------------ steps
    def block(self, block: PlanBlock) -> None:
        for step in block.steps:
            self.copies(self.memory.before.get(id(step), []))
            self.step(step)
            self.pauses.spend(step_work(step))

    def copies(self, copies: list[Copy]) -> None:
        for c in copies:
            n = nbytes(c.source)
            if n:
                copy(self, self.pointer(c.target), self.pointer(c.source), n)

    def step(self, step: Step) -> None:
        if isinstance(step, NestStep):
            self.nest(step)
        elif isinstance(step, ControlStep):
            self.control(step)
        elif isinstance(step, OpStep):
            self.kernel(step).lower(self, step)
        else:
            assert isinstance(step, ViewStep)

    def scratch_bytes(self, step: Step) -> int:
        """Scratch a step wants; asked while memory is planned."""
        if isinstance(step, OpStep):
            return self.kernel(step).scratch(self, step)
        if isinstance(step, NestStep):
            return self.lowering(step).plan.scratch_bytes()
        return 0

    def aligned(self, step: NestStep) -> set[Value]:
        """Store targets whose memory is ours, and so aligned to 64 bytes (a donated argument's need not be)."""
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
            self.main.call("void", name, [*pointers, i64(0), i64(schedule.units)], declare=False)
            return
        self.parallel(self.task_of(name, len(pointers), schedule.units, schedule.grain), pointers, schedule.tasks)
        if schedule.split:
            name = self.new_name(hint)
            low.write_finish(self.module, name, buffers)
            self.main.call("void", self.share(hint, name), [*pointers, i64(0), i64(1)], declare=False)

    def epilogue(self, step: NestStep, tile: Tile) -> tuple[V, V]:
        """A nest as the epilogue of a product: its function's address, and the frame to hand to it."""
        check_supported(step.nest)
        b, nest = self.main, step.nest
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

    def control(self, step: ControlStep) -> None:
        if step.op.name == "stablehlo.while":
            self.loop(step)
        else:
            self.branches(step)

    def loop(self, step: ControlStep) -> None:
        """A while; storages that exchange their memory have addresses that change from turn to turn."""
        b = self.main
        cond, body = step.blocks
        exchanges = self.memory.exchanges.get(id(step), [])
        homes = [(self.address(s), self.address(t)) for s, t in exchanges]
        head, inside, done = b.label("while"), b.label("do"), b.label("done")
        before = b.block
        b.branch(head)
        b.start(head)
        at = b.position()
        places = [(b.reserve("ptr"), b.reserve("ptr")) for _ in exchanges]
        saved = dict(self.moved)
        for (s, t), (p, q) in zip(exchanges, places, strict=True):
            self.moved.update({id(s): p, id(t): q})
        since, self.pauses.since = self.pauses.since, 0
        self.block(cond)
        b.branch_if(self.truth(cond.results[0]), inside, done)
        b.start(inside)
        self.block(body)
        self.copies(self.memory.block_end.get(id(body), []))
        self.pauses.turn()
        self.pauses.since = since
        last = b.block
        b.branch(head)
        for (p, q), (s0, t0) in zip(places, homes, strict=True):
            b.fill_phi(at, p, [(s0, before), (q, last)])
            b.fill_phi(at, q, [(t0, before), (p, last)])
        b.start(done)
        self.moved = saved
        for (s, _), (p, _), (home, _) in zip(exchanges, places, homes, strict=True):
            with b.if_(b.icmp("ne", p, home)):
                b.memcpy(home, p, s.nbytes)

    def truth(self, value: Value) -> V:
        b = self.main
        if value.op is not None and value.op.name == "stablehlo.constant" and value not in self.memory.storage:
            return const("i1", bool(value.op.constant.array.reshape(-1)[0]))
        return b.icmp("ne", b.load("i8", self.pointer(value)), const("i8", 0))

    def branches(self, step: ControlStep) -> None:
        b = self.main
        done = b.label("join")
        labels = [b.label("branch") for _ in step.blocks]
        index = step.op.operands[0]
        if step.op.name == "stablehlo.if":
            b.branch_if(self.truth(index), labels[0], labels[1])
        else:
            i = b.load("i32", self.pointer(index))
            cases = " ".join(f"i32 {k}, label %{l}" for k, l in enumerate(labels[:-1]))
            b.line(f"switch i32 {i.text}, label %{labels[-1]} [ {cases} ]")
        since, longest = self.pauses.since, 0
        for label, block in zip(labels, step.blocks, strict=True):
            b.start(label)
            self.pauses.since = since
            self.block(block)
            longest = max(longest, self.pauses.since)
            self.copies(self.memory.block_end.get(id(block), []))
            b.branch(done)
        b.start(done)
        self.pauses.since = longest

    def callback(self, callback: Callback, operands: list[V], results: list[V]) -> None:
        """Call out."""
        b = self.main
        number = len(self.callbacks)
        self.callbacks.append(callback)
        tables = []
        for values in (operands, results):
            table = b.alloca("ptr", max(1, len(values)))
            for i, p in enumerate(values):
                b.store(p, b.element(table, "ptr", i))
            tables.append(table)
        function = b.load("ptr", b.element(self.context, "ptr", 1))
        executable = b.load("ptr", b.element(self.context, "ptr", 2))
        self.leave_unless_zero(b.call_pointer("i32", function, [executable, i64(number), *tables]))

    def leave_unless_zero(self, status: V) -> None:
        """Leave the program with the status if it is not zero."""
        b = self.main
        fail, go_on = b.label("fail"), b.label("on")
        b.branch_if(b.icmp("ne", status, const("i32", 0)), fail, go_on)
        b.start(fail)
        b.line(f"ret i32 {status.text}")
        b.start(go_on)

    def inline_small_kernels(self) -> None:
        """Mark short kernels for inlining, so that loops over tiny tensors run in registers."""
        for name, text in self.module.functions.items():
            if name != "shlo_main" and text.count("\n") <= INLINE_KERNEL and "alwaysinline" not in text:
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

