"""The op that a custom call or a composite represents, checked again: the values of a call's operands may be known only
after inlining."""

from __future__ import annotations

from shlo_jit.errors import VerifyError
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import Op
from shlo_jit.ops import OPS, Violation
from shlo_jit.ops.known_calls import equivalent_op
from shlo_jit.verify.check_op import check_op
from shlo_jit.verify.verifier import diagnostic_of


def replacement(op: Op) -> Op | None:
    """Returns the op that a call or an MHLO op represents, or None. Raises VerifyError if that op would not be
    valid."""
    try:
        meant = equivalent_op(op)
        if meant is not None:
            check_op(meant, OPS[meant.name])
    except Violation as violation:
        raise VerifyError(diagnostic_of(op, violation)) from None
    return meant


def composed(op: Op) -> Op | None:
    """Returns the CHLO op that a composite represents, or None. Portable artifacts have no other form for CHLO ops: a
    composite has the op's name and attributes, and a decomposition for readers that do not know the op."""
    name = op.attributes["name"] if op.name == "stablehlo.composite" else ""
    if not name.startswith("chlo.") or name not in OPS or op.int("version", 0) != 1:
        return None
    attributes = dict(op.attributes.get("composite_attributes", DictAttr(())).items)
    made = Op(name, op.operands, [r.type for r in op.results], attributes, [], op.source, op.start, op.end)
    try:
        check_op(made, OPS[name])
    except Violation:
        return None
    return made
