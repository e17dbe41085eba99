"""Matrices of zeros with at most one number in each row, whose column an index says, and sums of a few of them.

    convert(compare EQ, iota along d, index)         1 at position `index` along d, 0 elsewhere
    select(compare EQ, iota along d, index; s, 0)    s there
    one_hot(e)[t, e, 1] * one_hot(c)[t, 1, c] * scale[t, 1, 1]        a number at (e, c) for each t
    one_hot(e)[t, k, e] * gate[t, k, 1], added up over k              a number at e[t, k] for each t and k

This is how programs write selections of rows as products: `jax.nn.one_hot`, and mixtures of experts whose tokens are
dispatched to places of experts.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes.intervals import (
    BROADCAST,
    DEPTH,
    MOST_OFFSET,
    RESHAPE,
    TRANSPOSE,
    Place,
    inner_dim,
    is_i64,
    position,
    splat,
    through,
    varying,
)
from shlo_jit.passes.masked_weights import is_truth

MOVES = (BROADCAST, TRANSPOSE, RESHAPE)
MOST_TERMS = 8
"""Maximum one-hot values of a sum."""


class Index(NamedTuple):
    """The position along a dimension where a row has its number: the elements of `place` and `added`."""

    place: Place
    added: int


class Factor(NamedTuple):
    """A factor of the number of each row."""

    place: Place
    is_sum: bool
    """Whether it is the sum of a row of `place`, whose other elements are zeros; otherwise `place` does not vary along
    a row."""
    is_selected: bool = False
    """Whether a select sets the other elements of a row to 0, so that they are 0 whatever the factor is."""


class OneHot(NamedTuple):
    """A value of zeros with at most one number for each index of the dimensions that are not in `hot`."""

    hot: dict[int, Index]
    """Dimension of the value -> position along it."""
    factors: tuple[Factor, ...]
    """Factors of the numbers; without any, they are 1."""
    added: dict[int, int] = {}  # noqa: RUF012  (never changed)
    """Dimensions besides those of the value that it is added up over, and their extents."""


def one_hots_of(value: Value, candidates: Candidates) -> list[OneHot] | None:
    """Returns the one-hot values with the same one-hot dimensions whose sum a value is; None if it is not known to be
    one. `candidates` are those of the function."""
    if not value.tensor.is_fixed or not candidates.has(value):
        return None
    return _Finder(candidates).terms(Place(value, tuple(range(value.tensor.rank))), DEPTH)


class Candidates:
    """The values of a function that may be one-hot by their ops alone, however far away the comparison is. There are
    few, and each value is looked at once, while products of products could be followed along very many paths."""

    def __init__(self) -> None:
        self.known: dict[Value, bool] = {}

    def has(self, value: Value) -> bool:
        todo = [value]
        while todo:
            current = todo[-1]
            sources = _sources(current)
            left = [v for v in sources if v not in self.known]
            if current in self.known or not left:
                if current not in self.known:
                    self.known[current] = self._of(current, sources)
                todo.pop()
            else:
                todo += left
        return self.known[value]

    def _of(self, value: Value, sources: list[Value]) -> bool:
        op = value.op
        if op is not None and op.name == "stablehlo.compare":
            return op.attributes["comparison_direction"].value == "EQ"
        every = all if op is not None and op.name == "stablehlo.add" else any
        return bool(sources) and every(self.known[v] for v in sources)


def _sources(value: Value) -> list[Value]:
    """The operands of which a value is one-hot if one of them is, or all of them in a sum."""
    op = value.op
    if op is None:
        return []
    if op.name in ("stablehlo.multiply", "stablehlo.add", "stablehlo.dot_general"):
        return op.operands
    is_followed = op.name in (*MOVES, "stablehlo.convert", "stablehlo.select", "stablehlo.reduce")
    return op.operands[:1] if is_followed else []


class _Finder:
    """Looks at each value once: ops may share operands."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.known: dict[Place, list[OneHot] | None] = {}
        self.next_dim = 1 << 16
        """Number of the next dimension that is added up over."""

    def terms(self, place: Place, depth: int) -> list[OneHot] | None:
        if place not in self.known:
            found = self.by_op(place, depth)
            self.known[place] = found if found is not None and _agree(found) else None
        return self.known[place]

    def by_op(self, place: Place, depth: int) -> list[OneHot] | None:
        op = place.value.op
        if op is None or not depth or not self.candidates.has(place.value):
            return None
        if op.name == "stablehlo.convert":
            found = self.terms(Place(op.operands[0], place.dims), depth - 1)
            # 0 and 1 are exact in every type
            return found if found is not None and len(found) == 1 and _is_one(found[0]) else None
        if op.name == "stablehlo.compare":
            return _compared(op, place)
        if op.name == "stablehlo.select":
            return self.selected(op, place, depth)
        if op.name in MOVES:
            inner = through(op, place)
            found = None if inner is None else self.terms(inner, depth - 1)
            return found if found is not None and all(_is_kept(op, place, one) for one in found) else None
        if op.name == "stablehlo.multiply":
            return self.multiplied(op, place, depth)
        if op.name == "stablehlo.add":
            parts = [self.terms(Place(v, place.dims), depth - 1) for v in op.operands]
            return [one for part in parts for one in part or ()] if None not in parts else None
        if op.name == "stablehlo.reduce":
            return self.summed(op, place, depth)
        return self.product(op, place, depth) if op.name == "stablehlo.dot_general" else None

    def selected(self, op: Op, place: Place, depth: int) -> list[OneHot] | None:
        predicate, number, other = op.operands
        if splat(other) != 0 or predicate.tensor.rank != len(place.dims):
            return None
        found = self.terms(Place(predicate, place.dims), depth - 1)
        if found is None or len(found) != 1 or not _is_one(found[0]) or _along(found[0], number, place):
            return None
        factor = () if splat(number) == 1 else (Factor(Place(number, place.dims), False, True),)
        return [found[0]._replace(factors=factor)]

    def multiplied(self, op: Op, place: Place, depth: int) -> list[OneHot] | None:
        x, y = op.operands
        sides = [self.terms(Place(v, place.dims), depth - 1) for v in (x, y)]
        if all(found is not None and len(found) == 1 for found in sides):
            (one,), (other,) = (found for found in sides if found)
            if not one.hot.keys() & other.hot.keys():
                is_separate = not (_along(one, y, place) or _along(other, x, place) or one.added or other.added)
                return [OneHot(one.hot | other.hot, one.factors + other.factors)] if is_separate else None
        for found, factor in zip(sides, (y, x), strict=True):
            if found is None:
                continue
            if not any(_along(one, factor, place) for one in found):
                own = Factor(Place(factor, place.dims), False)
                return [one._replace(factors=(*one.factors, own)) for one in found]
            if is_truth(factor) and len(found) == 1 and not found[0].added:  # zeros times finite numbers
                return [OneHot(found[0].hot, (Factor(place, True),))]
        return None

    def new_dims(self, extents: list[int]) -> dict[int, int]:
        found = {self.next_dim + i: n for i, n in enumerate(extents)}
        self.next_dim += len(found)
        return found

    def summed(self, op: Op, place: Place, depth: int) -> list[OneHot] | None:
        """Sums over dimensions that are not one-hot."""
        body, value = op.block().ops, op.operands[0]
        if len(op.results) != 1 or len(body) != 2 or body[0].name != "stablehlo.add" or splat(op.operands[1]) != 0:
            return None
        over = op.ints("dimensions")
        added = self.new_dims([value.tensor.extents[d] for d in over])
        own, kept = dict(zip(over, added, strict=True)), iter(place.dims)
        dims = tuple(own[d] if d in own else next(kept) for d in range(value.tensor.rank))
        return _added(self.terms(Place(value, dims), depth - 1), added)

    def product(self, op: Op, place: Place, depth: int) -> list[OneHot] | None:
        """Products for each index of batch dimensions, added up over dimensions that are not one-hot."""
        r, n, m = roles_of(op), len(roles_of(op).lhs_batch), len(roles_of(op).lhs_free)
        added = self.new_dims([op.operands[0].tensor.extents[d] for d in r.lhs_contracting])
        batch, left, right = place.dims[:n], place.dims[n : n + m], place.dims[n + m :]
        places = []
        for v, roles, free in (
            (op.operands[0], (r.lhs_batch, r.lhs_contracting, r.lhs_free), left),
            (op.operands[1], (r.rhs_batch, r.rhs_contracting, r.rhs_free), right),
        ):
            numbers = (batch, tuple(added), free)
            own = {d: e for ds, es in zip(roles, numbers, strict=True) for d, e in zip(ds, es, strict=True)}
            places.append(Place(v, tuple(own[d] for d in range(len(own)))))
        sides = [self.terms(p, depth - 1) for p in places]
        if all(found is not None and len(found) == 1 for found in sides):
            (one,), (other,) = (found for found in sides if found)
            is_free = not (one.added or other.added or (one.hot.keys() | other.hot.keys()) & added.keys())
            is_separate = one.hot.keys() <= {*left} and other.hot.keys() <= {*right}
            both = [OneHot(one.hot | other.hot, one.factors + other.factors)]
            return _added(both, added) if is_free and is_separate else None
        for found, factor, free in ((sides[0], places[1], left), (sides[1], places[0], right)):
            # a factor for each row, which has no free dimensions of its own
            is_free = found is not None and all(one.hot.keys() <= {*free} for one in found)
            if found is not None and is_free and {*factor.dims} <= {*batch, *added}:
                own = Factor(factor, False)
                return _added([one._replace(factors=(*one.factors, own)) for one in found], added)
        return None


