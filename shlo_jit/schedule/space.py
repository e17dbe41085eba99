"""The loops of a nest: their order, which of them run together as one, and which one runs along vector lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir import index as ix
from shlo_jit.ir.index import At, Expr
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.choice import Choice
from shlo_jit.sizes import hint_of


class Tile(NamedTuple):
    """Variables of a nest (outermost first) by their part in the offset of a matrix element: batch, row or column."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]


class Space(NamedTuple):
    """Loop structure of a nest. Adjacent variables that every access walks as one run are one variable here."""

    rows: tuple[int, ...]
    """Row variables, outermost first."""
    inner: tuple[int, ...]
    """Reduced variables, outermost first."""
    extents: dict[int, int]
    dropped: dict[int, int]
    """Variable merged away -> the variable it went into."""
    vector: int | None
    """The variable that runs along lanes; None: no vectors."""
    width: int
    """Lanes."""
    why_vector: str
    """Why the lanes run along that variable."""
    why_width: str

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


def make_space(nest: Nest, target: Target, ordered: bool, along: bool = False) -> Space:
    """Order, merge and choose. `ordered`: a reducer must see its elements in order, so lanes cannot run along a reduced
    variable. `along`: they must not run along another one."""
    order = nest.order()
    merged = _Merging(nest, order)
    rows = merged.part([v for v in order if v not in nest.reduce_vars])
    inner = merged.part([v for v in order if v in nest.reduce_vars])
    vector = _choose_vector(nest, merged, [] if along else rows, inner, ordered)
    return merged.space(rows, inner, vector, target)


def tile_space(nest: Nest, target: Target, tile: Tile) -> tuple[Space, Tile]:
    """The space of a nest that runs on rectangles of a matrix: lanes along the columns. Also the tile with the
    variables that remain."""
    merged = _Merging(nest, [*tile.batch, *tile.rows, *tile.columns])
    batch, rows, columns = (merged.part(list(part)) for part in (tile.batch, tile.rows, tile.columns))
    if len(columns) == 1:
        accesses = [linear(k) for k in nest.loads]
        accesses += [ix.linearize(s.index, s.target.tensor.extents) for s in nest.stores]
        contiguous = sum(_collapse(e, merged.dropped).coefficient(columns[0]) == 1 for e in accesses)
        why = f"it is the columns of the product; {contiguous} of {len(accesses)} accesses are contiguous along it"
        vector = Choice[int | None](columns[0], why)
    else:
        vector = Choice[int | None](None, f"the columns are {len(columns)} loops")
    space = merged.space([*batch, *rows, *columns], [], vector, target)
    return space, Tile(tuple(batch), tuple(rows), tuple(columns))


class _Merging:
    """The variables of a nest while they are merged."""

    def __init__(self, nest: Nest, order: list[int]):
        self.nest = nest
        self.extents = {v: nest.extents[v] for v in order}
        self.dropped: dict[int, int] = {}
        self.exprs = list(dict.fromkeys(_expressions(nest)))

    def part(self, variables: list[int]) -> list[int]:
        """Merge adjacent variables (outer, inner) where every expression has outer = inner * extent(inner); those that
        remain."""
        i = len(variables) - 2
        while i >= 0:
            outer, inner = variables[i], variables[i + 1]
            n = self.extents[inner]
            if all(e.coefficient(outer) == e.coefficient(inner) * n for e in self.exprs):
                self.extents[inner] *= self.extents[outer]
                self.dropped[outer] = inner
                variables.pop(i)
            i -= 1
        return variables

    def space(self, rows: list[int], inner: list[int], vector: Choice[int | None], target: Target) -> Space:
        """With the vector variable innermost of its part."""
        v, why_vector = vector.value, vector.why
        width = Choice(1, "")
        if v is not None:
            width = _choose_width(self.nest, self.extents[v], target)
            if width.value == 1:
                v, why_vector = None, width.why
        rows, inner = ([*(x for x in part if x != v), *(x for x in part if x == v)] for part in (rows, inner))
        return Space(tuple(rows), tuple(inner), self.extents, self.dropped, v, width.value, why_vector, width.why)


def _expressions(nest: Nest) -> list[Expr]:
    """Everything that tells variables apart: offsets of loads and stores, iota's index, conditions."""
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
    nest: Nest, merged: _Merging, rows: Sequence[int], inner: Sequence[int], ordered: bool
) -> Choice[int | None]:
    """The variable that most accesses walk contiguously; stores count twice."""
    accesses = [(k, linear(k), 1.0) for k in nest.loads]
    accesses += [((s.target, At(s.index)), ix.linearize(s.index, s.target.tensor.extents), 2.0) for s in nest.stores]
    best, best_score, contiguous = None, -1e9, 0
    for place, v in enumerate([*rows, *inner]):
        if ordered and v in inner:
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
            elif c:
                score -= weight * (1.0 if hint_of(key[0].tensor.size) > tuning.SMALL_TENSOR else 0.2)
        score += 0.01 * place
        extent = hint_of(merged.extents[v])
        score -= 3.0 if extent < tuning.SHORTER_LANES else 0.5 if extent < tuning.SHORT_LANES else 0.0
        if score > best_score:
            best, best_score, contiguous = v, score, adjacent
    if best is None:
        why = "the reducer takes its elements in order" if ordered and inner else "there is one element"
        return Choice(None, why)
    return Choice(best, f"{contiguous} of {len(accesses)} accesses are contiguous along it")


def _depends(merged: _Merging, at: At, v: int) -> bool:
    def final(var: int) -> int:
        while var in merged.dropped:
            var = merged.dropped[var]
        return var

    return any(final(x) == v for x in ix.variables(at))


def _element_bits(nest: Nest) -> int:
    """Width of the widest element that is computed with (narrow floats are computed in f32)."""
    width = 8
    for (value, _), node in nest.nodes.items():
        width = max(width, register_bits(value.tensor.storage))
        for o, _ in node.operands:
            width = max(width, register_bits(o.tensor.storage))
    for s in nest.stores:
        width = max(width, register_bits(s.target.tensor.storage))
    for value, _ in nest.loads:
        width = max(width, register_bits(value.tensor.storage))
    return width


def register_bits(dtype: DType) -> int:
    """Bits of an element in a register; of complex numbers, of each part."""
    if dtype.is_complex:
        return dtype.bits // 2
    if dtype.is_float and dtype.bits < 32:
        return 32
    return max(8, dtype.bits)


def _choose_width(nest: Nest, extent: int, target: Target) -> Choice[int]:
    """Lanes: a full register's, or for a short run the next power of two."""
    extent = hint_of(extent)
    widest = _element_bits(nest)
    full = target.lanes(widest)
    if extent >= full:
        return Choice(full, f"the widest element has {widest} bits, a register {target.vector_bits}")
    width = 1
    while width < extent:
        width *= 2
    if width > extent and not target.has_masks:
        width //= 2
    return Choice(max(1, min(width, full)), f"the loop has {extent} turns")
