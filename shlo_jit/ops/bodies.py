"""Classification of ops by how they run their regions (as a whole or per element), and of the regions' contents."""

from __future__ import annotations

from shlo_jit.ir.core import Block
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import is_elementwise

CONTROL = frozenset({"stablehlo.while", "stablehlo.if", "stablehlo.case"})
"""Control-flow ops, whose regions run as a whole."""
PLAIN_BODIES = frozenset(
    f"stablehlo.{name}" for name in ("map", "reduce", "reduce_window", "sort", "scatter", "select_and_scatter")
)
"""Ops that run their regions once per element, pair of elements or update."""


SCALAR = frozenset(f"stablehlo.{name}" for name in ("constant", "reshape", "broadcast_in_dim", "return"))
"""Scalar ops, besides elementwise ones, that kernels support in regions."""
EXPANDING = frozenset({"chlo.constant", "chlo.constant_like", "stablehlo.broadcast"})
"""Ops, besides `chlo.broadcast_*`, that are expanded to supported ones."""


def is_plain(block: Block) -> bool:
    """Whether a region has only its own scalars and arithmetic on them; constants may be defined outside."""
    own = set(block.arguments)
    for op in block.ops:
        own.update(op.results)
        known = op.name in SCALAR or op.name in EXPANDING or op.name.startswith("chlo.broadcast_")
        if not (known or is_elementwise(op)) or any(
            not isinstance(v.type, TensorType) or v.type.rank for v in op.results
        ):
            return False
        if any(v not in own and (v.op is None or v.op.name != "stablehlo.constant") for v in op.operands):
            return False
    return True
