"""The command `info`: what the compiler knows of a target."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from shlo_jit.cli import mistakes, report
from shlo_jit.cli.options import AsJson

TargetName = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The CPU to describe, as `compile` takes it.  [default: native]")
]


def info(target: TargetName = "native", as_json: AsJson = False) -> None:
    """Print what code is tuned for: the CPU, its vectors, the sizes of its caches, and the thresholds they decide.

    Try: shlo-jit info --target znver4
    """
    from shlo_jit.codegen.target import resolve

    with mistakes.as_json(as_json), mistakes.refusals():
        found = resolve(target)
    facts = _facts(found)
    if as_json:
        typer.echo(json.dumps(facts | {"thresholds": dict(_thresholds(found))}, indent=1))
        return
    console = report.make_console()
    rows = report.make_table()
    for name, value in facts.items():
        rows.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else value)
    console.print(rows, markup=False)
    console.print()
    rows = report.make_table("threshold", "bytes", "share")
    for name, nbytes in _thresholds(found):
        rows.add_row(name, f"{nbytes:,}", str(_shares()[name]))
    console.print(rows, markup=False)


def _facts(target: Any) -> dict[str, str | int]:
    c = target.caches
    return {
        "target": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "vector_bits": target.vector_bits,
        "vector_registers": target.vector_registers,
        "first_level_bytes": c.l1,
        "second_level_bytes": c.l2,
        "last_level_bytes": c.last_level,
        "last_level_bytes_of_a_core": c.core_share,
        "cache_line_bytes": c.line,
    }


def _shares() -> dict[str, Any]:
    from shlo_jit import tuning
    from shlo_jit.caches import Share

    return {name: value for name, value in vars(tuning).items() if isinstance(value, Share)}


def _thresholds(target: Any) -> list[tuple[str, int]]:
    """The thresholds that are shares of a cache, with their bytes."""
    return [(name, target.bytes_of(share)) for name, share in _shares().items()]
