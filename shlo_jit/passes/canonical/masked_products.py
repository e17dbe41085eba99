"""Multiply only the rows that a mask leaves: products in which each group has a range of the rows and its own matrix.
This is how JAX writes `ragged_dot` for CPUs.

Needs: static shapes. Guarantees: nothing; such products become grouped products (`ops/grouped.py`).

    dot_general(select(starts <= m < ends, x[m, k], 0) : [g, m, k], w : [g, k, n]) over g and k
      ->   grouped_product(x, w, starts, ends)
    dot_general(select(... , x, 0) : [g, m, k], select(... , y, 0) : [g, m, n]) over m, for each g
      ->   grouped_product(x, y, starts, ends) with sums

Zeros that the mask leaves are no longer multiplied with numbers of `w`, which matters if these are NaN or infinite. So
`w` must be finite: known at compile time, or promised (`assume_finite`). Otherwise the products of zeros with `w` are
added, which reads `w` once (docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.finite import is_known_finite
from shlo_jit.ir.types import I64, tensor
from shlo_jit.ops.grouped import Grouped
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes import grouped
from shlo_jit.passes.context import Context
from shlo_jit.passes.finite_sources import are_zeros, is_bounded
from shlo_jit.passes.intervals import (
    BROADCAST,
    RESHAPE,
    TRANSPOSE,
    Bound,
    Place,
    bounds_of,
    range_of,
    same,
    splat,
    through,
    varying,
)
from shlo_jit.passes.rewriter import Rewriter, rewrite


class MaskedOperand(NamedTuple):
    """An operand that is 0 outside of an interval of positions along a dimension."""

    mask: Value
    source: Value
    """The operand without the mask."""
    dim: int
    bounds: list[Bound]
    varies: frozenset[int]
    """The dimensions that the mask depends on."""


def masked_products(function: Op, context: Context) -> Op:
    """The function with masked products replaced by grouped ones."""

    def visit(rw: Rewriter, op: Op, _: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.dot_general" or not all(v.tensor.is_fixed for v in (*op.operands, op.result)):
            return None
        r = roles_of(op)
        return (
            _added(rw, op, r, context, is_left=True)
            or _added(rw, op, _exchanged(r), context, is_left=False)
            or _separate(rw, op, r, context)
        )

    return rewrite(function, visit)


def _exchanged(r: Roles) -> Roles:
    return Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)


def _before_transposes(value: Value, r: Roles) -> tuple[Value, Roles]:
    """Returns the operand before it is transposed, and the roles of its dimensions there. Free dimensions keep their
    order."""
    while value.op is not None and value.op.name == "stablehlo.transpose":
        p = value.op.ints("permutation")
        batch, summed, free = (tuple(p[d] for d in dims) for dims in (r.lhs_batch, r.lhs_contracting, r.lhs_free))
        if list(free) != sorted(free):
            break
        value, r = value.op.operands[0], Roles(batch, r.rhs_batch, summed, r.rhs_contracting, free, r.rhs_free)
    return value, r


def _masked(value: Value, dims: Sequence[int]) -> MaskedOperand | None:
    """Returns the mask of an operand that is an interval along one of some dimensions."""
    op = value.op
    if op is None or op.name != "stablehlo.select" or splat(op.operands[2]) != 0:
        return None
    mask, source = op.operands[:2]
    if mask.tensor.rank != value.tensor.rank:
        return None
    for d in dims:
        bounds = bounds_of(mask, d)
        if bounds:
            return MaskedOperand(mask, source, d, bounds, varying(mask))
    return None


def _dropped(rw: Rewriter, value: Value, dim: int) -> Value:
    """Emits a value at index 0 of a dimension along which all elements are the same, without that dimension."""
    op = value.op
    if op is not None and op.name == "stablehlo.broadcast_in_dim" and dim not in op.ints("broadcast_dimensions"):
        where = [d - (d > dim) for d in op.ints("broadcast_dimensions")]
        return mk.broadcast(rw, rw.get(op.operands[0]), mk.drop_dim(mk.shape_of(value), dim), where)
    value = mk.slice_dim(rw, rw.get(value), dim, 0, 1)
    return mk.reshape(rw, value, mk.drop_dim(mk.shape_of(value), dim))


def _without(dims: Sequence[int], dropped: int) -> tuple[int, ...]:
    return tuple(d - (d > dropped) for d in dims if d != dropped)


# ---------------------------------------------------------------------------- products of all groups, added up
def _added(rw: Rewriter, op: Op, r: Roles, context: Context, *, is_left: bool) -> Sequence[Value] | None:
    """Replaces a product over groups, of which each has a range of rows. In `r` the masked operand is the left one."""
    rows, matrices = op.operands if is_left else op.operands[::-1]
    rows, r = _before_transposes(rows, r)
    m = _masked(rows, r.lhs_free)
    if m is None or not grouped.is_supported(rows, matrices, op.result.tensor.storage):
        return None
    same_along = frozenset(r.lhs_contracting) - varying(m.source)
    groups = [d for d in r.lhs_contracting if d in m.varies and d in same_along]
    if len(groups) != 1 or not m.varies <= {m.dim, groups[0], *r.lhs_batch, *r.lhs_free}:
        return None
    group = groups[0]
    right = r.rhs_contracting[r.lhs_contracting.index(group)]
    prefix = tuple(sorted(m.varies - {m.dim, group}))
    dims = (*prefix, group)
    shape = tuple(mk.shape_of(rows)[d] for d in dims)
    if shape[-1] < tuning.GROUPED_LEAST:
        return None
    bounds = range_of(rw, m.bounds, dims, shape, mk.shape_of(rows)[m.dim])
    summed = [d for d in r.lhs_contracting if d != group], [d for d in r.rhs_contracting if d != right]
    g = Grouped.of(
        (_without(r.lhs_batch, group), r.rhs_batch),
        (_without(summed[0], group), tuple(summed[1])),
        m.dim - (m.dim > group),
        right,
        tuple(d - (d > group) for d in prefix),
    )
    sides = _dropped(rw, m.source, group), rw.get(matrices)
    product = grouped.product(rw, g, sides, bounds, op.result.tensor.storage)
    if not _is_finite(matrices, context):
        product = _unless_finite(rw, product, g, sides, bounds, matrices)
    if is_left:
        return [product]
    n, rank = len(r.lhs_batch), product.tensor.rank
    split = n + len(r.lhs_free)
    return [mk.transpose(rw, product, (*range(n), *range(split, rank), *range(n, split)))]


def _is_finite(value: Value, context: Context) -> bool:
    """Whether all elements of a value are finite, or the caller promises it."""
    return context.assume_finite or not value.tensor.storage.is_float or is_known_finite(value) or is_bounded(value)


def _unless_finite(
    rw: Rewriter,
    product: Value,
    g: Grouped,
    sides: tuple[Value, Value],
    bounds: tuple[Value, Value],
    matrices: Value,
) -> Value:
    """Adds the products of zeros with matrices if one has numbers that are not finite. `matrices`: the operand of the
    original op."""
    zeros = are_zeros(rw, matrices)
    total = mk.reduce_sum(rw, zeros, range(zeros.tensor.rank))
    return mk.choose(
        rw,
        mk.compare(rw, "EQ", total, mk.splat_like(rw, total, 0)),
        lambda: [product],
        lambda: [_with_zeros(rw, product, g, sides, bounds)],
    )[0]


def _with_zeros(
    rw: Rewriter, product: Value, g: Grouped, sides: tuple[Value, Value], bounds: tuple[Value, Value]
) -> Value:
    """Adds the products of zeros with matrices, which are zeros or NaN, to the rows outside of each group's range."""
    lhs, rhs = sides
    zeros = mk.reduce_sum(rw, mk.apply(rw, "multiply", rhs, mk.splat_like(rw, rhs, 0)), g.rhs_sum)
    zeros = mk.convert(rw, zeros, product.tensor.storage)
    left = [d for d in range(rhs.tensor.rank) if d not in g.rhs_sum]
    free, columns = g.lhs_free(lhs.tensor.rank), g.rhs_free(rhs.tensor.rank)
    places = [*g.lhs_batch, *free]
    extents = (mk.shape_of(bounds[0])[-1], *mk.shape_of(product))
    named = {g.group: 0, **{d: 1 + i for i, d in enumerate(g.rhs_batch)}}
    named |= {d: 1 + len(places) + i for i, d in enumerate(columns)}
    where = [named[d] for d in left]
    order = sorted(range(len(where)), key=lambda i: where[i])
    zeros = mk.broadcast(rw, mk.transpose(rw, zeros, order), extents, sorted(where))
    row = mk.iota(rw, tensor(extents, I64), 1 + places.index(g.ragged))
    low, high = (_for_result(rw, bound, [1 + places.index(d) for d in g.prefix], extents) for bound in bounds)
    inside = mk.apply(rw, "and", mk.compare(rw, "GE", row, low), mk.compare(rw, "LT", row, high))
    outside = mk.apply(rw, "select", inside, mk.splat_like(rw, zeros, 0), zeros)
    return mk.apply(rw, "add", product, mk.reduce_sum(rw, outside, [0]))


