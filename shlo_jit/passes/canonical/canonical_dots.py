"""Bring dot_general into the form that the GEMM kernel takes.

Needs: nothing. Guarantees: every dot_general has operands of element types that the kernel supports, a result of its
accumulator type, and free and contracting dimensions that are each one run in memory (contiguous, in order). Without a
batch, the free dimensions of one operand may be two runs: those before the contracting dimensions, and those after
them.

    dot_general(bf16, bf16) : bf16   ->   convert(dot_general(bf16, bf16) : f32) : bf16
    dot_general(f32[a,b,c], [0, 2])  ->   dot_general(transpose(f32[a,b,c]), ...)
    transpose(dot_general(a, b))     ->   dot_general(b, a), if the transpose only swaps the two
    transpose(dot_general(a, b))     ->   transpose(dot_general(b, a)), if the rows of `a` become adjacent elements
    transpose(dot_general(a, b))     ->   dot_general(transpose(a), b), if it reorders rows that are not a run in `a`
    dot_general(f32[k], f32[k])      ->   reduce(multiply(a, b)), also for small matrices
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import DType, TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.product_types import accumulator, operand_types
from shlo_jit.ops.runs import Roles, outer_of, roles_by, roles_of, run_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal, hint_of


def in_kind_of(rw: Rewriter, value: Value, result: DType) -> Value:
    """Converts an operand of a product to the result's type if that is a narrower kind of number. A float in an integer
    product is truncated before it is multiplied."""
    own = value.tensor.storage
    if result.kind == "b" or (result.is_integer and (own.is_float or own.is_complex)):
        return mk.convert(rw, value, result)
    return value


Dims = tuple[int, ...]


def _through_transpose(value: Value, batch: Dims, contracting: Dims, free: Dims) -> tuple[Value, Dims, Dims, Dims]:
    """Returns the operand of a transpose instead of its result, with the dimensions mapped, if these still form
    runs."""
    op = value.op
    if op is None or op.name != "stablehlo.transpose":
        return value, batch, contracting, free
    p, source = op.ints("permutation"), op.operands[0]
    moved = tuple(tuple(p[d] for d in dims) for dims in (batch, contracting, free))
    shape = source.tensor.extents
    if run_of(shape, moved[1]) is None or run_of(shape, moved[2]) is None:
        return value, batch, contracting, free
    return source, moved[0], moved[1], moved[2]


def canonical_dots(function: Op, context: Context) -> Op:
    """The function with every dot_general (and dot) in the kernel's form."""
    fixed = context.reproducible
    uses = Counter(v for op in walk(function.block()) for v in op.operands)

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "stablehlo.transpose":
            return _transposed(rw, op, uses, fixed)
        if op.name != "stablehlo.dot_general":
            return None
        return _dot_general(rw, op, operands, roles_of(op), fixed)

    return rewrite(function, visit)


def _transposed(rw: Rewriter, op: Op, uses: Counter[Value], fixed: bool) -> Sequence[Value] | None:
    """Replaces the transpose of a product that nothing else reads by another product with the same sums. A transpose is
    left only if the operands cannot be transposed instead. Elementwise ops and transposes between the two are repeated
    after the new product, the transposes merged into one; the old ones become dead."""
    between: list[Op] = []
    value, order = op.operands[0], op.ints("permutation")
    while uses[value] == 1 and value.op is not None and (operand := _varying(value.op)) is not None:
        if value.op.name == "stablehlo.transpose":
            p = value.op.ints("permutation")
            order = tuple(p[d] for d in order)
        else:
            between.append(value.op)
        value = operand
    dot = value.op
    if dot is None or dot.name != "stablehlo.dot_general" or uses[value] != 1:
        return None
    sides = [rw.get(o) for o in dot.operands]
    found = _in_order(order, dot, sides, roles_of(dot))
    if found is None:
        return None
    roles, is_exchanged, left = found
    (value,) = _dot_general(rw, dot, sides[::-1] if is_exchanged else sides, roles, fixed)
    for step in reversed(between):
        shape = mk.shape_of(value)
        operands = [_splat(rw, o, shape) if _is_splat(o) else value for o in step.operands]
        value = rw.emit1(step.name, operands, tensor(shape, step.result.tensor.dtype), step.attributes)
    return [mk.transpose(rw, value, left)]


def _varying(op: Op) -> Value | None:
    """Returns the only non-splat operand of a transpose or an elementwise op, or None."""
    if op.name != "stablehlo.transpose" and not is_elementwise(op):
        return None
    varying = [o for o in op.operands if not _is_splat(o)]
    return varying[0] if len(varying) == 1 else None


