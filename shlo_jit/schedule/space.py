"""The loops of a nest: their order, the ones that are merged, and the one that runs along vector lanes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import FIXED, Reason
from shlo_jit.schedule.choice import Choice
from shlo_jit.schedule.moves import Fuse, IllegalMove, Move, Reorder, Vectorize, of_kind
from shlo_jit.schedule.sum_order import fixes_order
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size, equal, hint_of, surely


class Tile(NamedTuple):
    """Variables of a nest (outermost first) by their part in the offset of a matrix element: batch, row or column."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]


class Part(NamedTuple):
    """What each call of a nest's function computes if the nest is a stage of other steps: some rows, in order."""

    tile: Tile | None
    """For loops without reductions: which variables number rows and columns. A call computes whole rows."""
    tasks: Tasks | None
    """Otherwise the blocks of rows, of which each call computes one."""
    cached: frozenset[Value]
    """Values that are in a cache, and are not prefetched."""


class Space(NamedTuple):
    """Loop structure of a nest. Adjacent variables that every access traverses as one run are one variable here."""

    rows: tuple[int, ...]
    """Row variables, outermost first."""
    inner: tuple[int, ...]
    """Reduced variables, outermost first."""
    extents: dict[int, int]
    dropped: dict[int, int]
    """Maps a variable that was merged away to the variable it was merged into."""
    vector: int | None
    """The variable that runs along lanes; None without vectors."""
    width: int
    """Number of lanes."""
    why_vector: Reason
    """Why the lanes run along that variable."""
    why_width: Reason

    order: tuple[int, ...] = ()
    """All loops with several iterations before any were merged, outermost first."""
    short_stride: int = 0
    """Greatest distance in elements from lane to lane at which elements are loaded as whole vectors and shuffled."""

    def is_short_stride(self, stride: int) -> bool:
        """Whether elements at this distance from lane to lane are loaded in that way."""
        return isinstance(stride, int) and 1 < abs(stride) <= self.short_stride

    @property
    def why_lanes(self) -> Reason:
        """Why there are these lanes along that variable, or none."""
        if self.vector is None or self.why_width == self.why_vector:
            return self.why_vector
        return self.why_vector.then(self.why_width)

    def collapse(self, e: Expr) -> Expr:
        """An expression over the merged variables: a merged outer variable's term is implied by the inner one's."""
        return _collapse(e, self.dropped)

    def final(self, var: int) -> int:
        while var in self.dropped:
            var = self.dropped[var]
        return var

    def depends(self, at: At, on: set[int]) -> bool:
        """Whether a place depends on any of the (merged) variables."""
        return any(self.final(v) in on for v in ix.variables(at))


def linear(key: Key) -> Expr:
    """Offset in elements of a value's element at a place, in row-major memory."""
    return ix.linearize(key[1].index, key[0].tensor.extents)


class Order(Enum):
    """The order in which the reducers of a nest must see the elements of a row."""

    ANY = "any"
    IN_LANES = "in lanes"
    """Each lane in the row's order: lanes may run along the innermost variable."""
    STRICT = "strict"


def lanes_of(asked: Order, inner: Sequence[int]) -> Sequence[int]:
    """The reduced variables along which lanes may run, if the reducers require an order."""
    return {Order.ANY: inner, Order.IN_LANES: inner[-1:], Order.STRICT: inner[:0]}[asked]


def rounds(nest: Nest) -> bool:
    """Whether the results of a nest depend on the order in which it reduces elements."""
    results = (r for node in nest.nodes.values() if node.op.name == "stablehlo.reduce" for r in node.op.results)
    return any(r.tensor.storage.is_float or r.tensor.storage.is_complex for r in results)


def _is_short(extent: int) -> bool:
    return not isinstance(extent, Size) and extent < tuning.SHORT_LANES


