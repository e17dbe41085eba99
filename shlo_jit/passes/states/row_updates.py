"""Change rows of a tensor where they are, instead of reading a row, changing it, and writing it back.

    s = dynamic_slice(x, i)                           y = dynamic_update_slice(x, u, i, j)
    t = dynamic_update_slice(s, u, j)            ->   t = dynamic_slice(y, i)
    y = dynamic_update_slice(x, t, i)

Each link of a chain (`row_chains.py`) is applied to the whole tensor. Other readers of a changed row read it there.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I32, I64, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.row_chains import BRANCHES, LOOP, RESHAPES, Chain, chain_to, reads_row, starts_of
from shlo_jit.passes.states.updates import UPDATE, Uses


def update_rows(function: Op) -> Op:
    """Returns the function with the innermost chains applied to whole tensors; the same object if it has none."""
    chains = _chains(function)
    if not chains:
        return function
    return eliminate(rewrite(function, _Lifting(chains).visit))


def _chains(function: Op) -> list[Chain]:
    """Returns the innermost chains, which share no link. Nothing else reads their tensors: it would need a copy."""
    uses = Uses(function.block())
    found = [c for op in walk(function.block()) if op.name == UPDATE and (c := chain_to(op, uses)) is not None]
    found = [c for c in found if c.root.operands[0] is c.final.operands[0] and _is_alone(c, uses)]
    finals, taken, chosen = {c.final for c in found}, set(), list[Chain]()
    for chain in found:
        inner = (op for link, _ in chain.links for r in link.regions for op in walk(r.block))
        if taken.isdisjoint(chain.links) and finals.isdisjoint(inner):
            taken.update(chain.links)
            chosen.append(chain)
    return chosen


def _is_alone(chain: Chain, uses: Uses) -> bool:
    """Whether only the final update and reads of the same row read the tensor."""
    whole = chain.final.operands[0]
    is_once = chain.final.operands.count(whole) == 1
    readers = uses.readers[whole]
    return is_once and all(op is chain.final or reads_row(op, chain.final) for op in readers)


class _Lifting:
    """One sweep over a function that applies links to whole tensors."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.roots = {c.root: c for c in chains}
        self.finals = {c.final for c in chains}
        self.links: dict[Op, dict[int, Chain]] = {}
        for c in chains:
            for op, number in c.links:
                self.links.setdefault(op, {})[number] = c
        self.wholes: dict[Value, Value] = {}
        """The whole tensor of each old value that is a row."""
        self.starts: dict[Op, list[Value]] = {}
        """The starts of the row that a root reads."""

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op in self.finals:
            return [self.wholes[op.operands[1]]]
        if op in self.roots:
            self.wholes[op.result] = operands[0]
            found = starts_of(op)
            self.starts[op] = [
                mk.constant(rw, tensor((), I32), s) if isinstance(s, int) else rw.get(s) for s in found
            ]
            return None
        chains = self.links.get(op)
        if chains is None:
            return None
        if op.name in RESHAPES:
            self.wholes[op.result] = self.wholes[op.operands[0]]
            return None
        if op.name in BRANCHES or op.name == LOOP:
            return self._control(rw, op, operands, chains)
        emit = _updated if op.name == UPDATE else _scattered
        (chain,) = chains.values()
        whole = emit(rw, op, self.wholes[op.operands[0]], operands, chain, self.starts[chain.root])
        return [self._row(rw, op.result, whole, chain)]

    def _row(self, rw: Rewriter, old: Value, whole: Value, chain: Chain) -> Value:
        """Notes the whole tensor of a value that is a row, and emits the read of the row."""
        self.wholes[old] = whole
        return mk.reshape(rw, mk.window(rw, whole, self.starts[chain.root], chain.sizes), mk.shape_of(old))

    def _control(self, rw: Rewriter, op: Op, operands: list[Value], chains: dict[int, Chain]) -> Sequence[Value]:
        """Emits control flow whose results are whole tensors."""
        types = [chains[k].final.result.type if k in chains else r.type for k, r in enumerate(op.results)]
        if op.name == LOOP:
            operands = [self.wholes[v] if k in chains else operands[k] for k, v in enumerate(op.operands)]
            condition, body = (self._region(rw, region.block, chains, is_loop=True) for region in op.regions)
            self._return_wholes(body, op.block(1), chains)
            blocks = [condition, body]
        else:
            blocks = [self._region(rw, region.block, chains, is_loop=False) for region in op.regions]
            for new, region in zip(blocks, op.regions, strict=True):
                self._return_wholes(new, region.block, chains)
        results = rw.emit(op.name, operands, types, op.attributes, [Region([b]) for b in blocks])
        return [
            self._row(rw, old, new, chains[k]) if k in chains else new
            for k, (old, new) in enumerate(zip(op.results, results, strict=True))
        ]

    def _region(self, rw: Rewriter, old: Block, chains: dict[int, Chain], *, is_loop: bool) -> Block:
        """Returns a swept block. The rows among a loop's states are read from the whole tensors that it carries."""
        wholes = {k: chains[k].final.result.type for k in chains if is_loop}
        types = [wholes.get(k, a.type) for k, a in enumerate(old.arguments)]
        block = Block([Value(t, name=a.name) for t, a in zip(types, old.arguments, strict=True)])
        rw.blocks.append(block)
        for k, (a, new) in enumerate(zip(old.arguments, block.arguments, strict=True)):
            rw.values[a] = self._row(rw, a, new, chains[k]) if k in wholes else new
        rw.run(old.ops)
        return rw.blocks.pop()

    def _return_wholes(self, new: Block, old: Block, chains: dict[int, Chain]) -> None:
        end = new.terminator
        for k in chains:
            end.operands[k] = self.wholes[old.terminator.operands[k]]


