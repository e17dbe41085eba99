"""Products with a one-hot matrix read or add rows of the other operand.

Needs: static shapes. Guarantees: nothing; such products become gathers and scatters of rows.

    dot_general(one_hot(i)[m, k] * s[m], w[k, n]) over k   ->   s[m] * gather(w, i)[m, n], 0 where i is no row of w
    dot_general(one_hot(i)[k, m] * s[k], x[k, n]) over k   ->   scatter s[k] * x[k, n] at row i[k] of zeros[m, n]

Several dimensions may be one-hot, each with an index: tokens dispatched to places of experts. Zeros are no longer
multiplied with numbers that are NaN or infinite. So the other operand and the factors must be finite: known at compile
time, or promised (`assume_finite`). Otherwise a test at run time, which reads them once, chooses between both forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.finite import is_known_finite
from shlo_jit.ir.types import F32, I32, I64, DType, tensor
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.finite_sources import are_zeros, is_bounded
from shlo_jit.passes.intervals import picked
from shlo_jit.passes.masked_weights import is_truth
from shlo_jit.passes.one_hot import Index, OneHot, one_hot_of
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.rows import add_rows, gather_rows

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
MOST_ROWS = 2**31
"""Row numbers are i32."""


class Selection(NamedTuple):
    """A product whose left operand, by its roles, is one-hot."""

    op: Op
    one_hot: OneHot
    value: Value
    """The one-hot operand."""
    other: Value
    hot: tuple[int, ...]
    """The one-hot dimensions, in the order of the rows that their indices number."""
    rows: tuple[int, ...]
    """The other dimensions of the one-hot operand."""
    order: tuple[int, ...]
    """The dimensions of the other operand: those that are contracted, in the order of `hot` or `rows`, then the
    columns."""
    gathers: bool
    """Whether the one-hot dimensions are contracted, or all others are."""
    is_left: bool

    @property
    def sum_type(self) -> DType:
        """The type of sums."""
        found = self.op.result.tensor.storage
        return found if found.bits >= F32.bits else F32

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.value.tensor.extents[d] for d in self.rows)

    @property
    def hot_shape(self) -> tuple[int, ...]:
        return tuple(self.value.tensor.extents[d] for d in self.hot)

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(self.other.tensor.extents[d] for d in self.order[len(self.hot if self.gathers else self.rows) :])


def one_hot_products(function: Op, context: Context) -> Op:
    """The function with products of one-hot matrices replaced by gathers and scatters of rows."""
    if not any(op.name == "stablehlo.dot_general" and _selection(op) for op in walk(function.block())):
        return function

    def visit(rw: Rewriter, op: Op, _: list[Value]) -> Sequence[Value] | None:
        s = _selection(op) if op.name == "stablehlo.dot_general" else None
        return None if s is None else [_rewritten(rw, s, context)]

    return rewrite(function, visit)


def _selection(op: Op) -> Selection | None:
    """Returns the selection that a product is, if it pays to read rows in place of multiplying."""
    if not all(v.tensor.is_fixed for v in (*op.operands, op.result)):
        return None
    r = roles_of(op)
    swapped = Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)
    for is_left, roles in ((True, r), (False, swapped)):
        value, other = op.operands if is_left else op.operands[::-1]
        found = None if roles.lhs_batch else one_hot_of(value)
        s = None if found is None else _by_roles(op, found, roles, value, other, is_left)
        if s is not None and _pays(s):
            return s
    return None


def _by_roles(op: Op, found: OneHot, r: Roles, value: Value, other: Value, is_left: bool) -> Selection | None:
    pairs = sorted(zip(r.rhs_contracting, r.lhs_contracting, strict=True))
    summed = tuple(d for _, d in pairs)  # in the order of the other operand's memory
    order = (*(d for d, _ in pairs), *r.rhs_free)
    if found.hot.keys() == {*summed}:
        return Selection(op, found, value, other, summed, r.lhs_free, order, True, is_left)
    if found.hot.keys() == {*r.lhs_free}:
        return Selection(op, found, value, other, r.lhs_free, summed, order, False, is_left)
    return None


def _pays(s: Selection) -> bool:
    """Whether rows are long and many enough, and of a type in which sums of rows are those of the product."""
    kinds = {v.tensor.storage.name for v in (s.value, s.other)}
    return (
        len(kinds) == 1
        and kinds <= FLOATS
        and s.op.result.tensor.storage.name in FLOATS
        and s.value.tensor.storage.bits <= s.sum_type.bits
        and tuning.ONE_HOT_LEAST <= prod(s.hot_shape) < MOST_ROWS
        and prod(s.columns) >= tuning.ONE_HOT_COLUMNS
        and prod(s.row_shape) >= 1
    )


# ---------------------------------------------------------------------------- both forms
def _rewritten(rw: Rewriter, s: Selection, context: Context) -> Value:
    """Emits the rows if all numbers are finite, else the product."""
    indices = [_index(rw, s.one_hot.hot[d], s, n) for d, n in zip(s.hot, s.hot_shape, strict=True)]
    scale = _scale(rw, s)
    zeros = [] if _is_finite(s.other, context) else [are_zeros(rw, s.other)]
    is_known = context.assume_finite or all(f.is_sum or is_truth(f.place.value) for f in s.one_hot.factors)
    if scale is not None and not is_known:
        zeros.append(mk.apply(rw, "multiply", scale, mk.splat_like(rw, scale, 0)))

    def by_rows() -> list[Value]:
        form = _gathered if s.gathers else _scattered
        return [_in_place(rw, s, form(rw, s, indices, scale))]

    if not zeros:
        return by_rows()[0]
    totals = [mk.convert(rw, mk.reduce_sum(rw, z, range(z.tensor.rank)), F32) for z in zeros]
    total = totals[0] if len(totals) == 1 else mk.apply(rw, "add", *totals)
    is_finite = mk.compare(rw, "EQ", total, mk.splat_like(rw, total, 0))
    return mk.choose(rw, is_finite, by_rows, lambda: [_product(rw, s, indices, scale)])[0]


def _is_finite(value: Value, context: Context) -> bool:
    return context.assume_finite or is_known_finite(value) or is_bounded(value)


def _index(rw: Rewriter, index: Index, s: Selection, extent: int) -> Value:
    """Emits the position along a one-hot dimension for each row, -1 or the extent if there is none, as i32."""
    value = picked(rw, index.place, s.rows, s.row_shape, I64)
    limits = (mk.splat_like(rw, value, n - index.added) for n in (-1, extent))
    low, high = limits
    value = mk.apply(rw, "minimum", mk.apply(rw, "maximum", value, low), high)
    return mk.convert(rw, mk.apply(rw, "add", value, mk.splat_like(rw, value, index.added)), I32)


def _scale(rw: Rewriter, s: Selection) -> Value | None:
    """Emits the number of each row, in the type of the one-hot operand; None if it is 1."""
    scale = None
    for factor in s.one_hot.factors:
        value = picked(rw, factor.place, s.rows, s.row_shape, s.value.tensor.storage, factor.is_sum)
        scale = value if scale is None else mk.apply(rw, "multiply", scale, value)
    return scale


def _product(rw: Rewriter, s: Selection, indices: list[Value], scale: Value | None) -> Value:
    """Emits the product. Its one-hot operand is computed here, as nothing else may need it."""
    shape, dtype = mk.shape_of(s.value), s.value.tensor.storage
    mask = None
    for d, index in zip(s.hot, indices, strict=True):
        at = mk.broadcast(rw, *_in_operand(rw, s, index))
        same = mk.compare(rw, "EQ", mk.iota(rw, tensor(shape, I32), d), at)
        mask = same if mask is None else mk.apply(rw, "and", mask, same)
    assert mask is not None
    value = mk.convert(rw, mask, dtype)
    if scale is not None:
        value = mk.apply(rw, "multiply", value, mk.broadcast(rw, *_in_operand(rw, s, scale)))
    r = roles_of(s.op)
    sides = (value, rw.get(s.other)) if s.is_left else (rw.get(s.other), value)
    extra = {k: v for k, v in s.op.attributes.items() if k != "dot_dimension_numbers"}
    roles = (r.lhs_batch, r.rhs_batch, r.lhs_contracting, r.rhs_contracting)
    return mk.dot(rw, sides, roles, s.op.result.tensor.storage, extra)


def _in_operand(rw: Rewriter, s: Selection, value: Value) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """Returns a value for each row, the shape of the one-hot operand, and the value's dimensions there."""
    order = sorted(range(len(s.rows)), key=lambda i: s.rows[i])
    return mk.transpose(rw, value, order), mk.shape_of(s.value), tuple(sorted(s.rows))


