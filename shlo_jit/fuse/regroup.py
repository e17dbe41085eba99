"""Regrouping: the ordered steps of a block while some of them become stages of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shlo_jit import tuning
from shlo_jit.fuse.plan import PlanBlock, Step, ViewStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Value


class Steps:
    """The steps of a block, some of which become stages of others."""

    def __init__(self, block: PlanBlock):
        self.block = block
        self.steps: list[Step | None] = list(block.steps)
        """Steps in order; None for a step that has become a stage."""
        self.place = {id(step): i for i, step in enumerate(block.steps)}
        self.gone: dict[int, Step] = {}
        """Id of a step that is a stage of another -> that other step."""
        self.returned = set(block.results)
        self.writers: dict[Value, list[Step]] = {}
        self.readers: dict[Value, list[Step]] = {}
        for step in block.steps:
            for value in dict.fromkeys(step.reads):
                self.readers.setdefault(value, []).append(step)
            for value in step.writes:
                self.writers.setdefault(value, []).append(step)

    def writer(self, value: Value) -> Step | None:
        """The step of the block that writes a value, if it is one step."""
        found = self.writers.get(value, [])
        return found[0] if len(found) == 1 else None

    def is_private(self, value: Value) -> bool:
        """Whether one step of the block writes a value, one reads it, and it is not returned."""
        return self.writer(value) is not None and len(self.readers.get(value, [])) == 1 and value not in self.returned

    def source(self, value: Value) -> tuple[Value, list[ViewStep]]:
        """The value whose memory a value is, and the views of it that nobody else reads."""
        views: list[ViewStep] = []
        while self.is_private(value) and isinstance(self.writer(value), ViewStep):
            step = self.writers[value][0]
            views += [step] if isinstance(step, ViewStep) else []
            (value,) = step.reads
        return value, views

    def seen_by(self, value: Value) -> Iterator[tuple[Step, Value]]:
        """The steps that read a value, directly or through views that nobody else reads, and what they read."""
        for step in self.readers.get(value, []):
            if isinstance(step, ViewStep) and self.is_private(step.writes[0]):
                yield from self.seen_by(step.writes[0])
            else:
                yield step, value

    def before(self, step: Step) -> set[int]:
        """The ids of the steps that must run before this one."""
        return {id(self.now(s)) for s in step.after}

    def now(self, step: Step) -> Step:
        """The step, or the one that it is a stage of."""
        while id(step) in self.gone:
            step = self.gone[id(step)]
        return step

    def order_around(self, parts: Sequence[Step]) -> tuple[list[Step], list[Step], int, int] | Refusal:
        """The steps between the parts that run before them and after them, and the places of the first and last part.
        Refuses if a step in between needs one part and is needed by another."""
        places = [self.place[id(s)] for s in parts]
        start, end = min(places), max(places)
        if end - start > tuning.EPILOGUE_DISTANCE:
            return Refusal("reader-too-far", f"the steps are more than {tuning.EPILOGUE_DISTANCE} steps apart")
        inside = {id(s) for s in parts}
        between = [s for s in self.steps[start : end + 1] if s is not None and id(s) not in inside]
        late: set[int] = set()
        for s in between:
            if self.before(s) & (inside | late):
                late.add(id(s))
        if any(self.before(s) & late for s in parts):
            text = "a step between them needs one of the steps and is needed by another"
            return Refusal("step-between-products", text)
        early = [s for s in between if id(s) not in late]
        return early, [s for s in between if id(s) in late], start, end

    def finish(self) -> None:
        """Gives the block the steps that are left, in order."""
        self.block.steps = [step for step in self.steps if step is not None]
        for step in self.block.steps:
            step.after = [s for s in dict.fromkeys(map(self.now, step.after)) if s is not step]

    def replace(self, parts: Sequence[Step], by: Step) -> Refusal | None:
        """Puts one step in the place of several. Steps in between that depend on a part run after it."""
        found = self.order_around(parts)
        if isinstance(found, Refusal):
            return found
        early, late, start, end = found
        order = [*early, by, *late]
        self.steps[start : end + 1] = [*order, *[None] * (end + 1 - start - len(order))]
        self.place |= {id(s): i for i, s in enumerate(order, start)}
        self.gone |= {id(s): by for s in parts}
        for value in {v for s in parts for v in (*s.reads, *s.writes)}:
            self.readers[value] = [s for s in self.readers.get(value, []) if s not in parts]
            self.writers[value] = [s for s in self.writers.get(value, []) if s not in parts]
        for value in by.reads:
            self.readers.setdefault(value, []).append(by)
        for value in by.writes:
            self.writers.setdefault(value, []).append(by)
        return None
