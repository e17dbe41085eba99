"""Write rows of a loop's result over the rows of the input that they replace, as `scan` over layers updates caches.

    y = 0; for i in 0 .. n-1 { s = x[i]; y[i] = changed(s) }   ->   y = x; for i { s = y[i]; y[i] = changed(s) }

In each iteration the input must be read at the row that is written then, and nowhere else, and the result not at all.
The rows of all iterations have to be all rows of the result, each once: no row of the initial result is left, and each
row of the input is read before it is overwritten. The row may be changed in part (`row_chains.py`), so the state is
updated in place afterwards. If something else needs the input, it is copied once before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.counted_loops import iterations
from shlo_jit.passes.states.row_chains import Chain, chain_to, reads_row
from shlo_jit.passes.states.updates import SLICE, UPDATE, Uses


def stacked_results(function: Op) -> Op:
    """Returns the function with such results begun as the input; the same object if it has none."""
    loops = [op for op in walk(function.block()) if op.name == "stablehlo.while"]
    if not loops:
        return function
    uses = Uses(function.block())
    begun: dict[Op, dict[int, Value]] = {}
    reads: dict[Op, Value] = {}
    for loop in loops:
        body = loop.block(1)
        for number, state in enumerate(body.arguments):
            chain = _chain(loop, number, uses)
            if chain is None:
                continue
            source = chain.root.operands[0]
            inside = [op for op in uses.readers[source] if uses.is_within(op, loop)]
            if reads.keys().isdisjoint(inside) and _is_exchangeable(loop, chain, inside, uses):
                begun.setdefault(loop, {})[number] = source
                reads.update(dict.fromkeys(inside, state))
    if not begun:
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op in begun:
            return rw.keep(op, [rw.get(begun[op][i]) if i in begun[op] else v for i, v in enumerate(operands)])
        return rw.keep(op, [rw.get(reads[op]), *operands[1:]]) if op in reads else None

    return eliminate(rewrite(function, visit))


def _chain(loop: Op, number: int, uses: Uses) -> Chain | None:
    """Returns the chain from a row of a tensor outside of the loop to what a state's only reader writes."""
    condition, body = loop.block(0), loop.block(1)
    state, final = body.arguments[number], body.terminator.operands[number].op
    if final is None or final.name != UPDATE or final.operands[0] is not state or not uses.only(state, final):
        return None
    if condition.arguments[number] in uses.readers or final.operands.count(state) != 1:
        return None
    chain = chain_to(final, uses)
    if chain is None or chain.root.name != SLICE:
        return None
    source = chain.root.operands[0]
    is_inside = source in body.arguments or (source.op is not None and uses.place[source.op][0] is body)
    return None if is_inside else chain


def _is_exchangeable(loop: Op, chain: Chain, readers: Sequence[Op], uses: Uses) -> bool:
    """Whether the source is only read where the same iteration writes, and each row is written once."""
    block = uses.place[chain.final][0]
    if not all(uses.place[op][0] is block and op.name == SLICE and reads_row(op, chain.final) for op in readers):
        return False
    along = [d for d, (n, size) in enumerate(zip(chain.extents, chain.sizes, strict=True)) if n != size]
    if any(chain.sizes[d] != 1 for d in along):
        return False
    starts = chain.root.operands[1:]
    count = 1
    for d in along:
        count *= chain.extents[d]
    found = iterations(loop, [starts[d] for d in along], count)
    if found is None or len(found) != count:
        return False
    # A slice outside of the tensor is moved inside.
    most = [chain.extents[d] - 1 for d in along]
    return len({tuple(min(max(i, 0), n) for i, n in zip(row, most, strict=True)) for row in found}) == count
