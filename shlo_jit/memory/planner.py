"""Memory planning: assigns values to arguments, results, constants, or the arena, by lifetimes; in place if that is
safe.

Every value a step reads or writes gets a `Storage`. Several values share one if they are views of each other, if an op
may overwrite a dying operand, or if they are the state a loop carries. Storages in the arena whose lifetimes do not
overlap share bytes. Lifetimes are intervals of a global numbering of steps. Values from outside that a loop body reads
live until the loop ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shlo_jit import tuning
from shlo_jit.fuse.plan import (
    ControlStep,
    NestStep,
    OpStep,
    PlanBlock,
    Step,
    ViewStep,
    all_steps,
    read_inside,
)
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.memory.branches import assign_branches
from shlo_jit.memory.in_place import cannot_take, victim
from shlo_jit.memory.loops import Loop, assign_loop
from shlo_jit.memory.storage import (
    Copy,
    MemoryPlan,
    Storage,
    nbytes,
    place,
    pointwise,
)
from shlo_jit.ops.in_place import may_update, updates
from shlo_jit.ops.known_calls import function_of_call
from shlo_jit.reasons import Reason
from shlo_jit.schedule.regions import NO_REGIONS, Regions
from shlo_jit.schedule.schedule import Schedule
from shlo_jit.schedule.scratch import ScratchBytes, aligned
from shlo_jit.sizes import Size, equal


def plan_memory(
    plan: PlanBlock,
    schedule: Schedule,
    donated: frozenset[int] = frozenset(),
    callees: Mapping[str, MemoryPlan] | None = None,
) -> MemoryPlan:
    """Plans the memory of every value and every step's scratch memory. `donated`: arguments whose memory may be
    overwritten. `callees`: memory plans of the called functions, whose arenas become scratch memory of the calls, after
    the calls' own."""

    def scratch(step: Step) -> ScratchBytes:
        own, callee = schedule.scratch(step), function_of_call(step.op) if isinstance(step, OpStep) else None
        if callee is None:
            return own
        arena = (callees or {})[callee].arena
        return ScratchBytes(own.fixed + arena.fixed, arena.per_thread)

    return Planner(plan, plan.block.arguments, scratch, donated, schedule.lasts, schedule.regions).run()


