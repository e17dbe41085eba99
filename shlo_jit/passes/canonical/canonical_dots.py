"""Bring dot_general to what the GEMM routine takes.

Needs: nothing. Guarantees: every dot_general has operands of element types the routine knows, a result of its
accumulator type, and free and contracting dimensions that each lie in memory as one run.

    dot_general(bf16, bf16) : bf16   ->   convert(dot_general(bf16, bf16) : f32) : bf16
    dot_general(f32[a,b,c], [0, 2])  ->   dot_general(transpose(f32[a,b,c]), ...)
    transpose(dot_general(a, b))     ->   dot_general(b, a), where that is all the transpose does
    transpose(dot_general(a, b))     ->   transpose(dot_general(b, a)), where the rows of `a` become adjacent elements
    transpose(dot_general(a, b))     ->   dot_general(transpose(a), b), where rows change places that form no run in `a`
    dot_general(f32[k], f32[k])      ->   reduce(multiply(a, b)), and so for small matrices
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import DType, TensorType, tensor
from shlo_jit.ops.products import accumulator, operand_types
from shlo_jit.ops.runs import Roles, roles_of, run_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal, hint_of


def in_kind_of(rw: Rewriter, value: Value, result: DType) -> Value:
    """An operand of a product: of the result's type where that is another kind of number, which holds less. A float in
    an integer product is cut off before it is multiplied."""
    own = value.tensor.storage
    if result.kind == "b" or (result.is_integer and (own.is_float or own.is_complex)):
        return mk.convert(rw, value, result)
    return value


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


def canonical_dots(function: Op, _: Context) -> Op:
    """The function with every dot_general (and dot) in the routine's form."""
    uses = Counter(v for op in walk(function.block()) for v in op.operands)

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "stablehlo.transpose":
            return _transposed(rw, op, uses)
        if op.name != "stablehlo.dot_general":
            return None
        return _dot_general(rw, op, operands, roles_of(op))

    return rewrite(function, visit)


def _transposed(rw: Rewriter, op: Op, uses: Counter[Value]) -> Sequence[Value] | None:
    """The transpose of a product that nothing else reads: another product, whose sums are the same, and a transpose of
    that where more is done than exchanging rows and columns. Conversions between the two are repeated behind it; what
    they were is dead then."""
    between: list[Op] = []
    dot = op.operands[0].op
    while dot is not None and dot.name == "stablehlo.convert" and uses[dot.result] == 1:
        between.append(dot)
        dot = dot.operands[0].op
    if dot is None or dot.name != "stablehlo.dot_general" or uses[dot.result] != 1:
        return None
    lhs, rhs = (rw.get(o) for o in dot.operands)
    found = _rows_in_order(op, (lhs, rhs), roles_of(dot)) or _exchanged(op, dot, roles_of(dot))
    if found is None:
        return None
    roles, sides, left = found
    (value,) = _dot_general(rw, dot, [(lhs, rhs)[i] for i in sides], roles)
    for convert in reversed(between):
        value = mk.convert(rw, value, convert.result.tensor.storage)
    return [value if left is None else mk.transpose(rw, value, left)]


Product = tuple[Roles, tuple[int, int], tuple[int, ...] | None]
"""A product in place of another: which dimensions do what, which operands it has, and the transpose that is left."""


def _exchanged(op: Op, dot: Op, r: Roles) -> Product | None:
    """The transpose of a product as one of the operands exchanged."""
    n, m = len(r.lhs_batch), len(r.lhs_free)
    order = op.ints("permutation")
    batch, rows, columns = range(n), range(n, n + m), range(n + m, len(order))
    if sorted(order[:n]) == [*batch] and order[n:] == (*columns, *rows):
        leading, left = order[:n], None
    elif _last_of(op) in rows and hint_of(math.prod(dot.result.tensor.extents[n : n + m])) >= tuning.ADJACENT_ROWS:
        new = {d: i for i, d in enumerate((*batch, *columns, *rows))}
        leading, left = tuple(batch), tuple(new[d] for d in order)
    else:
        return None
    lhs_batch, rhs_batch = (tuple(dims[i] for i in leading) for dims in (r.lhs_batch, r.rhs_batch))
    return Roles(rhs_batch, lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free), (1, 0), left


