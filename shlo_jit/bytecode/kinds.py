"""What a kind of type or attribute is: the number it has in its dialect, its fields, and how it is made of these.

    Kind(1, "array", (ATTRIBUTES,), make=tuple, parts=one)

`make` gives what `ir` has for it, `parts` the fields of that. Reader and writer share the records: there is no other
description of a payload. A refusal in `make` is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from shlo_jit.bytecode.fields import Field
from shlo_jit.bytecode.versions import FIRST, Version


class Kind(NamedTuple):
    code: int
    name: str
    fields: tuple[Field, ...] = ()
    make: Callable[..., Any] = lambda *fields: fields
    parts: Callable[[Any], tuple[Any, ...]] = lambda value: value
    since: Version = FIRST
    """The first version of StableHLO that has it."""
    until: Version | None = None
    """The last one, where it was taken back."""


class Dialect(NamedTuple):
    """All kinds of a dialect, by number."""

    name: str
    attributes: dict[int, Kind]
    types: dict[int, Kind]


def dialect(name: str, attributes: Iterable[Kind], types: Iterable[Kind]) -> Dialect:
    return Dialect(name, {kind.code: kind for kind in attributes}, {kind.code: kind for kind in types})


def one(value: Any) -> tuple[Any, ...]:
    """The parts of what has one field and is that."""
    return (value,)


def itself(value: Any) -> Any:
    """What is made of one field and is that."""
    return value


def constant(value: Any) -> tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]:
    """`make` and `parts` of a kind without fields."""
    return lambda: value, lambda _: ()