def make_space(
    nest: Nest,
    target: Target,
    asked: Order,
    narrow: frozenset[Value] = frozenset(),
    by_rows: bool = False,
    given: Sequence[Move] | None = None,
    chosen: Choice[int] | None = None,
) -> Space:
    """Orders and merges the loops and chooses the lanes. Short sums have no lanes along them: lanes along rows take
    less time, and stages of other steps, which can have no lanes along rows, must add up in the same order. `asked`:
    the order that the reducers require. `narrow`: indices that are computed as i32. `by_rows`: lanes must not run
    along a variable that is not reduced. `given`: the moves of a schedule, which decide instead. `chosen`: the row
    variable for the lanes. Raises IllegalMove."""
    if given is not None:
        return _given_space(nest, target, asked, narrow, by_rows, given)
    order = nest.order()
    merged = _Merging(nest, order)
    rows = merged.part([v for v in order if v not in nest.reduce_vars])
    inner = merged.part([v for v in order if v in nest.reduce_vars])
    along = [v for v in lanes_of(asked, inner) if not (rounds(nest) and _is_short(merged.extents[v]))]
    if chosen is not None:
        vector = Choice[int | None](chosen.value, chosen.why)
    elif not by_rows and has_few_elements(nest):
        vector = Choice[int | None](None, Reason("few-elements", "few elements and few ops: kept in scalar registers"))
    elif fixes_order(nest, target):
        vector = _fixed_vector(nest, merged, [] if by_rows else rows, inner, along)
    else:
        vector = _choose_vector(nest, merged, [] if by_rows else rows, inner, along)
    return merged.space(rows, inner, vector, target, narrow)


def _given_space(
    nest: Nest, target: Target, asked: Order, narrow: frozenset[Value], by_rows: bool, given: Sequence[Move]
) -> Space:
    """The space that Reorder, Fuse and Vectorize moves describe."""
    merged = _Merging(nest, _given_order(nest, by_rows, given))
    rows = [v for v in merged.order if v not in nest.reduce_vars]
    inner = [v for v in merged.order if v in nest.reduce_vars]
    for fuse in of_kind(given, Fuse):
        part = rows if fuse.inner in rows else inner
        adjacent = fuse.outer in part and part.index(fuse.outer) + 1 < len(part)
        if not adjacent or part[part.index(fuse.outer) + 1] != fuse.inner:
            raise IllegalMove(fuse, Reason("not-adjacent-loops", "one loop is not directly inside the other"))
        if not merged.is_one_run(fuse.outer, fuse.inner):
            text = "some access does not traverse both loops as one run"
            raise IllegalMove(fuse, Reason("not-one-run", text))
        merged.merge(part, part.index(fuse.outer))
    vectors = of_kind(given, Vectorize)
    if not vectors:
        return merged.given(rows, inner, None, 1)
    move = vectors[0]
    along = lanes_of(asked, inner)
    if by_rows and move.loop in rows:
        raise IllegalMove(move, Reason("no-lanes-there", "each block has whole rows, so lanes run along the row"))
    if isinstance(move.loop, str) or (move.loop not in rows and move.loop not in along):
        text = "there is no such loop" if move.loop not in inner else "the reduction takes its elements in order"
        raise IllegalMove(move, Reason("no-lanes-there", text))
    _check_lanes(nest, merged.extents[move.loop], target, narrow, move)
    return merged.given(rows, inner, move.loop, move.lanes)


