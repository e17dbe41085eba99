"""Bring dot_general to what the GEMM routine takes.

Needs: nothing. Guarantees: every dot_general has operands of element types the routine knows, a result of its
accumulator type, and free and contracting dimensions that each lie in memory as one run.

    dot_general(bf16, bf16) : bf16   ->   convert(dot_general(bf16, bf16) : f32) : bf16
    dot_general(f32[a,b,c], [0, 2])  ->   dot_general(transpose(f32[a,b,c]), ...)
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.fuse.runs import roles_of, run_of
from shlo_jit.ir.attributes import DenseArray, StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F32, I8, I32, UI8, DType, tensor
from shlo_jit.passes.rewriter import Rewriter, rewrite

DIRECT = {"f32", "f64", "bf16", "f16", "complex<f32>", "complex<f64>"}


def accumulator(operand: DType, result: DType) -> DType:
    """What sums are kept in."""
    if result.is_complex:
        return result
    if result.is_float:
        return result if result.name == "f64" else F32
    return result if result.bits >= 32 and result.kind in "iu" else I32


def operand_type(lhs: DType, rhs: DType, acc: DType) -> DType:
    """The type both operands are brought to: their own where the routine takes it, else the accumulator's."""
    if lhs == rhs and acc.is_float and lhs.is_float and lhs.name in DIRECT and (acc.name == "f32" or lhs == acc):
        return lhs if lhs.name != "f64" else acc
    return acc


def operand_types(lhs: DType, rhs: DType, acc: DType) -> tuple[DType, DType]:
    """The types the operands are brought to: bytes of either sign for integers that fit one, else `operand_type`."""
    if acc.is_integer and acc.bits == 32 and all(t.is_integer and t.bits <= 8 for t in (lhs, rhs)):
        return tuple(UI8 if t.kind == "u" else I8 for t in (lhs, rhs))  # type: ignore[return-value]
    kind = operand_type(lhs, rhs, acc)
    return kind, kind


def convert_to(rw: Rewriter, value: Value, dtype: DType) -> Value:
    """The value in another element type."""
    if value.tensor.storage == dtype:
        return value
    return rw.emit1("stablehlo.convert", [value], tensor(value.tensor.extents, dtype))


def _transpose(rw: Rewriter, value: Value, order: tuple[int, ...]) -> Value:
    shape = value.tensor.extents
    t = tensor(tuple(shape[d] for d in order), value.tensor.dtype)
    return rw.emit1("stablehlo.transpose", [value], t, {"permutation": DenseArray("i64", order)})


Dims = tuple[int, ...]


def _through_transpose(value: Value, batch: Dims, contracting: Dims, free: Dims) -> tuple[Value, Dims, Dims, Dims]:
    """Read the operand of a transpose as it lies, where its dimensions still form runs."""
    op = value.op
    if op is None or op.name != "stablehlo.transpose":
        return value, batch, contracting, free
    p, source = op.ints("permutation"), op.operands[0]
    moved = tuple(tuple(p[d] for d in dims) for dims in (batch, contracting, free))
    shape = source.tensor.extents
    if run_of(shape, moved[1]) is None or run_of(shape, moved[2]) is None:
        return value, batch, contracting, free
    return source, moved[0], moved[1], moved[2]


def canonical_dots(function: Op) -> Op:
    """The function with every dot_general (and dot) in the routine's form."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.dot_general":
            return None
        return _dot_general(rw, op, operands)

    return rewrite(function, visit)


def _dot_general(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    roles = roles_of(op)
    result = op.result.tensor
    acc = accumulator(operands[0].tensor.storage, result.storage)
    kinds = operand_types(operands[0].tensor.storage, operands[1].tensor.storage, acc)
    sides = []
    for kind, value, batch, contracting, free in (
        (kinds[0], operands[0], roles.lhs_batch, roles.lhs_contracting, roles.lhs_free),
        (kinds[1], operands[1], roles.rhs_batch, roles.rhs_contracting, roles.rhs_free),
    ):
        value, batch, contracting, free = _through_transpose(value, batch, contracting, free)
        value = convert_to(rw, value, kind)
        shape = value.tensor.extents
        if run_of(shape, contracting) is None or run_of(shape, free) is None:
            value = _transpose(rw, value, (*batch, *free, *contracting))
            n, m = len(batch), len(free)
            batch, free = tuple(range(n)), tuple(range(n, n + m))
            contracting = tuple(range(n + m, len(shape)))
        sides.append((value, batch, contracting))
    (lhs, lb, lc), (rhs, rb, rc) = sides
    numbers = StructAttr(
        "stablehlo.dot",
        (
            ("lhs_batching_dimensions", lb),
            ("rhs_batching_dimensions", rb),
            ("lhs_contracting_dimensions", lc),
            ("rhs_contracting_dimensions", rc),
        ),
    )
    t = tensor(result.extents, acc)
    product = rw.emit1("stablehlo.dot_general", [lhs, rhs], t, {"dot_dimension_numbers": numbers})
    return [convert_to(rw, product, result.storage)]

