"""Routines that a program is almost certain to call, found in its source long before its steps are scheduled.

The register tile of products takes longer to compile than most programs, and the other cores are idle during passes and
fusion. A wrong guess costs that time, so only calls that hardly any pass changes are guessed: large products and
convolutions of f32 or f64 with known extents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shlo_jit import tuning
from shlo_jit.ir.core import Module, Op, is_declaration, walk
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import roles_of

FLOATS = ("f32", "f64")


def routines_to_precompile(module: Module, target: Target) -> Iterator[Routine]:
    """Yields routines that can be compiled early."""
    found: set[str] = set()
    for function in module.functions():
        if is_declaration(function):
            continue
        for op in walk(function.block()):
            if op.name not in ("stablehlo.dot_general", "stablehlo.convolution"):
                continue
            element = _element(op)
            if element is not None and element not in found and _is_tiled(op):
                from shlo_jit.kernels.gemm.gemm import tile_routine
                from shlo_jit.kernels.gemm.precision import GemmTypes

                found.add(element)
                yield tile_routine(GemmTypes(element, element, element), target)


def _element(op: Op) -> str | None:
    """The one float type of the operands and the result; None if types differ or extents are unknown."""
    types = [value.type for value in (*op.operands, *op.results)]
    if not all(isinstance(t, TensorType) and t.is_fixed for t in types):
        return None
    dtypes = {t.dtype for t in types if isinstance(t, TensorType)}
    return next((name for name in FLOATS if dtypes == {DTYPES[name]}), None)


def _is_tiled(op: Op) -> bool:
    """Whether an op is large, and neither a depthwise convolution nor a product with a vector that is read in place."""
    lhs, rhs = (o.tensor.extents for o in op.operands)
    if op.name == "stablehlo.convolution":
        return op.int("feature_group_count", 1) == 1 and math.prod(rhs) >= tuning.PRECOMPILED_PRODUCT
    roles = roles_of(op)
    rows, columns = math.prod(lhs[d] for d in roles.lhs_free), math.prod(rhs[d] for d in roles.rhs_free)
    source = op.operands[1].op
    is_constant = source is not None and source.name == "stablehlo.constant"
    terms = math.prod(lhs[d] for d in roles.lhs_contracting)
    return (is_constant or min(rows, columns) > 1) and rows * columns * terms >= tuning.PRECOMPILED_PRODUCT
