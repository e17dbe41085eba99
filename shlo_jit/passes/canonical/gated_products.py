"""Multiply rows only with the matrices of groups whose gate is not zero: experts without capacity.

Needs: static shapes. Guarantees: nothing. A gate is a factor for each row and group. Which gates are zero is found at
run time, so they may be computed in any way, or be arguments. The pairs of a row and a group with another gate are
ordered by groups, and become rows of grouped products (`ops/grouped.py`).

    dot_general(g[t, e] * x[t, d], w[e, d, f]) over e and d
    reduce(add, g[t, e] * y[t, e, f]) over e,   dot_general(g[t, e], y[t, e, f]) over e for each t
                                                where y is computed from dot_general(x[t, d], w[e, d, f])
      ->   if few gates are not zero, and all numbers are finite: sum for each t over its pairs, else as written
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.finite import is_known_finite
from shlo_jit.ir.types import F32, I1, I32, DType, tensor
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes import grouped
from shlo_jit.passes.context import Context
from shlo_jit.passes.finite_sources import is_bounded
from shlo_jit.passes.intervals import DEPTH, Place, splat, through, varying
from shlo_jit.passes.magnitudes import Magnitudes
from shlo_jit.passes.pairs import MOVES, Pairs, Sides, Space, outer_factors
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.rows import add_rows, running_sums
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.updates import Uses

MOST = 2.0**100
"""Numbers below are far from overflow."""
DENSE = frozenset(f"stablehlo.{n}" for n in ("exponential", "logistic", "tanh", "dot_general"))
"""Ops whose results are hardly ever zero."""


class Gated(NamedTuple):
    """A sum over groups of gated numbers."""

    op: Op
    terms: Place
    """The numbers that are added up over groups, or the rows of the product that adds them up. Dimensions are those of
    the space."""
    gate: Place
    is_factor: bool
    """Whether terms are to be multiplied with the gate; otherwise they are already."""
    space: Space
    product: Sides | None
    """The product that adds terms up."""
    columns: tuple[int, ...]
    """The dimensions of the result besides rows."""
    order: tuple[int, ...]
    """The dimensions of the result."""

    @property
    def rows(self) -> list[int]:
        return sorted(self.space.rows)

    @property
    def row_count(self) -> int:
        return prod(self.space.extents[d] for d in self.rows)

    @property
    def groups(self) -> int:
        return self.space.extents[self.space.group]

    @property
    def most(self) -> int:
        """Pairs up to which they are multiplied separately."""
        return self.row_count * max(1, min(self.groups // 2, max(2, self.groups // 4)))

    @property
    def sum_type(self) -> DType:
        found = self.op.result.tensor.storage
        return found if found.bits >= F32.bits else F32


def gated_products(function: Op, context: Context) -> Op:
    """The function with gated products that choose at run time what is multiplied."""
    if not any(op.name == "stablehlo.dot_general" and _is_for_groups(op) for op in walk(function.block())):
        return function
    uses = Uses(function.block())
    found = {op: s for op in walk(function.block()) if (s := _gated(op, uses, context)) is not None}

    def visit(rw: Rewriter, op: Op, _: list[Value]) -> Sequence[Value] | None:
        return [_rewritten(rw, found[op], context)] if op in found else None

    # ops that are written again would otherwise be found equal to those that only they replace
    return eliminate(rewrite(function, visit)) if found else function


def _is_for_groups(op: Op) -> bool:
    """Whether an operand of a product may hold a matrix for each group."""
    return any(v.tensor.is_fixed and v.tensor.rank >= 3 for v in op.operands)


# ---------------------------------------------------------------------------- patterns
def _gated(op: Op, uses: Uses, context: Context) -> Gated | None:
    if op.name == "stablehlo.dot_general" and all(v.tensor.is_fixed for v in (*op.operands, op.result)):
        found = [*_of_product(op), *_weighted(op)]
    elif op.name == "stablehlo.reduce" and len(op.results) == 1 and op.operands[0].tensor.is_fixed:
        found = [*_of_sum(op)]
    else:
        return None
    return next((s for s in found if _pays(s, uses, context)), None)


def _of_product(op: Op) -> Iterable[Gated]:
    """Products of gated rows, over groups and the elements of rows."""
    r = roles_of(op)
    if r.lhs_batch or len(r.lhs_contracting) < 2:
        return
    for i, (free, summed, others, right) in enumerate(
        ((r.lhs_free, r.lhs_contracting, r.rhs_contracting, r.rhs_free),
         (r.rhs_free, r.rhs_contracting, r.lhs_contracting, r.lhs_free))
    ):  # fmt: skip
        value, matrices = op.operands if i == 0 else op.operands[::-1]
        terms = Place(value, tuple(range(value.tensor.rank)))
        n = value.tensor.rank
        extents = (*value.tensor.extents, *(matrices.tensor.extents[d] for d in right))
        columns = tuple(range(n, n + len(right)))
        own = {**dict(zip(others, summed, strict=True)), **dict(zip(right, columns, strict=True))}
        for group in sorted(summed, key=lambda d: value.tensor.extents[d]):
            space = Space(extents, free, group)
            gate = _gate_of(terms, partial(_is_gate, space=space))
            if gate is not None and grouped.is_supported(value, matrices, op.result.tensor.storage):
                sides = Sides(
                    terms, Place(matrices, tuple(own[d] for d in range(matrices.tensor.rank))),
                    tuple(d for d in summed if d != group),
                )  # fmt: skip
                order = (*free, *columns) if i == 0 else (*columns, *free)
                yield Gated(op, terms, gate, False, space, sides, columns, order)


def _weighted(op: Op) -> Iterable[Gated]:
    """Products of gates with what groups have computed, for each row."""
    r = roles_of(op)
    if len(r.lhs_contracting) != 1 or not r.lhs_batch:
        return
    for i in range(2):
        gate, value = op.operands if i == 0 else op.operands[::-1]
        free, batch = ((r.lhs_free, r.lhs_batch), (r.rhs_free, r.rhs_batch))[i]
        rows, group = ((r.rhs_batch, r.rhs_contracting[0]), (r.lhs_batch, r.lhs_contracting[0]))[i]
        if free or _is_dense(gate):
            continue
        space = Space(value.tensor.extents, rows, group)
        terms = Place(value, tuple(range(value.tensor.rank)))
        own = {(r.lhs_contracting, r.rhs_contracting)[i][0]: group, **dict(zip(batch, rows, strict=True))}
        place = Place(gate, tuple(own[d] for d in range(gate.tensor.rank)))
        columns = tuple(d for d in range(value.tensor.rank) if d not in space.numbers)
        if space.has_product(terms) and group in space.varies(place):
            yield Gated(op, terms, place, True, space, None, columns, (*rows, *columns))


def _of_sum(op: Op) -> Iterable[Gated]:
    """Sums over groups of gated numbers."""
    body, dims = op.block().ops, op.ints("dimensions")
    if len(body) != 2 or body[0].name != "stablehlo.add" or len(dims) != 1 or splat(op.operands[1]) != 0:
        return
    value, group = op.operands[0], dims[0]
    terms = Place(value, tuple(range(value.tensor.rank)))
    others = tuple(d for d in terms.dims if d != group)
    whole = Space(value.tensor.extents, others, group)
    wide = {d for d in terms.dims if whole.extents[d] != 1}

    def is_gate(place: Place) -> bool:
        own = whole.varies(place)
        return group in own and len(own) > 1 and own != wide and not _is_dense(place.value)

    gate = _gate_of(terms, is_gate)
    if gate is None:
        return
    space = Space(value.tensor.extents, sorted(whole.varies(gate) - {group}), group)
    if space.has_product(terms):
        yield Gated(op, terms, gate, False, space, None, tuple(d for d in others if d not in space.rows), others)


def _gate_of(place: Place, is_gate: Callable[[Place], bool], depth: int = DEPTH) -> Place | None:
    """Returns a factor of a value that is a gate, or the mask of a select."""
    op = place.value.op
    if op is None or not depth:
        return None
    if op.name in MOVES:
        found = [through(op, place)]
    elif op.name == "stablehlo.convert":
        found = [Place(op.operands[0], place.dims)]
    elif op.name == "stablehlo.select":
        mask = Place(op.operands[0], place.dims)
        is_mask = splat(op.operands[2]) == 0 and op.operands[0].tensor.rank == len(place.dims)
        return mask if is_mask and is_gate(mask) else None
    elif op.name == "stablehlo.multiply":
        found = [Place(v, place.dims) for v in op.operands]
    else:
        found = outer_factors(op, place)
    factors = [f for f in found if f is not None]
    gate = next((f for f in factors if is_gate(f)), None)
    return gate or next((g for f in factors if (g := _gate_of(f, is_gate, depth - 1)) is not None), None)


def _is_gate(place: Place, space: Space) -> bool:
    own = space.varies(place)
    return space.group in own and own <= space.numbers and not _is_dense(place.value)


def _is_dense(value: Value, depth: int = DEPTH) -> bool:
    """Whether a value's elements are hardly ever zero, as those of a softmax."""
    op = value.op
    if op is None or not depth:
        return False
    if op.name in (*MOVES, "stablehlo.convert", "stablehlo.divide"):
        return _is_dense(op.operands[0], depth - 1)
    if op.name in ("stablehlo.multiply", "stablehlo.add"):
        return all(_is_dense(v, depth - 1) for v in op.operands)
    return op.name in DENSE or splat(value) not in (None, 0)