def _updated(
    rw: Rewriter, op: Op, whole: Value, operands: list[Value], chain: Chain, starts: Sequence[Value]
) -> Value:
    """Emits an update of a slice of a row in the whole tensor."""
    _, part, *places = operands
    dims, shape = chain.dims(mk.shape_of(op.result)), mk.shape_of(part)
    inner = {d: r for r, d in enumerate(dims) if d is not None}
    sizes = [shape[inner[d]] if d in inner else 1 for d in range(len(chain.sizes))]
    # Along other dimensions the row is one of several, or the whole row is written.
    at = [
        places[inner[d]] if d in inner and n == chain.extents[d] else starts[d] for d, n in enumerate(chain.sizes)
    ]
    if len({s.type for s in at}) > 1:
        at = [mk.convert(rw, s, I64) for s in at]
    return rw.emit1(UPDATE, [whole, mk.reshape(rw, part, sizes), *at], whole.type)


def _scattered(
    rw: Rewriter, op: Op, whole: Value, operands: list[Value], chain: Chain, starts: Sequence[Value]
) -> Value:
    """Emits a scatter to a row in the whole tensor: the indices of the row are components of each index."""
    _, indices, update = operands
    dims = [d for d in chain.dims(mk.shape_of(op.result)) if d is not None]
    old = op.attributes["scatter_dimension_numbers"]
    along, shape = int(old.get("index_vector_dim", 0)), mk.shape_of(indices)
    outer = [d for d in range(len(chain.sizes)) if d not in dims]
    numbering = [d for d in outer if chain.extents[d] != 1]
    components = [indices if along < len(shape) else mk.reshape(rw, indices, (*shape, 1))]
    full = mk.shape_of(components[0])
    one = (*full[:along], 1, *full[along + 1 :])
    for d in numbering:
        inside = _clamped(rw, starts[d], chain.extents[d] - 1)
        components.append(mk.broadcast(rw, mk.convert(rw, inside, indices.tensor.storage), one, ()))
    moved = {name: tuple(dims[r] for r in dims_of(old, name)) for name in _OPERAND_DIMS}
    moved["inserted_window_dims"] = tuple(sorted([*moved["inserted_window_dims"], *outer]))
    moved["scatter_dims_to_operand_dims"] += tuple(numbering)
    kept = tuple((k, v) for k, v in old.fields if k not in moved and k != "index_vector_dim")
    numbers = StructAttr(old.name, (*kept, *((k, v) for k, v in moved.items() if v), ("index_vector_dim", along)))
    attributes = {**op.attributes, "scatter_dimension_numbers": numbers}
    regions = [Region([rw.sweep(region.block)]) for region in op.regions]
    joined = mk.concatenate(rw, components, along) if len(components) > 1 else components[0]
    return rw.emit(op.name, [whole, joined, update], [whole.type], attributes, regions)[0]


_OPERAND_DIMS = ("inserted_window_dims", "input_batching_dims", "scatter_dims_to_operand_dims")
"""Lists of dimensions of a scatter's operand."""


def _clamped(rw: Rewriter, start: Value, most: int) -> Value:
    """Emits the start that a slice has: one that is outside is moved inside."""
    low, high = (mk.constant(rw, start.tensor, n) for n in (0, most))
    return rw.emit1("stablehlo.clamp", [low, start, high], start.type)
