"""Products with a one-hot matrix read or add rows of the other operand.

Needs: static shapes. Guarantees: nothing; such products become gathers and scatters of rows.

    dot_general(one_hot(i)[m, k] * s[m], w[k, n]) over k   ->   s[m] * gather(w, i)[m, n], 0 where i is no row of w
    dot_general(one_hot(i)[k, m] * s[k], x[k, n]) over k   ->   scatter s[k] * x[k, n] at row i[k] of zeros[m, n]

Several dimensions may be one-hot, each with an index: tokens dispatched to places of experts. An operand may be the sum
of a few one-hot ones: of two experts for each token. Batch dimensions have rows of their own. Zeros are no longer
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
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.finite_sources import are_zeros, is_bounded
from shlo_jit.passes.intervals import DEPTH, picked
from shlo_jit.passes.masked_weights import is_truth
from shlo_jit.passes.one_hot import Candidates, Index, OneHot, one_hots_of
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.rows import add_rows, gather_rows
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.updates import Uses

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
MOST_ROWS = 2**31
"""Row numbers are i32."""
REPEATED = frozenset(
    f"stablehlo.{n}" for n in ("broadcast_in_dim", "transpose", "reshape", "iota", "reduce", "dot_general")
)
"""Ops besides elementwise ones that the product computes itself."""


class Selection(NamedTuple):
    """A product whose left operand, by its roles, is a sum of one-hot values."""

    op: Op
    one_hots: list[OneHot]
    value: Value
    """The one-hot operand."""
    other: Value
    batch: tuple[int, ...]
    """The batch dimensions of the one-hot operand."""
    hot: tuple[int, ...]
    """The one-hot dimensions, in the order of the rows that their indices number."""
    rows: tuple[int, ...]
    """The other dimensions of the one-hot operand."""
    order: tuple[int, ...]
    """The dimensions of the other operand: the batch, those that are contracted, in the order of `hot` or `rows`, then
    the columns."""
    gathers: bool
    """Whether the one-hot dimensions are contracted, or all others are."""
    is_left: bool

    @property
    def sum_type(self) -> DType:
        """The type of sums."""
        found = self.op.result.tensor.storage
        return found if found.bits >= F32.bits else F32

    def shape(self, dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.value.tensor.extents[d] for d in dims)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape((*self.batch, *self.rows))

    @property
    def hot_shape(self) -> tuple[int, ...]:
        return self.shape((*self.batch, *self.hot))

    @property
    def columns(self) -> tuple[int, ...]:
        first = len(self.batch) + len(self.hot if self.gathers else self.rows)
        return tuple(self.other.tensor.extents[d] for d in self.order[first:])


def one_hot_products(function: Op, context: Context) -> Op:
    """The function with products of one-hot matrices replaced by gathers and scatters of rows."""
    products = [op for op in walk(function.block()) if op.name == "stablehlo.dot_general"]
    candidates = Candidates()
    found = {op: s for op in products if (s := _selection(op, candidates))}
    if not found:
        return function
    uses = Uses(function.block())

    def visit(rw: Rewriter, op: Op, _: list[Value]) -> Sequence[Value] | None:
        s = found.get(op)
        return None if s is None or _is_alternative(op, uses) else [_rewritten(rw, s, context)]

    # ops that are written again would otherwise be found equal to those that only they replace
    return eliminate(rewrite(function, visit))


def _is_alternative(op: Op, uses: Uses) -> bool:
    """Whether an op is in a branch whose other branch reads or adds rows: this pass has written both."""
    parent = uses.parents.get(uses.place[op][0])
    if parent is None or parent.name != "stablehlo.if":
        return False
    return any(o.name in ("stablehlo.gather", "stablehlo.scatter") for o in parent.block(0).ops)


def _selection(op: Op, candidates: Candidates) -> Selection | None:
    """Returns the selection that a product is, if it pays to read rows in place of multiplying."""
    if not all(v.tensor.is_fixed for v in (*op.operands, op.result)):
        return None
    r = roles_of(op)
    swapped = Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)
    for is_left, roles in ((True, r), (False, swapped)):
        value, other = op.operands if is_left else op.operands[::-1]
        found = one_hots_of(value, candidates)
        s = None if not found else _by_roles(op, found, roles, value, other, is_left)
        if s is not None and _pays(s):
            return s
    return None


def _by_roles(op: Op, found: list[OneHot], r: Roles, value: Value, other: Value, is_left: bool) -> Selection | None:
    pairs = sorted(zip(r.rhs_contracting, r.lhs_contracting, strict=True))
    summed = tuple(d for _, d in pairs)  # in the order of the other operand's memory
    order = (*r.rhs_batch, *(d for d, _ in pairs), *r.rhs_free)
    hot = found[0].hot.keys()
    if hot == {*summed}:
        return Selection(op, found, value, other, r.lhs_batch, summed, r.lhs_free, order, True, is_left)
    if hot == {*r.lhs_free}:
        return Selection(op, found, value, other, r.lhs_batch, r.lhs_free, summed, order, False, is_left)
    return None


def _pays(s: Selection) -> bool:
    """Whether rows are long and many enough, and of a type in which sums of rows are those of the product."""
    kinds = {v.tensor.storage.name for v in (s.value, s.other)}
    count = sum(prod(one.added.values()) for one in s.one_hots)
    return (
        len(kinds) == 1
        and kinds <= FLOATS
        and s.op.result.tensor.storage.name in FLOATS
        and s.value.tensor.storage.bits <= s.sum_type.bits
        and prod(s.shape(s.hot)) >= tuning.ONE_HOT_LEAST * count
        and prod(s.hot_shape) < MOST_ROWS
        and prod(s.columns) >= tuning.ONE_HOT_COLUMNS
        and 1 <= prod(s.row_shape) * count < MOST_ROWS
    )


# ---------------------------------------------------------------------------- both forms
class Term(NamedTuple):
    """One of the one-hot values that a selection adds up."""

    indices: list[Value]
    """Positions of each row along the batch and the one-hot dimensions."""
    scale: Value | None
    """The number of each row; None if it is 1."""
    added: tuple[int, ...]
    """Extents of the dimensions of rows that are added up: the last ones."""


def _rewritten(rw: Rewriter, s: Selection, context: Context) -> Value:
    """Emits the rows if all numbers are finite, else the product."""
    terms = [_term(rw, s, one) for one in s.one_hots]
    zeros = [] if _is_finite(s.other, context) else [are_zeros(rw, s.other)]
    for one, term in zip(s.one_hots, terms, strict=True):
        is_known = all(f.is_sum or f.is_selected or is_truth(f.place.value) for f in one.factors)
        if term.scale is not None and not (context.assume_finite or is_known):
            zeros.append(mk.apply(rw, "multiply", term.scale, mk.splat_like(rw, term.scale, 0)))

    def by_rows() -> list[Value]:
        form = _gathered if s.gathers else _scattered
        return [_in_place(rw, s, form(rw, s, terms))]

    if not zeros:
        return by_rows()[0]
    totals = [mk.convert(rw, mk.reduce_sum(rw, z, range(z.tensor.rank)), F32) for z in zeros]
    total = totals[0]
    for more in totals[1:]:
        total = mk.apply(rw, "add", total, more)
    is_finite = mk.compare(rw, "EQ", total, mk.splat_like(rw, total, 0))
    return mk.choose(rw, is_finite, by_rows, lambda: [_product(rw, s)])[0]


def _is_finite(value: Value, context: Context) -> bool:
    return context.assume_finite or is_known_finite(value) or is_bounded(value)


def _term(rw: Rewriter, s: Selection, one: OneHot) -> Term:
    rows = (*s.batch, *s.rows, *one.added)
    shape = (*s.row_shape, *one.added.values())
    batch = [mk.iota(rw, tensor(shape, I32), d) for d in range(len(s.batch))]
    indices = [_index(rw, one.hot[d], rows, shape, n) for d, n in zip(s.hot, s.shape(s.hot), strict=True)]
    scale = None
    for factor in one.factors:
        value = picked(rw, factor.place, rows, shape, s.value.tensor.storage, factor.is_sum)
        scale = value if scale is None else mk.apply(rw, "multiply", scale, value)
    return Term([*batch, *indices], scale, tuple(one.added.values()))


def _index(rw: Rewriter, index: Index, rows: tuple[int, ...], shape: tuple[int, ...], extent: int) -> Value:
    """Emits the position along a one-hot dimension for each row, -1 or the extent if there is none, as i32."""
    value = picked(rw, index.place, rows, shape, I64)
    limits = (mk.splat_like(rw, value, n - index.added) for n in (-1, extent))
    low, high = limits
    value = mk.apply(rw, "minimum", mk.apply(rw, "maximum", value, low), high)
    return mk.convert(rw, mk.apply(rw, "add", value, mk.splat_like(rw, value, index.added)), I32)


def _product(rw: Rewriter, s: Selection) -> Value:
    """Emits the product. The large ones of the values that its one-hot operand is computed from are computed here, as
    nothing else may need them."""
    made: dict[Value, Value] = {}

    def get(value: Value, depth: int) -> Value:
        op = value.op
        is_large = value.tensor.size * tuning.ONE_HOT_COLUMNS >= s.value.tensor.size
        if op is None or not depth or not is_large or not (is_elementwise(op) or op.name in REPEATED):
            return rw.get(value)
        if value not in made:
            made[value] = rw.keep(op, [get(v, depth - 1) for v in op.operands])[0]
        return made[value]

    sides = [get(s.value, DEPTH), rw.get(s.other)]
    return rw.keep(s.op, sides if s.is_left else sides[::-1])[0]


# ---------------------------------------------------------------------------- rows
def _row_number(rw: Rewriter, s: Selection, indices: list[Value]) -> Value:
    """Emits the number of the row that a vector of indices names, or -1 if one of them is no position."""
    number, is_inside = None, None
    for index, extent in zip(indices, s.hot_shape, strict=True):
        index = mk.reshape(rw, index, (index.tensor.size,))
        bounds = [mk.splat_like(rw, index, n) for n in (0, extent)]
        inside = mk.apply(rw, "and", mk.compare(rw, "GE", index, bounds[0]), mk.compare(rw, "LT", index, bounds[1]))
        is_inside = inside if is_inside is None else mk.apply(rw, "and", is_inside, inside)
        if number is not None:
            index = mk.apply(rw, "add", mk.apply(rw, "multiply", number, bounds[1]), index)
        number = index
    assert number is not None and is_inside is not None
    outside = mk.splat_like(rw, number, -1)
    return rw.emit1("stablehlo.select", [is_inside, number, outside], number.tensor)


def _gathered(rw: Rewriter, s: Selection, terms: list[Term]) -> Value:
    """Emits a row of the other operand for each row of the one-hot one, or the sum of a few."""
    total, matrix = None, _matrix(rw, s)
    for term in terms:
        number = _row_number(rw, s, term.indices)
        rows = _scaled(rw, s, gather_rows(rw, matrix, number), term.scale)
        zero = mk.splat_like(rw, rows, 0)
        found = mk.compare(rw, "GE", number, mk.splat_like(rw, number, 0))
        # the sum of a product begins with 0, so it is never -0
        rows = mk.apply(rw, "add", rows, zero)
        rows = rw.emit1("stablehlo.select", [_along_columns(rw, found, rows), rows, zero], rows.tensor)
        if term.added:
            rows = mk.reshape(rw, rows, (prod(s.row_shape), prod(term.added), prod(s.columns)))
            rows = mk.reduce_sum(rw, rows, [1])
        total = rows if total is None else mk.apply(rw, "add", total, rows)
    assert total is not None
    return total


def _scattered(rw: Rewriter, s: Selection, terms: list[Term]) -> Value:
    """Emits sums of rows of the other operand at the rows that their indices name."""
    matrix = _matrix(rw, s)
    sums = mk.constant(rw, tensor((prod(s.hot_shape), prod(s.columns)), s.sum_type), 0)
    for term in terms:
        count, width = mk.shape_of(matrix)
        wide = mk.broadcast(rw, matrix, (count, prod(term.added), width), (0, 2)) if term.added else matrix
        rows = _scaled(rw, s, mk.reshape(rw, wide, (count * prod(term.added), width)), term.scale)
        sums = add_rows(rw, sums, _row_number(rw, s, term.indices), rows)
    return sums


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
    own, n = s.row_shape if s.gathers else s.hot_shape, len(s.batch)
    value = mk.reshape(rw, mk.convert(rw, rows, s.op.result.tensor.storage), (*own, *s.columns))
    if s.is_left:
        return value
    return mk.transpose(rw, value, (*range(n), *range(len(own), value.tensor.rank), *range(n, len(own))))
