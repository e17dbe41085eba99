"""Orders of reproducible sums (the option `reproducible`): what other schedulers ask instead of deciding by themselves.

    product        an element is one chain of fused multiply-adds, in the order of its terms (`GemmPlan.in_order`)
    reduction      elements are taken in order, or by the lanes of a virtual machine (`Target.of_sums`) if they are
                   contiguous in memory; neither the number of rows nor the ops of the loop decide which

Both depend on the sum alone: on its terms, their types, and whether they are adjacent. Steps that add up in other ways
are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.reducers import simple_op

ACCUMULATORS = 4
"""Vectors that accumulate along a row, unless it has fewer. Chosen: what small loops have without the option."""
UNORDERED = frozenset(
    f"stablehlo.{name}" for name in ("convolution", "fft", "cholesky", "triangular_solve", "select_and_scatter")
)
"""Ops whose kernels add up floats in orders that depend on shapes or targets."""
REDUCING = frozenset(
    f"stablehlo.{name}" for name in ("reduce_window", "scatter", "all_reduce", "reduce_scatter", "collective_reduce")
)
"""Ops that may add up floats so: their bodies decide."""


def fixes_order(nest: Nest, target: Target) -> bool:
    """Whether the order in which a nest reduces is fixed: results must be reproducible, and depend on it."""
    return target.reproducible and any(_rounds_in_reduce(n.op) for n in nest.nodes.values())


def can_split_rows(nest: Nest) -> bool:
    """Whether rows may be cut for tasks although their sums have a fixed order: only if every sum is one number, so
    that there cannot be more rows."""
    reduces = (n.op for n in nest.nodes.values() if n.op.name == "stablehlo.reduce")
    return all(not r.tensor.extents for op in reduces for r in op.results)


def is_chain(acc: DType, target: Target) -> bool:
    """Whether a product with sums of this type takes its terms one after the other. Sums of integers are exact."""
    return target.reproducible and (acc.is_float or acc.is_complex)


def refuse_unordered(functions: Iterable[Op]) -> None:
    """Raises UnsupportedError for the first op whose sums have no fixed order. Calls of users' code are theirs to
    answer for."""
    for op in (op for function in functions for op in walk(function.block())):
        _refuse_op(op)


def _refuse_op(op: Op) -> None:
    types = [v.tensor.storage for v in op.results if isinstance(v.type, TensorType)]
    floats = any(t.is_float or t.is_complex for t in types)
    if floats and (op.name in UNORDERED or (op.name in REDUCING and not _only_chooses(op))):
        _refuse(op, "the order of its sums depends on the target or on other rows")
    if op.name == "stablehlo.custom_call":
        from shlo_jit.ops.lapack_records import lapack_target

        if lapack_target(op.attributes["call_target_name"]) is not None:
            _refuse(op, "LAPACK libraries differ")


def _refuse(op: Op, why: str) -> NoReturn:
    message = f"{op.name} has no reproducible form: {why}"
    hint = "compile without reproducible=True, or compile the part of the program without this op with it"
    raise UnsupportedError(diagnose(message, op.span, label="not-reproducible", hint=hint))


def _rounds_in_reduce(op: Op) -> bool:
    if op.name != "stablehlo.reduce":
        return False
    simple = simple_op(op)
    is_exact = simple is not None and simple.has("idempotent")
    return not is_exact and any(r.tensor.storage.is_float or r.tensor.storage.is_complex for r in op.results)


def _only_chooses(op: Op) -> bool:
    """Whether an op's body computes no new float: it selects, as a maximum does, or replaces."""
    bodies = (inner for region in op.regions for inner in walk(region.block))
    sums = ("add", "subtract", "multiply", "divide", "power")
    return not any(inner.name.removeprefix("stablehlo.") in sums for inner in bodies)
