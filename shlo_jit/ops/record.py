"""Records of ops: one record per op, with everything that the stages know about it.

    define(
        "stablehlo.multiply",
        section="multiply",
        operands=("lhs: tensor", "rhs: tensor"),  # name and kind: notation of `ops/kinds.py`
        results=("result: tensor",),
        traits={"elementwise", "commutative"},
        exact="bifc",  # may be computed at compile time on elements of these kinds
        neutral=neutral.of_product,  # 1
        machine=by_kind(f="fmul", i="mul", b="and_", c="cmul"),  # operations of `ops/machine.py`
        infer=same_type,  # result types from operands and attributes
        rules=("binary",),  # shared constraints, by label, for messages
        reference=meaning(b=np.logical_and, i=np.multiply, f=np.multiply, c=cm.multiply),  # in numpy
    )

Parser, verifier, folder, fusion, lowering, reference interpreter and tests read the record; no stage has a list of ops
that duplicates a fact of the records. Records import no code generation; its interface is `Machine` in
`ops/machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from shlo_jit.ir.core import Op
from shlo_jit.ir.index import IndexMap
from shlo_jit.ir.types import DType, Type
from shlo_jit.ops.constraints import constraints_of
from shlo_jit.ops.families import ELEMENTWISE, FAMILY_OF, family_of
from shlo_jit.ops.kinds import TypeKind, type_kind
from shlo_jit.ops.machine import ByKind, Computation

TRAITS = {
    "elementwise",  # result element i depends on element i of the operands only (rank-0 operands may broadcast)
    "commutative",  # op(a, b) = op(b, a), bit for bit (complex numbers only without NaN or zero in their parts)
    "idempotent",  # op(a, a) = a, bit for bit
    "terminator",
    "side_effect",  # must not be removed, duplicated or reordered with others of its kind
    "transcendental",  # an elementary or special function, or a root: many operations, counted separately in costs
    "moves_data",  # result elements are operand elements (or constants); their values are not examined
    "on_storage",  # has its own semantics on quantized values, or none: they are not dequantized for it
    "collective",  # communicates with other processes
    "chooses_result",  # the specification allows several result types (shape or elements); the program chooses one
    "looks_at_operands",  # inference or verification reads the ops that define the operands (constant shapes)
}


@dataclass(frozen=True)
class AttributeSpec:
    """An inherent attribute. `ops/attribute_kinds.py` describes `kind`; `default` is None if there is none."""

    kind: str
    required: bool = False
    default: Any = None
    limit_label: str = "attribute"
    """Label of the constraint with the limit of an integer kind."""


class Violation(Exception):
    """A violated constraint. `label` is that of the specification (`C5`), or a word such as `type`."""

    def __init__(
        self,
        label: str,
        message: str,
        *,
        hint: str = "",
        at: str = "",
        found: str = "",
        expected: str = "",
        code: str = "",
    ):
        super().__init__(message)
        self.label = label
        self.message = message
        self.hint = hint
        self.at = at
        """The part of the op's text that is wrong; empty for the whole op."""
        self.found = found
        """What was found; if empty, the types of the op are shown."""
        self.expected = expected
        """What was expected; if empty, the rule of the label is shown."""
        self.code = code
        """Stable code of the message; if empty, that of the label."""


Neutral = Callable[[DType], "int | float | complex | None"]
"""Returns the number e of an element type with op(e, x) = op(x, e) = x for every x, bit for bit (a NaN stays a NaN);
None if there is none."""
KINDS = "bifc"
"""All kinds of elements, in the notation of `define`: booleans, integers of either signedness, floats, complex
numbers."""


@dataclass(frozen=True, eq=False)
class OpDef:
    """A record, created by `define`."""

    name: str
    section: str
    """Heading in the specification; empty for ops that it does not describe."""
    operands: tuple[str, ...]
    """Names of the operands; a name with suffix `*` takes any number, with `?` at most one."""
    operand_kinds: tuple[TypeKind, ...]
    """Kinds of types of each operand."""
    results: tuple[str, ...]
    result_kinds: tuple[TypeKind, ...]
    attributes: dict[str, AttributeSpec]
    regions: tuple[str, ...]
    traits: frozenset[str]
    exact: frozenset[str]
    """Kinds of elements (`DType.kind`) on which `reference` gives the same bits as at run time, so that the op may be
    folded at compile time."""
    neutral: Neutral | None
    index_map: IndexMap | None
    """Maps result elements to the operand elements that they are copied from; None for other ops."""
    cost: int
    """Cost per element, in units of one addition. It only controls fusion and the partitioning of work."""
    machine: ByKind | Computation | None
    """Code of an elementwise op, in the operations of `ops/machine.py`. A plain computation gets registers of the
    operands' own types."""
    infer: Callable[[Op], Sequence[Type]] | None
    """Result types from operands, attributes and regions; raises Violation. None: results are as stated."""
    verify: Callable[[Op], None] | None
    """Checks besides inference; raises Violation."""
    rules: tuple[str, ...]
    """Shared rules in `constraints.txt` that apply, besides those under its own name."""
    reference: Callable[..., Any] | None
    """Semantics in numpy: the reference interpreter calls reference(op, *arrays), which returns an array or a tuple of
    arrays. Ops with regions also get the interpreter; see `reference/interpreter.py`."""

    def has(self, trait: str) -> bool:
        return trait in self.traits

    def is_exact_on(self, *dtypes: DType) -> bool:
        """Whether `reference` gives the same bits as at run time on operands of these element types."""
        return all(dtype.kind in self.exact for dtype in dtypes)

    def neutral_on(self, dtype: DType) -> int | float | complex | None:
        """Returns the neutral element for an element type; None if there is none."""
        return None if self.neutral is None else self.neutral(dtype)

    @property
    def constraints(self) -> Mapping[str, str]:
        """Statements of the rules of this op, by label (`C5`: `0 <= lhs_batching_dimensions < rank(lhs)`)."""
        return constraints_of(self.name, self.rules).statements

    def result_label(self, index: int, part: str) -> str:
        """Returns the label of the rule that is broken if a stated result type is not the inferred one; `type` if no
        rule covers this."""
        return constraints_of(self.name, self.rules).result_label(index, part)


