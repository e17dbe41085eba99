"""The arguments of `compile` to `CompileOptions`. Each function takes one as the user gave it, or raises TypeError or
ValueError that names it and says what was expected and what came."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions
from shlo_jit.runtime.callbacks import check_name, check_target, registered
from shlo_jit.runtime.cpus import thread_count
from shlo_jit.runtime.pool import POOL


def compile_options(
    entry: object,
    *,
    threads: int | None = None,
    target: object = "native",
    custom_calls: object = None,
    composites: object = None,
    cache: object = True,
    donate: object = (),
) -> CompileOptions:
    """The options of a compilation on this machine; see `api.compile`."""
    _environment()
    implementations = _calls("custom_calls", custom_calls)
    if composites:
        from shlo_jit.passes.frontend.inline import COMPOSITE

        implementations |= {COMPOSITE + n: f for n, f in _calls("composites", composites).items()}
    return CompileOptions(
        entry=_text("entry", entry).removeprefix("@"),
        cache=_cache(cache),
        donate=_donate(donate),
        target=_target(target),
        threads=thread_count(threads),
        calls=registered(implementations),
        implementations=implementations,
    )


def _target(given: object) -> Target:
    target = resolve(_text("target", given))
    check_runs_here(target)
    return target


def _cache(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"cache: expected True or False, got {given!r}")
    return given


def _calls(option: str, given: object) -> dict[str, Callable[..., Any]]:
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


def _donate(given: object) -> tuple[int, ...]:
    """Ascending; `options.check_donated` holds them against the program's arguments, once these are known."""
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


def _environment() -> None:
    """Raise ValueError for a variable that would be read too late to say so: when memory is given back."""
    assert POOL.limit >= 0


def _text(option: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{option}: expected a string, got {given!r}")
    return given