def _is_splat(value: Value) -> bool:
    """Whether a value is a splat constant."""
    return value.op is not None and value.op.name == "stablehlo.constant" and value.op.attributes["value"].is_splat


def _splat(rw: Rewriter, value: Value, shape: Dims) -> Value:
    """Returns a splat constant in another shape."""
    assert value.op is not None
    element = value.op.attributes["value"].array.reshape(-1)[0]
    return mk.constant(rw, tensor(shape, value.tensor.dtype), element)


def _in_order(order: Dims, dot: Op, sides: list[Value], r: Roles) -> tuple[Roles, bool, Dims] | None:
    """Returns the product that replaces a transposed one, or None: the roles of its dimensions, whether the operands
    are swapped, and the transpose that remains.

    With a batch, the rows or columns of an operand that is smaller than the product are copied in the wanted order,
    instead of transposing the product. This applies to rows of heads that share keys, where the queries are innermost.
    Without a batch, rows or columns that are not a run are reordered, too: they are copied in any case."""
    n, m = len(r.lhs_batch), len(r.lhs_free)
    shape = dot.result.tensor.extents
    batch = order[:n] if sorted(order[:n]) == [*range(n)] else tuple(range(n))
    groups: list[Dims] = []
    for value, free, dims in (
        (sides[0], r.lhs_free, range(n, n + m)),
        (sides[1], r.rhs_free, range(n + m, len(order))),
    ):
        cuts = outer_of(mk.shape_of(value), free)
        stays = (cuts is not None and not n) or hint_of(value.tensor.size) > hint_of(math.prod(shape))
        moved = tuple(d for d in order if d in dims)
        wide = [d for d in moved if not equal(shape[d], 1)]
        groups.append(tuple(dims) if stays or wide == sorted(wide) else moved)
    rows, columns = groups
    last = next((d for d in reversed(order) if not equal(shape[d], 1)), None)
    are_many = hint_of(_adjacent_rows(sides[0], r)) >= tuning.ADJACENT_ROWS
    is_exchanged = order == (*batch, *columns, *rows) or (last in rows and are_many)
    if not is_exchanged and (*rows, *columns) == tuple(range(n, len(order))):
        return None
    lhs = tuple(r.lhs_batch[d] for d in batch), r.lhs_contracting, tuple(r.lhs_free[d - n] for d in rows)
    rhs = tuple(r.rhs_batch[d] for d in batch), r.rhs_contracting, tuple(r.rhs_free[d - n - m] for d in columns)
    one, two, made = (rhs, lhs, (*batch, *columns, *rows)) if is_exchanged else (lhs, rhs, (*batch, *rows, *columns))
    left = tuple(made.index(d) for d in order)
    return Roles(one[0], two[0], one[1], two[1], one[2], two[2]), is_exchanged, left


def _adjacent_rows(lhs: Value, r: Roles) -> int:
    """Returns how many rows of the first operand are adjacent in memory: all of them, unless some precede the
    contracting dimensions and the operand is read in place (see `_split_side`)."""
    shape = mk.shape_of(lhs)
    outer = 0 if r.lhs_batch else outer_of(shape, r.lhs_free) or 0
    return math.prod(shape[d] for d in r.lhs_free[outer:])


def _dot_general(rw: Rewriter, op: Op, operands: list[Value], roles: Roles, fixed: bool) -> Sequence[Value]:
    """Emits the product of these operands, with the element type of `op`. `fixed`: its sums must not depend on the
    number of rows and columns, neither by their order nor by the kernel."""
    result = op.result.tensor
    wanted = _result_of(operands, roles)
    operands, roles = _with_units(operands, roles)
    roles, left = _in_place_orders(operands, roles, hint_of(result.size), fixed)
    operands = [in_kind_of(rw, value, result.storage) for value in operands]
    acc = accumulator(operands[0].tensor.storage, result.storage)
    extents = _result_of(operands, roles)
    t = tensor(extents, acc)

    def finished(product: Value) -> Sequence[Value]:
        return [mk.reshape(rw, mk.transpose(rw, mk.convert(rw, product, result.storage), left), wanted)]

    if not acc.is_complex and is_small(operands[0], roles, extents, fixed and acc.is_float):
        return finished(_sum_of_products(rw, operands, roles, t))
    kinds = operand_types(operands[0].tensor.storage, operands[1].tensor.storage, acc)
    read = [
        _Side(*_through_transpose(operands[0], roles.lhs_batch, roles.lhs_contracting, roles.lhs_free)),
        _Side(*_through_transpose(operands[1], roles.rhs_batch, roles.rhs_contracting, roles.rhs_free)),
    ]
    split = _split_side(read)
    sides = []
    for kind, side in zip(kinds, read, strict=True):
        value, batch, contracting, free = side
        value = mk.convert(rw, value, kind)
        shape = value.tensor.extents
        if side is not split and (run_of(shape, contracting) is None or run_of(shape, free) is None):
            inner = next((d for d in reversed(range(len(shape))) if not equal(shape[d], 1)), 0)
            last, other = (free, contracting) if inner in free else (contracting, free)  # keeps the innermost
            value = mk.transpose(rw, value, (*batch, *other, *last))
            n, m = len(batch), len(batch) + len(other)
            batch, places = tuple(range(n)), (tuple(range(n, m)), tuple(range(m, len(shape))))
            contracting, free = places if inner in free else places[::-1]
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
    # In the operand of a transpose, dimensions of extent 1 may lie elsewhere among the rows or columns.
    own = tensor(_result_of([lhs, rhs], roles_by(numbers, lhs.tensor.rank, rhs.tensor.rank)), acc)
    product = rw.emit1("stablehlo.dot_general", [lhs, rhs], own, {"dot_dimension_numbers": numbers})
    return finished(mk.reshape(rw, product, extents))