# ---------------------------------------------------------------------------- profit
def _pays(s: Gated, uses: Uses, context: Context) -> bool:
    """Whether the products for all pairs are expensive, and are needed for the sum only."""
    if _is_alternative(s.op, uses):
        return False
    if s.groups < tuning.GROUPED_LEAST or not s.op.result.tensor.storage.is_float or s.most >= 1 << 31:
        return False
    inner = [p for p in _cone(s) if s.space.product(p) is not None]
    sides = [*(side for p in inner if (side := s.space.product(p)) is not None), *([s.product] if s.product else [])]
    if not sides or max(side.matrices.value.tensor.size for side in sides) < s.groups * tuning.GATED_LEAST:
        return False
    # Groups that have terms of their own are parts of a long sum, and their gates are scales.
    if s.product is None and all(s.space.group in s.space.varies(side.rows) for side in sides):
        return False
    matrices = [side.matrices.value for side in sides]
    is_tested = not context.assume_finite and not all(is_known_finite(m) or is_bounded(m) for m in matrices)
    if is_tested and s.row_count < tuning.RANGED_LEAST_ROWS:
        return False
    cone = {p.value.op for p in _cone(s)} | {s.op}
    return all(reader in cone for p in inner for reader in uses.readers.get(p.value, ()))


def _is_alternative(op: Op, uses: Uses) -> bool:
    """Whether an op is in a branch whose other branch multiplies ranges of rows: this pass has written both."""
    parent = uses.parents.get(uses.place[op][0])
    if parent is None or parent.name != "stablehlo.if":
        return False
    return any(grouped_of(o) is not None for o in parent.block(0).ops)


