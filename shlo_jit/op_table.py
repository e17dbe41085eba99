"""The table of ops, made from their records and from the tables that lowering goes by.

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
"""What a program is built of, no operations."""
GROUPED = {"stablehlo.reduce", "stablehlo.concatenate", "stablehlo.dynamic_update_slice"}
"""Ops that `fuse/fuse.py` puts into nests by hand."""
QUANTIZED = {"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"}
"""Ops that `passes/quantized/lower_quantized.py` says in others."""
REMOVED = {
    "stablehlo.optimization_barrier", "stablehlo.tuple", "stablehlo.get_tuple_element", "stablehlo.after_all",
    "stablehlo.create_token", "stablehlo.async_start", "stablehlo.async_done", "func.constant",
}  # fmt: skip
"""Ops that leave nothing behind: see `passes/frontend/` and `passes/identities.py`."""
WORDS = {
    "pred": "bool", "sint": "int", "uint": "uint", "index": "index", "float": "float", "complex": "complex",
    "quant": "quantized", "quant_axis": "quantized per axis",
}  # fmt: skip
"""Words of `ops/kinds.py` and ours, in the order they are printed in."""
EVERY = frozenset({"pred", "sint", "uint", "float", "complex", "quant"})


class Row(NamedTuple):
    name: str
    how: str
    """How it gets to machine code; empty when it does not yet."""
    elements: str
    """Kinds of its operands' elements (of its results', when it has none), as `ops/kinds.py` names them."""


def rows() -> list[Row]:
    """Of every op, by name, StableHLO's first."""
    names = sorted((name for name in OPS if name not in STRUCTURE), key=lambda n: (not n.startswith("stablehlo."), n))
    routes = _routes()
    return [Row(name, routes.get(name, ""), _elements(OPS[name])) for name in names]


def markdown() -> str:
    """The table, and above it how many ops are lowered."""
    table = rows()
    lines = [
        f"{sum(bool(row.how) for row in table)} of {len(table)} ops get to machine code.",
        "",
        "| op | machine code | element types |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.how or '-'} | {row.elements} |" for row in table]
    return "\n".join(lines)


def written_into(text: str) -> str:
    """A file's text with the table between its markers. Raises ValueError when it has none."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{markdown()}\n{END}{tail}"


def _routes() -> dict[str, str]:
    """Op name to its way to machine code, of every op that has one. Where two tables know an op, the later one is
    what usually happens."""
    from shlo_jit.lower.kernels import KERNELS
    from shlo_jit.passes.expand.expand import EXPANSIONS
    from shlo_jit.passes.frontend.host_calls import FEEDS, TRANSFERS
    from shlo_jit.passes.frontend.inline import CALLS

    collective = [name for name, record in OPS.items() if record.has("collective")]
    fused = [name for name, record in OPS.items() if record.index_map is not None or record.machine is not None]
    ways: tuple[tuple[str, Iterable[str]], ...] = (
        ("collective", collective),
        ("host call", (*FEEDS, *TRANSFERS)),
        ("inlined", CALLS),
        ("rewritten", (*EXPANSIONS, *QUANTIZED)),
        ("kernel", KERNELS),
        ("removed", REMOVED),
        ("control flow", CONTROL),
        ("fused loop", (*fused, *GROUPED)),
    )
    return {name: way for way, names in ways for name in names}


def _elements(record: OpDef) -> str:
    """The kinds that differ, in the operands' order."""
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
    """Print the table, or write it into the file named."""
    if not arguments:
        print(markdown())
        return
    path = Path(arguments[0])
    path.write_text(written_into(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
