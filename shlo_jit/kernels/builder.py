"""A small builder of LLVM text: a `ModuleText` holds functions, and a `Builder` writes the body of one function.

Building through `llvmlite.ir` costs 17-48 ms per 10,000 instructions and as much again to print; appending lines of
text costs 2.5 ms. Values are in `llvm_values.py`; every arithmetic method works on scalars and vectors alike.

    m = ModuleText()
    b = m.function("axpy", [("ptr", "x"), ("ptr", "y"), ("i64", "n")])
    x, y, n = b.params
    with b.loop(0, n, 1) as i:
        t = b.load("float", b.element(x, "float", i))
        b.store(b.fadd(t, t), b.element(y, "float", i))
    b.ret()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shlo_jit.kernels.function_text import ModuleSymbols
from shlo_jit.kernels.instructions import Instructions
from shlo_jit.kernels.llvm_values import Index, V


class ModuleText(ModuleSymbols):
    """The text of an LLVM module."""

    def function(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        ret: str = "void",
        *,
        linkage: str = "internal",
        attributes: str = "",
        noalias: bool = False,
    ) -> Builder:
        """A Builder for a new function. `params`: (type with parameter attributes, name)."""
        return Builder(self, name, params, ret, linkage, attributes, noalias)


class Builder(Instructions):
    """Writes the body of one function: instructions, and loops and conditions around them."""

    module: ModuleText  # pyright: ignore[reportIncompatibleVariableOverride] - only a ModuleText makes builders

    def reserve(self, type: str) -> V:
        """Reserves a name for a value that `fill_phi` defines later."""
        return V(type, self._name("p"))

    def fill_phi(self, position: int, value: V, incoming: Sequence[tuple[V, str]]) -> None:
        """Defines a reserved value as a phi at the start of the block that began at `position`."""
        edges = ", ".join(f"[ {v.text}, %{label} ]" for v, label in incoming)
        self._lines.insert(position, f"  {value.text} = phi {value.type} {edges}")

    @contextmanager
    def loop(self, start: Index, stop: Index, step: Index = 1, hint: str = "loop") -> Iterator[V]:
        """Emits for (i = start; i < stop; i += step); the body is the code written inside the `with`."""
        with self.loop_carry(start, stop, [], step, hint) as carry:
            yield carry.index

    @staticmethod
    def _trip_count(start: V, stop: V, step: V) -> int | None:
        """Returns the trip count of a loop with literal bounds, else None."""
        a, z, k = start.literal, stop.literal, step.literal
        return None if a is None or z is None or k is None else max(0, -(-(z - a) // k))

    @contextmanager
    def loop_carry(
        self, start: Index, stop: Index, initial: Sequence[V], step: Index = 1, hint: str = "loop"
    ) -> Iterator[Carry]:
        """Emits a loop that carries values. Read `carry.values` and call `carry.next(...)` once in the body; after the
        loop `carry.values` are the final values."""
        start, stop, step = self._coerce(start), self._coerce(stop), self._coerce(step)
        if self._trip_count(start, stop, step) == 1:
            carry = Carry(start, list(initial))
            yield carry
            return
        body, exit_ = self.label(hint), self.label("end")
        before = self.block
        # The loop is written rotated (test at the bottom), so no pass has to rotate it.
        first, last = start.literal, stop.literal
        if first is not None and last is not None and first < last:
            self.branch(body)
            guarded = False
        else:
            self.branch_if(self.icmp("slt", start, stop), body, exit_)
            guarded = True
        self.start(body)
        at = len(self._lines)
        index = V(start.type, self._name("i"))
        phis = [V(v.type, self._name("c")) for v in initial]
        carry = Carry(index, phis)
        yield carry
        assert len(carry.values) == len(phis)
        following = list(carry.values)
        after = self.emit(index.type, f"add nsw {index.type} {index.text}, {step.text}")
        more = self.icmp("slt", after, stop)
        latch = self.block
        self.branch_if(more, body, exit_)
        self._lines[at:at] = [
            f"  {p.text} = phi {p.type} [ {a.text}, %{before} ], [ {z.text}, %{latch} ]"
            for p, a, z in [(index, start, after), *zip(phis, initial, following, strict=True)]
        ]
        self.start(exit_)
        carry.values = following
        if guarded:
            pairs = zip(initial, following, strict=True)
            carry.values = [self.phi(a.type, [(a, before), (z, latch)]) for a, z in pairs]

    @contextmanager
    def repeat(self, initial: Sequence[V], hint: str = "repeat") -> Iterator[Repeat]:
        """Emits do ... while: in the body read `values`, call `next(...)` with as many, and set `again`, an i1. After
        the loop `values` are the arguments of the last `next`."""
        head, done, before = self.label(hint), self.label("done"), self.block
        self.branch(head)
        self.start(head)
        at = len(self._lines)
        phis = [V(v.type, self._name("c")) for v in initial]
        iteration = Repeat(phis)
        yield iteration
        assert iteration.again is not None and len(iteration.values) == len(phis)
        self._lines[at:at] = [
            f"  {p.text} = phi {p.type} [ {a.text}, %{before} ], [ {z.text}, %{self.block} ]"
            for p, a, z in zip(phis, initial, iteration.values, strict=True)
        ]
        self.branch_if(iteration.again, head, done)
        self.start(done)

    @contextmanager
    def if_(self, condition: V, hint: str = "then") -> Iterator[None]:
        then, exit_ = self.label(hint), self.label("fi")
        self.branch_if(condition, then, exit_)
        self.start(then)
        yield
        self.branch(exit_)
        self.start(exit_)

    def if_else(self, condition: V, then: Callable[[], Sequence[V]], otherwise: Callable[[], Sequence[V]]) -> list[V]:
        """Emits both branches and joins the values that they return."""
        labels = self.label("then"), self.label("else"), self.label("fi")
        self.branch_if(condition, labels[0], labels[1])
        ends: list[tuple[Sequence[V], str]] = []
        for label, write in zip(labels, (then, otherwise), strict=False):
            self.start(label)
            values = write()
            ends.append((values, self.block))
            self.branch(labels[2])
        self.start(labels[2])
        (va, la), (vb, lb) = ends
        return [self.phi(x.type, [(x, la), (y, lb)]) for x, y in zip(va, vb, strict=True)]


class Carry:
    """The values that a `loop_carry` carries from iteration to iteration."""

    def __init__(self, index: V, values: list[V]):
        self.index = index
        self.values: list[V] = values

    def next(self, *values: V) -> None:
        """Sets the values of the next iteration."""
        self.values = list(values)


class Repeat:
    """The values that a `repeat` carries from iteration to iteration, and whether there is another one."""

    def __init__(self, values: list[V]):
        self.values: list[V] = values
        self.again: V | None = None

    def next(self, *values: V) -> None:
        """Sets the values of the next iteration."""
        self.values = list(values)
