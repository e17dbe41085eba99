"""A plan: the steps of a program, each a kernel or control flow, in the order in which they run.

A step reads values from memory and writes values to memory. `PlanBlock`s nest as regions do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Block, Op, Value, place_text
from shlo_jit.ir.index import At, variables
from shlo_jit.reasons import Reason

Optimization: TypeAlias = Literal["epilogue", "line tiles", "row blocks", "computed operand", "interchange"]
"""A way in which a step runs together with others: a loop on the tiles of a product or convolution; a few lines at a
time with its reader; block by block of rows with the steps that read it; with the loop that computes an operand;
iterations of a `while` inside the loop over its states."""
OPTIMIZATIONS: tuple[Optimization, ...] = get_args(Optimization)


@dataclass(eq=False)
class Step:
    """Base class of steps. `position` is the index in the block of the step's last op."""

    reads: list[Value] = field(default_factory=list)
    writes: list[Value] = field(default_factory=list)
    position: int = 0
    after: list[Step] = field(default_factory=list)
    """Steps that must run before this one."""
    why: dict[Value, Reason] = field(default_factory=dict)
    """Reasons that the values it writes are in memory."""
    refused: dict[Optimization, Refusal] = field(default_factory=dict)
    """Optimizations that were tried, and are not possible or do not pay."""

    def refuse(self, what: Optimization, why: Refusal | None) -> None:
        """Records why an optimization was refused; None if it was not."""
        self.refused.pop(what, None)
        if why is not None:
            self.refused[what] = why

    @property
    def place(self) -> str:
        """One of its ops with its line, for messages."""
        op = next((v.op for v in self.writes if v.op is not None), None)
        return self.title if op is None else place_text(op)

    @property
    def title(self) -> str:
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[Step]:
        """Steps that run within it."""
        return ()

    @property
    def host(self) -> OpStep | None:
        """The kernel whose epilogue writes the step's last results; only the epilogue reads the kernel's result."""
        return None

    def read_beside(self, nest: Nest) -> list[Value]:
        """Values that the step reads for other parts of its results than a nest within it visits."""
        return []


@dataclass(eq=False)
class NestStep(Step):
    nest: Nest = field(default_factory=lambda: Nest([]))

    @property
    def title(self) -> str:
        """loop; interchanged: the iterations of a `while` run inside the loop over its states; reduce; row: several
        passes over the same rows"""
        if self.nest.interchange is not None:
            return "interchanged"
        if not self.nest.reduce_vars:
            return "loop"
        inner = set(self.nest.reduce_vars)
        wide = any(inner & variables(At(s.index)) for s in self.nest.stores)
        reduces = {n.op for n in self.nest.nodes.values() if n.op.name == "stablehlo.reduce"}
        return "row" if wide or len(reduces) > 1 else "reduce"

    @property
    def hint(self) -> str:
        """A descriptive name: the dominant ops, last first."""
        words = [n.op.name.partition(".")[2] for n in self.nest.nodes.values()]
        words = [w for w in dict.fromkeys(words) if w not in ("constant", "broadcast_in_dim", "reshape", "convert")]
        return "_".join(["interchanged" if self.nest.interchange is not None else self.title, *words[:3]])


class Segments(NamedTuple):
    """A concatenated operand of a product that is never materialized as a whole (see `segments.py`)."""

    whole: Value
    """The operand, a concatenation."""
    parts: list[Value]
    """The segments that are read: its operands that have elements."""
    dimension: int


class KeyRange(NamedTuple):
    """For each row of a product, the terms that are not zero (`ops/ranged.py`), or the columns that matter
    (`row_ranges.py`): the keys of attention that a mask leaves."""

    starts: Value
    """For each row, the first key."""
    ends: Value
    """For each row, the end of the keys."""
    are_terms: bool
    """Whether the keys are the product's terms, not its columns."""
    adds_zeros: bool = False
    """Whether the products of 0 and the terms that are left out are added."""

    @property
    def bounds(self) -> tuple[Value, Value]:
        return self.starts, self.ends