# ---------------------------------------------------------------------------- rows
def _row_number(rw: Rewriter, s: Selection, indices: list[Value]) -> Value:
    """Emits the number of the row that a vector of indices names, or -1 if one of them is no position."""
    number, is_inside = None, None
    for index, extent in zip(indices, s.hot_shape, strict=True):
        index = mk.reshape(rw, index, (prod(s.row_shape),))
        bounds = [mk.splat_like(rw, index, n) for n in (0, extent)]
        inside = mk.apply(rw, "and", mk.compare(rw, "GE", index, bounds[0]), mk.compare(rw, "LT", index, bounds[1]))
        is_inside = inside if is_inside is None else mk.apply(rw, "and", is_inside, inside)
        if number is not None:
            index = mk.apply(rw, "add", mk.apply(rw, "multiply", number, bounds[1]), index)
        number = index
    assert number is not None and is_inside is not None
    outside = mk.splat_like(rw, number, -1)
    return rw.emit1("stablehlo.select", [is_inside, number, outside], number.tensor)


def _gathered(rw: Rewriter, s: Selection, indices: list[Value], scale: Value | None) -> Value:
    """Emits a row of the other operand for each row of the one-hot one."""
    number = _row_number(rw, s, indices)
    rows = _scaled(rw, s, gather_rows(rw, _matrix(rw, s), number), scale)
    zero = mk.splat_like(rw, rows, 0)
    found = mk.compare(rw, "GE", number, mk.splat_like(rw, number, 0))
    # the sum of a product begins with 0, so it is never -0
    sums = mk.apply(rw, "add", rows, zero)
    return rw.emit1("stablehlo.select", [_along_columns(rw, found, rows), sums, zero], rows.tensor)


