"""Identities: rules that return values to replace an op's results with, or None.

Each rule carries its equation. Float rules are bit-exact (x + 0 is not x for x = -0), except for the bits of a NaN.
Rules that follow from facts of an op's record hold for every op with those facts; the others are in a table by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.ir.attributes import Dense, DenseArray
from shlo_jit.ir.core import Op, Region, Value
from shlo_jit.ir.types import tensor
from shlo_jit.ops import OPS
from shlo_jit.passes import build as mk
from shlo_jit.passes.pending import PendingRewriter
from shlo_jit.sizes import equal, surely

Identity = Callable[[PendingRewriter, Op, list[Value]], "Sequence[Value] | None"]


def _alike(x: Value, y: Value) -> bool:
    """Whether two values have the same type, for all possible values of the sizes that are known only at the call."""
    return surely(lambda: x.type == y.type)


def _same_type(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """f(x) = x where the type does not change: reshape, convert, bitcast_convert, dynamic_slice of everything."""
    return operands[:1] if _alike(operands[0], op.result) else None


def _identity_transpose(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """transpose(x, [0, 1, ...]) = x"""
    p = op.ints("permutation")
    return operands if p == tuple(range(len(p))) else None


def _transpose_of_transpose(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """transpose(transpose(x, p), q) = transpose(x, p o q)

    A reshape between the two that only adds or drops dimensions of extent 1, in any position, is moved after them."""
    inner, q = operands[0].op, op.ints("permutation")
    reshape = inner if inner is not None and _is_reshape(inner) else None
    if reshape is not None:
        inner = reshape.operands[0].op
    if inner is None or inner.name != "stablehlo.transpose":
        return None
    p, source = inner.ints("permutation"), inner.operands[0]
    if reshape is None:
        return [mk.transpose(rw, source, [p[d] for d in q])]
    before, after = (mk.shape_of(v) for v in (inner.result, operands[0]))
    wide, others = ([d for d, n in enumerate(shape) if not equal(n, 1)] for shape in (before, after))
    if not equal(tuple(before[d] for d in wide), tuple(after[d] for d in others)):
        return None
    order = [p[wide[others.index(d)]] for d in q if d in others]
    order += [d for d in range(len(before)) if d not in order]
    return [mk.reshape(rw, mk.transpose(rw, source, order), mk.shape_of(op.result))]


def _is_reshape(op: Op) -> bool:
    """Whether an op is a reshape, or a broadcast that only adds dimensions of extent 1."""
    if op.name != "stablehlo.broadcast_in_dim":
        return op.name == "stablehlo.reshape"
    dims = op.ints("broadcast_dimensions")
    return equal(op.operands[0].tensor.size, op.result.tensor.size) and list(dims) == sorted(dims)


def _identity_broadcast(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """broadcast_in_dim(x, [0, 1, ...]) : same type = x"""
    p = op.ints("broadcast_dimensions")
    return operands if p == tuple(range(len(p))) and _alike(operands[0], op.result) else None


def _identity_slice(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """slice(x) = x if it takes all elements"""
    return operands if _alike(operands[0], op.result) else None


def _reshape_of_reshape(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """reshape(reshape(x)) = reshape(x)"""
    inner = operands[0].op
    if inner is None or inner.name != "stablehlo.reshape":
        return None
    if _alike(inner.operands[0], op.result):
        return [inner.operands[0]]
    return rw.emit("stablehlo.reshape", inner.operands, [op.result.type])


def _single_concatenate(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """concatenate(x) = x; concatenate(x, empty) = concatenate(x)"""
    if len(operands) == 1:
        return operands
    full = [x for x in operands if not (x.tensor.is_static and equal(x.tensor.size, 0))]
    if not full or len(full) == len(operands):
        return None
    if len(full) == 1:
        return full if _alike(full[0], op.result) else None
    return rw.emit(op.name, full, [op.result.type], op.attributes)


def _known_select(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """select(true, x, y) = x; select(p, x, x) = x"""
    p, x, y = operands
    if x is y:
        return [x]
    dense = rw.dense(p)
    if dense is None or not dense.is_splat:
        return None
    return [x if dense.array.reshape(-1)[0] else y]


def _splat(rw: PendingRewriter, value: Value, number: float | complex) -> bool:
    """Whether a value is a constant with all elements equal to this number, bit for bit (-0 is not 0)."""
    dense = rw.dense(value)
    if dense is None or not dense.is_splat:
        return False
    return dense.array.reshape(-1)[:1].tobytes() == np.asarray(number).astype(dense.array.dtype).tobytes()


def _neutral(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """op(x, e) = op(e, x) = x for the record's neutral element e"""
    x, y = operands
    if rw.dense(x) is None and rw.dense(y) is None:
        return None
    e = OPS[op.name].neutral_on(op.result.tensor.storage)
    if e is None:
        return None
    return [x] if _splat(rw, y, e) else [y] if _splat(rw, x, e) else None


