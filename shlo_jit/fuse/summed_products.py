"""Products of groups that are added up: a batch of products, each finished by the same loop, of which only the sum over
the batch is wanted.

    w: 32x128x4096xi4, s: 32x4096xf32       y = sum over g of dot(x[g], convert(w[g])) * s[g]

The loop that reduces becomes one that runs on the tiles of each product and adds to the sums so far. A tile is computed
for all groups in order, so only one product's results are in memory, and the sum is that of the program. If a product
has only a few tiles, with much work each, threads share the products instead.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.nest import Key, Nest, Node, Store, covers, is_wide
from shlo_jit.fuse.plan import NestStep, OpStep, Summed
from shlo_jit.fuse.regroup import Steps
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, strides_of
from shlo_jit.ops.runs import extents_of, has_few_tiles, multiplies_bytes, roles_of
from shlo_jit.sizes import Size


def summed(steps: Steps, product: OpStep) -> tuple[NestStep, Nest, Summed] | None:
    """Returns the sum over a batch of products, if that is all that is made of them: with its step, and the loop that
    takes the step's place."""
    result = product.op.result
    readers = steps.readers.get(result, [])
    if product.epilogue is not None or not steps.is_private(result) or not isinstance(readers[0], NestStep):
        return None
    if _are_few_tiles(product.op):
        return None
    reader = readers[0]
    nest, found = reader.nest, _sum_of(reader.nest)
    if found is None or nest.interchange is not None or nest.overwrites is not None or nest.after is not None:
        return None
    places = [at for v, at in nest.loads if v is result]
    wide = {v for v, n in enumerate(nest.extents) if is_wide(n)}
    if len(places) != 1 or covers(nest, places[0], result.tensor.extents) != wide:
        return None
    parts = _parts(nest, places[0], product.op)
    if parts is None or {*parts[0]} != wide & {*nest.reduce_vars}:
        return None
    return reader, _adding(nest, *found), Summed(reader, *parts)


def _are_few_tiles(op: Op) -> bool:
    """Whether the tiles of one product leave most threads without a task, and the products are worth a task each.
    Products of bytes have tasks of few columns, since they read four elements of a column at a time."""
    if any(isinstance(n, Size) for v in op.operands for n in v.tensor.extents):
        return False
    if multiplies_bytes(op):
        return False
    batch, m, n, k = extents_of(op)
    return has_few_tiles(m, n, batch * m * n * k)


def _sum_of(nest: Nest) -> tuple[Key, Store] | None:
    """The value that a loop adds up, and the store of the sum, if it does nothing else. Only types in which reductions
    keep their sums: others would round the sum to a narrower type after each term."""
    reduces = [(key, node) for key, node in nest.nodes.items() if node.op.name == "stablehlo.reduce"]
    if len(reduces) != 1 or len(nest.stores) != 1:
        return None
    ((key, node),), (store,) = reduces, nest.stores
    body = node.op.block().ops
    zero = node.op.operands[-1].op
    is_zero = zero is not None and zero.name == "stablehlo.constant" and not zero.constant.array.any()
    types = {node.op.operands[0].tensor.storage.name, store.target.tensor.storage.name}
    if len(types) != 1 or not types <= {"f32", "f64", "i32", "i64", "ui32", "ui64"}:
        return None
    if len(node.op.results) != 1 or [op.name for op in body[:-1]] != ["stablehlo.add"] or not is_zero:
        return None
    return (node.operands[0], store) if (store.value, store.at) == key else None


def _parts(nest: Nest, at: At, op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The variables that number products, rows and columns of a result, outermost first; None if one runs through
    several dimensions."""
    r, shape = roles_of(op), op.result.tensor.extents
    strides = strides_of(shape)
    offset = ix.linearize(at.index, shape)
    ends = len(r.lhs_batch), len(r.lhs_batch) + len(r.lhs_free), len(shape)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for v, c in sorted(offset.terms, key=lambda term: -term[1]):
        d = min(d for d, n in enumerate(shape) if is_wide(n) and strides[d] <= c)
        if c % strides[d] or c * nest.extents[v] > strides[d] * shape[d]:
            return None
        parts[next(i for i, end in enumerate(ends) if d < end)].append(v)
    return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])


def _adding(nest: Nest, term: Key, store: Store) -> Nest:
    """The loop without a reduction: it reads a sum, and stores it with one term more."""
    total = store.target
    op = Op("stablehlo.add", [total, term[0]], [total.type])
    place = At(store.index)
    added: Key = (op.result, term[1])
    nodes = {added: Node(op, [(total, place), term])}
    todo = [term]
    while todo:
        key = todo.pop()
        if key in nest.nodes and key not in nodes:
            nodes[key] = nest.nodes[key]
            todo += nest.nodes[key].operands
    loads = {key: None for key in nest.loads if any(key in node.operands for node in nodes.values())}
    symbols = {(s.value, s.at): None for _, at in loads for e in at.index for s in e.syms}
    loads |= {key: None for key in symbols if key in nest.loads}
    loads[total, place] = None
    stores = [Store(op.result, term[1], total, store.index)]
    return replace(nest, reduce_vars=(), nodes=nodes, loads=loads, stores=stores)


def on_one_product(s: Summed, result: Value, buffer: Value) -> Nest:
    """The loop with a buffer for the results of one product in place of those of all."""
    nest = s.step.nest
    ((_, at),) = [key for key in nest.loads if key[0] is result]
    offset = ix.linearize(at.index, result.tensor.extents)
    row, column = (ix.Expr(0, tuple(t for t in offset.terms if t[0] in part)) for part in (s.rows, s.columns))
    width = buffer.tensor.extents[1]
    here: Key = (buffer, At((ix.Expr(0, tuple((v, c // width) for v, c in row.terms)), column)))
    moved = {(result, at): here}
    nodes = {key: Node(node.op, [moved.get(o, o) for o in node.operands]) for key, node in nest.nodes.items()}
    return replace(nest, nodes=nodes, loads={moved.get(key, key): None for key in nest.loads})
