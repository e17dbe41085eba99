"""Writes the ops of a lifted function: straight-line code as it is, branches as selects, loops as `while`.

    if c: y = f(x) else: y = g(x)           ->   y = select(c, f(x), g(x))
    for k in range(n): y = f(y)             ->   while k < n { y = f(y); k = k + 1 }         same count for all elements
    while c(y): y = f(y)                    ->   while any(active) { y = select(active, ...) }     a count per element

Both sides of a branch are always computed. Loops run only for elements that reach them, unless they are known to
terminate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shlo_jit.custom.lift.calls import is_ignored
from shlo_jit.custom.lift.counting import needed, trip_count
from shlo_jit.custom.lift.instructions import lifted
from shlo_jit.custom.lift.loops import Edge, Level, levels
from shlo_jit.custom.lift.masks import ALWAYS, Mask, Masks
from shlo_jit.custom.lift.ops import Ops, dtype_of
from shlo_jit.custom.lift.read import Function, Instruction, Literal, Operand, path_of
from shlo_jit.custom.lift.varying import varying
from shlo_jit.custom.llvm_text import Refused
from shlo_jit.ir.core import Block, Region, Value
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import I1, I32, TensorType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def lift(
    rw: Rewriter, function: Function, arguments: Sequence[Any], shape: tuple[int, ...], results: Sequence[DType]
) -> list[Value]:
    """Returns the results of a function whose arguments are scalars or have the given shape. A complex argument is the
    pair of its parts. Raises Refused if the function cannot be expressed in ops; unused ops then remain in the block.
    """
    lifting = Lifting(Ops(rw, shape), function, arguments)
    status, *found = lifting.run()
    if not isinstance(status, Literal) or status.value:
        raise Refused("may-raise", "it may raise an exception")
    made = [_finished(lifting, v, dtype) for v, dtype in zip(found, results, strict=True)]
    return [lifting.ops.wide(v) for v in made]


def _finished(lifting: Lifting, found: Operand, dtype: DType) -> Value:
    """Returns a result in its type."""
    ops, value = lifting.ops, lifting.value(found)
    if isinstance(value, tuple):
        parts = ops.same_rank([*map(lifting.value, value)])
        return ops.rw.emit1("stablehlo.complex", parts, mk.with_dtype(parts[0], dtype))
    return ops.bits(value, dtype)


class _Loop(NamedTuple):
    """State that a loop carries from iteration to iteration, apart from the flag that says whether it continues."""

    level: Level
    phis: list[Instruction]
    flags: list[Edge]
    """Edges by which the loop may have been left."""
    slots: list[tuple[Edge, str]]
    """Values that are read after the loop was left by an edge."""
    frozen: set[str]
    """Phis that are read after the loop: they keep their values once an element has left it."""


class Lifting:
    """Lifting of one function."""

    def __init__(self, ops: Ops, function: Function, arguments: Sequence[Any]) -> None:
        self.ops = ops
        self.function = function
        self.top = levels(function)
        self.masks = Masks(function)
        signed = [v if isinstance(v, tuple) else ops.signed(v) for v in arguments]
        self.values: dict[Any, Any] = dict(zip(function.arguments, signed, strict=True))
        """Values by name. An edge that leaves a loop is also a key: whether the loop was left by it. A structure is a
        tuple."""
        tensors = {n for n, v in self.values.items() if any(map(ops.is_wide, v if isinstance(v, tuple) else (v,)))}
        self.varying = varying(function, self.top, self.masks, tensors if ops.shape else set())
        self.left: dict[Edge, dict[str, Any]] = {}
        """Values that have other names on an edge out of a loop, by edge."""
        self.before: set[str] = set()
        """Names of instructions that were hoisted before the loop that contains them."""
        self.active: list[Value | None] = [None]
        """Elements for which each enclosing loop is active; None for all."""

    def run(self) -> Sequence[Operand]:
        """Returns the fields of the function's result."""
        self.level(self.top)
        (end,) = [b for b in self.function.blocks.values() if b.returned is not None] or [None]
        if end is None or end.name not in self.top.order:
            raise Refused("never-returns", "it never returns")
        returned = end.returned
        if isinstance(returned, str):
            return self.values[returned]
        assert isinstance(returned, Literal)
        return returned.value

    # ------------------------------------------------------------------ values
    def value(self, operand: Operand) -> Any:
        if isinstance(operand, Value | tuple):
            return operand
        if isinstance(operand, Literal):
            if isinstance(operand.value, tuple):
                return operand.value
            return self.ops.constant(dtype_of(operand.type), operand.value)
        if operand not in self.values:
            raise Refused("reads-non-number", "it reads a value that is not a scalar")
        return self.values[operand]

    def holds(self, mask: Mask) -> Value | None:
        """Returns the value of a mask; None if it always holds."""
        if mask == ALWAYS:
            return None
        terms = sorted((sorted(t, key=str) for t in mask), key=str)
        return self.ops.once(("mask", *(tuple(t) for t in terms)), lambda: self._sum(terms))

    def _sum(self, terms: Sequence[Any]) -> Value:
        found: Value | None = None
        for term in terms:
            product: Value | None = None
            for condition, holds in term:
                value = self.values[condition]
                value = value if holds else self.ops.negation(value)
                product = value if product is None else self.ops.apply("and", product, value)
            assert product is not None
            found = product if found is None else self.ops.apply("or", found, product)
        return self.ops.constant(I1, False) if found is None else found

    def and_(self, a: Value | None, b: Value | None) -> Value | None:
        if a is None or b is None:
            return b if a is None else a
        return self.ops.apply("and", a, b)

    # ------------------------------------------------------------------ straight code
    def level(self, level: Level) -> None:
        for node in level.order:
            if node in level.inner and node != level.entry:
                self.loop(level, level.inner[node])
            else:
                self.block(level, node)

    def block(self, level: Level, name: str) -> None:
        block = self.function.blocks[name]
        if name != level.entry:
            for phi in block.phis:
                self.values[phi.name] = self.phi_value(level, name, phi)
        self.straight(block.body)

    def straight(self, body: Sequence[Instruction]) -> None:
        for i in body:
            if any(o not in self.values for o in i.operands if isinstance(o, str)):
                continue  # depends on a counter that nothing needs
            if i.name in self.before:
                continue
            if i.opcode == "insertvalue":
                self.values[i.name] = self.inserted(i)
            elif i.opcode == "extractvalue":
                self.values[i.name] = self.extracted(i)
            elif not (i.opcode == "call" and is_ignored(i.callee)):
                self.values[i.name] = lifted(self.ops, i, [self.value(o) for o in i.operands])

    def inserted(self, i: Instruction) -> tuple[Operand, ...]:
        whole = i.operands[0]
        fields = list(whole.value if isinstance(whole, Literal) else self.values[whole])
        path = path_of(i)
        if len(path) == 2:
            inner = fields[path[0]]
            inner = list(inner.value if isinstance(inner, Literal) else inner)
            inner[path[1]] = self._kept(i.operands[1])
            fields[path[0]] = tuple(inner)
        elif len(path) == 1:
            fields[path[0]] = self._kept(i.operands[1])
        else:
            raise Refused("nested-structures", "it has structures in structures")
        return tuple(fields)

    def _kept(self, operand: Operand) -> Operand:
        """Returns a structure's field for an operand: its value, or the constant."""
        return operand if isinstance(operand, Literal) else self.value(operand)

    def extracted(self, i: Instruction) -> Any:
        found = i.operands[0]
        found = found.value if isinstance(found, Literal) else self.values[found]
        for index in path_of(i):
            found = found.value if isinstance(found, Literal) else found
            found = found[index]
        return self.value(found)

    def phi_value(self, level: Level, name: str, phi: Instruction) -> Value:
        """Returns the value of a phi: that of the edge by which the block was reached."""
        incoming = dict(zip(phi.sources, phi.operands, strict=True))
        above = level.dominator[name]
        incoming_edges = [(e, self.masks.edge(level, e, above)) for e in level.edges[name]]
        incoming_edges = [(e, mask) for e, mask in incoming_edges if mask]
        incoming_edges.sort(key=lambda item: len(item[1]), reverse=True)
        found: Value | None = None
        for edge, mask in incoming_edges:
            value = self.at_edge(edge, incoming[edge[0]])
            if not isinstance(value, Value):
                raise Refused("nested-structures", "it has structures where branches meet")
            condition = self.holds(mask)
            found = value if found is None or condition is None else self.ops.select(condition, value, found)
        if found is None:
            return self.ops.constant(dtype_of(phi.type), 0)
        return found

    def at_edge(self, edge: Edge, operand: Operand) -> Any:
        """Returns an operand of a phi, as it is at the start of the edge."""
        if isinstance(operand, str) and operand in self.left.get(edge, ()):
            return self.left[edge][operand]
        return self.value(operand)

    # ------------------------------------------------------------------ loops
    def loop(self, level: Level, loop: Level) -> None:
        reached = self.masks.reach(level, loop.entry, level.entry)
        block = self.function.blocks[loop.entry]
        differs = loop.entry in self.varying.loops
        if not loop.exits:
            raise Refused("endless-loop", "it has an endless loop")
        self.hoist(loop)
        if not differs and [e for e in loop.exits if e[0] != loop.entry] == [] and len(loop.exits) == 1:
            count = trip_count(self.function, loop)
            where = None if count is not None or self._ends(loop) else self.holds(reached)
            if where is None or not where.tensor.rank:
                self.active.append(self.and_(self.active[-1], self.holds(reached)))
                self.counted(loop, block.phis, count, where)
                self.active.pop()
                return
        self.general(loop, differs, self.holds(reached))

    def hoist(self, loop: Level) -> None:
        """Writes the loop-invariant instructions before the loop."""
        inside = {i.name for b in loop.blocks for i in (*self.function.blocks[b].phis, *self.function.blocks[b].body)}
        for name in (b for b in self.function.blocks if b in loop.blocks):
            for i in self.function.blocks[name].body:
                names = {o for o in i.operands if isinstance(o, str)}
                if i.name not in self.before and names <= self.values.keys() and not names & (inside - self.before):
                    self.straight([i])
                    self.before.add(i.name)

    def _ends(self, loop: Level) -> bool:
        """Whether the loop runs for all elements, including those that do not reach it."""
        return self.masks.reach(loop.parent or self.top, loop.entry, (loop.parent or self.top).entry) == ALWAYS

    def counted(self, loop: Level, phis: list[Instruction], count: int | None, where: Value | None) -> None:
        """Writes a loop that has the same trip count for all elements and ends at its header."""
        block = self.function.blocks[loop.entry]
        stays = block.targets[0] in loop.blocks
        if count is not None:
            phis = [p for p in phis if p.name in needed(self.function, loop)]
        first = [self.value(p.operands[p.sources.index(self._before(loop, p))]) for p in phis]
        types = [self.state_type(p) for p in phis]
        given = [self.typed(v, t) for v, t in zip(first, types, strict=True)]
        if count is not None:
            given, types = [self.ops.constant(I32, 0), *given], [tensor((), I32), *types]
        condition, body = Block([Value(t) for t in types]), Block([Value(t) for t in types])
        shift = count is not None
        self.enter(condition)
        if count is not None:
            again: Value | None = self.ops.compare("LT", condition.arguments[0], self.ops.constant(I32, count))
        else:
            self.values.update(zip((p.name for p in phis), condition.arguments, strict=True))
            self.straight(block.body)
            holds: Value = self.value(block.condition)
            again = self.and_(where, holds if stays else self.ops.negation(holds))
        assert again is not None
        self.leave([again])
        self.enter(body)
        self.values.update(zip((p.name for p in phis), body.arguments[shift:], strict=True))
        self.head(block, stays)
        self.rest(loop)
        after = [self.at_edge((loop.latch, loop.entry), p.operands[p.sources.index(loop.latch)]) for p in phis]
        after = [self.typed(v, t) for v, t in zip(after, types[shift:], strict=True)]
        if shift:
            after = [self.ops.apply("add", body.arguments[0], self.ops.constant(I32, 1)), *after]
        self.leave(after)
        found = self.ops.rw.emit("stablehlo.while", given, types, {}, [Region([condition]), Region([body])])
        self.values.update(zip((p.name for p in phis), found[shift:], strict=True))
        self.head(block, not stays)

    def head(self, block: Any, holds: bool) -> None:
        """Writes the code of a loop's header, where the outcome of its branch is known."""
        if isinstance(block.condition, str) and block.condition not in self.before:
            self.values[block.condition] = self.ops.constant(I1, holds)
        self.straight([i for i in block.body if i.name != block.condition])

    def rest(self, loop: Level) -> None:
        """Writes a loop's blocks except the first."""
        for node in loop.order:
            if node in loop.inner and node != loop.entry:
                self.loop(loop, loop.inner[node])
            elif node != loop.entry:
                self.block(loop, node)

    def general(self, loop: Level, differs: bool, where: Value | None) -> None:
        """Writes any other loop. Its state has the elements for which it is active, and the values that are read after
        it."""
        ops, block = self.ops, self.function.blocks[loop.entry]
        state = self._state(loop, block.phis)
        wide = differs and bool(ops.shape)
        inside = self.and_(self.active[-1], where)
        start = ops.constant(I1, True) if inside is None or not wide else inside
        if not wide and where is not None and not where.tensor.rank:
            start = where
        flag = tensor(ops.shape if wide else (), I1)
        first = [self.value(p.operands[p.sources.index(self._before(loop, p))]) for p in state.phis]
        types: list[TensorType] = [flag, *map(self.state_type, state.phis), *[flag] * len(state.flags)]
        types += [self.slot_type(name, wide) for _, name in state.slots]
        given = [start, *first, *[ops.constant(I1, False)] * len(state.flags)]
        given += [ops.constant(t.storage, 0) for t in types[len(given) :]]
        given = [self.typed(v, t) for v, t in zip(given, types, strict=True)]
        condition, body = Block([Value(t) for t in types]), Block([Value(t) for t in types])
        self.enter(condition)
        going = condition.arguments[0]
        self.leave([mk.reduce_sum(ops.rw, going, range(len(ops.shape))) if wide else going])
        self.enter(body)
        after = self._iteration(state, body.arguments, inside if not wide else body.arguments[0])
        self.leave([self.typed(v, t) for v, t in zip(after, types, strict=True)])
        found = ops.rw.emit("stablehlo.while", given, types, {}, [Region([condition]), Region([body])])
        self._after(state, found[1:])

    def _state(self, loop: Level, phis: list[Instruction]) -> _Loop:
        names = {p.name for p in phis}
        defined = {i.name for b in loop.blocks for i in (*self.function.blocks[b].phis, *self.function.blocks[b].body)}
        slots: dict[tuple[Edge, str], None] = {}
        frozen: set[str] = set()
        for edge in loop.exits:
            for phi in self.function.blocks[edge[1]].phis:
                operand = phi.operands[phi.sources.index(edge[0])]
                if edge[0] == loop.entry and operand in names and operand in self.varying.names:
                    frozen.add(operand)
                elif isinstance(operand, str) and operand in defined:
                    slots[edge, operand] = None
        return _Loop(loop, phis, loop.exits[1:], [*slots], frozen)

    def _iteration(self, state: _Loop, arguments: list[Value], active: Value | None) -> list[Value]:
        """Returns the state after an iteration."""
        ops, loop = self.ops, state.level
        going, rest = arguments[0], arguments[1:]
        n, m = len(state.phis), len(state.flags)
        self.values.update(zip((p.name for p in state.phis), rest[:n], strict=True))
        flags, slots = rest[n : n + m], rest[n + m :]
        self.active.append(active)
        self.straight(self.function.blocks[loop.entry].body)
        self.rest(loop)
        self.active.pop()
        back = (loop.latch, loop.entry)
        stays = self.and_(going, self.holds(self.masks.edge(loop, back, loop.entry)))
        assert stays is not None
        after = [stays]
        for phi, old in zip(state.phis, rest[:n], strict=True):
            new = self.at_edge(back, phi.operands[phi.sources.index(loop.latch)])
            after.append(ops.select(stays, new, old) if phi.name in state.frozen else new)
        left = {e: self.and_(going, self.holds(self.masks.edge(loop, e, loop.entry))) or going for e in loop.exits}
        after += [ops.apply("or", old, left[e]) for e, old in zip(state.flags, flags, strict=True)]
        for (edge, name), old in zip(state.slots, slots, strict=True):
            after.append(ops.select(left[edge], self.at_edge(edge, name), old))
        return after

    def _after(self, state: _Loop, found: list[Value]) -> None:
        """Records the values that a loop leaves."""
        n, m = len(state.phis), len(state.flags)
        self.values.update(zip((p.name for p in state.phis), found[:n], strict=True))
        self.values.update(zip(state.flags, found[n : n + m], strict=True))
        for (edge, name), value in zip(state.slots, found[n + m :], strict=True):
            self.left.setdefault(edge, {})[name] = value

    def _before(self, loop: Level, phi: Instruction) -> str:
        """Returns the block from which a loop is entered."""
        outside = [s for s in phi.sources if s not in loop.blocks]
        if len(outside) != 1:
            raise Refused("irreducible-loop", "it has a loop that is entered from several places")
        return outside[0]

    def state_type(self, phi: Instruction) -> TensorType:
        return tensor(self.ops.shape if phi.name in self.varying.names else (), dtype_of(phi.type))

    def slot_type(self, name: str, wide: bool) -> TensorType:
        made = next(
            i for b in self.function.blocks.values() for i in (*b.phis, *b.body) if i.name == name
        )  # fmt: skip
        return tensor(self.ops.shape if wide or name in self.varying.names else (), dtype_of(made.type))

    def typed(self, value: Value, type: TensorType) -> Value:
        """Returns a value in the type that it has in a loop's state."""
        return self.ops.wide(value) if type.rank else value

    def enter(self, block: Block) -> None:
        self.ops.rw.blocks.append(block)
        self.ops.known.append({})

    def leave(self, values: Sequence[Value]) -> None:
        self.ops.rw.emit("stablehlo.return", values, [])
        self.ops.rw.blocks.pop()
        self.ops.known.pop()
