"""Values for some pairs of a row and a group only: a tensor over rows and groups is computed for the pairs that are
asked for.

    y[t, e, f] = tanh(sum over d of x[t, d] * w[e, d, f])     for pairs (t, e) in order of their groups
      ->   tanh(grouped_product(gather(x, t), w, starts, ends))[pair, f]

Elementwise ops, outer products, and products with a matrix for each group are followed, and other values are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I32, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.grouped import Grouped
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes import grouped
from shlo_jit.passes.intervals import BROADCAST, DEPTH, RESHAPE, TRANSPOSE, Place, through, varying
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.passes.rows import gather_rows

MOVES = (BROADCAST, TRANSPOSE, RESHAPE)


class Sides(NamedTuple):
    """A product of rows with a matrix for each group. Dimensions are numbered as those of the tensor asked for; those
    that are contracted have numbers of their own."""

    rows: Place
    matrices: Place
    summed: tuple[int, ...]


class Space:
    """The dimensions of a tensor over rows and groups: `rows` and `group` are numbers of dimensions."""

    def __init__(self, extents: Sequence[int], rows: Sequence[int], group: int) -> None:
        self.extents = dict(enumerate(extents))
        self.rows, self.group = frozenset(rows), group
        self.numbers = self.rows | {group}
        self.sides: dict[Place, Sides | None] = {}
        self.found: dict[Place, bool] = {}

    def varies(self, place: Place) -> frozenset[int]:
        """The dimensions along which a value may differ."""
        return frozenset(place.dims[d] for d in varying(place.value)) - {-1}

    def product(self, place: Place) -> Sides | None:
        """Returns the sides of a product of rows with a matrix for each group."""
        if place not in self.sides:
            self.sides[place] = self._product(place)
        return self.sides[place]

    def _product(self, place: Place) -> Sides | None:
        op = place.value.op
        if op is None or op.name != "stablehlo.dot_general":
            return None
        r, (lhs, rhs) = roles_of(op), op.operands
        if not r.lhs_contracting or not grouped.is_supported(lhs, rhs, op.result.tensor.storage):
            return None
        n, m = len(r.lhs_batch), len(r.lhs_free)
        batch, left, right = place.dims[:n], place.dims[n : n + m], place.dims[n + m :]
        first = max(self.extents) + 1
        summed = tuple(range(first, first + len(r.lhs_contracting)))
        self.extents.update(zip(summed, (lhs.tensor.extents[d] for d in r.lhs_contracting), strict=True))
        one = _numbered(lhs, (r.lhs_batch, r.lhs_free, r.lhs_contracting), (batch, left, summed))
        two = _numbered(rhs, (r.rhs_batch, r.rhs_free, r.rhs_contracting), (batch, right, summed))
        for rows, matrices, free in ((one, two, left), (two, one, right)):
            if self.group in matrices.dims and {*batch} <= {self.group} and {*free} <= self.rows:
                return Sides(rows, matrices, summed)
        return None

    def has_product(self, place: Place, depth: int = DEPTH) -> bool:
        """Whether a value is computed from such a product by elementwise ops, moves and other such products."""
        if place not in self.found:
            self.found[place] = bool(depth) and any(
                self.product(p) is not None or self.has_product(p, depth - 1) for p in self.inner(place)
            )
        return self.found[place] or self.product(place) is not None

    def is_followed(self, place: Place) -> bool:
        """Whether a value is computed for the pairs from its operands, and is no array to gather from."""
        own = self.varies(place)
        if not own & self.rows or not own & {self.group} or own <= self.numbers:
            return self.has_product(place)
        return bool(self.inner(place))

    def inner(self, place: Place) -> list[Place]:
        """The operands of an op that is followed."""
        op = place.value.op
        if op is None:
            return []
        if op.name in MOVES:
            found = through(op, place)
            return [] if found is None else [found]
        if (sides := self.product(place)) is not None:
            return [sides.rows]
        if op.name == "stablehlo.dot_general":
            return outer_factors(op, place)
        if is_elementwise(op) and op.operands and len(op.results) == 1 and not op.regions:
            return [Place(v, place.dims) for v in op.operands if v.tensor.rank == len(place.dims)]
        return []


def outer_factors(op: Op, place: Place) -> list[Place]:
    """The operands of a product that adds nothing up; none of other ops."""
    if op.name != "stablehlo.dot_general" or (r := roles_of(op)).lhs_contracting:
        return []
    n, m = len(r.lhs_batch), len(r.lhs_free)
    one = _numbered(op.operands[0], (r.lhs_batch, r.lhs_free), (place.dims[:n], place.dims[n : n + m]))
    return [one, _numbered(op.operands[1], (r.rhs_batch, r.rhs_free), (place.dims[:n], place.dims[n + m :]))]


def _numbered(value: Value, roles: Sequence[tuple[int, ...]], numbers: Sequence[tuple[int, ...]]) -> Place:
    found = {d: n for dims, own in zip(roles, numbers, strict=True) for d, n in zip(dims, own, strict=True)}
    return Place(value, tuple(found[d] for d in range(value.tensor.rank)))


class Pairs:
    """Emits values for pairs in the order of their groups."""

    def __init__(
        self, rw: Rewriter, space: Space, count: int, indices: dict[int, Value], bounds: tuple[Value, Value]
    ) -> None:
        """`indices`: the index of each pair along each dimension of rows and groups, i32. `bounds`: where the pairs of
        each group start and end."""
        self.rw, self.space, self.count, self.indices, self.bounds = rw, space, count, indices, bounds
        self.known: dict[tuple[Place, tuple[int, ...]], Value] = {}

    def of(self, place: Place, wanted: tuple[int, ...]) -> Value:
        """Returns the elements of a value for each pair, with these dimensions besides."""
        key = (place, wanted)
        if key not in self.known:
            is_followed = self.space.is_followed(place)
            self.known[key] = self._followed(place, wanted) if is_followed else self._gathered(place, wanted)
        return self.known[key]

    def _shape(self, dims: Sequence[int]) -> tuple[int, ...]:
        return (self.count, *(self.space.extents[d] for d in dims))

    def _arranged(self, value: Value, own: Sequence[int], wanted: Sequence[int]) -> Value:
        """A value for each pair, with its dimensions in another order and repeated along others."""
        order = sorted(range(len(own)), key=lambda i: wanted.index(own[i]))
        value = mk.transpose(self.rw, value, (0, *(i + 1 for i in order)))
        return mk.broadcast(self.rw, value, self._shape(wanted), (0, *(wanted.index(own[i]) + 1 for i in order)))

    def _followed(self, place: Place, wanted: tuple[int, ...]) -> Value:
        op = place.value.op
        assert op is not None
        if (sides := self.space.product(place)) is not None:
            return self.product(op, sides, wanted)
        found = self.space.inner(place)
        if op.name in MOVES:
            return self.of(found[0], wanted)
        if op.name == "stablehlo.dot_general":
            factors = (mk.convert(self.rw, self.of(p, wanted), op.result.tensor.storage) for p in found)
            return mk.apply(self.rw, "multiply", *factors)
        inner = {p.value: p for p in found}
        operands = [self.of(inner[v], wanted) if v in inner else self.rw.get(v) for v in op.operands]
        t = tensor(self._shape(wanted), op.result.tensor.storage)
        return self.rw.emit1(op.name, operands, t, op.attributes)

    def product(self, op: Op, sides: Sides, wanted: Sequence[int]) -> Value:
        """Emits a product for each pair with the matrix of its group."""
        rows = self.of(sides.rows, sides.summed)
        own = sides.matrices.dims
        group = own.index(self.space.group)
        summed = tuple(own.index(d) for d in sides.summed)
        g = Grouped.of(((), ()), (tuple(range(1, rows.tensor.rank)), summed), 0, group, ())
        matrices = self.rw.get(sides.matrices.value)
        made = grouped.product(self.rw, g, (rows, matrices), self.bounds, op.result.tensor.storage)
        return self._arranged(made, [d for d in own if d != self.space.group and d not in sides.summed], wanted)

    def _gathered(self, place: Place, wanted: Sequence[int]) -> Value:
        """Emits the rows of an array."""
        rw, value, extents = self.rw, self.rw.get(place.value), self.space.extents
        for d, n in enumerate(mk.shape_of(value)):
            if n != 1 and d not in varying(place.value) and place.dims[d] not in wanted:
                value = mk.slice_dim(rw, value, d, 0, 1)
        wide = [d for d, n in enumerate(mk.shape_of(value)) if n != 1]
        numbered = [d for d in wide if place.dims[d] in self.space.numbers]
        rest = [d for d in wide if d not in numbered]
        own = [place.dims[d] for d in rest]
        value = mk.transpose(rw, value, [*numbered, *rest, *(d for d in range(len(place.dims)) if d not in wide)])
        if not numbered:
            value = mk.reshape(rw, value, [extents[d] for d in own])
            order = sorted(range(len(own)), key=lambda i: wanted.index(own[i]))
            value = mk.transpose(rw, value, order)
            return mk.broadcast(rw, value, self._shape(wanted), [wanted.index(own[i]) + 1 for i in order])
        count = prod(extents[place.dims[d]] for d in numbered)
        value = mk.reshape(rw, value, (count, prod(extents[d] for d in own)) if own else (count,))
        rows = gather_rows(rw, value, self._number([place.dims[d] for d in numbered]))
        return self._arranged(mk.reshape(rw, rows, self._shape(own)), own, wanted)

    def _number(self, dims: Sequence[int]) -> Value:
        """Emits the number of each pair's row among all indices of some dimensions."""
        rw, number = self.rw, self.indices[dims[0]]
        for d in dims[1:]:
            wide = mk.apply(rw, "multiply", number, mk.constant(rw, tensor((self.count,), I32), self.space.extents[d]))
            number = mk.apply(rw, "add", wide, self.indices[d])
        return number
