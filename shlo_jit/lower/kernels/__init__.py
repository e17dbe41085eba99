"""Kernels of ops that are not nests, by op name.

Each is a `Kernel`: `lower(low, step)` writes what runs the step into the entry function `low.b` (and its own functions
into `low.module`); `scratch(low, step)` is the bytes of scratch memory it wants in the arena.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def no_scratch(low: ProgramLowering, step: OpStep) -> int:
    return 0


@dataclass(frozen=True)
class Kernel:
    lower: Callable[[ProgramLowering, OpStep], None]
    scratch: Callable[[ProgramLowering, OpStep], int] = no_scratch


def _load() -> dict[str, Kernel]:
    from shlo_jit.lower.kernels import (
        convolution,
        custom_call,
        dot,
        fft,
        linalg,
        scatter,
        select_and_scatter,
        sort,
        token,
        top_k,
        window,
    )

    return {
        "stablehlo.dot_general": dot.KERNEL,
        "stablehlo.convolution": convolution.KERNEL,
        "stablehlo.custom_call": custom_call.KERNEL,
        "stablehlo.fft": fft.KERNEL,
        "stablehlo.cholesky": linalg.CHOLESKY,
        "stablehlo.triangular_solve": linalg.TRIANGULAR_SOLVE,
        "stablehlo.scatter": scatter.KERNEL,
        "stablehlo.reduce_window": window.KERNEL,
        "stablehlo.select_and_scatter": select_and_scatter.KERNEL,
        "stablehlo.sort": sort.KERNEL,
        "chlo.top_k": top_k.KERNEL,
        "stablehlo.after_all": token.KERNEL,
        "stablehlo.create_token": token.KERNEL,
    }


KERNELS: dict[str, Kernel] = _load()
