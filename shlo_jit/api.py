"""The public functions: parse, verify, compile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shlo_jit import pipeline
from shlo_jit.errors import Diagnostic, StableHLOError

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module
    from shlo_jit.runtime.executable import Executable


def read_source(source: object) -> tuple[str, str]:
    """Text and a name for it, of a path, a text, or a Module. Raises TypeError for anything else."""
    if isinstance(source, Path):
        return source.read_text(encoding="utf-8"), str(source)
    if isinstance(source, str):
        if "\n" not in source and len(source) < 4096 and os.path.exists(source):
            return Path(source).read_text(encoding="utf-8"), source
        return source, "<text>"
    if isinstance(source, bytes):
        return source.decode("utf-8"), "<bytes>"
    from shlo_jit.ir.core import Module

    if isinstance(source, Module):
        return str(source), source.source.name
    raise TypeError(f"a program is StableHLO text, a path or a Module; got {type(source).__name__}")


def parse(source: str | bytes | Path) -> Module:
    """The Module of a text or file. Raises ParseError (a StableHLOError) with the place of the first error."""
    from shlo_jit.text.parser import parse_module

    text, name = read_source(source)
    return parse_module(text, name)


def verify(source: object) -> list[Diagnostic]:
    """What is wrong with a program, in the order of the text; empty when it is valid."""
    from shlo_jit.ir.core import Module
    from shlo_jit.ir.verifier import verify_module

    try:
        module = source if isinstance(source, Module) else parse(source)  # type: ignore[arg-type]
    except StableHLOError as error:
        return error.diagnostics
    return verify_module(module)


def compile(
    source: object,
    entry: str = "main",
    *,
    threads: int | None = None,
    target: str = "native",
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
    composites: Mapping[str, Callable[..., Any]] | None = None,
    cache: bool = True,
    donate: Sequence[int] = (),
) -> Executable:
    """Compile a program to machine code; see DESIGN, section 1. Raises StableHLOError where it is refused.

    `composites` names implementations that stand in for the decompositions of `stablehlo.composite` ops, called as
    those of `custom_calls` are, with the composite's attributes as keywords.
    """
    text, name = read_source(source)
    if composites:
        from shlo_jit.passes.inline import COMPOSITE

        custom_calls = {**(custom_calls or {}), **{COMPOSITE + n: f for n, f in composites.items()}}
    return pipeline.compile_text(
        text, name, entry, threads=threads, target=target, custom_calls=custom_calls, cache=cache, donate=tuple(donate)
    )
