"""Routines: kernels that take extents and strides as arguments and exist once per element type and target.

A routine is compiled into an object of its own, which every program of the process (and, through the object cache, of
the machine) shares: the GEMM micro-kernel takes longer to compile than most programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

FINAL = '"shlo-final"'
"""A function attribute: the module's text computes each value where it is needed, and LLVM does not run value
numbering. In register tiles value numbering takes half of the time of the passes, and it costs registers: addresses are
kept from their first use to their last."""
GLUE = '"shlo-glue"'
"""A function attribute: the function does little but call others, and LLVM compiles it without optimization effort."""

if TYPE_CHECKING:
    from shlo_jit.kernels.builder import ModuleText
    from shlo_jit.kernels.target import Target


@dataclass(frozen=True)
class Routine:
    """A shared object. `build` emits its functions, those in `symbols` with external linkage."""

    name: str
    """Unique per content apart from the target, e.g. `gemm_f32`."""
    symbols: tuple[str, ...]
    build: Callable[[ModuleText, Target], None]
    needs: tuple[Routine, ...] = ()
    """Routines whose symbols it calls."""
