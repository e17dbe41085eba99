"""Kernels of ops that are not nests, by op name.

Each is a `Kernel`: `lower(low, step)` writes what runs the step into the entry function `low.b` (and its own functions
into `low.module`); `scratch(low, step)` is the scratch memory it wants in the arena; `routines(op, target)`
are the routines it calls, told before lowering so that they are compiled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.memory.scratch import Scratch

if TYPE_CHECKING:
    from shlo_jit.ir.core import Op
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.program import ProgramLowering


def no_scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    return Scratch()


def no_routines(op: Op, target: Target) -> Sequence[Routine]:
    return ()


@dataclass(frozen=True)
class Kernel:
    """How ops of one name are lowered."""

    lower: Callable[[ProgramLowering, OpStep], None]
    scratch: Callable[[ProgramLowering, OpStep], Scratch] = no_scratch
    routines: Callable[[Op, Target], Sequence[Routine]] = no_routines


class Kernels(MutableMapping[str, Kernel]):
    """The table, by op name. A kernel's module is imported when the kernel is first wanted: most programs need few."""

    def __init__(self, places: dict[str, tuple[str, str]]):
        self._places: dict[str, tuple[str, str] | Kernel] = dict(places)
        """Module and name in it, or the kernel itself."""

    def __getitem__(self, name: str) -> Kernel:
        place = self._places[name]
        if isinstance(place, Kernel):
            return place
        module, attribute = place
        return getattr(import_module(f"shlo_jit.lower.kernels.{module}"), attribute)

    def __setitem__(self, name: str, kernel: Kernel) -> None:
        self._places[name] = kernel

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


KERNELS = Kernels(
    {
        "stablehlo.dot_general": ("dot", "KERNEL"),
        "stablehlo.convolution": ("convolution", "KERNEL"),
        "stablehlo.custom_call": ("custom_call", "KERNEL"),
        "stablehlo.fft": ("fft", "KERNEL"),
        "stablehlo.cholesky": ("linalg", "CHOLESKY"),
        "stablehlo.triangular_solve": ("linalg", "TRIANGULAR_SOLVE"),
        "stablehlo.scatter": ("scatter", "KERNEL"),
        "stablehlo.reduce_window": ("window.window", "KERNEL"),
        "stablehlo.select_and_scatter": ("window.select_and_scatter", "KERNEL"),
        "stablehlo.sort": ("sort.sort", "KERNEL"),
        "chlo.top_k": ("sort.top_k", "KERNEL"),
        "func.call": ("call", "KERNEL"),
        "stablehlo.after_all": ("token", "KERNEL"),
        "stablehlo.create_token": ("token", "KERNEL"),
    }
)
