"""Products with operands that are zero outside of a range of the terms, for each row.

    custom_call @shlo_jit.product_in_range(lhs, rhs, starts, ends) {dot_dimension_numbers = ..., ranged}

The result is that of dot_general. Row r of `lhs` is zero for terms outside of [starts[r], ends[r]), so these terms may
be left out, and so may everything that only computes them. Neither the terms of `rhs` there nor what `lhs` would be
computed from need to be finite, unless the call is marked as one that adds zeros: then the products of 0 and the terms
of `rhs` there are part of the sums. `passes/canonical/key_ranges.py` emits such calls for attention with masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op
from shlo_jit.ops.record import OPS

RANGED = "shlo_jit.product_in_range"


@dataclass(frozen=True)
class EmittedByPass(OpaqueAttr):
    """Marks calls that a pass has emitted, whose ranges are right; never occurs in program text."""


MARK = EmittedByPass("#shlo_jit.ranged")
"""The attribute `ranged` of the calls."""
ZEROS = EmittedByPass("#shlo_jit.ranged_with_zeros")
"""The same attribute of calls that add the products of 0 and the terms that are left out."""


def attributes_of(dot_numbers: object, *, adds_zeros: bool) -> dict[str, object]:
    """The attributes of a call. `dot_numbers`: those of the product with all terms."""
    return {"call_target_name": RANGED, "dot_dimension_numbers": dot_numbers, "ranged": ZEROS if adds_zeros else MARK}


def is_ranged(op: Op) -> bool:
    """Whether an op is such a call."""
    return op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] == RANGED


def adds_zeros(op: Op) -> bool:
    """Whether such a call adds the products of 0 and the terms that are left out."""
    return op.attributes["ranged"] == ZEROS


def whole_product(op: Op) -> Op:
    """Returns the product with all terms, as an op that has the same results."""
    attributes = {"dot_dimension_numbers": op.attributes["dot_dimension_numbers"]}
    types = [v.type for v in op.results]
    whole = Op("stablehlo.dot_general", op.operands[:2], types, attributes, None, op.source, op.start, op.end)
    whole.results = op.results
    return whole


def product_in_range(op: Op, lhs: object, rhs: object, *_: object) -> object:
    """The meaning of a call in numpy."""
    reference = OPS["stablehlo.dot_general"].reference
    assert reference is not None
    return reference(whole_product(op), lhs, rhs)
