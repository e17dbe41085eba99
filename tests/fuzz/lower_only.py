"""Runs a mutant through all stages before LLVM, which is fast enough for most mutants.

outcome, detail = lower(text, number)      # outcomes as those of `execute.check`; `lowered` is new
"""

from __future__ import annotations

import numpy as np
from execute import is_large, placed

import shlo_jit
from shlo_jit import pipeline
from shlo_jit.codegen.target import resolve
from shlo_jit.distributed.global_arrays import local_program
from shlo_jit.distributed.grid import wanted_grid
from shlo_jit.errors import StableHLOError
from shlo_jit.failed import defects
from shlo_jit.ir.core import Module
from shlo_jit.ir.dynamic_values import has_dynamic_shapes
from shlo_jit.options import CompileOptions


def lower(text: str, number: int) -> tuple[str, str]:
    """Lowers a valid mutant to LLVM text, or checks that it is rejected with a location. Other errors are findings."""
    try:
        module = shlo_jit.parse(text)
        found = shlo_jit.verify(module)
    except shlo_jit.ParseError as error:
        return "refused", placed(error, text)
    if found:
        return "invalid", placed(shlo_jit.VerifyError(found), text)
    if is_large(module):
        return "large", ""
    if module.function("main") is None:
        return "refused", ""
    try:
        _lowered(module, number)
    except StableHLOError as error:
        return ("unsupported" if isinstance(error, shlo_jit.UnsupportedError) else "contradicts"), placed(error, text)
    return "lowered", ""


def _lowered(module: Module, number: int) -> None:
    if has_dynamic_shapes(module):
        rng = np.random.default_rng(number)
        arguments = module.function("main").block().arguments
        shapes = [
            [int(rng.integers(0, 5)) if n is None else n for n in getattr(a.type, "shape", None) or ()]
            for a in arguments
        ]
        module = shlo_jit.refine(module, shapes)
        if has_dynamic_shapes(module) or is_large(module):
            return
    replicas, partitions = wanted_grid(module, (None, None))
    options = CompileOptions(resolve(), num_replicas=replicas, num_partitions=partitions)
    with defects(lambda: module, "main"):
        if partitions > 1 or replicas > 1:
            pipeline.verified(module, options)
            local = local_program(module, "main", partitions)
            module = module if local is None else local.module
        pipeline.lower(module, options)
