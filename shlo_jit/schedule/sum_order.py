"""Orders of reproducible sums (the option `reproducible`): what other schedulers ask instead of deciding by themselves.

    product        an element is one chain of fused multiply-adds, in the order of its terms (`GemmPlan.in_order`)
    convolution    the same, in the order of the window, with the features of a pixel innermost
    reduction      elements are taken in order, or by the lanes of a virtual machine (`Target.of_sums`) if they are
                   contiguous in memory; neither the number of rows nor the ops of the loop decide which
    scan           like a reduction: blocks of elements, taken by the lanes of the virtual machine if they are adjacent
    fft            the algorithm depends on the length alone (`Transform.is_fixed`)

All depend on the sum alone: on its terms, their types, and whether they are adjacent. Windows, scatters, collective ops
and the eliminations of `cholesky` and `triangular_solve` take their terms in order anyway. Factorizations are loops of
core ops (`passes/factorizations`), but for general eigenvalues, which are refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.reducers import simple_op

ACCUMULATORS = 4
"""Vectors that accumulate along a row, unless it has fewer. Chosen: what small loops have without the option."""


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
    """Raises UnsupportedError for the first op whose sums have no fixed order: the calls of LAPACK that
    `own_factorizations` leaves. Calls of users' code are theirs to answer for."""
    calls = [op for f in functions for op in walk(f.block()) if op.name == "stablehlo.custom_call"]
    if not calls:
        return
    from shlo_jit.ops.lapack_records import lapack_target

    for op in calls:
        if lapack_target(op.attributes["call_target_name"]) is not None:
            message = f"{op.attributes['call_target_name']} has no reproducible form: LAPACK libraries differ"
            hint = "compile without reproducible=True, or compile the part of the program without this op with it"
            raise UnsupportedError(diagnose(message, op.span, label="not-reproducible", hint=hint))


def _rounds_in_reduce(op: Op) -> bool:
    if op.name != "stablehlo.reduce":
        return False
    simple = simple_op(op)
    is_exact = simple is not None and simple.has("idempotent")
    return not is_exact and any(r.tensor.storage.is_float or r.tensor.storage.is_complex for r in op.results)
