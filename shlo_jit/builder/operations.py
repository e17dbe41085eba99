"""XLA's operations: every one of the documents, with the function that builds it and an example.

python -m shlo_jit.builder.operations                           prints the counts for each document, and the table
python -m shlo_jit.builder.operations docs/xla_operations.md    writes the table between the markers of a file
python -m shlo_jit.builder.operations Clamp                     shows an example: its program and results

There are two editions of XLA's "Operation semantics": that of 2026 (`today`), and an older one, from before every
elementwise operation had a heading of its own (`older`). The ops that an example becomes are read from its program.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shlo_jit.builder as b
from shlo_jit.builder.jit import jit
from shlo_jit.builder.operation_table import OLDER, OPERATIONS, SAMPLES, TODAY, Operation
from shlo_jit.ir.core import Module, walk

BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"
UNCOUNTED = {"func.func", "func.return", "stablehlo.return", "stablehlo.constant"}
"""Ops that are in many programs and not characteristic of an example."""


class Example(NamedTuple):
    """An example as a function of some samples."""

    function: Any
    names: tuple[str, ...]

    @property
    def arguments(self) -> list[np.ndarray]:
        return [SAMPLES[name] for name in self.names]


def example(operation: Operation, space: Any = b) -> Example:
    """Makes a function of an example's text, with `space` as its `b`. Its arguments are the samples that the text
    names."""
    tree = ast.parse(operation.example, mode="eval")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = tuple(name for name in SAMPLES if name in used)
    code = f"lambda {', '.join(names)}: {operation.example}"
    return Example(eval(code, {"b": space, "np": np}), names)


@cache
def module_of(operation: Operation) -> Module:
    """The program of an example."""
    found = example(operation)
    return jit(found.function).lower(*found.arguments)


def becomes(operation: Operation) -> list[str]:
    """The distinct ops of an example's program in order."""
    names = dict.fromkeys(op.name for op in walk(module_of(operation).body))
    return [name for name in names if name not in UNCOUNTED] or [name for name in names if name == "stablehlo.constant"]


def counts() -> dict[str, int]:
    """Number of operations of each document."""
    return {document: sum(document in op.documents for op in OPERATIONS) for document in (TODAY, OLDER)}


def summary() -> str:
    """The counts as a sentence."""
    found = counts()
    only = sum(op.documents == (OLDER,) for op in OPERATIONS)
    return (
        f"{len(OPERATIONS)} operations: {found[TODAY]} in today's document, {found[OLDER]} in the older one, "
        f"{only} of these only there."
    )


def markdown() -> str:
    """The samples, the counts and the table."""
    lines = [summary(), "", "| sample | |", "|---|---|"]
    lines += [f"| `{name}` | `{_shown(array)}` |" for name, array in SAMPLES.items()]
    lines += ["", "| operation | function | becomes | documents | example |", "|---|---|---|---|---|"]
    for op in OPERATIONS:
        ops = ", ".join(f"`{name.removeprefix('stablehlo.')}`" for name in becomes(op)) or "nothing"
        note = f" ({op.note})" if op.note else ""
        documents = ", ".join(op.documents)
        lines.append(f"| {op.name} | `{op.function}` | {ops}{note} | {documents} | `{op.example}` |")
    return "\n".join(lines)


def _shown(array: np.ndarray) -> str:
    """An array as a cell of the table."""
    if array.size > 12:
        return f"np.arange({array.size}).reshape{array.shape} % 7, {array.dtype}"
    return f"{array.tolist()}, {array.dtype}"


def written_into(text: str) -> str:
    """Replaces the table between the markers of a text. Raises ValueError if there are no markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{markdown()}\n{END}{tail}"


def shown(name: str) -> str:
    """Documentation of an operation, its example, the example's program, and its results if it can run here."""
    op = next((op for op in OPERATIONS if name in (op.name, op.function)), None)
    if op is None:
        raise SystemExit(f"there is no operation {name}")
    found = example(op)
    parts = [f"{op.function}: {inspect.getdoc(getattr(b, op.function))}", op.example, str(module_of(op))]
    if not op.host:
        parts.append(str(jit(found.function)(*found.arguments)))
    return "\n\n".join(parts)


def main(arguments: list[str]) -> None:
    """Prints the table, writes it into the named file, or shows the named operation."""
    if not arguments:
        print(markdown())
    elif Path(arguments[0]).suffix == ".md":
        path = Path(arguments[0])
        path.write_text(written_into(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(summary())
    else:
        print(shown(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
