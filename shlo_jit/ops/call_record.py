"""Records of known custom calls: operands, results and rules of their targets, analogous to `record.py` for ops.

    CallDef(
        operands=ports("x: f32[m n], tau: f32[k]"),
        results=ports("x: f32[m n]"),
        rules=("k <= n <= m",),
    )

A port is `name: kind`, with a kind of `ops/kinds.py`. A `?` after the name marks an optional port, `*` any number of
them (both only at the end). The kind may be followed by the extents of one matrix or vector, `[m n]`. There may be a
batch of these: all ports with brackets have the same leading extents. An extent is a name or an expression over names.
A name has the same value everywhere. An operand `n: 0d int` without brackets is a number: it must be a constant, which
is the value of the name `n`. `batch` is the number of matrices.

Shapes are those in memory: the layout of a port is applied to its extents first. A matrix `[m n]` is column-major, so
its last extent in memory is m.

Rules are expressions over names and options. Options are the entries of the call's `backend_config`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from shlo_jit.ir.attributes import DictAttr, IntegerAttr, StructAttr, as_ints
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType, TupleType, Type
from shlo_jit.ops.kinds import TypeKind, type_kind
from shlo_jit.ops.record import Violation
from shlo_jit.ops.type_algebra import compatible_shapes, constant_ints, type_text

LABEL = "target"
"""Label of the violations reported here."""
SHAPES_OF_CALL = "indices_of_shape_operands"
"""Attribute with the indices of operands that give the shapes of results. The target itself does not take them."""
_PORT = re.compile(r"\s*(?P<name>\w+)(?P<many>[?*]?)\s*:\s*(?P<kind>[\w |<>]+?)\s*(?:\[(?P<extents>[^\]]*)\])?\s*")


@dataclass(frozen=True)
class Port:
    """An operand or a result."""

    name: str
    kind: TypeKind
    extents: tuple[str, ...] | None
    """Extents of one matrix or vector; None for a port without a batch."""
    many: str = ""
    """`?` for an optional port, `*` for any number."""

    @property
    def is_number(self) -> bool:
        return self.kind.text == "0d int" and self.extents is None


@dataclass(frozen=True)
class CallDef:
    """Operands, results, options and rules of the calls of one target."""

    operands: tuple[Port, ...] = ()
    results: tuple[Port, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Entry of the configuration -> `bool`, `int`, or the permitted letters; a leading `?` marks optional entries."""
    rules: tuple[str, ...] = ()
    verify: Callable[[Op], None] | None = None
    """Additional checks; raises Violation."""


def ports(text: str) -> tuple[Port, ...]:
    """Parses ports, such as `x: f32[m n], info: i32[]`."""
    found = []
    for part in re.split(r",(?![^\[]*\])", text) if text.strip() else []:
        m = _PORT.fullmatch(part)
        assert m, part
        extents = None if m["extents"] is None else tuple(m["extents"].split())
        found.append(Port(m["name"], type_kind(m["kind"]), extents, m["many"]))
    return tuple(found)


def assigned(declared: Sequence[Port], values: Sequence[Any]) -> list[tuple[Port, Any]]:
    """Pairs each value with its port. The caller has checked their number."""
    several = [*declared, *([declared[-1]] * len(values) if declared else [])]
    return list(zip(several, values, strict=False))


def shape_operands_of(op: Op) -> tuple[int, ...]:
    """Returns the indices of the operands that give the shapes of a call's results, one per result; usually empty."""
    return op.ints(SHAPES_OF_CALL, ())


def items_of_target_operands(op: Op, items: Sequence[Any]) -> list[Any]:
    """Filters items, one per operand of a call, to those of operands that the target takes."""
    shapes = shape_operands_of(op)
    return [item for i, item in enumerate(items) if i not in shapes]


def own_attributes(op: Op) -> dict[str, Any]:
    """Returns the attributes that a call has without the operands that give the shapes of its results."""
    kept = items_of_target_operands(op, range(len(op.operands)))
    attributes = {k: v for k, v in op.attributes.items() if k != SHAPES_OF_CALL}
    if attributes.get("operand_layouts") is not None:
        attributes["operand_layouts"] = tuple(items_of_target_operands(op, attributes["operand_layouts"]))
    aliases = attributes.get("output_operand_aliases")
    if aliases:
        attributes["output_operand_aliases"] = tuple(_renumbered(alias, kept) for alias in aliases)
    return attributes


