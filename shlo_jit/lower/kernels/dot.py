"""dot_general through the shared GEMM routine: C[batch, m, n] = A[batch, m, k] @ B[batch, k, n].

Dimension numbers become strides; operands are read as they lie. Dimensions of one role (batch, rows, columns,
contracting) that do not form one run of equal stride are looped over (batch) or were transposed before (the others, see
`passes/canonical/canonical_dots.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.builder import V, i64
from shlo_jit.kernels.gemm.gemm import GemmTypes, gemm_routine, gemm_symbol, scratch_bytes
from shlo_jit.lower.kernels import Kernel
from shlo_jit.memory.scratch import Scratch
from shlo_jit.ops.runs import Roles, roles_of, run_of
from shlo_jit.schedule.space import Tile

if TYPE_CHECKING:
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.program import ProgramLowering


def gemm_types(op: Op) -> GemmTypes:
    a, b = (o.tensor.storage.name for o in op.operands)
    return GemmTypes(a, b, op.result.tensor.storage.name)


def batch_split(op: Op, roles: Roles) -> int:
    """How many leading batch dimensions are looped over, so that the rest is one run in both operands."""
    lhs, rhs = (o.tensor.extents for o in op.operands)
    for outer in range(len(roles.lhs_batch) + 1):
        if run_of(lhs, roles.lhs_batch[outer:]) and run_of(rhs, roles.rhs_batch[outer:]):
            left, right = run_of(lhs, roles.lhs_batch[outer:]), run_of(rhs, roles.rhs_batch[outer:])
            assert left and right
            return outer
    raise AssertionError("no batch dimension at all is one run")


def extents(op: Op) -> tuple[Roles, int, int, int, int]:
    """Roles, and batch (of one call), m, n, k."""
    roles = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    outer = batch_split(op, roles)

    def size(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
        n = 1
        for d in dims:
            n *= shape[d]
        return n

    return (
        roles,
        size(lhs, roles.lhs_batch[outer:]),
        size(lhs, roles.lhs_free),
        size(rhs, roles.rhs_free),
        size(lhs, roles.lhs_contracting),
    )


def tile_of(nest: Nest, product: Value, batch: int, m: int, n: int) -> Tile | None:
    """The nest's variables as batch, rows and columns of the product; None when one of them spans two parts."""
    ((_, at),) = [k for k in nest.loads if k[0] is product]
    offset = ix.linearize(at.index, product.tensor.extents)
    tile = Tile([], [], [])
    for v, c in sorted(offset.terms, key=lambda t: -t[1]):
        extent = nest.extents[v]
        if c >= m * n and batch > 1:
            tile.batch.append(v)
        elif c >= n and c * extent <= m * n:
            tile.rows.append(v)
        elif c < n and c * extent <= n:
            tile.columns.append(v)
        else:
            return None
    return tile


def scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    _, batch, m, n, k = extents(step.op)
    types = gemm_types(step.op)
    return Scratch.of(lambda threads: scratch_bytes(types, low.target, batch, m, n, k, threads))


def routines(op: Op, target: Target) -> list[Routine]:
    types = gemm_types(op)
    return [gemm_routine(types.a, types.b, types.acc, target)] if op.result.tensor.size else []


def lower(low: ProgramLowering, step: OpStep) -> None:
    op, b = step.op, low.b
    roles, batch, m, n, k = extents(op)
    types = gemm_types(op)
    if batch * m * n == 0:
        return
    lhs, rhs = (o.tensor.extents for o in op.operands)
    outer = len(roles.lhs_batch) and batch_split(op, roles)
    parts = [
        run_of(lhs, roles.lhs_free), run_of(lhs, roles.lhs_contracting), run_of(lhs, roles.lhs_batch[outer:]),
        run_of(rhs, roles.rhs_contracting), run_of(rhs, roles.rhs_free), run_of(rhs, roles.rhs_batch[outer:]),
    ]  # fmt: skip
    if any(p is None for p in parts):
        raise UnsupportedError(diagnose("dot_general: dimensions that do not form runs", op.span))
    strides = [p.stride for p in parts if p is not None]
    item = [o.tensor.storage.itemsize for o in op.operands]
    item_c = op.result.tensor.storage.itemsize
    work = low.scratch(step) if id(step) in low.memory.scratch else V("ptr", "null")
    epilogue, frame = V("ptr", "null"), V("ptr", "null")
    late = None
    if step.epilogue is not None:
        tile = tile_of(step.epilogue.nest, op.result, batch, m, n) if not outer else None
        if tile is None:
            late = step.epilogue
        else:
            epilogue, frame = low.epilogue(step.epilogue, tile)

    def call(left: V, right: V, out: V) -> None:
        args = [
            left, *(i64(s) for s in strides[:3]), right, *(i64(s) for s in strides[3:]), out, i64(n), i64(m * n),
            i64(batch), i64(m), i64(n), i64(k), work, epilogue, frame, low.thread_count,
        ]  # fmt: skip
        b.call("void", gemm_symbol(types), args)

    def loops(dims: list[tuple[int, int]], left: V, right: V, out: V, block: int) -> None:
        """Loop over the outer batch dimensions; `block` is the elements of C inside the current one."""
        if not dims:
            call(left, right, out)
            return
        (dl, dr), *rest = dims
        count = lhs[dl]
        inner = block // count
        with b.loop(0, count, 1, "batch") as i:
            loops(
                rest,
                b.offset(left, b.mul(i, strides_of(lhs)[dl] * item[0])),
                b.offset(right, b.mul(i, strides_of(rhs)[dr] * item[1])),
                b.offset(out, b.mul(i, inner * item_c)),
                inner,
            )

    dims = list(zip(roles.lhs_batch[:outer], roles.rhs_batch[:outer], strict=True))
    left, right, out = (low.pointer(v) for v in (*op.operands, op.result))
    loops(dims, left, right, out, op.result.tensor.size)
    if late is not None:
        low.nest(late)


KERNEL = Kernel(lower, scratch, routines)