class Records(Mapping[str, OpDef]):
    """All records by full name. Raises KeyError for an unknown name.

    The module of a family is imported on the first access to one of its ops; the modules of elementwise ops also when
    all names are requested.
    """

    def __init__(self) -> None:
        self._defined: dict[str, OpDef] = {}

    def __getitem__(self, name: str) -> OpDef:
        record = self.get(name)
        if record is None:
            raise KeyError(name)
        return record

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the record or the default. Avoids exceptions, since it is called for every op of a program."""
        record = self._defined.get(name)
        if record is None and (family := family_of(name)) is not None:
            import_module(f"shlo_jit.ops.{family}")
            record = self._defined.get(name)
        return record or default

    def __contains__(self, name: object) -> bool:
        return name in FAMILY_OF or (isinstance(name, str) and self.get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        for family in ELEMENTWISE.values():
            import_module(f"shlo_jit.ops.{family}")
        return [*(name for name in self._defined if name not in FAMILY_OF), *FAMILY_OF]

    def add(self, record: OpDef) -> None:
        """Adds a record; called by `define` while the family's module is imported."""
        assert record.name not in self._defined, record.name
        self._defined[record.name] = record


OPS = Records()


def required(kind: str, limit_label: str = "attribute") -> AttributeSpec:
    """Returns the specification of a required attribute."""
    return AttributeSpec(kind, required=True, limit_label=limit_label)


def optional(kind: str, default: Any = None) -> AttributeSpec:
    """Returns the specification of an optional attribute with its default."""
    return AttributeSpec(kind, default=default)


def define(
    name: str,
    *,
    section: str = "",
    operands: tuple[str, ...] = (),
    results: tuple[str, ...] = ("result: tensor",),
    attributes: dict[str, AttributeSpec] | None = None,
    regions: tuple[str, ...] = (),
    traits: set[str] | frozenset[str] = frozenset(),
    exact: str = "",
    neutral: Neutral | None = None,
    index_map: IndexMap | None = None,
    cost: int | None = None,
    machine: ByKind | Computation | None = None,
    infer: Callable[[Op], Sequence[Type]] | None = None,
    verify: Callable[[Op], None] | None = None,
    rules: tuple[str, ...] = (),
    reference: Callable[..., Any] | None = None,
) -> OpDef:
    """Creates and registers a record.

    Operands and results are written `name: kind`, with `*` or `?` after the name. `exact` is a subset of `KINDS`; ops
    that move data have all of them. The default cost is 0 for an index map and 1 for any other op.
    """
    assert set(traits) <= TRAITS, set(traits) - TRAITS
    assert set(exact) <= set(KINDS), exact
    kinds = KINDS if "moves_data" in traits else exact
    operand_names, operand_kinds = _declarations(operands)
    result_names, result_kinds = _declarations(results)
    record = OpDef(
        name=name,
        section=section,
        operands=operand_names,
        operand_kinds=operand_kinds,
        results=result_names,
        result_kinds=result_kinds,
        attributes=attributes or {},
        regions=regions,
        traits=frozenset(traits),
        exact=frozenset(kinds + "ux" if "i" in kinds else kinds),
        neutral=neutral,
        index_map=index_map,
        cost=int(index_map is None) if cost is None else cost,
        machine=machine,
        infer=infer,
        verify=verify,
        rules=rules,
        reference=reference,
    )
    OPS.add(record)
    return record


def _declarations(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[TypeKind, ...]]:
    """Splits `("lhs: float", ...)` into names and kinds."""
    pairs = [text.split(":", 1) if ":" in text else (text, "any") for text in texts]
    return tuple(name.strip() for name, _ in pairs), tuple(type_kind(kind.strip()) for _, kind in pairs)
