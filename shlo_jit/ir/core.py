"""The in-memory form of programs: Value, Op, Block, Region, Module (specification, "Programs").

Functions and modules are ops, too (`func.func`, `builtin.module`), so the generic form needs no special cases. Passes
treat a module as a value: they build new ops and do not modify the old ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from shlo_jit.errors import NO_SOURCE, Source, Span
from shlo_jit.ir.attributes import Dense, TypeAttr, as_int, as_ints
from shlo_jit.ir.types import FunctionType, TensorType, Type

PRINTER, WRITER = "shlo_jit.text.printer:print_module", "shlo_jit.bytecode.writer:write_artifact"
SUMMARY = "shlo_jit.pictures.summary:module_html"
"""Functions of higher layers, which are imported only when a module is printed, serialized or drawn."""


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


class Value:
    """An SSA value: result `index` of an Op, or argument `index` of a Block."""

    __slots__ = ("index", "name", "owner", "sizes", "type")

    def __init__(self, type: Type, owner: Op | Block | None = None, index: int = 0, name: str = ""):
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name
        """Name hint from the text, without `%`; for results of a multi-result op, the name before `#`."""
        self.sizes: np.ndarray | None = None
        """Used during shape refinement: the known contents of the value, including sizes known only at the call."""

    @property
    def op(self) -> Op | None:
        """The op that defines the value; None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def tensor(self) -> TensorType:
        assert isinstance(self.type, TensorType), self.type
        return self.type

    def __repr__(self) -> str:
        return f"%{self.name or '?'}"


class Block:
    """A list of ops with arguments; the last op is the terminator."""

    __slots__ = ("arguments", "label", "locations", "ops")

    def __init__(
        self,
        arguments: list[Value] | None = None,
        ops: list[Op] | None = None,
        label: str = "",
        locations: tuple[Any, ...] = (),
    ):
        self.arguments = arguments if arguments is not None else []
        self.ops = ops if ops is not None else []
        self.label = label
        self.locations = locations
        """`loc(...)` or None for each argument; empty if no argument has a location."""
        for i, a in enumerate(self.arguments):
            a.owner, a.index = self, i

    @property
    def terminator(self) -> Op:
        return self.ops[-1]


class Region:
    """Blocks of an op; StableHLO regions have one."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: list[Block] | None = None):
        self.blocks = blocks if blocks is not None else []

    @property
    def block(self) -> Block:
        return self.blocks[0]


class Op:
    """One operation. `attributes` holds inherent and discardable attributes alike, in the order of the text."""

    __slots__ = ("attributes", "end", "location", "name", "operands", "regions", "results", "source", "start")

    def __init__(
        self,
        name: str,
        operands: list[Value],
        result_types: list[Type] | tuple[Type, ...],
        attributes: dict[str, Any] | None = None,
        regions: list[Region] | None = None,
        source: Source = NO_SOURCE,
        start: int = 0,
        end: int = 0,
        location: Any = None,
    ):
        self.name = name
        self.operands = operands
        if len(result_types) == 1:  # the common case; saves a third of the time to create an op
            self.results = [Value(result_types[0], self)]
        else:
            self.results = [Value(t, self, i) for i, t in enumerate(result_types)]
        self.attributes = attributes if attributes is not None else {}
        self.regions = regions if regions is not None else []
        self.source = source
        self.start = start
        self.end = end
        self.location = location
        """The trailing `loc(...)` as an attribute, or None."""

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def span(self) -> Span | None:
        return None if self.source is NO_SOURCE else Span(self.source, *self.source.place(self.start, self.end))

    @property
    def dialect(self) -> str:
        return self.name.partition(".")[0]

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Returns the integers of an attribute, in whichever array form it was written. Raises KeyError."""
        attr = self.attributes.get(name)
        if attr is None:
            if default is None:
                raise KeyError(f"{self.name} has no attribute {name}")
            return default
        return as_ints(attr)

    def int(self, name: str, default: int | None = None) -> int:
        attr = self.attributes.get(name)
        if attr is None:
            if default is None:
                raise KeyError(f"{self.name} has no attribute {name}")
            return default
        return as_int(attr)

    def block(self, region: int = 0) -> Block:
        return self.regions[region].blocks[0]

    @property
    def constant(self) -> Dense:
        """The value of a `stablehlo.constant`."""
        return self.attributes["value"]

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Module:
    """A whole program: the `builtin.module` op, its source and its location aliases (`#loc1`)."""

    __slots__ = ("locations", "op", "scoped", "source")

    def __init__(
        self, op: Op, source: Source = NO_SOURCE, locations: Mapping[str, str] | None = None, scoped: bool = False
    ):
        self.op = op
        self.source = source
        self.locations: Mapping[str, str] = locations if locations is not None else {}
        """Location aliases that ops refer to: name (without `#`) -> `loc(...)` text."""
        self.scoped = scoped
        """Whether scopes of values are already checked, as in modules from the parser; then the verifier skips this
        check. Code that modifies a module in place must set this to False; passes build new modules."""

    @property
    def body(self) -> Block:
        return self.op.block()

    def functions(self) -> Iterator[Op]:
        """Yields the `func.func` ops in order, including those of nested modules."""
        todo = [self.op]
        while todo:
            for op in todo.pop(0).block().ops:
                if op.name == "func.func":
                    yield op
                elif op.name == "builtin.module":
                    todo.append(op)

    def function(self, name: str) -> Op | None:
        for f in self.functions():
            if f.attributes["sym_name"] == name:
                return f
        return None

    def __str__(self) -> str:
        return _named(PRINTER)(self)

    def _repr_html_(self) -> str:
        """Returns the HTML that notebooks display."""
        return _named(SUMMARY)(self)

    def serialize(self, version: str = "1.17.0") -> bytes:
        """Returns the program as a portable artifact (VHLO in MLIR bytecode) that this and later versions of StableHLO
        can read.

        Raises UnsupportedError with the location of anything that the version cannot represent, VerifyError for invalid
        attributes, TypeError and ValueError for a version that is not one of 0.9.0 to 1.20.0.
        """
        return _named(WRITER)(self, version)

    def __eq__(self, other: object) -> bool:
        """Structural equality: same ops, types, attributes and use-def graph. Names and locations are ignored."""
        from shlo_jit.ir.equality import equal_modules

        return equal_modules(self, other) if isinstance(other, Module) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def function_type(func: Op) -> FunctionType:
    """Returns the type of a `func.func` op."""
    attr = func.attributes["function_type"]
    assert isinstance(attr, TypeAttr) and isinstance(attr.type, FunctionType)
    return attr.type


def place_text(op: Op) -> str:
    """Returns the name of an op and its line, for messages."""
    span = op.span
    return op.name if span is None else f"{op.name} in line {span.source.line_column(span.start)[0]}"


def is_declaration(func: Op) -> bool:
    """Whether a function has no body."""
    return not func.regions or not func.regions[0].blocks


def blocks_in(block: Block) -> list[Block]:
    """Returns a block and those in the regions of its ops, each before those inside it."""
    return [block, *(b for op in walk(block) for region in op.regions for b in region.blocks)]


def walk(block: Block) -> Iterator[Op]:
    """Yields all ops of a block and of nested regions, an op before those inside it."""
    stack = [iter(block.ops)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            continue
        yield op
        if op.regions:
            stack.append(inner for region in op.regions for b in region.blocks for inner in b.ops)
