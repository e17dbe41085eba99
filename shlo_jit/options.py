"""The options of `compile`, checked: each function gives the option as the pipeline takes it, or raises TypeError or
ValueError that names it and says what was expected and what came."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from shlo_jit.runtime.callbacks import check_name, check_target
from shlo_jit.runtime.pool import POOL


class OptionError(ValueError):
    """An option that this program cannot have."""


def entry(given: object) -> str:
    """The name of a function; `@main` is the same as `main`."""
    return _text("entry", given).removeprefix("@")


def target(given: object) -> str:
    return _text("target", given)


def cache(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"cache: expected True or False, got {given!r}")
    return given


def calls(option: str, given: object) -> dict[str, Any]:
    """Implementations by name: a copy, so that what the user does to the dictionary later changes nothing."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{option}: expected a dictionary of names and callables, got {type(given).__name__}")
    what = option.removesuffix("s").replace("_", " ")
    for name, function in given.items():
        check_name(what, name)
        check_target(what, name, function)
    return dict(given)


def donate(given: object) -> tuple[int, ...]:
    """Indices of arguments, ascending; `check_donated` holds them against the arguments, once these are known."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise TypeError(f"donate: expected a sequence of argument indices, got {given!r}")
    indices = []
    for item in given:
        try:
            if isinstance(item, bool):
                raise TypeError
            indices.append(operator.index(item))
        except TypeError:
            raise TypeError(f"donate: expected argument indices, got {item!r}") from None
    twice = sorted({i for i in indices if indices.count(i) > 1})
    if twice:
        raise ValueError(f"donate: argument {twice[0]} is given twice")
    return tuple(sorted(indices))


def check_donated(indices: Iterable[int], arguments: int) -> None:
    """Raise OptionError where a donated argument is none of the program's."""
    for index in indices:
        if not 0 <= index < arguments:
            takes = f"takes {arguments} argument{'' if arguments == 1 else 's'}"
            known = f", numbered from 0 to {arguments - 1}" if arguments > 1 else ""
            raise OptionError(f"donate: there is no argument {index}: the program {takes}{known}")


def environment() -> None:
    """Raise ValueError for a variable that would be read too late to say so: when memory is given back."""
    assert POOL.limit >= 0


def _text(option: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{option}: expected a string, got {given!r}")
    return given
