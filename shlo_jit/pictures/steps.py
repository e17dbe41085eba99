"""What there is to draw of a program: its steps, what goes from one to another, what each moves and takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, labels_of, lines_of, source_ops
from shlo_jit.fuse.value_names import Names, type_text
from shlo_jit.ir.core import Value
from shlo_jit.lower.costs import StepCost, program_costs
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.memory.storage import nbytes
from shlo_jit.pictures.drawing import bytes_text, count_text, time_text
from shlo_jit.runtime.profile import StepTime
from shlo_jit.sizes import hint_of

SHOWN_OPS = 8
"""Kinds of ops of a step that are named."""
REGIONS = {"while": ("condition", "body"), "if": ("true", "false")}
"""What regions are called, by the title of the step; those of others are numbered."""


class StepShare(NamedTuple):
    """The time of a step."""

    share: float
    """Of the time of all steps."""
    total_us: float
    """Microseconds of all its runs in a call of the program, on average."""
    runs: float
    """How often it runs in a call, on average."""
    median_us: float
    """Of one run."""


def shares_of(steps: Sequence[StepTime], calls: int) -> dict[str, StepShare]:
    """What a profile of so many calls says, by label; of parts of a step, nothing."""
    return {
        s.label: StepShare(s.share, s.total_us / calls, s.calls / calls, s.median_us)
        for s in reversed(steps)  # the step itself comes before its parts
    }


@dataclass(eq=False)
class Node:
    """A step."""

    label: str
    title: str
    kind: str
    """product, loop, row, control or other: what colour it has."""
    ops: str
    reads: list[str]
    """Where its operands are from: labels of steps, names of arguments and constants."""
    writes: list[str]
    """Names, types and bytes."""
    details: list[str]
    """For whoever points at it."""
    share: float | None = None
    """Of the time, where that was measured."""
    time: str = ""
    """How long all its runs in a call of the program take, and their share."""
    nbytes: int = 0
    operations: int | None = None
    regions: list[Region] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)
    """The nodes of the same region that it reads values of."""
    values: dict[str, str] = field(default_factory=dict)
    """Label of a source -> what comes from there."""


@dataclass(eq=False)
class Region:
    """The steps of a block, but for views."""

    title: str
    nodes: list[Node]
    views: int = 0
    """Steps that only rename memory: they run no code, and are not drawn."""

    def all_nodes(self) -> Iterator[Node]:
        """Those inside control flow too."""
        for node in self.nodes:
            yield node
            for region in node.regions:
                yield from region.all_nodes()


def regions_of(
    functions: Sequence[PlannedFunction], prefix: str = "", times: Mapping[str, StepShare] | None = None
) -> list[Region]:
    """The entry function's steps, and those of functions that are called. `times`: by label."""
    *callees, entry = functions
    costs = {prefix + c.label: c for c in program_costs(functions)}
    found = []
    for function in (entry, *callees):
        own = prefix if function is entry else f"{prefix}@{function.name} "
        made = _Maker(function, own, costs, times)
        found.append(made.region(f"{prefix}@{function.name}", function.plan))
    return found


class _Maker:
    def __init__(
        self,
        function: PlannedFunction,
        prefix: str,
        costs: Mapping[str, StepCost],
        times: Mapping[str, StepShare] | None,
    ) -> None:
        self.names = Names(function.core)
        self.labels = {key: prefix + label for key, label in labels_of(function.plan).items()}
        self.costs, self.times = costs, times

    def region(self, title: str, block: PlanBlock) -> Region:
        writers: dict[Value, Node] = {}
        views: dict[Value, Value] = {}
        nodes: list[Node] = []
        for step in block.steps:
            if isinstance(step, ViewStep):  # no step of its own
                views[step.op.result] = step.op.operands[0]
                continue
            node = self.node(step)
            nodes.append(node)
            outside = [v for inner in getattr(step, "blocks", ()) for v in inner.outside]
            self.join(node, [*step.reads, *outside], writers, views)
            writers.update(dict.fromkeys([*step.writes, *_results(step)], node))
        for value in block.results:
            while value in views:
                value = views[value]
            if value in writers:
                writers[value].details.append(f"{self.names(value)} is returned")
        return Region(title, nodes, len(block.steps) - len(nodes))

    def join(
        self, node: Node, reads: Sequence[Value], writers: Mapping[Value, Node], views: Mapping[Value, Value]
    ) -> None:
        """Say what a node reads, and of whom."""
        for value in dict.fromkeys(reads):
            origin = value
            while origin in views:
                origin = views[origin]
            source = writers.get(origin)
            name = self.names(origin)
            if source is None:
                node.reads.append(name)
            else:
                if source not in node.sources:
                    node.sources.append(source)
                    node.reads.append(source.label.rpartition(" ")[2])
                before = node.values.get(source.label)
                node.values[source.label] = ", ".join(filter(None, [before, f"{name} {type_text(value)}"]))
            node.details.append(f"reads {name} {type_text(value)}, {_size(value)}")

    def node(self, step: Step) -> Node:
        label = self.labels[id(step)]
        ops = source_ops(step)
        names = list(dict.fromkeys(op.name.partition(".")[2] for op in ops))
        more = f" +{len(names) - SHOWN_OPS}" if len(names) > SHOWN_OPS else ""
        made = Node(
            label,
            step.title,
            _kind(step),
            " ".join(names[:SHOWN_OPS]) + more if names != [step.title] else "",
            [],
            [f"{self.names(v)} {type_text(v)} · {_size(v)}" for v in [*step.writes, *_results(step)]],
            [f"step {label}: {step.title}", *filter(None, [" ".join(names), lines_of(ops)])],
        )
        for v in step.writes:
            why = f" ({step.why[v]})" if step.why.get(v) else ""
            made.details.append(f"writes {self.names(v)} {type_text(v)}, {_size(v)}{why}")
        self.measure(made)
        if isinstance(step, ControlStep):
            known = REGIONS.get(step.title, ())
            for number, block in enumerate(step.blocks):
                title = known[number] if number < len(known) else f"branch {number}"
                made.regions.append(self.region(title, block))
        return made

    def measure(self, node: Node) -> None:
        cost = self.costs.get(node.label)
        if cost is not None:
            node.details.append(f"{bytes_text(cost.nbytes)} moved")
            node.nbytes = cost.nbytes
            if cost.operations is not None and cost.operations.total:
                node.operations = cost.operations.total
                node.details.append(f"{count_text(cost.operations.total)} operations")
        if self.times is not None and node.label in self.times:
            node.share, total, runs, median = self.times[node.label]
            node.time = time_text(total) + (f" · {100 * node.share:.1f} %" if node.share else "")
            node.details.append(f"{time_text(total)} a call, in {runs:,.3g} runs with a median of {time_text(median)}")


def _results(step: Step) -> Sequence[Value]:
    """What control flow gives, which no step inside writes by that name."""
    return [r for r in step.op.results if r not in step.writes] if isinstance(step, ControlStep) else []


def _kind(step: Step) -> str:
    if isinstance(step, ControlStep):
        return "control"
    if isinstance(step, NestStep):
        return "loop" if step.title in ("loop", "interchanged") else "row"
    is_product = isinstance(step, OpStep) and step.title in (
        "dot_general",
        "convolution",
        "attention",
        "gradient",
        "line_tiles",
    )
    return "product" if is_product else "other"


def _size(value: Value) -> str:
    return bytes_text(hint_of(nbytes(value)))