@dataclass(eq=False)
class OpStep(Step):
    """A dedicated kernel: dot, convolution, window, scatter, sort, ...; `epilogue` runs on its tiles."""

    op: Op = None  # type: ignore[assignment]
    epilogue: NestStep | None = None
    key_range: KeyRange | None = None
    """For a product: the terms or columns that it computes, if not all."""

    @property
    def operands(self) -> list[Value]:
        """Values that the kernel reads for any part of its result, without the operands of an epilogue."""
        return [v for o in self.op.operands for v in self.parts_of(o)]

    def parts_of(self, operand: Value) -> list[Value]:
        """Returns the values that are read for an operand: itself, or its segments."""
        return [operand]

    @property
    def kind(self) -> str:
        """Key of the kernel that runs the step: the op's name, or `segments` (a product that reads segments)."""
        return self.op.name

    @property
    def ops(self) -> list[Op]:
        """The ops that the kernel computes."""
        return [self.op]

    def read_beside(self, nest: Nest) -> list[Value]:
        return self.operands

    @property
    def parts(self) -> Sequence[Step]:
        """The loop on its tiles."""
        return () if self.epilogue is None else (self.epilogue,)

    @property
    def host(self) -> OpStep | None:
        return self if self.epilogue is not None else None

    @property
    def title(self) -> str:
        """The op's name; for a custom call that represents an op of this project, that op's name."""
        name = self.op.attributes.get("call_target_name", "") if self.op.name == "stablehlo.custom_call" else ""
        return (name if name.startswith("shlo_jit.") else self.op.name).partition(".")[2]


@dataclass(eq=False)
class SegmentsStep(OpStep):
    """A product that reads an operand, a concatenation, as its segments (see `segments.py`)."""

    segments: Segments = None  # type: ignore[assignment]

    def parts_of(self, operand: Value) -> list[Value]:
        return self.segments.parts if operand is self.segments.whole else [operand]

    @property
    def kind(self) -> str:
        return "segments"

    @property
    def ops(self) -> list[Op]:
        return [self.op, *([self.segments.whole.op] if self.segments.whole.op is not None else [])]


@dataclass(eq=False)
class StagedStep(Step):
    """Base class of steps whose stages run one after the other for a part of the results, before the next part of
    them. `parts` are the stages in the order in which they run."""

    inside: tuple[Value, ...] = ()
    """Values that exist for one part of the results only: no other step reads them."""

    kind: ClassVar[str]
    """Key of the kernel that runs the step."""

    def read_beside(self, nest: Nest) -> list[Value]:
        found: list[Value] = []
        for stage in self.parts:
            holds = any(isinstance(s, NestStep) and s.nest is nest for s in (stage, *stage.parts))
            found += stage.read_beside(nest) if holds else stage.reads
        return found


class RowRanges(NamedTuple):
    """Ranges of keys outside of which the stages of row blocks need not compute anything (see `row_ranges.py`)."""

    starts: Value
    """For each row, the first key and the end of the keys."""
    ends: Value
    keys: int
    terms: OpStep
    """The product whose terms are the keys."""
    weights: NestStep | None
    """The row program that computes the weights of the keys, if it may leave out keys."""
    scores: tuple[OpStep, ...]
    """The products whose columns are the keys, and which only that program reads."""

    @property
    def adds_zeros(self) -> bool:
        """Whether the products of 0 and the terms that are left out are added."""
        return self.terms.key_range is not None and self.terms.key_range.adds_zeros


