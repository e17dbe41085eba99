"""Insertion points: the open functions and regions, and `emit`, through which the package adds every op.

`emit` knows nothing about individual ops. Attributes, result types and rules come from the op's record, and violations
of a record are errors of the caller's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from shlo_jit.builder.errors import BuilderError, wrong
from shlo_jit.builder.locations import Place, caller
from shlo_jit.errors import diagnose
from shlo_jit.ir import core
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Block, Op, Region
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops import OPS, OpDef, Violation
from shlo_jit.ops.type_algebra import with_element
from shlo_jit.verify.check_op import check_op
from shlo_jit.verify.infer import attribute_of, inferred_types, placeholders

if TYPE_CHECKING:
    from shlo_jit.builder.modules import FunctionBuilder
    from shlo_jit.builder.values import Value


class Symbols:
    """Symbols of a module under construction: names of its functions, the finished functions, and its locations."""

    def __init__(self) -> None:
        self.functions: list[Op] = []
        self.names: set[str] = set()
        self.locations: dict[str, str] = {}
        self.computations: dict[Any, Any] = {}
        """Private functions traced from Python functions, by these and the types of their arguments. None while one is
        being traced."""
        self._known: dict[str, OpaqueAttr] = {}

    def location(self, place: Place) -> OpaqueAttr:
        """Alias of a place."""
        text = place.text
        found = self._known.get(text)
        if found is None:
            name = f"loc{len(self.locations) + 1}"
            self.locations[name] = text
            found = self._known[text] = OpaqueAttr(f"loc(#{name})")
        return found

    def free_name(self, wanted: str) -> str:
        """Returns an unused function name and reserves it."""
        name, number = wanted, 0
        while name in self.names:
            number += 1
            name = f"{wanted}_{number}"
        self.names.add(name)
        return name


class Frame:
    """A function or region that ops are added to."""

    def __init__(self, symbols: Symbols, block: Block, parent: Frame | None, name: str) -> None:
        self.symbols = symbols
        self.block = block
        self.parent = parent
        """The frame around a region; None for a function."""
        self.name = name
        self.is_open = True
        self.function: FunctionBuilder | None = None
        """The function of the frame; None for a region."""
        self.token: Value | None = None
        """Token of the last transfer to or from the host, which the next one follows."""

    def sees(self, other: Frame) -> bool:
        """Whether the values of another frame are visible in this one."""
        frame: Frame | None = self
        while frame is not None:
            if frame is other:
                return True
            frame = frame.parent
        return False


class Handle:
    """A value of the program under construction. All of them have the class Value, which adds operators."""

    __slots__ = ("frame", "raw")

    def __init__(self, raw: core.Value, frame: Frame) -> None:
        self.raw = raw
        self.frame = frame

    @property
    def type(self) -> Type:
        """Its type."""
        return self.raw.type


_current: ContextVar[Frame | None] = ContextVar("shlo_jit.builder", default=None)
_wrap: list[Callable[[core.Value, Frame], Value]] = []
"""The class Value, once it is defined: it depends on the functions that its operators call."""


def bind(wrap: Callable[[core.Value, Frame], Value]) -> None:
    """Sets the class of the values that functions return."""
    _wrap.append(wrap)


def value(raw: core.Value, frame: Frame) -> Value:
    """Wraps a value of the IR for callers."""
    return _wrap[0](raw, frame)


def open_frame() -> Frame | None:
    """The open function or region, if any."""
    return _current.get()


def frame() -> Frame:
    """The open function or region. Raises BuilderError if there is none."""
    found = _current.get()
    if found is None:
        hint = "use it inside of `with builder.function(...)` or of a function under @shlo_jit.jit"
        raise wrong("", "expected an open function to add the operation to", hint=hint)
    if not found.is_open:
        raise wrong("", f"cannot add an operation to {found.name} after its results")
    return found


@contextmanager
def inside(opened: Frame) -> Iterator[Frame]:
    """Adds ops to a frame, which is closed at the end."""
    before = _current.set(opened)
    try:
        yield opened
    finally:
        _current.reset(before)
        opened.is_open = False


def check_visible(handle: Handle, argument: str) -> None:
    """Raises BuilderError for a value that is not visible at the insertion point."""
    if frame().sees(handle.frame):
        return
    if handle.frame.parent is not None:
        what = f"the value belongs to {handle.frame.name}, which has ended; return it from there"
    else:
        what = f"the value belongs to another function, {handle.frame.name}; pass it as an argument"
    raise wrong(argument, what)


# ---------------------------------------------------------------------------- ops
def emit(
    name: str,
    operands: Sequence[Handle] = (),
    attributes: Mapping[str, Any] | None = None,
    *,
    results: Sequence[Type] | None = None,
    elements: DType | None = None,
    regions: Sequence[Region] = (),
    names: Mapping[str, str] | None = None,
    check: Callable[[Op], None] | None = None,
) -> tuple[Value, ...]:
    """Adds an op and returns its results.

    Attributes that are None, or truth values with their default, are omitted. Python numbers, strings and lists are
    converted to the kinds in the op's record. `results`: types, if operands and attributes do not determine them.
    `elements`: the element type, if only that is undetermined. `names`: the caller's name of an operand, attribute or
    field, if it differs from the op's. `check`: raises Violation for further requirements beyond the record's.
    """
    opened, place, record = frame(), caller(), OPS[name]
    for i, handle in enumerate(operands):
        if handle.frame is not opened:
            check_visible(handle, _operand_name(record, i, len(operands), names or {}))
    given = {k: attribute_of(record, k, v) for k, v in (attributes or {}).items() if _is_needed(record, k, v)}
    stated = None if results is None else list(results)
    raws = [handle.raw for handle in operands]
    types = stated if stated is not None else placeholders(record, raws)
    try:
        if stated is None:
            op = Op(name, raws, types, given, list(regions))
            types = inferred_types(op, record, None)
            if elements is not None:
                types = [with_element(t, elements) if isinstance(t, TensorType) else t for t in types]
        op = Op(name, raws, types, given, list(regions), place.source, place.start, place.end)
        check_op(op, record)
        if check is not None:
            check(op)
    except Violation as violation:
        _refuse(violation, record, len(operands), names or {}, place)
    op.location = opened.symbols.location(place)
    opened.block.ops.append(op)
    return tuple(value(r, opened) for r in op.results)


def _is_needed(record: OpDef, name: str, value: Any) -> bool:
    """Whether an attribute is given and not its default."""
    spec = record.attributes.get(name)
    return value is not None and (spec is None or spec.required or type(value) is not bool or value != spec.default)


def emit1(
    name: str, operands: Sequence[Handle] = (), attributes: Mapping[str, Any] | None = None, **more: Any
) -> Value:
    """Adds an op with one result, like `emit`."""
    return emit(name, operands, attributes, **more)[0]


def _refuse(violation: Violation, record: OpDef, count: int, names: Mapping[str, str], place: Place) -> NoReturn:
    """Raises a violation of a record as an error of the function that the caller called."""
    rule = record.constraints.get(violation.label, "")
    argument = _blamed(violation, rule, record, count, names)
    message = f"{place.function}: {argument}: " if argument else f"{place.function}: "
    message += violation.message.partition("; '")[0]
    diagnostic = diagnose(
        message, place.span, op=record.name, label=violation.label, rule=rule, hint=violation.hint,
        found=violation.found, expected=violation.expected,
    )  # fmt: skip
    raise BuilderError(diagnostic, place.function, argument) from None


def _blamed(violation: Violation, rule: str, record: OpDef, count: int, names: Mapping[str, str]) -> str:
    """Names the arguments that a violation is about: attributes in its message or its rule, or else operands."""
    found = re.search(r"operand #(\d+)", violation.message)
    if found is not None:
        return _operand_name(record, int(found[1]), count, names)
    operands = [name.rstrip("*?") for name in record.operands]
    attributes = [name for name in (*record.attributes, *names) if name not in operands]
    for known in (attributes, operands):
        for text in (violation.label, violation.message, rule):
            words = set(re.findall(r"\w+", text))
            said = dict.fromkeys(names.get(word, word) for word in known if word in words)
            if said:
                return ", ".join(filter(None, said))
    return ""


def _operand_name(record: OpDef, index: int, count: int, names: Mapping[str, str]) -> str:
    """The caller's name of an operand."""
    declared = record.operands
    each = count - sum(name[-1] not in "*?" for name in declared)
    variadic = sum(name[-1] in "*?" for name in declared)
    spread = [n for n in declared for _ in range(each // variadic if n[-1] in "*?" else 1)] if variadic else declared
    name = spread[index].rstrip("*?") if index < len(spread) else ""
    return names.get(name, name)


# ---------------------------------------------------------------------------- regions
def region(name: str, types: Sequence[Type], body: Callable[..., Sequence[Handle]]) -> Region:
    """Builds a region with arguments of these types.

    `body`, called with them, adds ops and returns the region's results. Messages use `name`.
    """
    around = frame()
    arguments = [core.Value(t, name=f"arg{i}") for i, t in enumerate(types)]
    block = Block(arguments)
    with inside(Frame(around.symbols, block, around, name)) as opened:
        found = body(*(value(a, opened) for a in arguments))
        place = caller()
        for handle in found:
            check_visible(handle, name)
        end = Op("stablehlo.return", [h.raw for h in found], [], {}, [], place.source, place.start, place.end)
        end.location = around.symbols.location(place)
        block.ops.append(end)
    return Region([block])
