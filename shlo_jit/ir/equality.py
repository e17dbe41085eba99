"""Structural equality of modules: ops, types, attributes and the use-def graph.

Names of values, labels of blocks, locations, positions in the text and the order of attributes are ignored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from shlo_jit.deep import deeply
from shlo_jit.ir.attributes import DictAttr, FloatAttr, StructAttr

if TYPE_CHECKING:
    from shlo_jit.ir.core import Block, Module, Op, Region, Value


def equal_modules(a: Module, b: Module) -> bool:
    """Whether two programs are equal up to names and positions."""
    return difference(a, b) is None


@deeply
def difference(a: Module, b: Module) -> str | None:
    """Describes the first difference between two programs; None if they are equal."""
    return _Comparison().ops(a.op, b.op)


@deeply
def equal_regions(a: Region, b: Region) -> bool:
    """Whether two regions of one function are equal and use the same values from outside."""
    comparison = _Comparison()
    if comparison._regions("", a, b) is not None:
        return False
    return all(x is y or x in comparison.own for x, y in comparison.pairs.items())


class _Comparison:
    """Traverses two programs in parallel and pairs up their values."""

    def __init__(self) -> None:
        self.pairs: dict[Value, Value] = {}
        self.mates: dict[Value, Value] = {}
        self.own: set[Value] = set()
        """Results and arguments of the first program seen so far."""

    def ops(self, a: Op, b: Op) -> str | None:
        if a.name != b.name:
            return f"{a.name} is not {b.name}"
        if len(a.operands) != len(b.operands) or len(a.regions) != len(b.regions):
            return f"{a.name}: different numbers of operands or regions"
        for i, (x, y) in enumerate(zip(a.operands, b.operands, strict=True)):
            if self.pairs.setdefault(x, y) is not y or self.mates.setdefault(y, x) is not x:
                return f"{a.name}: operand {i} is another value"
        found = self._attributes(a, b) or self._values(a.name, a.results, b.results)
        if found:
            return found
        for x, y in zip(a.regions, b.regions, strict=True):
            found = self._regions(a.name, x, y)
            if found:
                return found
        return None

    def _attributes(self, a: Op, b: Op) -> str | None:
        if a.attributes.keys() != b.attributes.keys():
            return f"{a.name}: attributes {sorted(a.attributes)} and {sorted(b.attributes)}"
        for name, value in a.attributes.items():
            if not equal_attributes(value, b.attributes[name]):
                return f"{a.name}: attribute {name}"
        return None

    def _values(self, where: str, a: list[Value], b: list[Value]) -> str | None:
        """Compares the numbers and types of results or arguments, and pairs them up."""
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)} results or arguments"
        self.own.update(a)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x.type is not y.type and x.type != y.type:
                return f"{where}: result or argument {i} has types {x.type} and {y.type}"
            if self.pairs.setdefault(x, y) is not y or self.mates.setdefault(y, x) is not x:
                return f"{where}: result or argument {i} is another value"
        return None

    def _regions(self, where: str, a: Region, b: Region) -> str | None:
        if len(a.blocks) != len(b.blocks):
            return f"{where}: {len(a.blocks)} and {len(b.blocks)} blocks"
        for x, y in zip(a.blocks, b.blocks, strict=True):
            found = self._blocks(where, x, y)
            if found:
                return found
        return None

    def _blocks(self, where: str, a: Block, b: Block) -> str | None:
        found = self._values(where, a.arguments, b.arguments)
        if found:
            return found
        if len(a.ops) != len(b.ops):
            return f"{where}: {len(a.ops)} and {len(b.ops)} ops in a block"
        for x, y in zip(a.ops, b.ops, strict=True):
            found = self.ops(x, y)
            if found:
                return found
        return None


def equal_attributes(a: Any, b: Any) -> bool:
    """Whether attributes are equal: NaN equals NaN, -0.0 differs from 0.0, the order of a dictionary is ignored."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return _equal_floats(a, b)
        case FloatAttr():
            return a.type == b.type and _equal_floats(a.value, b.value)
        case tuple():
            return len(a) == len(b) and all(map(equal_attributes, a, b))
        case DictAttr():
            x, y = dict(a.items), dict(b.items)
            return x.keys() == y.keys() and all(equal_attributes(value, y[name]) for name, value in x.items())
        case StructAttr():
            return a.name == b.name and equal_attributes(a.fields, b.fields)
    return bool(a == b)


def _equal_floats(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
