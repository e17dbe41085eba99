"""Loops of a function. Each level (the function, or a loop) is a graph without cycles.

At a level, a nested loop is one node, named after its header. An edge is identified by the two blocks that it joins,
and leaves the node that contains its first block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shlo_jit.custom.lift.read import Function
from shlo_jit.custom.llvm_text import Refused

Edge = tuple[str, str]


@dataclass(eq=False)
class Level:
    """The function, or one loop of it."""

    entry: str
    blocks: set[str]
    """Blocks of the level, including those of nested loops."""
    parent: Level | None = None
    inner: dict[str, Level] = field(default_factory=dict)
    """Loops directly inside, by header."""
    latch: str = ""
    exits: list[Edge] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Nodes, each after its predecessors."""
    edges: dict[str, list[Edge]] = field(default_factory=dict)
    """Incoming edges of each node; none for the entry."""
    dominator: dict[str, str] = field(default_factory=dict)
    """Immediate dominator of each node except the entry."""

    def node(self, block: str) -> str:
        """Returns the node that contains a block."""
        return next((h for h, loop in self.inner.items() if block in loop.blocks), block)


def levels(function: Function) -> Level:
    """Returns the function as a level, with its loops inside. Raises Refused if a loop has several entries."""
    order = _reverse_postorder(function)
    preds: dict[str, list[str]] = {b: [] for b in order}
    for b in order:
        for t in dict.fromkeys(function.blocks[b].targets):
            preds[t].append(b)
    top = Level(order[0], set(order))
    dominator = _dominators(order, preds)
    loops = []
    for header in order:
        latches = [p for p in preds[header] if _dominates(dominator, header, p)]
        if len(latches) > 1:
            raise Refused("irreducible-loop", "it has a loop with several back edges")
        if latches:
            loops.append(_loop(function, header, latches[0], preds))
    position = {b: i for i, b in enumerate(order)}
    for b in order:
        for p in preds[b]:
            if position[p] >= position[b] and not _dominates(dominator, b, p):
                raise Refused("irreducible-loop", "it has a loop with several entries")
    for loop in loops:  # by header: outer ones first
        around = [o for o in loops if o is not loop and loop.entry in o.blocks]
        loop.parent = min(around, key=lambda o: len(o.blocks), default=top)
        loop.parent.inner[loop.entry] = loop
    for level in (top, *loops):
        _lay_out(level, order, preds)
    return top


def walk(level: Level) -> Iterable[Level]:
    """Yields a level and those inside it."""
    yield level
    for loop in level.inner.values():
        yield from walk(loop)


def _reverse_postorder(function: Function) -> list[str]:
    entry = next(iter(function.blocks))
    done: list[str] = []
    seen = {entry}
    stack = [(entry, iter(function.blocks[entry].targets))]
    while stack:
        block, targets = stack[-1]
        following = next((t for t in targets if t not in seen), None)
        if following is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(function.blocks[following].targets)))
    return done[::-1]


def _dominators(order: list[str], preds: dict[str, list[str]]) -> dict[str, str]:
    """Returns immediate dominators (Cooper, Harvey and Kennedy's algorithm); the entry is its own."""
    position = {b: i for i, b in enumerate(order)}
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            known = [p for p in preds[b] if p in found]
            if not known:
                continue
            best = known[0]
            for other in known[1:]:
                while best != other:
                    if position[best] > position[other]:
                        best = found[best]
                    else:
                        other = found[other]
            if found.get(b) != best:
                found[b] = best
                changed = True
    return found


def _dominates(dominator: dict[str, str], above: str, below: str) -> bool:
    while below != above:
        if dominator[below] == below:
            return False
        below = dominator[below]
    return True


def _loop(function: Function, header: str, latch: str, preds: dict[str, list[str]]) -> Level:
    blocks, todo = {header}, [latch]
    while todo:
        b = todo.pop()
        if b not in blocks:
            blocks.add(b)
            todo += preds[b]
    exits = [(b, t) for b in preds if b in blocks for t in dict.fromkeys(function.blocks[b].targets) if t not in blocks]
    return Level(header, blocks, latch=latch, exits=exits)


def _lay_out(level: Level, order: list[str], preds: dict[str, list[str]]) -> None:
    """Fills the fields that describe the level's graph."""
    inside = {b for loop in level.inner.values() for b in loop.blocks - {loop.entry}}
    level.order = [b for b in order if b in level.blocks and b not in inside]
    of_node: dict[str, list[str]] = {level.entry: []}
    for n in level.order:
        own = level.inner[n].blocks if n in level.inner and n != level.entry else set()
        sources = [] if n == level.entry else [p for p in preds[n] if p in level.blocks and p not in own]
        level.edges[n] = [(p, n) for p in sources]
        of_node[n] = list(dict.fromkeys(map(level.node, sources)))
    # a loop's exits may come before blocks of the loop in the order of blocks
    level.order = _sorted(level.order, of_node)
    level.dominator = _dominators(level.order, of_node)
    del level.dominator[level.entry]


def _sorted(nodes: list[str], sources: dict[str, list[str]]) -> list[str]:
    """Returns the nodes with each one after its sources, and otherwise in the given order."""
    done: dict[str, None] = {}

    def add(node: str) -> None:
        if node not in done:
            for source in sources[node]:
                add(source)
            done[node] = None

    for node in nodes:
        add(node)
    return list(done)