@dataclass(eq=False)
class RowBlocksStep(StagedStep):
    """Products and loops that run one after the other for each block of rows (see `row_blocks.py`). The rows are those
    of the products: `batch` matrices of `rows` rows each."""

    stages: tuple[NestStep | OpStep, ...] = ()
    sums: tuple[OpStep, ...] = ()
    """Those stages that sum over the rows: the block's rows of both operands are multiplied, and added up."""
    batch: int = 1
    rows: int = 1
    ranges: RowRanges | None = None
    """The keys that each row needs, if it needs a range of them."""
    views: dict[Value, Value] = field(default_factory=dict)
    """Values that the stages read, which are the memory of a value of another stage with another shape."""
    moved: dict[Value, tuple[Nest, ComputedOperand]] = field(default_factory=dict)
    """Right operands that are contiguous parts of other arrays, such as a layer's keys in those of all layers, with the
    loops that would copy them."""

    kind = "row_blocks"

    @property
    def parts(self) -> Sequence[Step]:
        return self.stages

    @property
    def products(self) -> list[OpStep]:
        """The stages that multiply the block's rows by a matrix."""
        return [s for s in self.stages if isinstance(s, OpStep) and s not in self.sums]

    @property
    def nests(self) -> list[NestStep]:
        return [s for s in self.stages if isinstance(s, NestStep)]

    def source(self, value: Value) -> Value:
        """The value whose memory another one is."""
        return self.views.get(value, value)

    def read_beside(self, nest: Nest) -> list[Value]:
        return [*super().read_beside(nest), *(v for copy, _ in self.moved.values() for v, _ in copy.loads)]

    @property
    def title(self) -> str:
        """gradient: some products sum over the rows; attention: a row program between two products; else row_blocks"""
        if self.sums:
            return "gradient"
        products = [i for i, s in enumerate(self.stages) if isinstance(s, OpStep)]
        programs = [i for i, s in enumerate(self.stages) if isinstance(s, NestStep) and s.nest.reduce_vars]
        return "attention" if any(products[0] < i < products[-1] for i in programs) else "row_blocks"


@dataclass(eq=False)
class LineTilesStep(StagedStep):
    """A chain of steps over images, each of which computes the lines that the next one reads (see `line_tiles.py`). The
    tiles are lines of the last result."""

    stages: tuple[NestStep | OpStep | RowBlocksStep, ...] = ()
    images: tuple[Value, ...] = ()
    """For each stage, images with the lines that it computes: those that the next stage reads, if it reads any."""

    kind = "line_tiles"

    @property
    def parts(self) -> Sequence[Step]:
        return self.stages

    @property
    def host(self) -> OpStep | None:
        return self.stages[-1].host

    @property
    def title(self) -> str:
        return "line_tiles"


class ComputedOperand(NamedTuple):
    """How a loop numbers the elements of a product's operand that it computes. Each number is a sum over variables of
    the loop, which a part maps to their coefficients."""

    side: int
    """0 for the first operand of the product, 1 for the second."""
    parts: tuple[dict[int, int], ...]
    """The variables that number products, terms, and rows or columns; if it is a convolution's operand, those that run
    through each of its dimensions."""
    is_of_convolution: bool = False

    @property
    def batch(self) -> dict[int, int]:
        """The variables that number the products."""
        return self.parts[0]

    @property
    def along(self) -> dict[int, int]:
        """Those that number the terms that are summed over."""
        return self.parts[1]

    @property
    def free(self) -> dict[int, int]:
        """Those that number the rows of the first operand, or the columns of the second."""
        return self.parts[2]


class Summed(NamedTuple):
    """The sum over a batch of products, each finished by the same loop (see `summed_products.py`)."""

    step: NestStep
    """The loop that adds what it computes from one product to the sums."""
    batch: tuple[int, ...]
    """The variables that number the products, outermost first; likewise rows and columns."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(eq=False)
class ComputedOperandStep(StagedStep):
    """A product with the loop that computes one of its operands, which is never in memory as a whole (see
    `computed_operands.py`)."""

    producer: NestStep = None  # type: ignore[assignment]
    """The loop; it writes nothing if it only reads the operand."""
    product: OpStep = None  # type: ignore[assignment]
    operand: ComputedOperand = None  # type: ignore[assignment]
    other: tuple[NestStep, ComputedOperand] | None = None
    """The loop of the other operand, if both are read where they lie in other arrays."""
    summed: Summed | None = None
    """The sum over a batch of products, if only that is wanted: the loop runs on the tiles of each product."""

    kind = "computed_operand"

    @property
    def parts(self) -> Sequence[Step]:
        producer = (self.producer,) if self.producer.writes else ()
        other = (self.other[0],) if self.other is not None else ()
        return (*producer, *other, self.product, *((self.summed.step,) if self.summed is not None else ()))

    def read_beside(self, nest: Nest) -> list[Value]:
        if self.summed is not None and nest is self.summed.step.nest:
            return self.reads  # again for the next product
        return super().read_beside(nest)

    @property
    def host(self) -> OpStep | None:
        return self.product.host

    @property
    def title(self) -> str:
        return self.product.title


@dataclass(eq=False)
class ViewStep(Step):
    """A step whose result is the operand's memory with another shape; nothing runs."""

    op: Op = None  # type: ignore[assignment]

    @property
    def title(self) -> str:
        return "view"


