"""Fusion of reductions: into a nest that reads their results, or as a separate nest."""

from __future__ import annotations

import math

from shlo_jit import tuning
from shlo_jit.fuse.costs import longest_row
from shlo_jit.fuse.grouping import Grouping
from shlo_jit.fuse.nest import Nest, Node, covers, is_wide, space_of
from shlo_jit.fuse.order import depends
from shlo_jit.fuse.plan import NestStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import ORIGIN, At, Expr, NotAffine, Split
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.runs import multiplies_bytes, roles_of
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal, hint_of


def fuse_reduce(g: Grouping, op: Op, position: int) -> None:
    """Adds a reduce to the plan: fused into a nest that reads it, as an epilogue or a row program, or as a separate
    nest."""
    results = [r for r in op.results if r in g.memory or g.nests_wanting(r)]
    if not results:
        return
    nests = list(dict.fromkeys(nest for r in results for nest in g.nests_wanting(r)))
    writer, refusal = None, None
    for nest in nests[: tuning.MATERIALIZE_CANDIDATES]:
        refused = _take_in(g, op, results, nest, nests)
        if refused is None:
            writer = nest
            break
        refusal = refusal or refused
    if writer is None:
        writer = g.new_nest(position)
        _separate_nest(g, op, results, writer, refusal)
    for r in results:
        for nest in g.nests_wanting(r):
            g.load(nest, r)
        if r in g.memory and writer not in [p.nest for p in g.producers.get(r, []) if isinstance(p, NestStep)]:
            g.store(writer, r, next(k[1] for k in writer.nodes if k[0] is r), g.memory[r])


def _separate_nest(g: Grouping, op: Op, results: list[Value], nest: Nest, refusal: Refusal | None) -> None:
    """Emits a separate nest. `refusal`: why its first reader did not take it in."""
    first = results[0]
    at = space_of(nest, first.tensor.extents)
    source = op.operands[0].tensor.extents
    reduced = At(tuple(ix.variable(nest.add_var(source[d]), source[d]) for d in sorted(op.ints("dimensions"))))
    nest.reduce_vars = tuple(range(len(first.tensor.extents), len(nest.extents)))
    own = None
    if refusal is not None:
        own = Reason("reduction-not-fused", "the loop that reads it does not take in the reduction", refusal)
    for r in results:
        g.memory.setdefault(r, own or Reason("reduction-result", "a reduction writes all of its results"))
    _add_nodes(g, op, results, nest, at, reduced.index)
    g.store(nest, first, at, own or g.memory[first])


def _add_nodes(g: Grouping, op: Op, results: list[Value], nest: Nest, at: At, reduced: tuple[Expr, ...]) -> None:
    """Adds the reduce to a nest: its results at `at`, and its operands there with `reduced` as indices of the reduced
    dimensions, in ascending order."""
    dims = op.ints("dimensions")
    kept, inner = iter(at.index), iter(reduced)
    rank = op.operands[0].tensor.rank
    index = tuple(next(inner) if d in dims else next(kept) for d in range(rank))
    n = len(op.results)
    operands = [(o, At(index)) for o in op.operands[:n]] + [(o, ORIGIN) for o in op.operands[n:]]
    for r in results:
        nest.nodes[(r, at)] = Node(op, operands)
        nest.pending.pop(r, None)
    for o, place in operands:
        g.request(nest, o, place)


def sums_byte_products(op: Op) -> bool:
    """Whether a reduce adds up a batch of products of bytes, finished element by element (`summed_products.py`)."""
    if len(op.operands) != 2 or [inner.name for inner in op.block().ops[:-1]] != ["stablehlo.add"]:
        return False
    todo, seen = [op.operands[0]], set[Value]()
    while todo and len(seen) < tuning.BYTE_SEARCH:
        value = todo.pop()
        if value in seen or value.op is None:
            continue
        seen.add(value)
        if value.op.name == "stablehlo.dot_general":
            batch = range(len(roles_of(value.op).lhs_batch))  # the first dimensions of the result
            return multiplies_bytes(value.op) and sorted(op.ints("dimensions")) == [*batch]
        todo += value.op.operands if is_elementwise(value.op) else []
    return False


