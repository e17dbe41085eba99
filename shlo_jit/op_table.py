"""The table of ops, generated from their records and from the tables of lowering.

python -m shlo_jit.op_table                prints it in Markdown
python -m shlo_jit.op_table docs/ops.md    writes it between the markers of a file
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from shlo_jit.ops import OPS, OpDef
from shlo_jit.ops.bodies import CONTROL
from shlo_jit.ops.kinds import TypeKind

BEGIN, END = "<!-- op table: begin -->", "<!-- op table: end -->"
STRUCTURE = {"builtin.module", "func.func", "func.return", "stablehlo.return"}
"""Structure of a program, not operations."""
GROUPED = {"stablehlo.reduce", "stablehlo.concatenate", "stablehlo.dynamic_update_slice"}
"""Ops that `fuse/fuse.py` has special cases for in nests."""
QUANTIZED = {"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"}
"""Ops that `passes/quantized/lower_quantized.py` expands to others."""
REMOVED = {
    "stablehlo.optimization_barrier", "stablehlo.tuple", "stablehlo.get_tuple_element", "stablehlo.after_all",
    "stablehlo.create_token", "stablehlo.async_start", "stablehlo.async_done", "func.constant",
}  # fmt: skip
"""Ops that are removed: see `passes/frontend/` and `passes/identities.py`."""
WORDS = {
    "pred": "bool", "sint": "int", "uint": "uint", "index": "index", "float": "float", "complex": "complex",
    "quant": "quantized", "quant_axis": "quantized per axis",
}  # fmt: skip
"""Words of `ops/kinds.py` and of the table, in printing order."""
EVERY = frozenset({"pred", "sint", "uint", "float", "complex", "quant"})


class Row(NamedTuple):
    name: str
    how: str
    """Route to machine code; empty if it has none yet."""
    elements: str
    """Kinds of the elements of its operands (of its results, if it has no operands), named as in `ops/kinds.py`."""


def rows() -> list[Row]:
    """A row for every op, by name, StableHLO's first."""
    names = sorted((name for name in OPS if name not in STRUCTURE), key=lambda n: (not n.startswith("stablehlo."), n))
    routes = _routes()
    return [Row(name, routes.get(name, ""), _elements(OPS[name])) for name in names]


def markdown() -> str:
    """The table, preceded by the number of ops that are lowered."""
    table = rows()
    lines = [
        f"{sum(bool(row.how) for row in table)} of {len(table)} ops are compiled to machine code.",
        "",
        "| op | machine code | element types |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.how or '-'} | {row.elements} |" for row in table]
    return "\n".join(lines)


def written_into(text: str) -> str:
    """Replaces the table between the markers of a text. Raises ValueError if there are no markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{markdown()}\n{END}{tail}"


def _routes() -> dict[str, str]:
    """Maps ops to their route to machine code. If two tables contain an op, the later one is the usual route."""
    from shlo_jit.lower.kernels import KERNELS
    from shlo_jit.passes.expand.expand import EXPANSIONS
    from shlo_jit.passes.frontend.host_calls import FEEDS, TRANSFERS
    from shlo_jit.passes.frontend.inline import CALLS

    collective = [name for name, record in OPS.items() if record.has("collective")]
    fused = [name for name, record in OPS.items() if record.index_map is not None or record.machine is not None]
    routes: tuple[tuple[str, Iterable[str]], ...] = (
        ("collective", collective),
        ("host call", (*FEEDS, *TRANSFERS)),
        ("inlined", CALLS),
        ("rewritten", (*EXPANSIONS, *QUANTIZED)),
        ("kernel", KERNELS),
        ("removed", REMOVED),
        ("control flow", CONTROL),
        ("fused loop", (*fused, *GROUPED)),
    )
    return {name: route for route, names in routes for name in names}


def _elements(record: OpDef) -> str:
    """The distinct kinds, in the operands' order."""
    kinds = record.operand_kinds or record.result_kinds
    return "; ".join(dict.fromkeys(_words(kind) for kind in kinds))


def _words(kind: TypeKind) -> str:
    if kind.everything or kind.elements >= EVERY:
        return "any"
    words = [WORDS.get(word, word) for word in sorted(kind.elements, key=_order)]
    return ", ".join([*words, *(other.__name__.removesuffix("Type").lower() for other in kind.others)])


def _order(word: str) -> tuple[int, str]:
    return (list(WORDS).index(word) if word in WORDS else len(WORDS), word)


def main(arguments: list[str]) -> None:
    """Prints the table, or writes it into the named file."""
    if not arguments:
        print(markdown())
        return
    path = Path(arguments[0])
    path.write_text(written_into(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