def _cone(s: Gated) -> list[Place]:
    """The values that are computed for pairs from others."""
    found: dict[Place, None] = {}
    todo = [s.terms]
    while todo:
        place = todo.pop()
        if place not in found and s.space.is_followed(place):
            found[place] = None
            todo += s.space.inner(place)
    return [*found]


# ---------------------------------------------------------------------------- both forms
def _rewritten(rw: Rewriter, s: Gated, context: Context) -> Value:
    """Emits the test and both forms."""
    mask = _mask(rw, s)
    counts = mk.reduce_sum(rw, mk.convert(rw, mask, I32), [1])
    starts, ends = grouped.edges(rw, counts)
    total = mk.reshape(rw, mk.slice_dim(rw, ends, 0, s.groups - 1, s.groups), ())
    is_few = mk.compare(rw, "LE", total, mk.splat_like(rw, total, s.most))
    if not context.assume_finite:
        no = lambda: [mk.constant(rw, tensor((), I1), False)]  # noqa: E731
        is_few = mk.choose(rw, is_few, lambda: [_are_finite(rw, s)], no)[0]
    return mk.choose(rw, is_few, lambda: [_by_pairs(rw, s, mask, (starts, ends), total)], lambda: [_again(rw, s)])[0]


def _mask(rw: Rewriter, s: Gated) -> Value:
    """Emits whether a gate is not zero, for each group and row."""
    value, dims = rw.get(s.gate.value), s.gate.dims
    for d, n in enumerate(mk.shape_of(value)):
        if n != 1 and d not in varying(s.gate.value):
            value = mk.slice_dim(rw, value, d, 0, 1)
    wide = [d for d, n in enumerate(mk.shape_of(value)) if n != 1]
    wide.sort(key=lambda d: (dims[d] != s.space.group, dims[d]))
    value = mk.transpose(rw, value, [*wide, *(d for d in range(len(dims)) if d not in wide)])
    value = mk.reshape(rw, value, [s.space.extents[dims[d]] for d in wide])
    if value.tensor.storage.kind != "b":
        value = mk.compare(rw, "NE", value, mk.splat_like(rw, value, 0))
    where = [0, *(s.rows.index(dims[d]) + 1 for d in wide[1:])]
    value = mk.broadcast(rw, value, [s.groups, *(s.space.extents[d] for d in s.rows)], where)
    return mk.reshape(rw, value, (s.groups, s.row_count))