def _result_of(operands: Sequence[Value], r: Roles) -> Dims:
    lhs, rhs = (mk.shape_of(value) for value in operands)
    return (*(lhs[d] for d in (*r.lhs_batch, *r.lhs_free)), *(rhs[d] for d in r.rhs_free))


def _with_units(operands: list[Value], r: Roles) -> tuple[list[Value], Roles]:
    """Returns operands with reshapes that only drop dimensions of extent 1 removed; these dimensions join the rows or
    columns. This exposes the producer, for example if a batch of one is dropped to multiply matrices."""
    read: list[Value] = []
    roles: list[tuple[Dims, Dims, Dims]] = []
    sides = ((r.lhs_batch, r.lhs_contracting, r.lhs_free), (r.rhs_batch, r.rhs_contracting, r.rhs_free))
    for value, (batch, contracting, free) in zip(operands, sides, strict=True):
        kept = _kept_by(value)
        if kept is not None and value.op is not None:
            batch, contracting, free = (tuple(kept[d] for d in dims) for dims in (batch, contracting, free))
            value = value.op.operands[0]
            wide = [d for d in free if not equal(mk.shape_of(value)[d], 1)]
            free = (*(d for d in range(value.tensor.rank) if d not in kept), *free)
            free = tuple(sorted(free)) if wide == sorted(wide) else free
        read.append(value)
        roles.append((batch, contracting, free))
    (lb, lc, lf), (rb, rc, rf) = roles
    return read, Roles(lb, rb, lc, rc, lf, rf)


def _kept_by(value: Value) -> Dims | None:
    """Returns the operand's dimensions that a reshape keeps if it only drops dimensions of extent 1, else None."""
    op = value.op
    if op is None or op.name != "stablehlo.reshape" or value.tensor.rank >= op.operands[0].tensor.rank:
        return None
    kept: list[int] = []
    shape = mk.shape_of(value)
    for d, extent in enumerate(mk.shape_of(op.operands[0])):
        if len(kept) < len(shape) and equal(extent, shape[len(kept)]):
            kept.append(d)
        elif not equal(extent, 1):
            return None
    return tuple(kept) if len(kept) == len(shape) else None


def _in_place_orders(operands: list[Value], r: Roles, size: int, fixed: bool) -> tuple[Roles, Dims]:
    """Reorders contracting dimensions, rows and columns, so that operands that are transposes can be read in place.
    Returns the new roles, and the transpose of the result that this needs. Contracting dimensions take the order of the
    larger operand, or stay as they are if that is `fixed`; rows and columns are reordered only for an operand larger
    than the result."""
    sizes = [hint_of(value.tensor.size) for value in operands]
    larger = int(sizes[1] > sizes[0])
    contracting = (r.lhs_contracting, r.rhs_contracting)[larger]
    terms = tuple(range(len(contracting))) if fixed else _own_order(operands[larger], contracting)
    free = [
        _own_order(value, dims) if n > size else tuple(range(len(dims)))
        for value, dims, n in zip(operands, (r.lhs_free, r.rhs_free), sizes, strict=True)
    ]
    rows, columns = (tuple(dims[i] for i in order) for dims, order in zip((r.lhs_free, r.rhs_free), free, strict=True))
    batch, m = len(r.lhs_batch), len(rows)
    lhs, rhs = (tuple(dims[i] for i in terms) for dims in (r.lhs_contracting, r.rhs_contracting))
    made = (*range(batch), *(batch + i for i in free[0]), *(batch + m + i for i in free[1]))
    left = tuple(made.index(d) for d in range(len(made)))
    return Roles(r.lhs_batch, r.rhs_batch, lhs, rhs, rows, columns), left


