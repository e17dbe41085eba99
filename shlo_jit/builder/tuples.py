"""Tuples of the program, which are a single value. Functions of this package return Python tuples for several
results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import integer, listed
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import Handle, emit1
from shlo_jit.builder.shapes import shape_text
from shlo_jit.ir.types import TupleType

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def make_tuple(elements: Sequence[Value]) -> Value:
    """Combines several values of any types into one (document: Tuple)."""
    for i, x in enumerate(listed(elements, "elements", "a list of values")):
        if not isinstance(x, Handle):
            raise wrong(f"elements[{i}]", f"expected a value of the program, got {type(x).__name__}")
    return emit1("stablehlo.tuple", list(elements))


def elements_of(x: Any) -> Any:
    """Returns the elements of a tuple of the program as a Python tuple; anything else unchanged."""
    if not isinstance(x, Handle) or not isinstance(x.type, TupleType):
        return x
    return tuple(get_tuple_element(x, i) for i in range(len(x.type.types)))  # type: ignore[arg-type]  a value


def get_tuple_element(tuple_data: Value, index: int) -> Value:
    """An element of a tuple (document: GetTupleElement)."""
    if not isinstance(tuple_data, Handle) or not isinstance(tuple_data.type, TupleType):
        what = shape_text(tuple_data.type) if isinstance(tuple_data, Handle) else type(tuple_data).__name__
        raise wrong("tuple_data", f"expected a tuple of the program, got {what}")
    n = integer(index, "index")
    if not 0 <= n < len(tuple_data.type.types):
        raise wrong("index", f"index {n} is out of range for a tuple of {len(tuple_data.type.types)}")
    return emit1("stablehlo.get_tuple_element", [tuple_data], {"index": n})