def _are_finite(rw: Rewriter, s: Gated) -> Value:
    """Emits whether all products with a gate of zero are zero."""
    cone = {p.value for p in _cone(s)}
    bounds = Magnitudes(rw, lambda v: v not in cone)
    values = [s.terms.value, *([s.product.matrices.value] if s.product else [])]
    found = None
    for value in values:
        bound = bounds.of(value)
        if bound is None:
            return mk.constant(rw, tensor((), I1), False)
        is_small = mk.compare(rw, "LT", bound, mk.splat_like(rw, bound, MOST))
        found = is_small if found is None else mk.apply(rw, "and", found, is_small)
    assert found is not None
    return found


def _by_pairs(rw: Rewriter, s: Gated, mask: Value, bounds: tuple[Value, Value], total: Value) -> Value:
    """Emits the sum of each row over its pairs."""
    number = _numbers_of_pairs(rw, s, mask, bounds[0])
    divisor = mk.splat_like(rw, number, s.row_count)
    row = mk.apply(rw, "remainder", number, divisor)
    indices, rest = {s.space.group: mk.apply(rw, "divide", number, divisor)}, row
    for d in reversed(s.rows):
        extent = mk.splat_like(rw, row, s.space.extents[d])
        indices[d] = mk.apply(rw, "remainder", rest, extent)
        rest = mk.apply(rw, "divide", rest, extent)
    pairs = Pairs(rw, s.space, s.most, indices, bounds)
    if s.product is not None:
        values = pairs.product(s.op, s.product, s.columns)
    else:
        values = pairs.of(s.terms, s.columns)
    values = mk.convert(rw, values, s.sum_type)
    if s.is_factor:
        gate = mk.convert(rw, pairs.of(s.gate, ()), s.sum_type)
        values = mk.apply(rw, "multiply", values, mk.broadcast(rw, gate, mk.shape_of(values), (0,)))
    columns = tuple(s.space.extents[d] for d in s.columns)
    values = mk.reshape(rw, values, (s.most, prod(columns)))
    count = mk.broadcast(rw, mk.convert(rw, total, I32), (s.most,), ())
    used = mk.compare(rw, "LT", mk.iota(rw, number.tensor, 0), count)
    target = rw.emit1("stablehlo.select", [used, row, mk.splat_like(rw, row, -1)], row.type)
    zeros = mk.constant(rw, tensor((s.row_count, prod(columns)), s.sum_type), 0)
    sums = mk.convert(rw, add_rows(rw, zeros, target, values), s.op.result.tensor.storage)
    own = (*s.rows, *s.columns)
    sums = mk.reshape(rw, sums, [s.space.extents[d] for d in own])
    return mk.transpose(rw, sums, [own.index(d) for d in s.order])


def _numbers_of_pairs(rw: Rewriter, s: Gated, mask: Value, starts: Value) -> Value:
    """Emits the numbers of pairs whose gate is not zero, in order; 0 for those that there are not."""
    counts = running_sums(rw, mk.convert(rw, mask, I32), 1)
    first = mk.broadcast(rw, mk.convert(rw, starts, I32), mk.shape_of(counts), (0,))
    place = mk.apply(rw, "subtract", mk.apply(rw, "add", counts, first), mk.splat_like(rw, counts, 1))
    place = rw.emit1("stablehlo.select", [mask, place, mk.splat_like(rw, place, -1)], place.type)
    n = s.groups * s.row_count
    zeros = mk.constant(rw, tensor((s.most,), I32), 0)
    return add_rows(rw, zeros, mk.reshape(rw, place, (n,)), mk.iota(rw, tensor((n,), I32), 0))


def _again(rw: Rewriter, s: Gated) -> Value:
    """Emits the sum as it is written. What only it needs is computed here."""
    cone = {p.value for p in _cone(s)}
    made: dict[Value, Value] = {}

    def get(value: Value) -> Value:
        op = value.op
        if op is None or not (value in cone or op.name in MOVES):
            return rw.get(value)
        if value not in made:
            made[value] = rw.emit1(op.name, [get(v) for v in op.operands], value.type, op.attributes)
        return made[value]

    return rw.keep(s.op, [get(v) for v in s.op.operands])[0]