def _own_order(value: Value, dims: Dims) -> Dims:
    """Returns the order in which an operand's dimensions lie in memory, if they are not a run there: for a transpose,
    those of its operand. They may become a run then, and other readers of the same dimensions copy them in the same
    order."""
    own, op = tuple(range(len(dims))), _maker(value)
    if op is None or op.name != "stablehlo.transpose":
        in_order = tuple(sorted(own, key=lambda i: dims[i]))
        shape = value.tensor.extents
        may_help = run_of(shape, dims) is None and run_of(shape, tuple(dims[i] for i in in_order)) is not None
        return in_order if may_help else own
    p, shape = op.ints("permutation"), op.operands[0].tensor.extents
    is_run = run_of(shape, tuple(p[d] for d in dims)) is not None
    return own if is_run else tuple(sorted(own, key=lambda i: p[dims[i]]))


def _maker(value: Value) -> Op | None:
    """Returns the op that produces a value, looking through elementwise ops with splat constants."""
    op = value.op
    while op is not None and op.name != "stablehlo.transpose" and (operand := _varying(op)) is not None:
        op = operand.op
    return op


class _Side(NamedTuple):
    """An operand and the roles of its dimensions."""

    value: Value
    batch: Dims
    contracting: Dims
    free: Dims

    @property
    def extents(self) -> tuple[int, int, int] | None:
        """Returns the elements before, after and in the contracting dimensions if the free dimensions are on both sides
        of these, else None."""
        shape = self.value.tensor.extents
        outer = outer_of(shape, self.free)
        ascending = self.free == tuple(sorted(self.free))
        if not outer or not ascending or self.batch or not self.value.tensor.is_fixed:
            return None
        if run_of(shape, self.contracting) is None:
            return None
        if self.value.op is not None and self.value.op.name == "stablehlo.constant":
            return None  # its transpose is computed at compile time

        def count(dims: Dims) -> int:
            return math.prod(shape[d] for d in dims)

        return count(self.free[:outer]), count(self.free[outer:]), count(self.contracting)


def _split_side(sides: list[_Side]) -> _Side | None:
    """Returns the operand that is read in place although its free dimensions are on both sides of the contracting ones:
    one of the two groups is a batch (see `schedule/product_layout.py`). Columns must fill vectors. Rows must repay
    packing the other operand once per product."""
    found: list[_Side] = []
    for n, side in enumerate(sides):
        extents = side.extents
        if extents is None:
            continue
        before, after, summed = extents
        other = sides[1 - n].value.tensor
        columns = other.size // max(1, summed)
        resident = other.size * other.storage.itemsize <= tuning.GEMM_B_RESIDENT
        rows = max(before, after)
        fits = after >= tuning.ADJACENT_ROWS if n else rows >= tuning.ADJACENT_ROWS and (resident or columns <= rows)
        if fits and not sides[1 - n].batch and isinstance(other.size, int):
            found.append(side)
    return max(found, key=lambda side: side.value.tensor.size, default=None)


def is_small(lhs: Value, roles: Roles, extents: Sequence[int], fixed: bool = False) -> bool:
    """Whether the product (one of a batch) is faster as a reduction, which fuses with the code around it. This holds
    for the product of two vectors, for a product with a single term, for one so small that the kernel's overhead
    dominates, and for rows and columns that would fill only a corner of the kernel's tiles. A reduction adds up in
    another order than the kernel. If that is `fixed`, only products of very few terms, or without any rows and
    columns, become one."""
    batch, free = len(roles.lhs_batch), len(roles.lhs_free)
    rows, columns = (math.prod(e) for e in (extents[batch : batch + free], extents[batch + free :]))
    terms = math.prod(lhs.tensor.extents[d] for d in roles.lhs_contracting)
    if fixed:
        return not extents or hint_of(terms) <= tuning.NARROW_PRODUCT
    narrow = hint_of(terms) <= tuning.NARROW_PRODUCT and hint_of(columns) <= tuning.NARROW_PRODUCT
    if narrow or equal(rows * columns, 1) or equal(terms, 1):
        return True
    most = tuning.SMALL_PRODUCT
    rank = len(roles.rhs_batch) + len(roles.rhs_contracting) + len(roles.rhs_free)
    strided = rank - 1 in roles.rhs_contracting and hint_of(terms) < tuning.SMALL_PRODUCT_TERMS
    if not batch and (equal(rows, 1) or equal(columns, 1)):
        most = tuning.SMALL_VECTOR_PRODUCT
    elif strided or lhs.tensor.storage.itemsize < 4:
        most = tuning.SMALL_PRODUCT_STRIDED
    size = rows * columns * terms
    return isinstance(size, int) and size <= most  # a symbolic number of rows may be large


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
