"""The custom call `shlo_jit.draw` of `passes/expand/rng.py`: a fresh key, unused by any rng of this instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.codegen import abi
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import i64

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower(low: ProgramLowering, step: OpStep) -> None:
    b = low.b
    state = low.pointer(step.op.result)
    b.store(abi.count_draw(b, low.scope.instance), state)
    b.store(i64(0), b.element(state, "i64", 1))
