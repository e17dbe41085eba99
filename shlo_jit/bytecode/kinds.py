"""What a kind of type or attribute is: the number it has in its dialect, its fields, and how it is made of these.

    Kind(1, "array", (ATTRIBUTES,), make=tuple, parts=one)

`make` gives what `ir` has for it, `parts` the fields of that. Reader and writer share the records: there is no other
description of a payload. A refusal in `make` is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shlo_jit.bytecode.fields import Field
from shlo_jit.bytecode.versions import FIRST, Version

if TYPE_CHECKING:
    from shlo_jit.bytecode.tables import Tables


def itself(value: Any) -> Any:
    """What is made of one field and is that."""
    return value


def one(value: Any) -> tuple[Any, ...]:
    """The parts of what has one field and is that."""
    return (value,)


def constant(value: Any) -> tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]:
    """`make` and `parts` of a kind without fields."""
    return lambda: value, lambda _: ()


class Kind:
    __slots__ = ("code", "fields", "make", "name", "parts", "read", "since")

    def __init__(
        self,
        code: int,
        name: str,
        fields: tuple[Field, ...] = (),
        make: Callable[..., Any] = lambda *fields: fields,
        parts: Callable[[Any], tuple[Any, ...]] = itself,
        since: Version = FIRST,
    ):
        self.code, self.name, self.fields, self.make, self.parts = code, name, fields, make, parts
        self.since = since
        """The first version of StableHLO that has it."""
        self.read = _reader(tuple(field.read for field in fields), make)
        """The value at a cursor, behind its number."""


def _reader(reads: tuple[Callable[[Tables], Any], ...], make: Callable[..., Any]) -> Callable[[Tables], Any]:
    if not reads:
        value = make()
        return lambda c: value
    if len(reads) == 1:
        (only,) = reads
        return only if make is itself else lambda c: make(only(c))
    if len(reads) == 2:
        first, second = reads
        return lambda c: make(first(c), second(c))
    return lambda c: make(*[read(c) for read in reads])


class Dialect:
    """All kinds of a dialect, by number."""

    __slots__ = ("attributes", "name", "types")

    def __init__(self, name: str, attributes: Iterable[Kind], types: Iterable[Kind]):
        self.name = name
        self.attributes = {kind.code: kind for kind in attributes}
        self.types = {kind.code: kind for kind in types}