def _check_lanes(nest: Nest, extent: int, target: Target, narrow: frozenset[Value], move: Vectorize) -> None:
    """Raises IllegalMove if a loop cannot have so many lanes."""
    most, extent = target.lanes(element_bits(nest, narrow)), hint_of(extent)
    most = most if nest.reduce_vars else 2 * most
    while most > extent and (not target.has_masks or most // 2 >= extent):
        most //= 2
    if move.lanes & (move.lanes - 1) or not 1 < move.lanes <= most:
        text = f"lanes are a power of two from 2 to {most} there"
        raise IllegalMove(move, Reason("lanes-out-of-range", text))


def _given_order(nest: Nest, by_rows: bool, given: Sequence[Move]) -> list[int]:
    usual = nest.order()
    for move in of_kind(given, Reorder):
        reduced = [v for v in usual if v in nest.reduce_vars]
        if sorted(move.loops) != sorted(usual):
            names = ", ".join(map(str, sorted(usual)))
            raise IllegalMove(move, Reason("other-loops", f"the loops with several iterations are {names}"))
        if list(move.loops)[len(usual) - len(reduced) :] != reduced:
            text = "reduced loops are innermost, and in the order of their sum"
            raise IllegalMove(move, Reason("reduced-loops-in-order", text))
        if by_rows and list(move.loops) != usual:
            raise IllegalMove(move, Reason("rows-in-order", "each block has rows that are one after the other"))
        return list(move.loops)
    return usual


GIVEN = Reason("given", "given by the caller")
OMITTED = Reason("omitted", "no given move asks for it")


def has_few_elements(nest: Nest) -> bool:
    """Whether elements are computed one by one. So few elements gain little from lanes. Also, reading scalars from what
    was written as a vector, or the reverse, has to wait for memory."""
    elements = nest.rows * nest.reduced
    if nest.interchange is not None or isinstance(elements, Size) or not 1 < elements <= tuning.FEW_ELEMENTS:
        return False
    return sum(cost(n.op) for n in nest.nodes.values()) <= tuning.FEW_ELEMENTS_COST


def tile_space(nest: Nest, target: Target, tile: Tile, given: Sequence[Move] | None = None) -> tuple[Space, Tile]:
    """The space of a nest that runs on rectangles of a matrix, with lanes along the columns. Also returns the tile with
    the variables that remain. `given`: the moves of a schedule, which decide the lanes instead. Raises IllegalMove."""
    merged = _Merging(nest, [*tile.batch, *tile.rows, *tile.columns])
    batch, rows, columns = (merged.part(list(part)) for part in (tile.batch, tile.rows, tile.columns))
    merged_tile = Tile(tuple(batch), tuple(rows), tuple(columns))
    if given is not None:
        return _given_tile_space(nest, target, merged, merged_tile, given), merged_tile
    accesses = [linear(k) for k in nest.loads]
    accesses += [ix.linearize(s.index, s.target.tensor.extents) for s in nest.stores]
    contiguous = sum(_collapse(e, merged.dropped).coefficient(v) == 1 for e in accesses for v in columns[-1:])
    whose = "the product's columns" if len(columns) == 1 else "the innermost loop over the product's columns"
    why = Reason("product-columns", f"{whose}; {contiguous} of {len(accesses)} accesses are contiguous along it")
    vector = (
        Choice[int | None](columns[-1], why)
        if columns
        else Choice[int | None](None, Reason("one-column", "the product has one column"))
    )
    space = merged.space([*batch, *rows, *columns], [], vector, target)
    return space, merged_tile


def _given_tile_space(nest: Nest, target: Target, merged: _Merging, tile: Tile, given: Sequence[Move]) -> Space:
    """The space of a nest on rectangles with the lanes of a Vectorize move."""
    loops, vector, lanes = [*tile.batch, *tile.rows, *tile.columns], None, 1
    for move in of_kind(given, Vectorize):
        if isinstance(move.loop, str) or tile.columns[-1:] != (move.loop,):
            text = "lanes run along the innermost loop within a row" if tile.columns else "rows have one element"
            raise IllegalMove(move, Reason("no-lanes-there", text))
        _check_lanes(nest, merged.extents[move.loop], target, frozenset(), move)
        vector, lanes = move.loop, move.lanes
    return merged.given(loops, [], vector, lanes)


class _Merging:
    """The variables of a nest while they are merged."""

    def __init__(self, nest: Nest, order: list[int]):
        self.nest = nest
        self.order = list(order)
        self.extents = {v: nest.extents[v] for v in order}
        self.dropped: dict[int, int] = {}
        self.exprs = list(dict.fromkeys(_expressions(nest)))

    def part(self, variables: list[int]) -> list[int]:
        """Merges adjacent variables (outer, inner) if every expression has outer = inner * extent(inner). Returns the
        remaining variables."""
        i = len(variables) - 2
        while i >= 0:
            if self.is_one_run(variables[i], variables[i + 1]):
                self.merge(variables, i)
            i -= 1
        return variables

    def is_one_run(self, outer: int, inner: int) -> bool:
        """Whether every expression has outer = inner * extent(inner)."""
        n = self.extents[inner]
        return all(e.coefficient(outer) == e.coefficient(inner) * n for e in self.exprs)

    def merge(self, variables: list[int], i: int) -> None:
        """Merges the variable at position i into the next one."""
        outer, inner = variables.pop(i), variables[i]
        self.extents[inner] *= self.extents[outer]
        self.dropped[outer] = inner

    def space(
        self,
        rows: list[int],
        inner: list[int],
        vector: Choice[int | None],
        target: Target,
        narrow: frozenset[Value] = frozenset(),
    ) -> Space:
        """The space, with the vector variable innermost in its part."""
        v, why_vector = vector.value, vector.why
        width = Choice(1, Reason("no-vectors", "no vectors"))
        if v is not None:
            width = _choose_width(self.nest, self.extents[v], target, narrow)
            if width.value == 1:
                v, why_vector = None, width.why
        return self._space(rows, inner, Choice(v, why_vector), width)

    def given(self, rows: list[int], inner: list[int], vector: int | None, lanes: int) -> Space:
        """The space with lanes that the caller gave."""
        why = OMITTED if vector is None else GIVEN
        return self._space(rows, inner, Choice(vector, why), Choice(lanes, why))

    def _space(self, rows: list[int], inner: list[int], vector: Choice[int | None], width: Choice[int]) -> Space:
        v = vector.value
        rows, inner = ([*(x for x in part if x != v), *(x for x in part if x == v)] for part in (rows, inner))
        parts = tuple(rows), tuple(inner), self.extents, self.dropped
        return Space(*parts, v, width.value, vector.why, width.why, tuple(self.order), tuning.STRIDED_LOAD)


def _expressions(nest: Nest) -> list[Expr]:
    """All expressions that distinguish variables: offsets of loads and stores, iota's index, conditions."""
    out = [linear(k) for k in nest.loads]
    out += [ix.linearize(s.index, s.target.tensor.extents) for s in nest.stores]
    for (_, at), node in nest.nodes.items():
        if node.op.name == "stablehlo.iota":
            out.append(at.index[node.op.int("iota_dimension")])
        out += [c.expr for c in at.conditions]
    for _, at in nest.loads:
        out += [c.expr for c in at.conditions]
    return out


def _collapse(e: Expr, dropped: dict[int, int]) -> Expr:
    return e if not dropped else Expr(e.const, tuple(t for t in e.terms if t[0] not in dropped), e.syms)


def _choose_vector(
    nest: Nest, merged: _Merging, rows: Sequence[int], inner: Sequence[int], along: Sequence[int]
) -> Choice[int | None]:
    """Chooses the variable along which most accesses are contiguous: a row's variable, or one of `along`. Stores count
    twice. Accesses that happen once per row count less, the longer rows are."""
    once = min(1.0, tuning.SHORT_LANES / max(1, hint_of(nest.reduced)))
    stores = [(s.target, At(s.index)) for s in nest.stores]
    weights = [*((k, 1.0) for k in nest.loads), *((k, 2.0) for k in stores)]
    accesses = [(k, linear(k), w * (once if _of_row(merged, k[1], inner) else 1.0)) for k, w in weights]
    best, best_score, contiguous, outer = None, -1e9, 0, [*rows, *inner[-1:]]
    for place, v in enumerate([*rows, *inner]):
        if v in inner and v not in along:
            continue
        score, adjacent = 0.0, 0
        for key, offset, weight in accesses:
            c = _collapse(offset, merged.dropped).coefficient(v)
            if any(_depends(merged, s.at, v) for s in offset.syms):
                score -= 0.5 * weight
            elif c == 1:
                score += weight
                adjacent += 1
            elif c == -1:
                score += 0.5 * weight
            elif c and key in nest.loads and surely(lambda c=c: abs(c) <= tuning.STRIDED_LOAD // 2):
                score += 0.1 * weight  # vectors and shuffles
            elif (
                c
                and key not in nest.loads
                and side_by_side(_collapse(offset, merged.dropped), merged.extents, v, outer)
            ):
                score += 0.1 * weight
            elif c:
                score -= weight * (1.0 if hint_of(key[0].tensor.size) > tuning.SMALL_TENSOR else 0.2)
        score += 0.01 * place
        extent = hint_of(merged.extents[v])
        score -= 3.0 if extent < tuning.SHORTER_LANES else 0.5 if extent < tuning.SHORT_LANES else 0.0
        if score > best_score:
            best, best_score, contiguous = v, score, adjacent
    if best is None:
        if inner:
            return Choice(None, Reason("ordered-reduction", "the reduction takes its elements in order"))
        return Choice(None, Reason("one-element", "there is one element"))
    why = f"{contiguous} of {len(accesses)} accesses are contiguous along it"
    return Choice(best, Reason("contiguous-accesses", why))


def _fixed_vector(
    nest: Nest, merged: _Merging, rows: Sequence[int], inner: Sequence[int], along: Sequence[int]
) -> Choice[int | None]:
    """Chooses the lanes of a nest whose sums have a fixed order: the innermost reduced variable if all that is read
    along it is contiguous, whatever the rows are; otherwise lanes run along rows, and each takes its elements in order.
    Sums over products that are added up one after the other then have the same order."""
    v = inner[-1] if inner and inner[-1] in along else None
    if v is not None:
        offsets = [linear(k) for k in nest.loads]
        steps = {_collapse(e, merged.dropped).coefficient(v) for e in offsets}
        if 1 in steps and steps <= {0, 1} and not any(_depends(merged, s.at, v) for e in offsets for s in e.syms):
            return Choice(v, FIXED)
    return _choose_vector(nest, merged, rows, inner, [])


def side_by_side(e: Expr, extents: dict[int, int], v: int, others: Sequence[int]) -> int | None:
    """The one of `others` along which results lie between those of neighbouring iterations of v, if they are few;
    otherwise None."""
    k = e.coefficient(v)
    if not surely(lambda: 2 <= k <= tuning.INTERLEAVED) or e.syms:
        return None
    return next((c for c in others if c != v and e.coefficient(c) == 1 and equal(extents[c], k)), None)


def is_interleaved(store: Store, space: Space, variable: int) -> bool:
    """Whether the results of a store lie between its neighbouring lanes along a variable: all iterations of that
    variable form one run."""
    if space.vector is None or store.target.tensor.storage.is_complex:
        return False
    offset = space.collapse(linear((store.target, At(store.index))))
    return side_by_side(offset, space.extents, space.vector, [variable]) is not None


def _of_row(merged: _Merging, at: At, inner: Sequence[int]) -> bool:
    return bool(inner) and not any(_depends(merged, at, v) for v in inner)


def _depends(merged: _Merging, at: At, v: int) -> bool:
    def final(var: int) -> int:
        while var in merged.dropped:
            var = merged.dropped[var]
        return var

    return any(final(x) == v for x in ix.variables(at))


def element_bits(nest: Nest, narrow: frozenset[Value]) -> int:
    """Width of the widest element that is computed (narrow floats are computed in f32, `narrow` values as i32).
    Excludes the scalars of a loop, which do not run along lanes."""
    keys = [*nest.loads, *((s.target, At(s.index)) for s in nest.stores)]
    for key, node in nest.nodes.items():
        keys += [key, *node.operands]
    wide = {value for value, at in keys if nest.interchange is None or ix.variables(at)}
    return max([32 if narrow else 8, *(register_bits(v.tensor.storage) for v in wide - narrow)])


def _is_mostly_narrow(nest: Nest, target: Target, lanes: int) -> bool:
    """Whether twice the lanes pay off, at two registers per wide value: if they save enough instructions per element.
    Sums keep their lanes, which determine the order of the sum."""
    if nest.reduce_vars or lanes < target.lanes(64):
        return False
    work: dict[int, int] = {}
    for (value, at), node in nest.nodes.items():
        if ix.variables(at):
            bits = max(register_bits(v.tensor.storage) for v in (value, *(o for o, _ in node.operands)))
            work[bits] = work.get(bits, 0) + cost(node.op)
    for value in (*(v for v, _ in nest.loads), *(s.target for s in nest.stores)):
        bits = register_bits(value.tensor.storage)
        work[bits] = work.get(bits, 0) + 1

    def instructions(width: int) -> int:
        return sum(n * max(1, width * bits // target.vector_bits) for bits, n in work.items())

    return tuning.WIDE_LANES_GAIN * instructions(2 * lanes) <= 2 * (tuning.WIDE_LANES_GAIN - 1) * instructions(lanes)


def register_bits(dtype: DType) -> int:
    """Bits of an element in a register; for complex numbers, of each part."""
    if dtype.is_complex:
        return dtype.bits // 2
    if dtype.is_float and dtype.bits < 32:
        return 32
    return max(8, dtype.bits)


def _choose_width(nest: Nest, extent: int, target: Target, narrow: frozenset[Value]) -> Choice[int]:
    """Chooses the lanes: a full register, or for a short run the next power of two."""
    extent = hint_of(extent)
    widest = element_bits(nest, narrow)
    full = target.lanes(widest)
    if extent >= 2 * full and _is_mostly_narrow(nest, target, full):
        text = f"few values have {widest} bits: each of those takes two registers of {target.vector_bits}"
        return Choice(2 * full, Reason("mostly-narrow", text))
    if extent >= full:
        text = f"the widest element has {widest} bits, a register {target.vector_bits}"
        return Choice(full, Reason("full-register", text))
    width = 1
    while width < extent:
        width *= 2
    if width > extent and not target.has_masks:
        width //= 2
    return Choice(max(1, min(width, full)), Reason("short-loop", f"the loop has {extent} iterations"))