def _for_result(rw: Rewriter, bound: Value, prefix: list[int], extents: tuple[int, ...]) -> Value:
    """Broadcasts a bound, whose last dimension is the groups, to [groups, result...]."""
    where = [*prefix, 0]
    order = sorted(range(len(where)), key=lambda i: where[i])
    return mk.broadcast(rw, mk.transpose(rw, bound, order), extents, sorted(where))


# ---------------------------------------------------------------------------- a product for each group
class Separate(NamedTuple):
    """A product over a range of rows for each group, with the masks of its operands."""

    values: tuple[Value, Value]
    """The operands. The one whose mask gives the ranges is without it, and so is the other one if it has the same."""
    roles: Roles
    masked_side: int
    """The operand whose mask gives the ranges: 0 or 1."""
    masked: MaskedOperand
    group: int
    """The dimension of that operand that numbers the groups, along which only the mask varies."""
    prefix: tuple[int, ...]
    """The numbers of the batch dimensions that the mask depends on as well."""

    @property
    def sides(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
        """Batch, contracting and free dimensions of both operands."""
        r = self.roles
        return (r.lhs_batch, r.lhs_contracting, r.lhs_free), (r.rhs_batch, r.rhs_contracting, r.rhs_free)

    @property
    def number(self) -> int | None:
        """The number of the groups among the batch dimensions; None if they are free rows or columns."""
        batch = self.sides[self.masked_side][0]
        return batch.index(self.group) if self.group in batch else None

    @property
    def place(self) -> int:
        """The dimension of the result that numbers the groups."""
        r, (batch, _, free) = self.roles, self.sides[self.masked_side]
        if self.number is not None:
            return self.number
        return len(batch) + self.masked_side * len(r.lhs_free) + free.index(self.group)


def _separate(rw: Rewriter, op: Op, r: Roles, context: Context) -> Sequence[Value] | None:
    """Replaces a product for each group over its range of rows."""
    lhs, rhs = op.operands
    if len(r.lhs_contracting) != 1 or not grouped.is_supported(lhs, rhs, op.result.tensor.storage):
        return None
    left, r = _before_transposes(lhs, r)
    right, exchanged = _before_transposes(rhs, _exchanged(r))
    r = _exchanged(exchanged)
    sides = [_masked(v, dims) for v, dims in ((left, r.lhs_contracting), (right, r.rhs_contracting))]
    zeros_meet_zeros = _have_same_mask(sides, r)
    for i, side in enumerate(sides):
        if side is None:
            continue
        # the ranges are those of one mask, so another mask stays
        values = [left, right]
        values[i] = side.source
        other = sides[1 - i]
        if zeros_meet_zeros and other is not None:
            values[1 - i] = other.source
        found = _groups_of((values[0], values[1]), r, i, side)
        if found is None or mk.shape_of(found.masked.mask)[found.group] < tuning.GROUPED_LEAST:
            continue
        if zeros_meet_zeros or _is_finite(values[1 - i], context):
            return [_sums(rw, op, found)]
    return None


def _groups_of(values: tuple[Value, Value], r: Roles, masked_side: int, masked: MaskedOperand) -> Separate | None:
    """Returns the product for each group if the mask of an operand has a dimension of groups."""
    batch, other = (r.lhs_batch, r.rhs_batch)[:: 1 - 2 * masked_side]
    free = (r.lhs_free, r.rhs_free)[masked_side]
    constant, shared = varying(values[masked_side]), varying(values[1 - masked_side])
    rest = masked.varies - {masked.dim}
    groups = [d for d in rest - constant if d in free or (d in batch and other[batch.index(d)] not in shared)]
    if len(groups) != 1 or masked.dim not in masked.varies or not rest - {groups[0]} <= {*batch}:
        return None
    prefix = tuple(sorted(batch.index(d) for d in rest - {groups[0]}))
    return Separate(values, r, masked_side, masked, groups[0], prefix)


def _have_same_mask(sides: Sequence[MaskedOperand | None], r: Roles) -> bool:
    """Whether both operands have the same mask, so that zeros only meet zeros."""
    one, two = sides
    if one is None or two is None or len(one.bounds) != len(two.bounds):
        return False
    return all(
        b.is_start == c.is_start and b.added == c.added and _are_same(_root(b.place), _root(c.place), r)
        for b, c in zip(one.bounds, two.bounds, strict=True)
    )


def _root(place: Place) -> Place:
    """The value before broadcasts and other moves."""
    while place.value.op is not None and place.value.op.name in (BROADCAST, TRANSPOSE, RESHAPE):
        inner = through(place.value.op, place)
        if inner is None:
            break
        place = inner
    return place


def _are_same(left: Place, right: Place, r: Roles) -> bool:
    """Whether values of the masks of both operands are the same for elements that a product multiplies: their
    dimensions are the same batch or contracting dimensions."""
    pairs = {*zip(r.lhs_batch, r.rhs_batch, strict=True), *zip(r.lhs_contracting, r.rhs_contracting, strict=True)}
    extents = left.value.tensor.extents
    return same(left.value, right.value) and all(
        n == 1 or (d, e) in pairs for n, d, e in zip(extents, left.dims, right.dims, strict=True)
    )


def _sums(rw: Rewriter, op: Op, s: Separate) -> Value:
    """Emits the product for each group."""
    own, shape = s.sides[s.masked_side][0], mk.shape_of(s.masked.mask)
    dims = (*(own[n] for n in s.prefix), s.group)
    bounds = range_of(rw, s.masked.bounds, dims, tuple(shape[d] for d in dims), shape[s.masked.dim])
    sides, drops = [], []
    for side, (value, (batch, _, _)) in enumerate(zip(s.values, s.sides, strict=True)):
        drop = s.group if side == s.masked_side else None if s.number is None else batch[s.number]
        sides.append(rw.get(value) if drop is None else _dropped(rw, value, drop))
        drops.append(drop)
    (lb, lc, _), (rb, rc, _) = s.sides
    batches, summed = ((_rest(x, drops[0]), _rest(y, drops[1])) for x, y in ((lb, rb), (lc, rc)))
    prefix = _rest([lb[n] for n in s.prefix], drops[0])
    g = Grouped.of(batches, summed, summed[0][0], None, prefix)
    product = grouped.product(rw, g, (sides[0], sides[1]), bounds, op.result.tensor.storage)
    return mk.transpose(rw, product, (*range(1, s.place + 1), 0, *range(s.place + 1, product.tensor.rank)))


def _rest(dims: Sequence[int], dropped: int | None) -> tuple[int, ...]:
    return tuple(dims) if dropped is None else _without(dims, dropped)
