"""Rows of a tensor that are read, changed in part, and written back where they were read.

    s = dynamic_slice(x, i)   t = dynamic_update_slice(s, u, j)   y = dynamic_update_slice(x, t, i)

The ops between are the links of a chain: updates of slices, scatters, reshapes that only add or drop dimensions of one
element, and control flow whose branches or bodies consist of such links.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.passes.states.updates import SCATTER, SLICE, UPDATE, Uses, constant_of, is_small_part, same_start
from shlo_jit.sizes import Size

BRANCHES, LOOP = ("stablehlo.if", "stablehlo.case"), "stablehlo.while"
RESHAPES = ("stablehlo.reshape", "stablehlo.broadcast_in_dim")
Link = tuple[Op, int]
"""An op of a chain, and the number of the result that the chain goes through."""


class Chain(NamedTuple):
    """A row that is changed: `root` reads it, `final` writes it back."""

    root: Op
    final: Op
    links: tuple[Link, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The extents of the row, with all dimensions of the tensor that it is read from."""
        return self.root.result.tensor.extents

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the tensor."""
        return self.final.result.tensor.extents

    def dims(self, shape: Sequence[int]) -> tuple[int | None, ...]:
        """Returns the dimension of the tensor for each dimension of a value of the chain. None for a dimension of one
        element that the tensor does not have, or along which the row is one of several."""
        found: list[int | None] = [None] * len(shape)
        wide = zip(_wide(shape), _wide(self.sizes), strict=True)
        edges = [(-1, -1), *wide, (len(shape), len(self.sizes))]
        for (mine, other), (end, other_end) in pairwise(edges):
            if mine >= 0:
                found[mine] = other
            single = [d for d in range(other + 1, other_end) if self.extents[d] == 1]
            for r, d in zip(range(mine + 1, end), single, strict=False):
                found[r] = d
        return tuple(found)


def _wide(shape: Sequence[int]) -> list[int]:
    """Returns the dimensions with more than one element."""
    return [d for d, n in enumerate(shape) if n != 1]


def starts_of(op: Op) -> Sequence[Value | int]:
    """Returns the starts of a slice or of an update of one."""
    if op.name == "stablehlo.slice":
        return [*op.ints("start_indices")]
    return op.operands[1:] if op.name == SLICE else op.operands[2:]


def reads_row(op: Op, final: Op) -> bool:
    """Whether an op is a slice with the starts and the extents of what an update overwrites."""
    if op.name == "stablehlo.slice":
        if any(n != 1 for n in op.ints("strides")):
            return False
    elif op.name != SLICE:
        return False
    if op.result.type != final.operands[1].type:
        return False
    return all(_is_same(a, b) for a, b in zip(starts_of(op), starts_of(final), strict=True))


def _is_same(a: Value | int, b: Value | int) -> bool:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int):
        return not isinstance(a, int) and constant_of(a) == b
    return not isinstance(a, int) and same_start(a, b)


def chain_to(final: Op, uses: Uses) -> Chain | None:
    """Returns the chain that leads to an update of a slice: its root reads the same place of a tensor of the same type,
    in the same block. None if there is none, or if it changes nothing or a small row."""
    whole = final.result
    if final.name != UPDATE or any(isinstance(n, Size) for n in whole.tensor.extents) or whole.tensor.is_packed:
        return None
    walk = _Walk(uses)
    start = walk.back(final.operands[1])
    root = start.op if start is not None else None
    if root is None or not root.operands or root.operands[0].type != whole.type or not reads_row(root, final):
        return None
    if uses.place[root][0] is not uses.place[final][0]:
        return None
    chain = Chain(root, final, tuple(walk.links))
    is_large = chain.root.result.tensor.nbytes >= tuning.PING_PONG_BYTES
    changes = any(map(_changes_part, chain.links))
    return chain if is_large and changes and all(_can_move(chain, link) for link in chain.links) else None


def _changes_part(link: Link) -> bool:
    op, _ = link
    if op.name == UPDATE:
        return is_small_part(op.operands[1], op.result)
    return op.name == SCATTER


def _can_move(chain: Chain, link: Link) -> bool:
    """Whether a link can be applied to the whole tensor instead of the row."""
    op, _ = link
    if op.name not in (UPDATE, SCATTER):
        return True
    dims = chain.dims(op.result.tensor.extents)
    partial = {d for d, n in enumerate(chain.sizes) if n not in (1, chain.extents[d])}
    if op.name == UPDATE:
        part = op.operands[1].tensor.extents
        return all(d not in partial or part[r] == chain.sizes[d] for r, d in enumerate(dims))
    if partial or None in dims or op.operands[1].tensor.storage.kind == "u":
        return False
    # The index of the row needs a type that holds it.
    return op.operands[1].tensor.storage.bits >= 32


class _Walk:
    """The way back from a value through the links before it."""

    def __init__(self, uses: Uses) -> None:
        self.uses = uses
        self.links: dict[Link, None] = {}
        self.ends: dict[Value, Value | None] = {}

    def back(self, value: Value) -> Value | None:
        """Returns the value that a chain of links leads from to another one; None if branches disagree."""
        passed: list[Value] = []
        end: Value | None = value
        while end is not None and end not in self.ends:
            passed.append(end)
            before = self._before(end)
            if before is end:
                break
            end = before
        if end is not None and end in self.ends:
            end = self.ends[end]
        self.ends.update(dict.fromkeys(passed, end))
        return end

    def _before(self, value: Value) -> Value | None:
        """Returns what a link has changed; the value itself if no link has made it."""
        op = value.op
        if op is None:
            return value
        if op.name in RESHAPES and _keeps_elements(op):
            found: Value | None = op.operands[0]
        elif op.name in (UPDATE, SCATTER) and len(op.results) == 1:
            found = op.operands[0]
        elif op.name in BRANCHES:
            found = self._before_branches(op, op.results.index(value))
        elif op.name == LOOP:
            found = self._before_loop(op, op.results.index(value))
        else:
            return value
        if found is not None:
            self.links[op, op.results.index(value)] = None
        return found

    def _before_branches(self, op: Op, number: int) -> Value | None:
        ends = [self.back(region.block.terminator.operands[number]) for region in op.regions]
        end = ends[0]
        if end is None or any(other is not end for other in ends):
            return None
        return None if end.op is not None and self.uses.is_within(end.op, op) else end

    def _before_loop(self, op: Op, number: int) -> Value | None:
        body = op.block(1)
        end = self.back(body.terminator.operands[number])
        return op.operands[number] if end is body.arguments[number] else None


def _keeps_elements(op: Op) -> bool:
    """Whether a reshape or a broadcast only adds or drops dimensions of one element."""
    before, after = op.operands[0].tensor.extents, op.result.tensor.extents
    if [before[d] for d in _wide(before)] != [after[d] for d in _wide(after)]:
        return False
    if op.name == "stablehlo.reshape":
        return True
    dims = op.ints("broadcast_dimensions")
    wide = [dims[d] for d in _wide(before)]
    return wide == sorted(wide)