def _scattered(rw: Rewriter, s: Selection, indices: list[Value], scale: Value | None) -> Value:
    """Emits sums of rows of the other operand at the rows that their indices name."""
    number = _row_number(rw, s, indices)
    rows = _scaled(rw, s, _matrix(rw, s), scale)
    zeros = mk.constant(rw, tensor((prod(s.hot_shape), mk.shape_of(rows)[1]), rows.tensor.storage), 0)
    return add_rows(rw, zeros, number, rows)


def _matrix(rw: Rewriter, s: Selection) -> Value:
    """Emits the other operand as a matrix whose rows are contracted."""
    value = mk.transpose(rw, rw.get(s.other), s.order)
    count = prod(s.hot_shape if s.gathers else s.row_shape)
    return mk.reshape(rw, value, (count, prod(s.columns)))


def _scaled(rw: Rewriter, s: Selection, rows: Value, scale: Value | None) -> Value:
    """Emits rows times the number of each, in the type of sums."""
    rows = mk.convert(rw, rows, s.sum_type)
    if scale is None:
        return rows
    scale = mk.convert(rw, mk.reshape(rw, scale, mk.shape_of(rows)[:1]), s.sum_type)
    return mk.apply(rw, "multiply", rows, _along_columns(rw, scale, rows))


def _along_columns(rw: Rewriter, value: Value, rows: Value) -> Value:
    return mk.broadcast(rw, value, mk.shape_of(rows), (0,))


def _in_place(rw: Rewriter, s: Selection, rows: Value) -> Value:
    """Emits rows in the shape of the product."""
    own = s.row_shape if s.gathers else s.hot_shape
    value = mk.reshape(rw, mk.convert(rw, rows, s.op.result.tensor.storage), (*own, *s.columns))
    if s.is_left:
        return value
    return mk.transpose(rw, value, (*range(len(own), value.tensor.rank), *range(len(own))))