@dataclass(eq=False)
class ControlStep(Step):
    """Control flow: while (regions cond, body), if (true, false), case (branches)."""

    op: Op = None  # type: ignore[assignment]
    blocks: list[PlanBlock] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.op.name.partition(".")[2]


@dataclass(eq=False)
class PlanBlock:
    """The steps of one block, in order; `results` are the values that its terminator returns."""

    block: Block
    steps: list[Step]
    results: list[Value]
    outside: list[Value]
    """Values from enclosing blocks that its ops and their regions read."""
    acts: bool
    """Whether one of its steps has an effect."""


def all_steps(block: PlanBlock) -> Iterator[Step]:
    """Yields the steps of a block and of those inside it, in the order of the text."""
    for step in block.steps:
        yield step
        if isinstance(step, ControlStep):
            for inner in step.blocks:
                yield from all_steps(inner)


def labels_of(block: PlanBlock, prefix: str = "") -> dict[int, str]:
    """Returns the printed label of each step, by its id(): `2`; within the regions of step 2, `2.0.5`."""
    labels: dict[int, str] = {}
    for i, step in enumerate(block.steps):
        labels[id(step)] = f"{prefix}{i}"
        if isinstance(step, ControlStep):
            for k, inner in enumerate(step.blocks):
                labels |= labels_of(inner, f"{prefix}{i}.{k}.")
    return labels


def stages_of(step: Step, label: str) -> Iterator[tuple[str, Step]]:
    """Yields the stages of a step with their labels, and the stages of those: `2/0` is the first stage of step 2."""
    for i, stage in enumerate(step.parts if isinstance(step, StagedStep) else ()):
        yield f"{label}/{i}", stage
        yield from stages_of(stage, f"{label}/{i}")


def all_blocks(block: PlanBlock) -> Iterator[PlanBlock]:
    """Yields a block and those inside it."""
    yield block
    for step in block.steps:
        if isinstance(step, ControlStep):
            for inner in step.blocks:
                yield from all_blocks(inner)


def read_inside(*blocks: PlanBlock) -> Counter[Value]:
    """Counts how many steps and results of the given blocks, and of blocks inside them, read each value."""
    found: Counter[Value] = Counter()
    todo = list(blocks)
    while todo:
        block = todo.pop()
        found.update(block.results)
        for step in block.steps:
            if isinstance(step, ControlStep):
                found.update(step.op.operands)
                todo += step.blocks
            else:
                found.update(step.reads)
    return found


def source_ops(step: Step) -> list[Op]:
    """Returns the ops that a step computes, in program order."""
    if isinstance(step, NestStep):
        found = [n.op for n in step.nest.nodes.values() if n.op.name != "stablehlo.constant"]
    elif isinstance(step, StagedStep):
        found = [op for part in step.parts for op in source_ops(part)]
    elif isinstance(step, OpStep):
        found = [*step.ops, *(op for part in step.parts for op in source_ops(part))]
    else:
        found = [step.op] if isinstance(step, ControlStep) else []
    return sorted(dict.fromkeys(found), key=lambda op: op.span.start if op.span is not None else -1)


def lines_of(ops: Iterable[Op]) -> str:
    """Returns the lines of ops in the program's text: `line 7`, or `lines 7-12`. Empty for ops that are not in the
    text. For a program that was built in Python, the file is named: `model.py line 7`. Custom code that the ops were
    lifted from is appended: `line 7, wave (model.py:12)`."""
    found: dict[str, list[int]] = {}
    inside: dict[str, None] = {}
    for op in ops:
        if (span := op.span) is not None:
            found.setdefault(span.source.label, []).append(span.source.line_column(span.start)[0])
            inside.update(dict.fromkeys([span.source.inside] if span.source.inside else []))
    texts = []
    for label, lines in found.items():
        first, last = min(lines), max(lines)
        text = f"line {first}" if first == last else f"lines {first}-{last}"
        texts.append(f"{label} {text}" if label else text)
    return ", ".join([*texts, *inside])
