"""The op that a custom call stands for, checked anew: what its operands hold may be known only after inlining."""

from __future__ import annotations

from shlo_jit.errors import VerifyError
from shlo_jit.ir.core import Op
from shlo_jit.ops import OPS, Violation
from shlo_jit.ops.known_calls import stands_for
from shlo_jit.verify.check_op import check_op
from shlo_jit.verify.verifier import diagnostic_of


def replacement(op: Op) -> Op | None:
    """The op that a call, or an op of MHLO's, stands for, or None. Raises VerifyError where it would not be valid."""
    try:
        meant = stands_for(op)
        if meant is not None:
            check_op(meant, OPS[meant.name])
    except Violation as violation:
        raise VerifyError(diagnostic_of(op, violation)) from None
    return meant
