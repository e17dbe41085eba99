"""The custom call `shlo_jit.draw` of `passes/expand/rng.py`: a fresh key, unused by any rng of this instance."""

from __future__ import annotations

from shlo_jit.codegen import abi
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.lower.services import Services


def lower(low: Services, step: OpStep) -> None:
    b = low.b
    state = low.pointer(step.op.result)
    b.store(abi.count_draw(b, low.scope.instance), state)
    b.store(i64(0), b.element(state, "i64", 1))
