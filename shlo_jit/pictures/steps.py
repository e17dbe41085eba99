"""Data of pictures of a program: its steps, the values between them, and the bytes, operations and time of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shlo_jit.fuse.plan import (
    ControlStep,
    NestStep,
    PlanBlock,
    StagedStep,
    Step,
    ViewStep,
    labels_of,
    lines_of,
    source_ops,
)
from shlo_jit.fuse.value_names import Names, type_text
from shlo_jit.ir.core import Value
from shlo_jit.lower.costs import StepCost, program_costs
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.memory.storage import nbytes
from shlo_jit.pictures.drawing import bytes_text, count_text, time_text
from shlo_jit.runtime.profile import StepTime
from shlo_jit.sizes import hint_of

SHOWN_OPS = 8
"""Maximum kinds of ops that are named for a step."""
REGIONS = {"while": ("condition", "body"), "if": ("true", "false")}
"""Names of regions by the title of the step; those of other steps are numbered."""


class StepShare(NamedTuple):
    """The time of a step."""

    share: float
    """Share of the time of all steps."""
    total_us: float
    """Microseconds of all its runs in a call of the program, on average."""
    runs: float
    """Number of runs in a call, on average."""
    median_us: float
    """Median of one run in microseconds."""


def shares_of(steps: Sequence[StepTime], calls: int) -> dict[str, StepShare]:
    """Times of a profile of so many calls by label, without those of parts of a step."""
    return {
        s.label: StepShare(s.share, s.total_us / calls, s.calls / calls, s.median_us)
        for s in reversed(steps)  # a step precedes its parts
    }


@dataclass(eq=False)
class Node:
    """A step."""

    label: str
    title: str
    kind: str
    """Class of its color: product, loop, row, control or other."""
    ops: str
    reads: list[str]
    """Origins of its operands: labels of steps, names of arguments and constants."""
    writes: list[str]
    """Names, types and bytes of its results."""
    details: list[str]
    """Lines of the tooltip."""
    share: float | None = None
    """Share of the time, if it was measured."""
    time: str = ""
    """Time of all its runs in a call of the program, and its share."""
    nbytes: int = 0
    operations: int | None = None
    regions: list[Region] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)
    """The nodes of the same region whose values it reads."""
    values: dict[str, str] = field(default_factory=dict)
    """Maps the label of a source to the values that come from there."""


@dataclass(eq=False)
class Region:
    """The steps of a block, without views."""

    title: str
    nodes: list[Node]
    views: int = 0
    """Number of steps that only rename memory: they run no code, and are not drawn."""

    def all_nodes(self) -> Iterator[Node]:
        """All nodes, including those inside control flow."""
        for node in self.nodes:
            yield node
            for region in node.regions:
                yield from region.all_nodes()


def regions_of(
    functions: Sequence[PlannedFunction], prefix: str = "", times: Mapping[str, StepShare] | None = None
) -> list[Region]:
    """Regions of the entry function and of the functions that are called. `times`: by label."""
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
            if isinstance(step, ViewStep):  # views are not drawn
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
        """Records the values that a node reads, and the nodes that write them."""
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
    """Results of control flow, which no step inside writes under that name."""
    return [r for r in step.op.results if r not in step.writes] if isinstance(step, ControlStep) else []


def _kind(step: Step) -> str:
    if isinstance(step, ControlStep):
        return "control"
    if isinstance(step, NestStep):
        return "loop" if step.title in ("loop", "interchanged") else "row"
    is_product = isinstance(step, StagedStep) or step.title in ("dot_general", "convolution")
    return "product" if is_product else "other"


def _size(value: Value) -> str:
    return bytes_text(hint_of(nbytes(value)))
