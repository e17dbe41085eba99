"""Kernels of ops that are not nests: maps an op name to the function that emits the code of a step.

`lower(low, step, schedule)` writes into the entry function `low.b` (and writes separate functions into `low.module`),
as the step's schedule says (see `schedule/schedule.py`). `low` is of the class `Services`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

KERNELS: dict[str, tuple[str, str]] = {
    "stablehlo.dot_general": ("dot", "lower"),
    "segments": ("segments", "lower"),
    "computed_operand": ("computed_operand", "lower"),
    "row_blocks": ("row_blocks", "lower"),
    "line_tiles": ("line_tiles", "lower"),
    "stablehlo.convolution": ("convolution", "lower"),
    "stablehlo.custom_call": ("custom_call", "lower"),
    "stablehlo.fft": ("fft", "lower"),
    "stablehlo.cholesky": ("linalg", "cholesky"),
    "stablehlo.triangular_solve": ("linalg", "triangular_solve"),
    "stablehlo.scatter": ("scatter", "lower"),
    "stablehlo.reduce_window": ("window.window", "lower"),
    "stablehlo.select_and_scatter": ("window.select_and_scatter", "lower"),
    "stablehlo.sort": ("sort.sort", "lower"),
    "chlo.top_k": ("sort.top_k", "lower"),
    "func.call": ("call", "lower"),
    "stablehlo.replica_id": ("collective.rank", "lower"),
    **{
        f"stablehlo.{name}": ("collective.collective", "lower")
        for name in (
            *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
            *("collective_reduce", "reduce_scatter"),
        )
    },
}
"""Module of this package and the function in it. Modules are imported on first use: most programs need few of them."""


def kernel(name: str) -> Callable[[Any, Any, Any], None]:
    """Returns the lowering function of an op."""
    module, function = KERNELS[name]
    return getattr(import_module(f"shlo_jit.lower.kernels.{module}"), function)
