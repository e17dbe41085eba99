"""Nests that write a part of their target: dynamic_update_slice, concatenate, pad with interior padding."""

from __future__ import annotations

from shlo_jit.fuse.grouping import Grouping
from shlo_jit.fuse.nest import Nest, Store, space_of
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import ORIGIN, At, Expr
from shlo_jit.reasons import Reason


def _nest(g: Grouping, position: int, target: Value, why: Reason) -> Nest:
    for nest in g.nests_wanting(target):
        g.load(nest, target)
    nest = g.new_nest(position)
    g.memory.setdefault(target, why)
    g.write(g.step_of[nest], target, why)
    return nest


def _is_dead(g: Grouping, target: Value) -> bool:
    return not g.nests_wanting(target) and target not in g.memory


def fuse_update(g: Grouping, op: Op, position: int) -> None:
    """Adds a dynamic_update_slice: a nest over the update that writes into the operand's buffer."""
    target = op.result
    if _is_dead(g, target):
        return
    operand, update, *starts = op.operands
    nest = _nest(g, position, target, Reason("updates-in-place", "updates a part of a buffer in place"))
    nest.overwrites = operand
    g.read(g.step_of[nest], operand)
    for p in g.producers.get(operand, []):
        g.step_of[nest].after.append(p)
    sizes, shape = update.tensor.extents, operand.tensor.extents
    at = space_of(nest, sizes)
    index = []
    for e, s, n, k in zip(at.index, starts, shape, sizes, strict=True):
        if s.op is not None and s.op.name == "stablehlo.constant":
            index.append(ix.shift(e, min(max(0, int(s.op.attributes["value"].array.reshape(-1)[0])), n - k)))
            continue
        index.append(ix.add(e, Expr(0, (), (ix.Sym(1, s, ORIGIN, n - k),))) if n > k else e)
        if n > k:
            g.request(nest, s, ORIGIN)
    nest.stores.append(Store(update, at, target, tuple(index)))
    g.request(nest, update, at)


def fuse_concatenate(g: Grouping, op: Op, position: int, why: Reason | None = None) -> None:
    """Adds a concatenation: a nest per operand, which writes its part of the result. `why`: the reason, if it is
    known."""
    target = op.result
    if _is_dead(g, target):
        return
    dim, offset = op.int("dimension"), 0
    for o in op.operands:
        n = o.tensor.extents[dim]
        if o.tensor.size or (target.tensor.size == 0 and offset == 0):
            nest = _nest(g, position, target, Reason("concatenation-part", "a part of a concatenation", why))
            at = space_of(nest, o.tensor.extents)
            index = tuple(ix.shift(e, offset) if d == dim else e for d, e in enumerate(at.index))
            nest.stores.append(Store(o, at, target, index))
            g.request(nest, o, at)
        offset += n


def fuse_interior_pad(g: Grouping, op: Op, position: int) -> None:
    """Adds a pad with interior padding: one nest writes the padding value, another stores the operand with a stride."""
    target = op.result
    if _is_dead(g, target):
        return
    operand, value = op.operands
    low, interior = op.ints("edge_padding_low"), op.ints("interior_padding")
    put = _nest(
        g, position, target, Reason("interior-padding", "the operand's elements, spread over the padded tensor")
    )
    fill = _nest(
        g, position, target, Reason("padding-fill", "the padding value, before the operand is written over it")
    )
    put.after = target
    g.step_of[put].after.append(g.step_of[fill])
    g.step_of[fill].after = [s for s in g.step_of[fill].after if s is not g.step_of[put]]
    at = space_of(fill, target.tensor.extents)
    fill.stores.append(Store(value, ORIGIN, target, at.index))
    g.request(fill, value, ORIGIN)
    place, index = [], []
    for n, m, lo, gap in zip(operand.tensor.extents, target.tensor.extents, low, interior, strict=True):
        first = max(0, -(lo // (gap + 1)))  # first operand index that is stored at 0 or later
        last = (m - 1 - lo) // (gap + 1)
        count = max(0, min(n - 1, last) - first + 1)
        e = ix.shift(ix.variable(put.add_var(count), count), first)
        place.append(e)
        index.append(ix.shift(ix.scale(e, gap + 1), lo))
    put.stores.append(Store(operand, At(tuple(place)), target, tuple(index)))
    g.request(put, operand, At(tuple(place)))
