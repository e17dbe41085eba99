"""Choice of the nest that computes and writes a value that must be in memory: one that visits each of its elements
anyway."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.grouping import Grouping
from shlo_jit.fuse.nest import Nest, covers, is_wide
from shlo_jit.fuse.order import depends
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At
from shlo_jit.ops import is_elementwise
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal


def store_beside(g: Grouping, op: Op, why: Reason) -> bool:
    """Makes a row program compute and write the result of an elementwise op, or a transpose of it, if only products
    read that. The row program must read the op's inputs at each of its elements. An example are the weights of
    attention next to their gradient. Returns whether it was possible."""
    value, order, made = op.result, tuple(range(op.result.tensor.rank)), op
    while made.name == "stablehlo.transpose" and (before := made.operands[0].op) is not None:
        p, made = made.ints("permutation"), before
        order = tuple(p[d] for d in order)
    readers = g.readers.get(value, [])
    if id(made) not in g.here or not is_elementwise(made) or any(s.title != "dot_general" for s in readers):
        return False
    for operand in _elementwise_sources(g, made):
        for nest in g.nests_wanting(operand):
            places = nest.pending[operand]
            if nest.reduce_vars and len(places) == 1 and not _depends_on(g, op, g.step_of[nest].writes):
                at = places[0]
                g.request(nest, value, At(tuple(at.index[d] for d in order), at.conditions))
                if store_in(g, nest, op, [nest], why) is None:
                    return True
                del nest.pending[value]
    return False


def _elementwise_sources(g: Grouping, op: Op) -> list[Value]:
    """Returns the values that an elementwise op is computed from by a few elementwise ops."""
    found: list[Value] = []
    todo = [op]
    while todo and len(found) <= tuning.NEST_TWICE_OPS:
        for o in todo.pop(0).operands:
            if equal(o.tensor.extents, op.result.tensor.extents) and o not in found:
                found.append(o)
                todo += [o.op] if o.op is not None and id(o.op) in g.here and is_elementwise(o.op) else []
    return found


def _depends_on(g: Grouping, op: Op, values: list[Value]) -> bool:
    """Whether the op depends on one of the values. True if the search would be long."""
    wanted = {v.op for v in values}
    first = min((g.here.get(id(o), 0) for o in wanted), default=0)  # ops before it do not depend on it
    seen, todo = {op}, [op]
    while todo:
        for before in (o.op for o in todo.pop().operands):
            if before in wanted or len(seen) > tuning.ORDER_SEARCH:
                return True
            if before is not None and g.here.get(id(before), -1) >= first and before not in seen:
                seen.add(before)
                todo.append(before)
    return False


def sibling_of(g: Grouping, value: Value, states: set[Value]) -> Nest | None:
    """Returns a nest that computes another loop state from the same values as this state, or None."""
    for nest in g.step_of:
        if _is_whole(nest, value.tensor.extents) and nest.stores[0].target in states:
            targets = {s.target for s in nest.stores}
            if _sources(g, value, targets) & _sources(g, nest.stores[0].target, {value}):
                return nest
    return None


def _sources(g: Grouping, value: Value, never: set[Value]) -> set[Value]:
    """Returns the arguments of the block that a value is computed from. Empty if one of `never` is among its sources,
    or if the search would be long."""
    found, seen, todo = set[Value](), set[Value](), [value]
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in never or len(seen) > tuning.NEST_OPS or (v.op is not None and v.op.regions):
            return set()
        if v.op is None and v.owner is g.block:
            found.add(v)
        elif v.op is not None and id(v.op) in g.here:
            todo += v.op.operands
    return found


def store_in(g: Grouping, nest: Nest, op: Op, nests: list[Nest], why: Reason) -> Refusal | None:
    """Makes a nest that reads a value compute and write it. Returns the refusal if it cannot."""
    value = op.result
    refusal = _cannot_store(g, nest, value, nests) or g.inline(op, nest)
    if refusal is None:
        g.store(nest, value, next(k[1] for k in nest.nodes if k[0] is value), why)
    return refusal


def _cannot_store(g: Grouping, nest: Nest, value: Value, nests: list[Nest]) -> Refusal | None:
    """Returns why the nest does not visit each element of the value once, or may not run before other readers."""
    places = nest.pending[value]
    if len(nest.nodes) > tuning.NEST_OPS:
        return Refusal("loop-full", f"its reader already has more than {tuning.NEST_OPS} ops")
    if len(places) != 1 or value in g.step_of[nest].reads:
        return Refusal("read-at-several-indices", "its reader reads it at several indices")
    seen = covers(nest, places[0], value.tensor.extents)
    wide = {v for v, e in enumerate(nest.extents) if is_wide(e)}
    if 0 in nest.extents or seen is None or (wide - seen and wide - seen != wide & set(nest.reduce_vars)):
        return Refusal("not-each-element-once", "its reader does not visit each of its elements exactly once")
    step = g.step_of[nest]
    for result, sources in g.early.sources.items():
        after = g.producers.get(result, [])
        if value in sources and (step in after or depends(step, *after)):
            return Refusal("waits-for-reader", "its reader must run after another one")
    others = [g.step_of[n] for n in nests] + g.readers.get(value, [])
    if any(s.target in g.early.shared for s in nest.stores) and any(o is not step for o in others):
        return Refusal("waits-for-reader", "its reader must run after another one")
    if depends(step, *(o for o in others if o is not step)):
        return Refusal("waits-for-reader", "its reader must run after another one")
    return None


def _is_whole(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether a nest is a plain loop that writes every element of a tensor of that shape."""
    if nest.reduce_vars or nest.overwrites is not None or nest.after is not None or not nest.stores:
        return False
    lead = nest.stores[0]
    whole = lead.at.index == lead.index and not lead.at.conditions and lead.target.tensor.extents == shape
    return whole and covers(nest, lead.at, shape) == {v for v, e in enumerate(nest.extents) if is_wide(e)}