class Planner:
    """Assigns storages. `scratch(step)` returns the scratch memory that a step needs. `lasts(step)` says whether the
    step keeps it until the program ends."""

    def __init__(
        self,
        plan: PlanBlock,
        arguments: list[Value],
        scratch: Callable[[Step], ScratchBytes],
        donated: frozenset[int] = frozenset(),
        lasts: Callable[[Step], bool] = lambda step: False,
        regions: Regions = NO_REGIONS,
    ):
        self.plan = plan
        self.lasts = lasts
        self.regions = regions
        self.views = {s.op.results[0]: s.op.operands[0] for s in all_steps(plan) if isinstance(s, ViewStep)}
        self.scratch_before: dict[int, ScratchBytes] = {}
        self.storage: dict[Value, Storage] = {}
        self.constants: list[Value] = []
        self.before: dict[int, list[Copy]] = {}
        self.block_end: dict[int, list[Copy]] = {}
        self.scratch: dict[int, Storage] = {}
        self.scratch_of = scratch
        self.shared: dict[ScratchBytes, Storage] = {}
        self.time = 0
        self.begin: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.arena: list[Storage] = []
        self.last_use: dict[Value, int] = {}
        self.arguments = arguments
        self.donated = donated
        """Arguments whose memory may be overwritten."""
        self.aliases: dict[int, int] = {}
        self.swaps: dict[int, list[tuple[Storage, Storage]]] = {}
        self.loops: list[Loop] = []

    # ------------------------------------------------------------------ entry
    def run(self) -> MemoryPlan:
        self.number(self.plan)
        self.extend_regions()
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
            self.swaps,
            {step: (at, self.finish[step]) for step, at in self.begin.items()},
            self.scratch_before,
        )

    def overwritten(self) -> tuple[int, ...]:
        taken = {i for i in self.donated if self.storage[self.arguments[i]].bound > 1}
        return tuple(sorted(taken - set(self.aliases.values())))

    def number(self, block: PlanBlock) -> None:
        """Numbers the times of every step: a control step spans the steps inside it."""
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

    def extend_regions(self) -> None:
        """Lets the steps of a region last to its end: their tasks run at the same time."""
        for region in self.regions.all:
            for step in region.steps:
                self.finish[id(step)] = self.finish[id(region.steps[-1])]

    def read_beside(self, step: Step) -> set[Value]:
        """The values that other steps of its region read, and the values that these are views of."""
        region = self.regions.of(step)
        found = {v for s in region.steps if s is not step for v in s.reads} if region is not None else set[Value]()
        return self.with_viewed(found)

    def with_viewed(self, values: Iterable[Value]) -> set[Value]:
        """Returns some values, and the values that they are views of."""
        found = set(values)
        for value in list(found):
            while value in self.views:
                value = self.views[value]
                found.add(value)
        return found

    def uses(self, block: PlanBlock) -> None:
        """Computes the last use of every value, as seen from the block it is defined in."""
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
        storage = Storage("none" if equal(nbytes(value), 0) else "arena", nbytes(value))
        self.arena.append(storage)
        storage.live(at)
        return self.bind(value, storage)

    def of(self, value: Value) -> Storage:
        """The storage of a value that is read; a constant gets one at its first use."""
        found = self.storage.get(value)
        if found is None:
            op = value.op
            assert op is not None and op.name == "stablehlo.constant", f"{value} of {op} was never written"
            found = self.bind(value, Storage("constant", nbytes(value), len(self.constants)))
            self.constants.append(value)
        return found

    def results(self) -> None:
        """Lets values that the program returns be computed in the result's memory."""
        self.wanted: dict[Value, Storage] = {}
        viewed = {s.op.results[0]: s.op.operands[0] for s in self.plan.steps if isinstance(s, ViewStep)}
        written = {v for s in self.plan.steps for v in s.writes}
        for i, r in enumerate(self.plan.results):
            root = r
            while root in viewed:
                root = viewed[root]
            if root in self.wanted or root.op is None or root not in written or _is_scalar_of_loop(root):
                continue
            self.wanted[root] = Storage("result", nbytes(r), i)
        self.want_updated()

    def want_updated(self) -> None:
        """Lets the operand of a scatter, or the initial state of a loop, be computed in the memory of the result, if
        only that step needs it."""
        writers = {v for s in self.plan.steps if not isinstance(s, ViewStep) for v in s.writes}
        for step in reversed(self.plan.steps):
            if not isinstance(step, OpStep | ControlStep) or step.op.name not in _UPDATING:
                continue
            captured = self.with_viewed(read_inside(*step.blocks)) if isinstance(step, ControlStep) else set[Value]()
            for operand, result in zip(step.op.operands, step.op.results, strict=False):
                dies = self.last_use[operand] <= self.finish[id(step)] and step.op.operands.count(operand) == 1
                is_free = operand in writers and operand not in self.wanted and operand not in captured
                if result in self.wanted and is_free and dies:
                    self.wanted[operand] = self.wanted[result]

    def finish_results(self) -> None:
        for i, r in enumerate(self.plan.results):
            storage = self.of(r)
            if storage.kind == "result" and storage.number == i:
                continue
            if self.took_over(r, storage):
                self.aliases[i] = storage.number
                continue
            target = Value(r.type, None, i, f"result{i}")
            self.bind(target, Storage("result", nbytes(r), i))
            text = "the program's result is an argument, a constant, another result or a loop's scalar"
            self.block_end.setdefault(id(self.plan), []).append(Copy(r, target, Reason("result-elsewhere", text)))

    def took_over(self, result: Value, storage: Storage) -> bool:
        """Whether a result has been computed in a donated argument's memory, and is the first to be so."""
        if storage.kind != "argument" or storage.number not in self.donated or result is self.arguments[storage.number]:
            return False
        return storage.number not in self.aliases.values() and equal(storage.nbytes, nbytes(result))

    def assign_scratch(self, step: Step, at: int) -> None:
        amount = self.scratch_of(step)
        if amount.per_thread:
            whole = self.with_others(step, amount)
            self.scratch[id(step)] = self.shared.setdefault(whole, Storage("arena", 0))
        elif amount.fixed:
            scratch = self.scratch[id(step)] = Storage("arena", amount.fixed)
            scratch.live(at)
            scratch.live(self.finish[id(step)])
            if self.lasts(step):
                scratch.live(0)
                scratch.live(self.time)
            self.arena.append(scratch)

    def with_others(self, step: Step, amount: ScratchBytes) -> ScratchBytes:
        """Adds the scratch memory of the earlier steps of its region to that of a step, if both grow with the number of
        threads: its own part follows theirs."""
        region = self.regions.of(step)
        steps = () if region is None else region.steps
        others = [self.scratch_of(s) for s in steps[: steps.index(step)]] if steps else []
        parts = [ScratchBytes(*map(aligned, s)) for s in others if s.per_thread]
        if not parts:
            return amount
        before = ScratchBytes(sum(s.fixed for s in parts), sum(s.per_thread for s in parts))
        self.scratch_before[id(step)] = before
        return ScratchBytes(before.fixed + amount.fixed, before.per_thread + amount.per_thread)

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
                assign_loop(self, step)
            elif isinstance(step, ControlStep):
                assign_branches(self, step)
            else:
                self.kernel(step)

    def share(self, value: Value, storage: Storage, at: int) -> None:
        if value in self.storage:
            return
        self.bind(value, storage)
        storage.live(at)
        storage.live(self.last_use.get(value, at))

    def define(self, value: Value, at: int) -> None:
        """Assigns memory to a value that a step writes."""
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
            for operand, result in may_update(step.op):
                if cannot_take(self, step, operand, result, ()) is None:
                    self.share(result, self.of(operand), at)
        if step.host is not None:
            self.host(step, step.host)
        for v in step.writes:
            if v not in self.storage and isinstance(step, NestStep):
                taken = victim(self, step, step.nest, v)
                if taken is not None:
                    self.share(v, taken, at)
                    continue
            self.define(v, at)
        for v in step.writes:
            self.lasts_to_end(v, step)

    def lasts_to_end(self, value: Value, step: Step) -> None:
        """Keeps what a step writes until the end of its region, even if nothing reads it later: the other steps write
        at the same time."""
        self.storage[value].live(self.finish[id(step)])

    def host(self, step: Step, kernel: OpStep) -> None:
        """Assigns memory for a product with an epilogue, the last kernel of the step. The product lives for this step
        only, in the epilogue's result if it fits. It does not use a result that is computed in the memory of an
        operand, which is read after the product."""
        at = self.begin[id(step)]
        product, epilogue = kernel.op.results[0], kernel.epilogue
        assert epilogue is not None
        for v in epilogue.writes:
            taken = None if v in self.storage else victim(self, step, epilogue.nest, v)
            if taken is not None:
                self.share(v, taken, at)
                continue
            self.define(v, at)
            stores = [s for s in epilogue.nest.stores if s.target is v]
            fits = equal(nbytes(v), nbytes(product)) and product not in self.storage and len(stores) == 1
            if fits and pointwise(epilogue.nest, product, stores[0].index, v):
                self.bind(product, self.storage[v])
        self.define(product, at)
        self.lasts_to_end(product, step)

    def update(self, step: NestStep, operand: Value) -> None:
        (store,) = [s for s in step.nest.stores if s.target is step.writes[0]]
        for extra in step.writes[1:]:
            self.define(extra, self.begin[id(step)])
        self.take_or_copy(step, operand, step.writes[0], store.index)

    def take_or_copy(self, step: Step, operand: Value, result: Value, index: tuple[ix.Expr, ...] = ()) -> None:
        """Lets the result take over the operand's memory. If that is not safe, the operand is copied first."""
        at = self.begin[id(step)]
        refusal = cannot_take(self, step, operand, result, index)
        if refusal is None:
            self.share(result, self.of(operand), at)
            return
        self.define(result, at)
        why = Reason("copied-before-update", "an update must not overwrite its operand", refusal)
        self.before.setdefault(id(step), []).append(Copy(operand, result, why))

    # ------------------------------------------------------------------ control flow
    def ordered(self, copies: list[Copy], at: int) -> list[Copy]:
        """Orders simultaneous copies, so that no source of a later copy is overwritten before."""
        targets = {id(self.storage[c.target]) for c in copies}
        out, late = [], []
        for c in copies:
            if id(self.of(c.source)) in targets:
                temp = Value(c.source.type, None, 0, "swap")
                self.new(temp, at)
                out.append(Copy(c.source, temp, c.why))
                late.append(
                    Copy(temp, c.target, Reason("saved-first", "its memory is overwritten by a copy before this one"))
                )
            else:
                late.append(c)
            self.of(c.source).live(at)
        return out + late


_UPDATING = ("stablehlo.scatter", "stablehlo.while")


def _is_scalar_of_loop(value: Value) -> bool:
    """Whether a value is a loop's scalar result. Registers hold it in the loop, so it is copied once and not written to
    memory in every iteration."""
    size = nbytes(value)
    is_small = not isinstance(size, Size) and size <= tuning.SCALAR_BYTES
    return value.op is not None and value.op.name == "stablehlo.while" and is_small
