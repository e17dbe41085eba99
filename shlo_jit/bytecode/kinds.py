"""Kinds of types and attributes: number in the dialect, fields, and conversion from and to the in-memory form.

    Kind(1, "array", (ATTRIBUTES,), make=tuple, parts=one)

`make` converts the fields to the object in `ir`, `parts` is the inverse. Reader and writer share these records, which
are the only description of a payload. `make` raises ValueError for invalid fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shlo_jit.bytecode.fields import Field
from shlo_jit.bytecode.versions import FIRST, Version

if TYPE_CHECKING:
    from shlo_jit.bytecode.tables import Tables


def itself(value: Any) -> Any:
    """Returns the value: `make` of a kind that consists of its single field."""
    return value


def one(value: Any) -> tuple[Any, ...]:
    """Returns the value as a tuple: `parts` of a kind that consists of its single field."""
    return (value,)


def constant(value: Any) -> tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]:
    """Returns `make` and `parts` of a kind without fields."""
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
        """The first version of StableHLO that supports the kind."""
        self.read = _reader(tuple(field.read for field in fields), make)
        """Reads the value at a cursor, after its number."""


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
    """The kinds of a dialect, by number."""

    __slots__ = ("attributes", "name", "types")

    def __init__(self, name: str, attributes: Iterable[Kind], types: Iterable[Kind]):
        self.name = name
        self.attributes = {kind.code: kind for kind in attributes}
        self.types = {kind.code: kind for kind in types}