def _added(found: list[OneHot] | None, added: dict[int, int]) -> list[OneHot] | None:
    """One-hot values, added up over more dimensions."""
    if found is None or any(one.hot.keys() & added.keys() for one in found):
        return None
    if any(f.is_sum for one in found for f in one.factors):
        return None
    return [one._replace(added=one.added | added) for one in found]


def _agree(found: list[OneHot]) -> bool:
    return len(found) <= MOST_TERMS and all(one.hot.keys() == found[0].hot.keys() for one in found)


def _is_one(one: OneHot) -> bool:
    return not one.factors and not one.added


def _is_kept(op: Op, place: Place, one: OneHot) -> bool:
    """Whether the operand of a move has the one-hot dimensions of its result."""
    return all(inner_dim(op, place.dims.index(d)) is not None for d in one.hot)


def _compared(op: Op, place: Place) -> list[OneHot] | None:
    if op.attributes["comparison_direction"].value != "EQ":
        return None
    for own, dim in enumerate(place.dims):
        if dim < 0 or op.result.tensor.extents[own] == 1:
            continue
        for x, y in (op.operands, op.operands[::-1]):
            first = position(x, own)
            if first is not None and abs(first) < MOST_OFFSET and own not in varying(y) and is_i64(y):
                return [OneHot({dim: Index(Place(y, place.dims), -first)}, ())]
    return None


def _along(found: OneHot, value: Value, place: Place) -> bool:
    """Whether a value varies along a row of a one-hot value."""
    return any(place.dims[d] in found.hot for d in varying(value))