def _renumbered(alias: StructAttr, kept: list[int]) -> StructAttr:
    """Renumbers the operand of an alias after other operands have been removed."""
    fields = {**dict(alias.fields), "operand_index": kept.index(int(alias.get("operand_index", 0)))}
    return StructAttr(alias.name, tuple(fields.items()))


def configuration(op: Op) -> dict[str, Any]:
    """Returns the entries of a call's configuration if it is a dictionary. Integers become Python ints."""
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))
    items = config.items if isinstance(config, DictAttr) else ()
    return {k: v.value if isinstance(v, IntegerAttr) else v for k, v in items}


def check_call(record: CallDef, op: Op, *, final: bool = False) -> None:
    """Raises Violation unless a call satisfies its record.

    Extents, and operands that are numbers, may still be unknown, except in the `final` check before code generation.
    """
    _Check(record, op, final).run()


class _Array(NamedTuple):
    """A value with a batch of matrices or vectors."""

    text: str
    """Description of the value for messages."""
    batch: tuple[int | None, ...]
    extents: list[tuple[str, int | None]]
    """Extents of one matrix or vector, with their names in the record."""


class _Check:
    """The check of one call; fills `names` with the values found."""

    def __init__(self, record: CallDef, op: Op, final: bool):
        self.target = op.attributes["call_target_name"]
        self.record = record
        self.op = op
        self.operands: list[Value] = items_of_target_operands(op, op.operands)
        self.final = final
        self.names: dict[str, Any] = {}
        self.batch: tuple[int | None, ...] | None = None

    def run(self) -> None:
        op, record = self.op, self.record
        results = [v.type for v in op.results]
        if len(results) == 1 and isinstance(results[0], TupleType):
            results = list(results[0].types)
        operands = [v.type for v in self.operands]
        given = (("operand", record.operands, operands), ("result", record.results, results))
        for what, declared, types in given:
            self.count(what, declared, types)
            self.kinds(what, declared, types)
        self.options()
        self.numbers()
        arrays = [found for what, declared, types in given for found in self.arrays(what, declared, types)]
        for array in arrays:
            self.shape(array)
        for array in arrays:
            self.expressions(array)
        for rule in record.rules:
            if self.value(rule) is False:
                raise self.wrong(f"{rule} does not hold{self.known(rule)}", expected=rule)
        if record.verify is not None:
            record.verify(op)

    def wrong(self, message: str, found: str = "", expected: str = "") -> Violation:
        return Violation(LABEL, f"custom_call @{self.target}: {message}", found=found, expected=expected)

    def known(self, text: str) -> str:
        """Returns the known names in an expression, such as `, with m = 5, n = 3`."""
        words = [w for w in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)) if w in self.names]
        return ", with " + ", ".join(f"{w} = {self.names[w]}" for w in words) if words else ""

    # ------------------------------------------------------------------ individual values
    def count(self, what: str, declared: Sequence[Port], types: Sequence[Type]) -> None:
        least = sum(not port.many for port in declared)
        most = math.inf if any(port.many == "*" for port in declared) else len(declared)
        if least <= len(types) <= most:
            return
        names = ", ".join(port.name + port.many for port in declared) or "none"
        raise self.wrong(
            f"expected the {what}s {names}, found {len(types)}", f"{len(types)} {what}s", f"{what}s {names}"
        )

    def kinds(self, what: str, declared: Sequence[Port], types: Sequence[Type]) -> None:
        for i, (port, t) in enumerate(assigned(declared, types)):
            if not port.kind.accepts(t) and not _is_unknown(t):
                found, expected = type_text(t), port.kind.describe()
                raise self.wrong(f"{what} #{i} '{port.name}' must be {expected}, but got '{found}'", found, expected)

    def options(self) -> None:
        given = configuration(self.op)
        for name, wanted in self.record.options.items():
            words = wanted.removeprefix("?")
            if name not in given:
                if wanted == words:
                    raise self.wrong(f"needs attribute '{name}' in its backend_config", "no attribute", name)
                continue
            value = given[name]
            if words not in ("bool", "int", "string") and type(value) is int and 0 <= value < 128:
                value = chr(value)
            if not _is_option(value, words):
                expected = words if words in ("bool", "int", "string") else " or ".join(map(repr, words))
                raise self.wrong(
                    f"attribute '{name}' of the backend_config must be {expected}, but is {value!r}",
                    f"{name} = {value!r}", expected,
                )  # fmt: skip
            self.names[name] = value

    def numbers(self) -> None:
        """Assigns the values of operands that are numbers to their names."""
        for port, v in assigned(self.record.operands, self.operands):
            if not port.is_number:
                continue
            known = constant_ints(v)
            if known:
                self.names[port.name] = known[0]
            elif self.final:
                raise self.wrong(f"operand '{port.name}' must be a constant", "no constant", "a constant")

    def arrays(self, what: str, declared: Sequence[Port], types: Sequence[Type]) -> Iterator[_Array]:
        """Yields the values of ports with brackets whose extents are known."""
        layouts = self.op.attributes.get(f"{what}_layouts") or ()
        layouts = (items_of_target_operands(self.op, layouts) if what == "operand" else layouts) or (None,) * len(types)
        for (port, t), layout in zip(assigned(declared, types), layouts, strict=True):
            if port.extents is None or not isinstance(t, TensorType) or t.shape is None:
                continue
            rest = t.rank - len(port.extents)
            if rest < 0:
                expected = f"rank {len(port.extents)} or more"
                message = f"{what} '{port.name}' must have {expected}, but is '{type_text(t)}'"
                raise self.wrong(message, type_text(t), expected)
            order = tuple(range(t.rank)) if layout is None else tuple(reversed(as_ints(layout)))
            if order[:rest] != tuple(range(rest)):
                message = f"{what} '{port.name}': the layout must keep the first {rest} dimensions in front"
                raise self.wrong(message, str(list(as_ints(layout))), "a layout with consecutive matrices")
            shape = [t.shape[d] for d in order]
            own = list(zip(port.extents, reversed(shape[rest:]), strict=True))
            yield _Array(f"{what} '{port.name}' is '{type_text(t)}'", tuple(shape[:rest]), own)

    def shape(self, array: _Array) -> None:
        """Checks the batch, and the extents that are plain names."""
        if self.batch is None:
            self.batch = array.batch
        if not compatible_shapes(array.batch, self.batch):
            batch = "x".join("?" if n is None else str(n) for n in self.batch) or "1"
            expected = f"a batch of {batch}"
            raise self.wrong(f"{array.text}, but other values have a batch of {batch}", expected=expected)
        if None not in array.batch:
            self.bind("batch", math.prod(array.batch), array)  # type: ignore[arg-type]
        for word, n in array.extents:
            if word.isidentifier() and n is not None:
                self.bind(word, n, array)

    def bind(self, name: str, value: int, array: _Array) -> None:
        known = self.names.setdefault(name, value)
        if known != value:
            message = f"{array.text}, where {name} is {value}, but elsewhere it is {known}"
            raise self.wrong(message, f"{name} = {value}", f"{name} = {known}")

    def expressions(self, array: _Array) -> None:
        """Checks the extents that are expressions."""
        for word, n in array.extents:
            expected = None if word.isidentifier() else self.value(word)
            if expected is not None and n is not None and n != expected:
                message = f"{array.text}, where {word} should be {expected}, but is {n}{self.known(word)}"
                raise self.wrong(message, f"{word} = {n}", f"{word} = {expected}")

    def value(self, text: str) -> Any:
        """Evaluates an expression of the record; None if a name in it is still unknown."""
        code = _compiled(text)
        if any(name not in self.names and name not in _FUNCTIONS for name in code.co_names):
            return None
        return eval(code, {"__builtins__": _FUNCTIONS}, self.names)  # the text comes from a record


_FUNCTIONS = {"min": min, "max": max}


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<record>", "eval")


def _is_unknown(t: Type) -> bool:
    """Whether a type is an unranked tensor."""
    return isinstance(t, TensorType) and t.shape is None


def _is_option(value: Any, words: str) -> bool:
    if words in ("bool", "int", "string"):
        return type(value) is {"bool": bool, "int": int, "string": str}[words]
    return isinstance(value, str) and len(value) == 1 and value in words
