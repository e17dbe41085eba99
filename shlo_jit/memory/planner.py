"""Where values live: arguments, results, constants, or the arena, by lifetimes; in place where that is safe.

Every value a step reads or writes gets a `Storage`; several values share one when they are views of each other, when
an op may overwrite a dying operand, or when they are the state a loop carries. Storages in the arena whose lifetimes do
not meet share bytes. Lifetimes are intervals of a global numbering of steps; what a loop body reads from outside lives
until the loop ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, updates
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.memory.scratch import Scratch
from shlo_jit.memory.storage import (
    Copy,
    MemoryPlan,
    Storage,
    nbytes,
    place,
    pointwise,
    read_inside,
    view_closure,
    views_of,
)

EXCHANGE_BYTES = 1 << 12
"""Bytes from which a loop's state is exchanged rather than copied."""


@dataclass
class Loop:
    """A loop whose body is being assigned: its first step, and per state storage the last use of its values inside."""

    start: int
    states: dict[int, int]


class Planner:
    """Assigns storages. `scratch(step)` says how much scratch a step wants."""

    def __init__(
        self,
        plan: PlanBlock,
        arguments: list[Value],
        scratch: Callable[[Step], Scratch],
        donated: frozenset[int] = frozenset(),
    ):
        self.plan = plan
        self.storage: dict[Value, Storage] = {}
        self.constants: list[Value] = []
        self.before: dict[int, list[Copy]] = {}
        self.block_end: dict[int, list[Copy]] = {}
        self.scratch: dict[int, Storage] = {}
        self.scratch_of = scratch
        self.shared: dict[Scratch, Storage] = {}
        self.time = 0
        self.begin: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.arena: list[Storage] = []
        self.last_use: dict[Value, int] = {}
        self.arguments = arguments
        self.donated = donated
        """Arguments whose memory may be overwritten."""
        self.aliases: dict[int, int] = {}
        self.exchanges: dict[int, list[tuple[Storage, Storage]]] = {}
        self.loops: list[Loop] = []

    # ------------------------------------------------------------------ entry
    def run(self) -> MemoryPlan:
        self.number(self.plan)
        self.time += 1
        self.end_time = self.time
        self.uses(self.plan)
        for r in self.plan.results:
            self.last_use[r] = self.end_time
        for i, a in enumerate(self.arguments):
            self.bind(a, Storage("argument", nbytes(a), i))
        self.results()
        self.assign(self.plan)
        self.finish_results()
        total = place(self.arena)
        for storage in self.shared.values():
            storage.number = total
        return MemoryPlan(
            self.storage,
            total,
            tuple(self.shared),
            self.constants,
            self.before,
            self.block_end,
            self.scratch,
            self.aliases,
            self.overwritten(),
            self.exchanges,
        )

    def overwritten(self) -> tuple[int, ...]:
        taken = {i for i in self.donated if self.storage[self.arguments[i]].bound > 1}
        return tuple(sorted(taken - set(self.aliases.values())))

    def number(self, block: PlanBlock) -> None:
        """Give every step its times: a control step spans those inside it."""
        for step in block.steps:
            self.time += 1
            self.begin[id(step)] = self.time
            if isinstance(step, ControlStep):
                for inner in step.blocks:
                    self.number(inner)
                    self.time += 1  # the block's end, where results are copied
                    self.finish[id(inner)] = self.time
                self.time += 1
            self.finish[id(step)] = self.time

    def uses(self, block: PlanBlock) -> None:
        """Last use of every value, seen from the block it is defined in."""
        for step in block.steps:
            end = self.finish[id(step)]
            for v in step.reads:
                self.last_use[v] = max(self.last_use.get(v, -1), end)
            if isinstance(step, ControlStep):
                for inner in step.blocks:
                    self.uses(inner)
                    for v in inner.results:
                        self.last_use[v] = max(self.last_use.get(v, -1), self.finish[id(inner)])
        # a view's uses are its operand's uses
        for step in reversed(block.steps):
            if isinstance(step, ViewStep):
                result, operand = step.op.results[0], step.op.operands[0]
                use = self.last_use.get(result, -1)
                self.last_use[operand] = max(self.last_use.get(operand, -1), use)

    # ------------------------------------------------------------------ storages
    def bind(self, value: Value, storage: Storage) -> Storage:
        assert value not in self.storage, value
        self.storage[value] = storage
        storage.bound += 1
        use = self.last_use.get(value, -1)
        storage.last_read = max(storage.last_read, use)
        for loop in self.loops:
            if id(storage) in loop.states:
                loop.states[id(storage)] = max(loop.states[id(storage)], use)
        return storage

    def new(self, value: Value, at: int) -> Storage:
        storage = Storage("arena" if nbytes(value) else "none", nbytes(value))
        self.arena.append(storage)
        storage.live(at)
        return self.bind(value, storage)

    def of(self, value: Value) -> Storage:
        """The storage of a value that is read; constants get theirs on first sight."""
        found = self.storage.get(value)
        if found is None:
            op = value.op
            assert op is not None and op.name == "stablehlo.constant", f"{value} of {op} was never written"
            found = self.bind(value, Storage("constant", nbytes(value), len(self.constants)))
            self.constants.append(value)
        return found

    def results(self) -> None:
        """Let values that the program returns be computed in the result's memory."""
        self.wanted: dict[Value, Storage] = {}
        viewed = {s.op.results[0]: s.op.operands[0] for s in self.plan.steps if isinstance(s, ViewStep)}
        written = {v for s in self.plan.steps for v in s.writes}
        for i, r in enumerate(self.plan.results):
            root = r
            while root in viewed:
                root = viewed[root]
            if root in self.wanted or root.op is None or root not in written:
                continue
            self.wanted[root] = Storage("result", nbytes(r), i)
        self.want_updated()

    def want_updated(self) -> None:
        """Let what a scatter updates be computed where the scatter's result is wanted, if only the scatter needs it."""
        writers = {v for s in self.plan.steps if not isinstance(s, ViewStep) for v in s.writes}
        for step in reversed(self.plan.steps):
            if not isinstance(step, OpStep) or step.op.name != "stablehlo.scatter":
                continue
            for operand, result in zip(step.op.operands, step.op.results, strict=False):
                dies = self.last_use[operand] <= self.finish[id(step)] and step.op.operands.count(operand) == 1
                if result in self.wanted and operand in writers and operand not in self.wanted and dies:
                    self.wanted[operand] = self.wanted[result]

    def finish_results(self) -> None:
        for i, r in enumerate(self.plan.results):
            storage = self.of(r)
            if storage.kind == "result" and storage.number == i:
                continue
            if self.took_over(r, storage):
                self.aliases[i] = storage.number
                continue
            home = Value(r.type, None, i, f"result{i}")
            self.bind(home, Storage("result", nbytes(r), i))
            self.block_end.setdefault(id(self.plan), []).append(Copy(r, home))

    def took_over(self, result: Value, storage: Storage) -> bool:
        """A result that has been computed in a donated argument's memory, the first to be so."""
        if storage.kind != "argument" or storage.number not in self.donated or result is self.arguments[storage.number]:
            return False
        return storage.number not in self.aliases.values() and storage.nbytes == nbytes(result)

    def assign_scratch(self, step: Step, at: int) -> None:
        amount = self.scratch_of(step)
        if amount.per_thread:
            self.scratch[id(step)] = self.shared.setdefault(amount, Storage("arena", 0))
        elif amount.fixed:
            scratch = self.scratch[id(step)] = Storage("arena", amount.fixed)
            scratch.live(at)
            self.arena.append(scratch)

    # ------------------------------------------------------------------ the walk
    def assign(self, block: PlanBlock) -> None:
        for step in block.steps:
            at = self.begin[id(step)]
            for v in step.reads:
                self.of(v).live(self.finish[id(step)])
            self.assign_scratch(step, at)
            if isinstance(step, ViewStep):
                self.share(step.op.results[0], self.of(step.op.operands[0]), at)
            elif isinstance(step, ControlStep) and step.op.name == "stablehlo.while":
                self.loop(step)
            elif isinstance(step, ControlStep):
                self.branches(step)
            else:
                self.kernel(step)

    def share(self, value: Value, storage: Storage, at: int) -> None:
        if value in self.storage:
            return
        self.bind(value, storage)
        storage.live(at)
        storage.live(self.last_use.get(value, at))

    def define(self, value: Value, at: int) -> None:
        """Memory for a value a step writes."""
        if value in self.storage:
            return
        if value in self.wanted:
            self.bind(value, self.wanted[value]).live(at)
            return
        storage = self.new(value, at)
        storage.live(self.last_use.get(value, at))

    def kernel(self, step: Step) -> None:
        at = self.begin[id(step)]
        if isinstance(step, NestStep) and step.nest.overwrites is not None:
            self.update(step, step.nest.overwrites)
            return
        if isinstance(step, OpStep):
            for operand, result in updates(step.op):
                self.take_or_copy(step, operand, result)
        if isinstance(step, OpStep) and step.epilogue is not None:
            self.host(step, step.epilogue)
        for v in step.writes:
            if v not in self.storage and isinstance(step, NestStep):
                victim = self.victim(step, v)
                if victim is not None:
                    self.share(v, victim, at)
                    continue
            self.define(v, at)

    def host(self, step: OpStep, epilogue: NestStep) -> None:
        """A product with an epilogue: the product lives for this step only, in the epilogue's result where it fits."""
        at = self.begin[id(step)]
        product = step.op.results[0]
        for v in epilogue.writes:
            self.define(v, at)
            stores = [s for s in epilogue.nest.stores if s.target is v]
            fits = nbytes(v) == nbytes(product) and product not in self.storage and len(stores) == 1
            if fits and pointwise(epilogue.nest, product, stores[0].index, v):
                self.bind(product, self.storage[v])
        self.define(product, at)

    def dies(self, value: Value, step: Step) -> bool:
        """No step after this one reads the value's memory, and it is ours to overwrite."""
        storage = self.storage.get(value)
        if storage is None or not self.is_ours(storage):
            return False
        end = self.finish[id(step)]
        if self.loops:
            loop = self.loops[-1]
            if id(storage) in loop.states:
                # The state of the loop we are in: what the turn made of it counts, not what it was outside.
                return loop.states[id(storage)] <= end
            if storage.first < loop.start:
                return False  # from outside: the next turn reads it again
        elif storage.last > end:
            return False
        return storage.last_read <= end

    def is_ours(self, storage: Storage) -> bool:
        """Memory the program may overwrite."""
        donated = storage.kind == "argument" and storage.number in self.donated
        return donated or storage.kind in ("arena", "result")

    def victim(self, step: NestStep, value: Value) -> Storage | None:
        """The storage of an operand that this nest reads for the last time, and only where it writes."""
        nest = step.nest
        (store, *more) = [s for s in nest.stores if s.target is value]
        if more:
            return None
        for operand in step.reads:
            if nbytes(operand) != nbytes(value) or not self.dies(operand, step):
                continue
            storage = self.of(operand)
            taken = storage.kind == "arena" and value not in self.wanted
            if not (taken or storage.kind == "argument") or storage.nbytes != nbytes(value):
                continue
            if any(self.storage.get(o.target) is storage for o in nest.stores):
                continue
            same = [r for r in step.reads if self.storage.get(r) is storage]
            if all(pointwise(nest, r, store.index, value) for r in same):
                return storage
        return None

    def update(self, step: NestStep, operand: Value) -> None:
        (store,) = [s for s in step.nest.stores if s.target is step.writes[0]]
        for extra in step.writes[1:]:
            self.define(extra, self.begin[id(step)])
        self.take_or_copy(step, operand, step.writes[0], store.index)

    def take_or_copy(self, step: Step, operand: Value, result: Value, index: tuple[ix.Expr, ...] = ()) -> None:
        """Let the result take over the operand's memory; where that is not safe, copy the operand first."""
        at = self.begin[id(step)]
        storage = self.of(operand)
        safe = self.dies(operand, step) and result not in self.storage
        if safe and result in self.wanted:
            safe = storage is self.wanted[result] or storage.kind == "argument"
        if safe and isinstance(step, NestStep):
            same = {r for r in step.reads if self.storage.get(r) is storage}
            single = step.nest.rows == 1 and not step.nest.reduce_vars
            reads = [k for k in step.nest.loads if k[0] in same]
            shape = result.tensor.extents
            safe = single or all(
                ix.linearize(k[1].index, k[0].tensor.extents) == ix.linearize(index, shape) for k in reads
            )
        if safe and isinstance(step, OpStep):
            others = [o for o in step.op.operands if o is not operand and self.storage.get(o) is storage]
            safe = not others and step.op.operands.count(operand) == 1
        if safe:
            self.share(result, storage, at)
            return
        self.define(result, at)
        self.before.setdefault(id(step), []).append(Copy(operand, result))

    # ------------------------------------------------------------------ control flow
    def loop(self, step: ControlStep) -> None:
        """Carried values live in one storage each: argument of both regions, result of the body, result of the op."""
        start, end = self.begin[id(step)], self.finish[id(step)]
        cond, body = step.blocks
        op = step.op
        taken = {id(self.storage[v]) for v in read_inside(*step.blocks) if v in self.storage}
        states: dict[int, int] = {}
        times = Counter(op.operands)
        for i, init in enumerate(op.operands):
            storage = self.state(step, i, init, taken if times[init] == 1 else None)
            storage.live(start)
            storage.live(end)
            taken.add(id(storage))
            for v in (cond.block.arguments[i], op.results[i], body.block.arguments[i]):
                if v not in self.storage:
                    self.bind(v, storage)
            states[id(storage)] = self.last_use.get(body.block.arguments[i], -1)
            storage.live(self.last_use.get(op.results[i], end))
        for v in step.reads:  # captured values must survive every turn
            self.of(v).live(end)
        self.loops.append(Loop(start, {}))
        self.assign(cond)  # leaves every state alone: it is also the result when the loop ends here
        self.loops[-1].states = states
        self.claim(body, [self.storage[v] for v in op.results])
        self.assign(body)
        self.loops.pop()
        ends: list[Copy] = []
        for r, target in zip(body.results, body.block.arguments, strict=True):
            if self.of(r) is not self.storage[target]:
                ends.append(Copy(r, target))
        ends = self.exchanged(step, ends)
        self.block_end[id(body)] = self.ordered(ends, self.finish[id(body)])

    def exchanged(self, step: ControlStep, ends: list[Copy]) -> list[Copy]:
        """Let a large state and the new value the body makes of it exchange their memory instead of copying it. What
        is left has to be copied."""
        start, finish = self.begin[id(step)], self.finish[id(step)]
        sources = Counter(id(self.of(c.source)) for c in ends)
        states = {id(self.storage[v]) for v in step.op.results}
        left: list[Copy] = []
        for c in ends:
            source, state = self.of(c.source), self.storage[c.target]
            mine = source.kind == "arena" and source.first > start and id(source) not in states
            alone = sources[id(source)] == 1 and source.nbytes == state.nbytes >= EXCHANGE_BYTES
            if not (mine and alone):
                left.append(c)
                continue
            source.live(start)
            source.live(finish)
            self.exchanges.setdefault(id(step), []).append((state, source))
        return left

    def state(self, step: ControlStep, i: int, init: Value, taken: set[int] | None) -> Storage:
        """The storage of carried value i: the initial value's when it dies here, the program result's, or a new one.
        `taken`: storages that another state has or that the regions read; None where the initial value is another
        state's too."""
        result = step.op.results[i]
        storage = self.storage.get(init)
        mine = storage is not None and taken is not None and id(storage) not in taken and self.dies(init, step)
        mine = mine and result not in self.storage
        if mine and result not in self.wanted:
            assert storage is not None
            return storage
        if result in self.storage:  # the loop around this one wants it in its own state
            fresh = self.storage[result]
        elif result in self.wanted:
            fresh = self.wanted[result]
        else:
            fresh = Storage("arena" if nbytes(result) else "none", nbytes(result))
            self.arena.append(fresh)
        home = Value(init.type, None, i, "state")
        self.bind(home, fresh)
        self.before.setdefault(id(step), []).append(Copy(init, home))
        return fresh

    def claim(self, body: PlanBlock, states: list[Storage]) -> None:
        """Let results of the body be written straight into the state where nothing reads the old state any more."""
        writers: dict[Value, list[Step]] = {}
        readers: dict[Value, list[Step]] = {}
        for s in body.steps:
            for v in s.writes:
                writers.setdefault(v, []).append(s)
            for v in s.reads:
                readers.setdefault(v, []).append(s)
        views_made, times = views_of(body), Counter(body.results)
        for i, r in enumerate(body.results):
            argument, state = body.block.arguments[i], states[i]
            step = writers[r][-1] if r in writers else None
            if step is None or times[r] > 1 or nbytes(r) == 0 or r in self.storage:
                continue
            if isinstance(step, (ViewStep,)) or self.overwriting(step):
                continue
            if state.kind == "argument" and isinstance(step, OpStep) and step.op.name == "func.call":
                continue  # functions take their results' memory to be aligned
            views = view_closure(views_made, argument)
            reading = [s for v in views for s in readers.get(v, ())]
            begin = self.begin[id(step)]
            if any(v in times for v in views):
                continue
            late = [s for s in reading if self.begin[id(s)] > begin]
            if late or len(writers[r]) > 1:
                continue
            if step in reading:
                if not isinstance(step, NestStep):
                    continue
                (store, *more) = [s for s in step.nest.stores if s.target is r]
                if more or not all(pointwise(step.nest, v, store.index, r) for v in step.reads if v in views):
                    continue
            self.bind(r, state)

    def overwriting(self, step: Step) -> bool:
        if isinstance(step, NestStep):
            return step.nest.overwrites is not None
        return isinstance(step, OpStep) and bool(updates(step.op))

    def branches(self, step: ControlStep) -> None:
        at = self.begin[id(step)]
        for r in step.op.results:
            self.define(r, at)
            self.storage[r].live(self.finish[id(step)])
        for block in step.blocks:
            self.assign(block)
            ends = [Copy(v, r) for v, r in zip(block.results, step.op.results, strict=True)]
            self.block_end[id(block)] = ends
            for v in block.results:
                self.of(v).live(self.finish[id(block)])

    def ordered(self, copies: list[Copy], at: int) -> list[Copy]:
        """Copies that happen at once, as a sequence: what a later one reads is not overwritten before."""
        targets = {id(self.storage[c.target]) for c in copies}
        out, late = [], []
        for c in copies:
            if id(self.of(c.source)) in targets:
                temp = Value(c.source.type, None, 0, "swap")
                self.new(temp, at)
                out.append(Copy(c.source, temp))
                late.append(Copy(temp, c.target))
            else:
                late.append(c)
            self.of(c.source).live(at)
        return out + late