def _take_in(g: Grouping, op: Op, results: list[Value], nest: Nest, nests: list[Nest]) -> Refusal | None:
    """Fuses the reduce into a nest that reads its results: as an epilogue, or as a row program. Returns the refusal if
    it cannot."""
    places = {at for r in results for at in nest.pending.get(r, [])}
    if len(places) != 1:
        return Refusal("read-at-several-indices", "it reads the result at several indices")
    if nest.overwrites is not None or nest.after is not None:
        return Refusal("writes-part", "it writes only a part of a buffer")
    if sums_byte_products(op):
        return Refusal("sums-products", "the sum of products of groups is added up on their tiles, and nothing else")
    (at,) = places
    rows = covers(nest, at, results[0].tensor.extents)
    if rows is None:
        return Refusal("not-each-element-once", "it does not read each element of the result exactly once")
    if len(nest.nodes) > tuning.NEST_OPS:
        return Refusal("loop-full", f"it already has more than {tuning.NEST_OPS} ops")
    step = g.step_of[nest]
    others = [g.step_of[n] for n in nests if n is not nest]
    for r in results:
        others += [s for s in g.readers.get(r, []) if s is not step]
    if depends(step, *others):
        return Refusal("waits-for-reader", "it must run after another reader of the result")
    source = op.operands[0].tensor.extents
    extents = [source[d] for d in sorted(op.ints("dimensions"))]
    free = [v for v, e in enumerate(nest.extents) if is_wide(e) and v not in rows]
    if nest.reduce_vars and set(free) != {v for v in nest.reduce_vars if is_wide(nest.extents[v])}:
        return Refusal("other-reduction-loops", "it already reduces over different loops")
    total = math.prod(extents)
    if total == 0:
        return Refusal("empty-reduction", "the reduction has no elements")
    if not free:
        if not equal(total, 1) and nest.reduce_vars:
            return Refusal("other-reduction-loops", "it already reduces over different loops")
        reduced = tuple(ix.variable(nest.add_var(e), e) for e in extents)
        nest.reduce_vars = tuple(v for e in reduced for v, _ in e.terms)
    else:
        found = _row_of(op, nest, free, extents)
        if isinstance(found, Refusal):
            return found
        reduced = found
    at = next(a for r in results for a in nest.pending.get(r, []))
    _add_nodes(g, op, results, nest, at, reduced)
    return None


def _row_of(op: Op, nest: Nest, free: list[int], extents: list[int]) -> tuple[Expr, ...] | Refusal:
    """Maps the reduced dimensions to the loops of a nest that iterates over the same rows again; `free` are the loops
    of a row."""
    total = math.prod(extents)
    rows = hint_of(nest.rows) if nest.reduce_vars else hint_of(nest.rows) // max(1, hint_of(total))
    if not equal(math.prod(nest.extents[v] for v in free), total):
        return Refusal("other-row-loops", "its loops do not iterate over the reduced row")
    if hint_of(total) > longest_row(op):
        return Refusal("row-exceeds-cache", f"a row of {total:,} elements does not fit in the cache")
    if rows < tuning.FEW_ROWS and hint_of(total) > tuning.FEW_ROWS_ELEMENTS:
        return Refusal(
            "few-long-rows",
            f"there are {rows} long rows, and at least {tuning.FEW_ROWS} are needed to keep threads busy",
        )
    found = _match(nest, free, extents)
    return (
        Refusal("unaligned-loops", "its loops cannot be matched with the reduced dimensions")
        if found is None
        else found
    )


def _match(nest: Nest, free: list[int], extents: list[int]) -> tuple[Expr, ...] | None:
    """Maps the reduced dimensions to the nest's free variables, in order; None if they do not match."""
    if nest.reduce_vars:
        free = [v for v in nest.reduce_vars if is_wide(nest.extents[v])]
    else:
        ordered = [v for v in nest.order() if v in free]
        if sorted(ordered) != sorted(free):
            return None
        free = ordered
    while True:
        offset, size = ix.ZERO, 1
        for v in reversed(free):
            offset = ix.add(offset, Expr(0, ((v, size),)))
            size *= nest.extents[v]
        try:
            found = ix.delinearize(offset, tuple(extents), nest.extents)
            break
        except Split as split:
            before = len(nest.extents)
            nest.split(split.var, split.factor)
            k = free.index(split.var)
            free[k + 1 : k + 1] = [before]
        except NotAffine:
            return None
    if not nest.reduce_vars:
        nest.reduce_vars = tuple(v for v in free if is_wide(nest.extents[v]))
    return found
