"""Passes: functions from module or function to function. `run_passes` names them in order."""

from __future__ import annotations

from shlo_jit.ir.core import Module, Op
from shlo_jit.passes.approximate_top_k import exact_top_k
from shlo_jit.passes.convolutions import canonical_convolutions
from shlo_jit.passes.dots import canonical_dots
from shlo_jit.passes.expand import expand
from shlo_jit.passes.inline import inline
from shlo_jit.passes.layouts import explicit_layouts
from shlo_jit.passes.quantized import lower_quantized
from shlo_jit.passes.simplify import simplify


def run_passes(module: Module, entry: Op) -> Op:
    """A verified module's entry function, brought to core ops and simplified."""
    function = lower_quantized(exact_top_k(module, inline(module, entry)))
    function = simplify(function)
    function = canonical_convolutions(canonical_dots(explicit_layouts(expand(function))))
    return simplify(function)
