"""The loops of a nest: their order, which of them run together as one, and which one runs along vector lanes."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir import index as ix
from shlo_jit.ir.index import At, Expr
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target


@dataclass
class Tile:
    """Variables of a nest (outermost first) by their part in the offset of a matrix element: batch, row or column."""

    batch: list[int]
    rows: list[int]
    columns: list[int]


@dataclass
class Space:
    """Loop structure of a nest. Adjacent variables that every access walks as one run are one variable here."""

    rows: list[int]
    """Row variables, outermost first."""
    inner: list[int]
    """Reduced variables, outermost first."""
    extents: dict[int, int]
    dropped: dict[int, int]
    """Variable merged away -> the variable it went into."""
    vector: int | None
    """The variable that runs along lanes; None: no vectors."""
    width: int
    """Lanes."""

    def collapse(self, e: Expr) -> Expr:
        """An expression over the merged variables: a merged outer variable's term is implied by the inner one's."""
        if not self.dropped:
            return e
        return Expr(e.const, tuple(t for t in e.terms if t[0] not in self.dropped), e.syms)

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


def expressions(nest: Nest) -> list[Expr]:
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


def make_space(nest: Nest, target: Target, scalar_reduce: bool) -> Space:
    """Order, merge and choose. `scalar_reduce`: a reducer must see its elements in order, so lanes cannot run along
    a reduced variable."""
    order = nest.order()
    space = Space(
        [v for v in order if v not in nest.reduce_vars],
        [v for v in order if v in nest.reduce_vars],
        {v: nest.extents[v] for v in order},
        {},
        None,
        1,
    )
    exprs = list(dict.fromkeys(expressions(nest)))
    for part in (space.rows, space.inner):
        merge(part, space, exprs)
    space.vector = choose_vector(nest, space, scalar_reduce)
    if space.vector is not None:
        space.width = choose_width(nest, space.extents[space.vector], target)
        if space.width == 1:
            space.vector = None
    if space.vector in space.rows:
        space.rows.remove(space.vector)
        space.rows.append(space.vector)
    elif space.vector in space.inner:
        space.inner.remove(space.vector)
        space.inner.append(space.vector)
    return space


def tile_space(nest: Nest, target: Target, tile: Tile) -> Space:
    """The space of a nest that runs on rectangles of a matrix: lanes along the columns. Merges variables inside each
    part and leaves in `tile` those that remain."""
    order = [*tile.batch, *tile.rows, *tile.columns]
    space = Space(order, [], {v: nest.extents[v] for v in order}, {}, None, 1)
    exprs = list(dict.fromkeys(expressions(nest)))
    for part in (tile.batch, tile.rows, tile.columns):
        merge(part, space, exprs)
    space.rows = [*tile.batch, *tile.rows, *tile.columns]
    if len(tile.columns) == 1:
        space.vector = tile.columns[0]
        space.width = choose_width(nest, space.extents[space.vector], target)
        if space.width == 1:
            space.vector = None
    return space


def merge(part: list[int], space: Space, exprs: list[Expr]) -> None:
    """Merge adjacent variables (outer, inner) where every expression has outer = inner * extent(inner)."""
    i = len(part) - 2
    while i >= 0:
        outer, inner = part[i], part[i + 1]
        n = space.extents[inner]
        if all(e.coefficient(outer) == e.coefficient(inner) * n for e in exprs):
            space.extents[inner] *= space.extents[outer]
            space.dropped[outer] = inner
            part.pop(i)
        i -= 1


def choose_vector(nest: Nest, space: Space, scalar_reduce: bool) -> int | None:
    """The variable that most accesses walk contiguously; stores count twice."""
    candidates = [*space.rows, *([] if scalar_reduce else space.inner)]
    best, best_score = None, -1e9
    accesses = [(k, linear(k), 1.0) for k in nest.loads]
    accesses += [((s.target, At(s.index)), ix.linearize(s.index, s.target.tensor.extents), 2.0) for s in nest.stores]
    for v in candidates:
        score = 0.0
        for key, offset, weight in accesses:
            c = space.collapse(offset).coefficient(v)
            if any(space.depends(s.at, {v}) for s in offset.syms):
                score -= 0.5 * weight
            elif c == 1:
                score += weight
            elif c == -1:
                score += 0.5 * weight
            elif c:
                score -= weight * (1.0 if key[0].tensor.size > 256 else 0.2)
        score += 0.01 * [*space.rows, *space.inner].index(v)
        extent = space.extents[v]
        score -= 3.0 if extent < 4 else 0.5 if extent < 8 else 0.0
        if score > best_score:
            best, best_score = v, score
    return best


def element_bits(nest: Nest) -> int:
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
    if dtype.is_complex:
        return dtype.bits // 2
    if dtype.is_float and dtype.bits < 32:
        return 32
    return max(8, dtype.bits)


def choose_width(nest: Nest, extent: int, target: Target) -> int:
    """Lanes: a full register's, or for a short run the next power of two."""
    full = target.lanes(element_bits(nest))
    if extent >= full:
        return full
    width = 1
    while width < extent:
        width *= 2
    if width > extent and not target.has_masks:
        width //= 2
    return max(1, min(width, full))
