"""Products of row blocks: C[m, n] = A[m, k] @ B[k, n] for each batch, where A and C are blocks of rows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import extents_of, roles_of, run_of
from shlo_jit.schedule.product_layout import gemm_types
from shlo_jit.schedule.segments import Part, parts_of, way_of_parts


class Matrices(NamedTuple):
    """Layout of the matrices of a product's operand. Strides are in elements."""

    row: int
    column: int
    batch: tuple[tuple[int, int], ...]
    """Extent and stride of every batch dimension."""


class Right(Enum):
    """How blocks of rows read the right operand of a product."""

    IN_PLACE = "read in place"
    PACKED = "packed once per task"
    PACKED_BY_BLOCK = "packed for each block"
    PREPACKED = "packed at compile time"
    SKINNY = "read by a plain product for the few rows of each batch"


class Product(NamedTuple):
    """C[m, n] = A[m, k] @ B[k, n] for each batch."""

    types: GemmTypes
    n: int
    k: int
    a: Matrices
    b: Matrices
    parts: tuple[tuple[Part, Matrices], ...]
    """The parts that B is read as, if the products are skinny: all of it, or the segments of a concatenation."""
    way: GemmStrategy
    """The algorithm by which the routine multiplies few rows."""


def product_of(step: OpStep, m: int, target: Target) -> Product:
    """Returns the product of a step whose result has m rows for each batch."""
    op, r = step.op, roles_of(step.op)
    lhs, rhs = op.operands
    _, _, n, k = extents_of(op)
    types = gemm_types(op)
    a = _matrices(lhs.tensor.extents, r.lhs_batch, r.lhs_free, r.lhs_contracting)
    b = _matrices(rhs.tensor.extents, r.rhs_batch, r.rhs_contracting, r.rhs_free)
    parts = [
        (part, Matrices(part.row, part.column, _batches(part.value.tensor.extents, r.rhs_batch)))
        for part in parts_of(step, rhs, r.rhs_contracting, r.rhs_free)
    ]
    way = way_of_parts(types, target, m, n, k, Layout(a.row, a.column, 0, b.row, b.column, 0))
    return Product(types, n, k, a, b, tuple(parts), way)


def _matrices(shape: tuple[int, ...], batch: tuple[int, ...], *dims: tuple[int, ...]) -> Matrices:
    row, column = (run_of(shape, d) for d in dims)
    assert row is not None and column is not None, "dimensions of a canonical product that form no run"
    return Matrices(row.stride, column.stride, _batches(shape, batch))


def _batches(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    strides = strides_of(shape)
    return tuple((shape[d], strides[d]) for d in batch)


def size_of(value: Value, width: int) -> int:
    """Returns the bytes of a row of a value."""
    return width * value.tensor.storage.itemsize
