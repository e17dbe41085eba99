"""Notebook display of an executable or a module: a small table, in the notebook's own colors."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shlo_jit.ir.core import Module, function_type, is_declaration, walk
from shlo_jit.ir.type_text import type_text
from shlo_jit.ir.types import Type
from shlo_jit.pictures.drawing import bytes_text
from shlo_jit.pictures.page import element

if TYPE_CHECKING:
    from shlo_jit.runtime.distributed import DistributedExecutable
    from shlo_jit.runtime.executable import InProcess

MOST = 12
"""Maximum inputs, results and functions that are listed."""
ENDS = ("func.func", "func.return", "stablehlo.return", "builtin.module")


def executable_html(exe: InProcess) -> str:
    """Table of inputs, results, threads and memory; does not compile anything."""
    rows = _ports("input", exe.inputs) + _ports("result", exe.outputs)
    about: Any = exe
    rows.append(("threads", str(about.threads)))
    try:
        arena, constants, outputs = about.memory
        said = f"arena {bytes_text(arena)}, constants {bytes_text(constants)}, results {bytes_text(outputs)}"
        rows.append(("memory", said))
    except ValueError:  # it depends on unknown shapes
        pass
    return _table(type(exe).__name__, rows)


def distributed_html(exe: DistributedExecutable) -> str:
    """Table of inputs and results (of each process unless they are global arrays), and of the processes."""
    of = "" if exe.is_global else " of each process"
    grid = f"{exe.num_replicas} x {exe.num_partitions} (replicas x partitions), by {exe.transport}"
    rows = [*_ports("input", exe.inputs), *_ports("result", exe.outputs), ("processes", grid)]
    return _table(f"{type(exe).__name__}{of}", [*rows, ("threads", f"{exe.threads} of each process")])


def _ports(word: str, ports: Iterable[Any]) -> list[tuple[str, str]]:
    found = [*ports]
    rows = [(f"{word} {i}", f"{port.name} {port}".strip()) for i, port in enumerate(found[:MOST])]
    return rows + ([(word, f"{len(found) - MOST} more")] if len(found) > MOST else [])


def module_html(module: Module) -> str:
    """Table of the functions with their types, and the number of ops of each kind."""
    functions = [*module.functions()]
    rows = []
    for function in functions[:MOST]:
        type = function_type(function)
        inputs, results = (_shortened([*map(_type_text, types)], ", ") for types in (type.inputs, type.results))
        body = "" if not is_declaration(function) else ", declared"
        rows.append((f"@{function.attributes['sym_name']}", f"({inputs}) → ({results}){body}"))
    if len(functions) > MOST:
        rows.append(("functions", f"{len(functions) - MOST} more"))
    ops = Counter(op.name.removeprefix("stablehlo.") for op in walk(module.body) if op.name not in ENDS)
    more = f", {len(ops) - MOST} kinds more" if len(ops) > MOST else ""
    rows.append((f"{ops.total()} ops", ", ".join(f"{n} {name}" for name, n in ops.most_common(MOST)) + more))
    return _table("Module", rows)


def _shortened(words: list[str], between: str) -> str:
    more = [f"{len(words) - MOST} more"] if len(words) > MOST else []
    return between.join([*words[:MOST], *more])


def _type_text(type: Type) -> str:
    return type_text(type).removeprefix("tensor<").removesuffix(">")


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Table that is left-aligned, also if the notebook aligns differently."""
    made = element("table")
    made.append(element("caption", text=title, style="text-align: left; font-weight: 600"))
    for word, text in rows:
        head = element("th", text=word, style="text-align: left; white-space: nowrap")
        cell = element("td", text=text, style="text-align: left; overflow-wrap: anywhere")
        made.append(element("tr", children=[head, cell]))
    return ET.tostring(made, encoding="unicode", method="html")