def _rows_in_order(op: Op, sides: tuple[Value, Value], r: Roles) -> Product | None:
    """The transpose of a product that has other orders of batches and of rows as the product itself, where the rows are
    no run and are copied in any case: of heads that share keys, which the queries have inside of each position."""
    n, m = len(r.lhs_batch), len(r.lhs_free)
    order = op.ints("permutation")
    rows, columns = (*range(n, n + m),), (*range(n + m, len(order)),)
    if any(d >= n for d in order[:n]):
        return None
    lhs_batch, rhs_batch = (tuple(dims[d] for d in order[:n]) for dims in (r.lhs_batch, r.rhs_batch))
    if order[n + m :] == columns and run_of(mk.shape_of(sides[0]), r.lhs_free) is None:
        free = tuple(r.lhs_free[d - n] for d in order[n : n + m])
        return Roles(lhs_batch, rhs_batch, r.lhs_contracting, r.rhs_contracting, free, r.rhs_free), (0, 1), None
    if order[len(order) - m :] == rows and run_of(mk.shape_of(sides[1]), r.rhs_free) is None:
        free = tuple(r.rhs_free[d - n - m] for d in order[n : len(order) - m])
        return Roles(rhs_batch, lhs_batch, r.rhs_contracting, r.lhs_contracting, free, r.lhs_free), (1, 0), None
    return None


def _last_of(transpose: Op) -> int | None:
    """The operand's dimension along which the result's elements are adjacent."""
    order, shape = transpose.ints("permutation"), transpose.operands[0].tensor.extents
    return next((d for d in reversed(order) if not equal(shape[d], 1)), None)


def _dot_general(rw: Rewriter, op: Op, operands: list[Value], roles: Roles) -> Sequence[Value]:
    """The product of these operands, of the element type of `op`."""
    result = op.result.tensor
    operands = [in_kind_of(rw, value, result.storage) for value in operands]
    acc = accumulator(operands[0].tensor.storage, result.storage)
    extents = [operands[0].tensor.extents[d] for d in (*roles.lhs_batch, *roles.lhs_free)]
    extents += [operands[1].tensor.extents[d] for d in roles.rhs_free]
    t = tensor(tuple(extents), acc)
    if not acc.is_complex and is_small(operands[0], roles, extents):
        return [mk.convert(rw, _sum_of_products(rw, operands, roles, t), result.storage)]
    kinds = operand_types(operands[0].tensor.storage, operands[1].tensor.storage, acc)
    sides = []
    for kind, value, batch, contracting, free in (
        (kinds[0], operands[0], roles.lhs_batch, roles.lhs_contracting, roles.lhs_free),
        (kinds[1], operands[1], roles.rhs_batch, roles.rhs_contracting, roles.rhs_free),
    ):
        value, batch, contracting, free = _through_transpose(value, batch, contracting, free)
        value = mk.convert(rw, value, kind)
        shape = value.tensor.extents
        if run_of(shape, contracting) is None or run_of(shape, free) is None:
            value = mk.transpose(rw, value, (*batch, *free, *contracting))
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
    product = rw.emit1("stablehlo.dot_general", [lhs, rhs], t, {"dot_dimension_numbers": numbers})
    return [mk.convert(rw, product, result.storage)]


def is_small(lhs: Value, roles: Roles, extents: list[int]) -> bool:
    """Whether the product (one of a batch) is better a reduction, which fuses with what is around it: of a vector with
    a vector, without anything to sum, of so few numbers that the routine would spend its time on deciding, or of rows
    and columns that would fill a corner of its tiles."""
    columns = math.prod(extents[len(roles.lhs_batch) + len(roles.lhs_free) :])
    products = math.prod(extents[len(roles.lhs_batch) :])
    terms = math.prod(lhs.tensor.extents[d] for d in roles.lhs_contracting)
    narrow = hint_of(terms) <= tuning.NARROW_PRODUCT and hint_of(columns) <= tuning.NARROW_PRODUCT
    return narrow or equal(products, 1) or equal(terms, 1) or hint_of(products * terms) <= tuning.SMALL_PRODUCT


def _sum_of_products(rw: Rewriter, operands: list[Value], roles: Roles, t: TensorType) -> Value:
    """reduce(multiply(lhs, rhs)) over [batch, free of lhs, free of rhs, contracting]."""
    batch, rows, columns = len(roles.lhs_batch), len(roles.lhs_free), len(roles.rhs_free)
    kept = batch + rows + columns
    summed = [operands[0].tensor.extents[d] for d in roles.lhs_contracting]
    last = range(kept, kept + len(summed))
    full, sides = (*t.extents, *summed), []
    for value, order, free in (
        (operands[0], (*roles.lhs_batch, *roles.lhs_free, *roles.lhs_contracting), range(batch, batch + rows)),
        (operands[1], (*roles.rhs_batch, *roles.rhs_free, *roles.rhs_contracting), range(batch + rows, kept)),
    ):
        value = mk.transpose(rw, mk.convert(rw, value, t.storage), order)
        sides.append(mk.broadcast(rw, value, full, (*range(batch), *free, *last)))
    return mk.reduce_sum(rw, mk.apply(rw, "multiply", *sides), tuple(last))