def _idempotent(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """op(x, x) = x"""
    return operands[:1] if operands[0] is operands[1] else None


def _minus_zero(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """x - 0 = x"""
    return operands[:1] if not op.result.tensor.storage.is_complex and _splat(rw, operands[1], 0) else None


def _by_one(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """x / 1 = x"""
    return operands[:1] if not op.result.tensor.storage.is_complex and _splat(rw, operands[1], 1) else None


def _known_power(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """power(x, 1) = x; power(x, 2) = x * x; power(x, -1) = 1 / x; power(x, 0.5) = x = -inf ? inf : sqrt(x + 0)

    Each is the correctly rounded power, for zeros and infinities of both signs as well."""
    x, y = operands
    storage = op.result.tensor.storage
    if not storage.is_float or storage.bits < 16 or rw.dense(y) is None:
        return None  # not all types of 8 bits have a sign: -1 is NaN in some
    if _splat(rw, y, 1):
        return [x]
    if _splat(rw, y, 2):
        return [mk.apply(rw, "multiply", x, x)]
    if _splat(rw, y, -1):
        return [mk.apply(rw, "divide", mk.splat_like(rw, x, 1), x)]
    if not _splat(rw, y, 0.5) or storage.bits < 32:
        return None
    root = mk.apply(rw, "sqrt", mk.apply(rw, "add", x, mk.splat_like(rw, x, 0)))
    is_lowest = mk.compare(rw, "EQ", x, mk.splat_like(rw, x, -np.inf))
    return [mk.apply(rw, "select", is_lowest, mk.splat_like(rw, x, np.inf), root)]


def _barrier(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """optimization_barrier(x...) = x..."""
    return operands


def _known_if(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """if(true) { a } else { b } = a"""
    dense = rw.dense(operands[0])
    if dense is None:
        return None
    block = op.regions[0 if dense.array.reshape(-1)[0] else 1].block
    rw.run(block.ops[:-1])
    return [rw.get(o) for o in block.terminator.operands]


def _known_case(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """case(k) { b0 } { b1 } ... = bk; an index out of range selects the last branch"""
    dense = rw.dense(operands[0])
    if dense is None:
        return None
    k = int(dense.array.reshape(-1)[0])
    block = op.regions[k if 0 <= k < len(op.regions) else -1].block
    rw.run(block.ops[:-1])
    return [rw.get(o) for o in block.terminator.operands]


def _tuple_element(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """get_tuple_element(tuple(x, y), 1) = y"""
    inner = operands[0].op
    return [inner.operands[op.int("index")]] if inner is not None and inner.name == "stablehlo.tuple" else None


def _whole_update(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_update_slice(x, u, ...) with u of x's type = u"""
    return [operands[1]] if _alike(operands[0], operands[1]) else None


def _trivial_reduce(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """reduce over dimensions of extent 1 = body(init, reshape(x))"""
    n = len(op.results)
    t = operands[0].tensor
    dims = op.ints("dimensions")
    if not t.is_static or any(not equal(t.extents[d], 1) for d in dims):
        return None
    body = op.block()
    if any(o.regions or len(o.results) != 1 for o in body.ops[:-1]):
        return None
    inside = {*body.arguments, *(v for o in body.ops for v in o.results)}
    if any(v not in inside for o in body.ops for v in o.operands):
        return None
    shape = op.results[0].tensor.extents
    values: dict[Value, Value] = {}
    for i, a in enumerate(body.arguments):
        spread = tensor(shape, a.tensor.dtype)
        if i < n:
            none = {"broadcast_dimensions": DenseArray("i64", ())}
            init = operands[n + i]
            values[a] = init if not shape else rw.emit1("stablehlo.broadcast_in_dim", [init], spread, none)
        else:
            values[a] = rw.emit1("stablehlo.reshape", [operands[i - n]], spread)
    for o in body.ops[:-1]:
        spread = tensor(shape, o.result.tensor.dtype)
        if o.name == "stablehlo.constant":
            one = o.constant.array.reshape(-1)[0]
            values[o.result] = rw.make(Dense(spread, np.broadcast_to(one, shape)))
        elif o.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
            values[o.result] = values[o.operands[0]]
        else:
            values[o.result] = rw.emit1(o.name, [values[v] for v in o.operands], spread, o.attributes)
    return [values[r] for r in body.terminator.operands]


def _invariant_carry(rw: PendingRewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """while: a carried value that the body returns unchanged equals its initial value"""
    cond, body = op.regions[0].block, op.regions[1].block
    returned = body.terminator.operands
    fixed = [i for i, r in enumerate(returned) if r is body.arguments[i]]
    if not fixed:
        return None
    live = [i for i in range(len(operands)) if i not in fixed]
    regions = []
    for block in (cond, body):
        rw.values.update((block.arguments[i], operands[i]) for i in fixed)
        end = block.terminator
        kept = end.operands if block is cond else [returned[i] for i in live]
        regions.append(Region([rw.sweep_parts([block.arguments[i] for i in live], block.ops[:-1], end, kept)]))
    inits = [operands[i] for i in live]
    results = iter(rw.emit("stablehlo.while", inits, [v.type for v in inits], op.attributes, regions))
    return [operands[i] if i in fixed else next(results) for i in range(len(operands))]


IDENTITIES: dict[str, tuple[Identity, ...]] = {
    "stablehlo.reshape": (_same_type, _reshape_of_reshape),
    "stablehlo.convert": (_same_type,),
    "stablehlo.bitcast_convert": (_same_type,),
    "stablehlo.transpose": (_identity_transpose, _transpose_of_transpose),
    "stablehlo.broadcast_in_dim": (_identity_broadcast,),
    "stablehlo.slice": (_identity_slice,),
    "stablehlo.dynamic_slice": (_same_type,),
    "stablehlo.dynamic_update_slice": (_whole_update,),
    "stablehlo.concatenate": (_single_concatenate,),
    "stablehlo.select": (_known_select,),
    "stablehlo.subtract": (_minus_zero,),
    "stablehlo.divide": (_by_one,),
    "stablehlo.power": (_known_power,),
    "stablehlo.optimization_barrier": (_barrier,),
    "stablehlo.if": (_known_if,),
    "stablehlo.case": (_known_case,),
    "stablehlo.get_tuple_element": (_tuple_element,),
    "stablehlo.while": (_invariant_carry,),
    "stablehlo.reduce": (_trivial_reduce,),
}


def identities_of(name: str) -> tuple[Identity, ...]:
    """Returns the rules for an op: those of its row, then those that follow from its record."""
    record = OPS.get(name)
    if record is None:  # an op of another dialect, which lowering refuses
        return ()
    by_fact = ((record.neutral is not None, _neutral), (record.has("idempotent"), _idempotent))
    return (*IDENTITIES.get(name, ()), *(rule for holds, rule in by_fact if holds))
