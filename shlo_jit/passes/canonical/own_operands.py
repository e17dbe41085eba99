"""Give each product that reads an operand computed from narrower arrays its own ops that compute it.

    d = convert(w); y = dot_general(a, d); z = dot_general(b, d)
      ->   d = convert(w); y = dot_general(a, d); e = convert(w); z = dot_general(b, e)

A product computes such an operand where it reads it (`fuse/computed_operands.py`), if nobody else needs it in memory.
Other readers may take a part of it, as the rows of an embedding that is also the matrix of the last product: they
compute that part. Branches of an `if`, such as those for matrices of groups that are not finite, compute the operand of
a grouped product once more.

Needs: no common subexpressions (which would be merged again). Guarantees: nothing; what is computed again has the same
bits. Each reader is given ops of its own, or none of them is.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value, blocks_in, walk
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size

PRODUCT, IF = "stablehlo.dot_general", "stablehlo.if"
PARTS = ("stablehlo.gather", "stablehlo.slice", "stablehlo.dynamic_slice")
MOVES = ("stablehlo.reshape", "stablehlo.transpose")
CHANGES = (*MOVES, "stablehlo.broadcast_in_dim", "stablehlo.concatenate")
"""Ops without arithmetic between narrow arrays and an operand."""


def own_operands(function: Op, _: Context) -> Op:
    """The function in which products do not share operands that they can compute."""
    if not any(op.name == PRODUCT or grouped_of(op) is not None for op in walk(function.block())):
        return function
    own: dict[tuple[Op, int], set[Value]] = {}
    """A reader and the number of its operand -> the values that it computes again."""
    for block in blocks_in(function.block()):
        own |= _shared(block) | _read_in_branches(block)
    if not own:
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not any((op, i) in own for i in range(len(operands))):
            return None
        again: dict[Value, Value] = {}

        def compute(value: Value, inside: set[Value]) -> Value:
            made = value.op
            if value not in inside or made is None:
                return rw.get(value)
            if value not in again:
                args = [compute(o, inside) for o in made.operands]
                again[value] = rw.emit1(made.name, args, value.type, made.attributes)
            return again[value]

        found = [compute(o, own[op, i]) if (op, i) in own else operands[i] for i, o in enumerate(op.operands)]
        return rw.keep(op, found)

    return rewrite(function, visit)


def _shared(block: Block) -> dict[tuple[Op, int], set[Value]]:
    """Returns the readers of a block that are to compute an operand again, with the values on the way."""
    here = set(block.ops)
    readers: dict[Value, list[tuple[Op, int]]] = {}
    for op in block.ops:
        for i, operand in enumerate(op.operands):
            readers.setdefault(operand, []).append((op, i))
    read_inside = {v for op in block.ops for r in op.regions for b in r.blocks for o in walk(b) for v in o.operands}
    found: dict[tuple[Op, int], set[Value]] = {}
    for op in block.ops:
        if op.name == PRODUCT or len(op.results) != 1 or op.result in read_inside:
            continue
        uses = readers.get(op.result, [])
        if len(uses) < 2 or len({id(use[0]) for use in uses}) < len(uses):
            continue
        if not any(_is_product(use[0], readers) for use in uses):
            continue
        if not all(_is_product(use[0], readers) or _is_part(use, op.result) for use in uses):
            continue
        inside = _computed(op.result, here)
        if inside and _saves(op.result, inside):
            found |= {use: inside for use in uses[1:]}
    return found


def _read_in_branches(block: Block) -> dict[tuple[Op, int], set[Value]]:
    """Returns readers inside `if` ops of the matrices of grouped products, with the values that they are to compute
    again. Matrices that other ops read too are left out."""
    here, found = set(block.ops), dict[tuple[Op, int], set[Value]]()
    products = [op for op in block.ops if (g := grouped_of(op)) is not None and not g.sums]
    nested = [(op, inner) for op in block.ops for r in op.regions for b in r.blocks for inner in walk(b)]
    for product in products:
        value = product.operands[1]
        uses = [(inner, i) for op, inner in nested if op.name == IF for i, v in enumerate(inner.operands) if v is value]
        if not uses:
            continue
        read_here = any(value in op.operands for op in block.ops if op is not product)
        read_in_loops = any(value in inner.operands for op, inner in nested if op.name != IF)
        if read_here or read_in_loops:
            continue
        again = _computed(value, here)
        if again and _saves(value, again):
            found |= dict.fromkeys(uses, again)
    return found


def _is_product(op: Op, readers: dict[Value, list[tuple[Op, int]]]) -> bool:
    """Whether an op is a product, or only moves elements for products."""
    if op.name not in MOVES:
        return op.name == PRODUCT
    uses = readers.get(op.result, [])
    return bool(uses) and all(_is_product(use[0], readers) for use in uses)


def _is_part(use: tuple[Op, int], value: Value) -> bool:
    """Whether a reader takes a small part of a value."""
    op, number = use
    if op.name not in PARTS or number:
        return False
    size, whole = op.result.tensor.size, value.tensor.size
    return not isinstance(size, Size) and not isinstance(whole, Size) and size * tuning.OWN_PART <= whole


def _computed(value: Value, here: set[Op]) -> set[Value]:
    """Returns the values that a value is computed from by cheap ops on elements, and that are about as large, with
    itself; none if no loop would compute that many."""
    found: set[Value] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if v in found or v.op not in here or v.op is None or not v.op.operands:
            continue
        size, whole = v.tensor.size, value.tensor.size
        if isinstance(size, Size) or isinstance(whole, Size) or size * tuning.UNPACKED_SEGMENTS < whole:
            continue
        name = v.op.name
        is_cheap = is_elementwise(v.op) and OPS[name].cost < tuning.EXPENSIVE_COST
        if not is_cheap and name not in CHANGES:
            continue
        found.add(v)
        todo += v.op.operands
        if len(found) > tuning.NEST_OPS:
            return set()
    return found


def _saves(value: Value, inside: set[Value]) -> bool:
    """Whether computing a value reads fewer bytes than it has."""
    sources = dict.fromkeys(o for v in inside if v.op is not None for o in v.op.operands if o not in inside)
    nbytes = [s.tensor.nbytes for s in sources]
    if any(isinstance(n, Size) for n in (*nbytes, value.tensor.nbytes)):
        return False
    whole = value.tensor.nbytes
    return whole >= tuning.COMPUTED_OPERAND_BYTES and sum(nbytes) <= tuning.COMPUTED_OPERAND_SHARE * whole
