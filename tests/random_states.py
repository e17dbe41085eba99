"""Random programs whose loops update parts of states: under conditions, in branches, in loops, from overlapping windows,
with older states that are still read, batched, and with rows that are emitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from random_writer import Shape, Writer, type_of

I32 = type_of((), "i32")
DEEPEST = 3


class States(Writer):
    """Writes one program. `states` are the newest versions of the states; `older` are versions that may be read."""

    def __init__(self, seed: int, size: int):
        super().__init__(seed, size)
        self.large = self.chance(0.1)
        n = self.pick([3000, 5000]) if self.large else self.pick([5, 8, 17, 40])
        shapes: list[Shape] = [(n,), (n,), (n, self.pick([1, 3, 4])), (self.pick([2, 3]), n)]
        self.kinds = [(self.pick(shapes), self.pick(["f32", "f32", "i32"])) for _ in range(self.below(1, 4))]
        if self.chance(0.5):
            self.kinds.append(self.kinds[0])
        self.states: list[str] = []
        self.older: list[tuple[str, Shape, str]] = []
        self.numbers: list[str] = []
        self.conditions: list[str] = []
        self.used = 0

    # ------------------------------------------------------------------ scalars
    def op(self, dtype: str, shape: Shape, text: str) -> str:
        return self.line(f"stablehlo.{text} : {type_of(shape, dtype)}")

    def number(self) -> str:
        """A scalar i32."""
        x = self.pick(self.numbers) if self.chance(0.85) else self.constant((), "i32", self.below(-3, 30))
        if self.chance(0.4):
            y = self.constant((), "i32", self.below(-2, 4))
            return self.op("i32", (), f"{self.pick(['add', 'multiply', 'subtract'])} {x}, {y}")
        return x

    def place(self, extent: int) -> str:
        """A scalar index, which is mostly inside of an extent."""
        x = self.number()
        if self.chance(0.75):
            n = self.constant((), "i32", extent)
            x = self.op("i32", (), f"remainder {x}, {n}")
            if self.chance(0.7):
                x = self.op("i32", (), f"abs {x}")
        return x

    def condition(self) -> str:
        """A scalar i1: a new one, or one of those before."""
        if self.conditions and self.chance(0.4):
            return self.pick(self.conditions)
        self.conditions.append(self.new_condition())
        return self.conditions[-1]

    def new_condition(self) -> str:
        bits = self.op("i32", (), f"and {self.number()}, {self.constant((), 'i32', self.pick([1, 2, 3, 4]))}")
        zero = self.constant((), "i32", self.pick([0, 0, 1]))
        return self.line(f"stablehlo.compare {self.pick(['EQ', 'GT'])}, {bits}, {zero} : ({I32}, {I32}) -> tensor<i1>")

    def mask(self, shape: Shape) -> str:
        """An i1 of a shape: one along a dimension, or for each element."""
        if len(shape) > 1 and self.chance(0.6):
            small, dims = (shape[0],), [0]
        elif self.chance(0.3):
            return self.line(f"stablehlo.broadcast_in_dim {self.condition()}, dims = [] : (tensor<i1>) -> "
                             f"{type_of(shape, 'i1')}")  # fmt: skip
        else:
            small, dims = shape, [*range(len(shape))]
        t = type_of(small, "i32")
        places = self.line(f"stablehlo.iota dim = 0 : {t}")
        number = self.line(f"stablehlo.broadcast_in_dim {self.number()}, dims = [] : ({I32}) -> {t}")
        bits = self.op("i32", small, f"and {self.op('i32', small, f'add {places}, {number}')}, "
                                     f"{self.constant(small, 'i32', self.pick([1, 2, 3]))}")  # fmt: skip
        found = self.line(f"stablehlo.compare EQ, {bits}, {self.constant(small, 'i32', 0)} : ({t}, {t}) -> "
                          f"{type_of(small, 'i1')}")  # fmt: skip
        if small == shape:
            return found
        return self.line(f"stablehlo.broadcast_in_dim {found}, dims = {dims} : ({type_of(small, 'i1')}) -> "
                         f"{type_of(shape, 'i1')}")  # fmt: skip

    # ------------------------------------------------------------------ parts of states
    def part(self, shape: Shape) -> Shape:
        """The shape of a window in a state."""
        return tuple(self.pick([1, 1, min(2, n), min(4, n), max(1, n // 2), n]) for n in shape)

    def starts(self, shape: Shape, window: Shape) -> list[str]:
        return [
            self.constant((), "i32", self.below(-1, n)) if self.chance(0.2) or n == k else self.place(n)
            for n, k in zip(shape, window, strict=True)
        ]

    def window(self, x: str, shape: Shape, dtype: str, window: Shape, starts: list[str]) -> str:
        types = f"({', '.join([type_of(shape, dtype), *[I32] * len(shape)])}) -> {type_of(window, dtype)}"
        return self.line(f"stablehlo.dynamic_slice {x}, {', '.join(starts)}, sizes = {[*window]} : {types}")

    def source(self, dtype: str, own: str, shape: Shape) -> tuple[str, Shape]:
        """A state to read from: the own one, another one of the element type, or an older version."""
        others = [(v, s) for v, (s, t) in zip(self.states, self.kinds, strict=True) if t == dtype]
        if self.chance(0.25):
            others = [(v, s) for v, s, t in self.older if t == dtype] or others
        found = [(v, s) for v, s in others if len(s) == len(shape)]
        return self.pick(found) if found and self.chance(0.5) else (own, shape)

    def content(self, own: str, shape: Shape, dtype: str, window: Shape, starts: list[str]) -> str:
        """New elements of a window: read from a state at the same or another place, or computed from a number."""
        if self.chance(0.2):
            x = self.number()
            if dtype == "f32":
                x = self.line(f"stablehlo.convert {x} : ({I32}) -> tensor<f32>")
            x = self.line(f"stablehlo.broadcast_in_dim {x}, dims = [] : ({type_of((), dtype)}) -> "
                          f"{type_of(window, dtype)}")  # fmt: skip
            return self.moderate(x, window, dtype)
        source, other = self.source(dtype, own, shape)
        fits = all(k <= n for k, n in zip(window, other, strict=True))
        if not fits:
            source, other = own, shape
        places = starts if self.chance(0.35) else self.starts(other, window)
        x = self.window(source, other, dtype, window, places)
        if self.chance(0.3):
            x = self.op(dtype, window, f"add {x}, {self.window(own, shape, dtype, window, self.starts(shape, window))}")
        if self.chance(0.25) and window:
            x = self.line(f"stablehlo.reverse {x}, dims = [0] : {type_of(window, dtype)}")
        return self.moderate(x, window, dtype)

    def moderate(self, x: str, shape: Shape, dtype: str) -> str:
        if dtype == "i32":
            x = self.op(dtype, shape, f"add {x}, {self.constant(shape, dtype, self.below(0, 3))}")
            return self.op(dtype, shape, f"and {x}, {self.constant(shape, dtype, 63)}")
        return self.op(dtype, shape, f"multiply {x}, {self.constant(shape, dtype, self.pick([0.5, -0.5, 0.25]))}")

    # ------------------------------------------------------------------ updates
    def update(self, x: str, shape: Shape, dtype: str) -> str:
        """A new version of a state of which a part is changed."""
        kinds = [self.slice_update, self.slice_update, self.element, self.element, self.elements, self.added]
        return self.pick(kinds)(x, shape, dtype)

    def set_window(self, x: str, part: str, shape: Shape, dtype: str, window: Shape, starts: list[str]) -> str:
        t = type_of(shape, dtype)
        types = f"({', '.join([t, type_of(window, dtype), *[I32] * len(shape)])}) -> {t}"
        return self.line(f"stablehlo.dynamic_update_slice {x}, {part}, {', '.join(starts)} : {types}")

    def slice_update(self, x: str, shape: Shape, dtype: str) -> str:
        window = self.part(shape)
        starts = self.starts(shape, window)
        return self.set_window(x, self.content(x, shape, dtype, window, starts), shape, dtype, window, starts)

    def element(self, x: str, shape: Shape, dtype: str) -> str:
        """A scatter of one element or row."""
        row = len(shape) == 2 and self.chance(0.4)
        window = (1, shape[1]) if row else (1,) * len(shape)
        starts = self.starts(shape, window)[: len(window) - row]
        zero = self.constant((), "i32", 0)
        part = self.content(x, shape, dtype, window, [*starts, *[zero] * row])
        kept: Shape = (shape[1],) if row else ()
        part = self.line(f"stablehlo.reshape {part} : ({type_of(window, dtype)}) -> {type_of(kept, dtype)}")
        ones = [self.line(f"stablehlo.reshape {s} : ({I32}) -> tensor<1xi32>") for s in starts]
        index, count = ones[0], len(ones)
        if count > 1:
            types = f"({', '.join(['tensor<1xi32>'] * count)}) -> tensor<{count}xi32>"
            index = self.line(f"stablehlo.concatenate {', '.join(ones)}, dim = 0 : {types}")
        dims = ", ".join(map(str, range(count)))
        clause = f"update_window_dims = [{'0' if row else ''}], inserted_window_dims = [{dims}], " \
                 f"scatter_dims_to_operand_dims = [{dims}], index_vector_dim = 0"  # fmt: skip
        return self.scatter(x, index, part, clause, (type_of(shape, dtype), f"tensor<{count}xi32>",
                                                      type_of(kept, dtype)), dtype)  # fmt: skip

    def elements(self, x: str, shape: Shape, dtype: str) -> str:
        """A scatter of a few elements; of one element in each batch for two dimensions."""
        if len(shape) == 2:
            count = shape[0]
            clause = "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], " \
                     "scatter_dims_to_operand_dims = [1], index_vector_dim = 1"  # fmt: skip
        else:
            count = self.below(2, 4)
            clause = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        t = f"tensor<{count}x1xi32>"
        steps = self.line(f"stablehlo.iota dim = 0 : {t}")
        first = self.line(f"stablehlo.broadcast_in_dim {self.place(shape[-1])}, dims = [] : ({I32}) -> {t}")
        index = self.line(f"stablehlo.add {steps}, {first} : {t}")
        values = self.line(f"stablehlo.iota dim = 0 : {type_of((count,), dtype)}")
        return self.scatter(x, index, values, clause, (type_of(shape, dtype), t, type_of((count,), dtype)), dtype)

    def scatter(self, x: str, index: str, part: str, clause: str, types: tuple[str, str, str], dtype: str) -> str:
        body = self.pick(["set", "set", "add", "maximum"])
        t, p, q, r = type_of((), dtype), *(self.fresh() for _ in range(3))
        lines = [f"stablehlo.return {q} : {t}"]
        if body != "set":
            lines = [f"{r} = stablehlo.{body} {p}, {q} : {t}", f"stablehlo.return {r} : {t}"]
        inner = "\n".join(lines)
        return self.line(
            f'"stablehlo.scatter"({x}, {index}, {part}) <{{scatter_dimension_numbers = #stablehlo.scatter<{clause}>}}> '
            f"({{\n^bb0({p}: {t}, {q}: {t}):\n{inner}\n}}) : ({', '.join(types)}) -> {types[0]}"
        )

    def added(self, x: str, shape: Shape, dtype: str) -> str:
        """The sum of a state and a tensor of zeros of which a part is set."""
        window = self.part(shape)
        starts = self.starts(shape, window)
        part = self.content(x, shape, dtype, window, starts)
        t = type_of(shape, dtype)
        if self.chance(0.3):
            low = [self.below(0, n - k + 1) for n, k in zip(shape, window, strict=True)]
            high = [n - k - a for n, k, a in zip(shape, window, low, strict=True)]
            types = f"({type_of(window, dtype)}, {type_of((), dtype)}) -> {t}"
            whole = self.line(f"stablehlo.pad {part}, {self.constant((), dtype, 0)}, low = {low}, high = {high}, "
                              f"interior = {[0] * len(shape)} : {types}")  # fmt: skip
        else:
            zeros = self.constant(shape, dtype, 0)
            whole = self.set_window(zeros, part, shape, dtype, window, starts)
        pair = [x, whole] if self.chance(0.5) else [whole, x]
        return self.op(dtype, shape, f"add {pair[0]}, {pair[1]}")

    def whole(self, x: str, shape: Shape, dtype: str) -> str:
        """A new version of a state of which every element changes."""
        return self.moderate(x, shape, dtype)

    # ------------------------------------------------------------------ statements
    def replaced(self, i: int, new: str) -> None:
        self.older = [*self.older, (self.states[i], *self.kinds[i])][-4:]
        self.states[i] = new

    def updated(self) -> None:
        i = self.below(0, len(self.states))
        x = self.states[i]
        for _ in range(self.pick([1, 1, 1, 2])):
            x = self.update(x, *self.kinds[i])
        self.replaced(i, x)

    def selected(self, depth: int = 0) -> None:
        """A state under a condition: old or new, one or another update, or nested."""
        i = self.below(0, len(self.states))
        shape, dtype = self.kinds[i]
        self.replaced(i, self.choice(self.states[i], shape, dtype, 0))

    def choice(self, x: str, shape: Shape, dtype: str, depth: int) -> str:
        sides = []
        for _ in range(2):
            side = x
            if depth < 2 and self.chance(0.2):
                side = self.choice(x, shape, dtype, depth + 1)
            elif self.chance(0.12):
                side = self.whole(x, shape, dtype)
            elif self.chance(0.65):
                for _ in range(self.pick([1, 1, 2])):
                    side = self.update(side, shape, dtype)
            sides.append(side)
        is_mask = self.chance(0.3)
        p = self.mask(shape) if is_mask else self.condition()
        t = type_of(shape, dtype)
        types = f"{type_of(shape, 'i1') if is_mask else 'tensor<i1>'}, {t}"
        return self.line(f"stablehlo.select {p}, {sides[0]}, {sides[1]} : {types}")

    def element_read(self) -> None:
        """An element of a state, or of an older one, becomes a number."""
        versions = [(v, *k) for v, k in zip(self.states, self.kinds, strict=True)]
        x, shape, dtype = self.pick(versions if self.chance(0.6) or not self.older else self.older)
        one = self.window(x, shape, dtype, (1,) * len(shape), self.starts(shape, (1,) * len(shape)))
        one = self.line(f"stablehlo.reshape {one} : ({type_of((1,) * len(shape), dtype)}) -> {type_of((), dtype)}")
        if dtype == "f32":
            low, high = self.constant((), dtype, -8), self.constant((), dtype, 8)
            t = type_of((), dtype)
            one = self.line(f"stablehlo.clamp {low}, {one}, {high} : ({t}, {t}, {t}) -> {t}")
            one = self.line(f"stablehlo.convert {one} : ({t}) -> {I32}")
        self.numbers.append(one)

    def sum_read(self) -> None:
        """The sum of a whole state becomes a number."""
        found = [(v, *k) for v, k in zip(self.states, self.kinds, strict=True) if k[1] == "i32"]
        if not found:
            raise IndexError
        x, shape, dtype = self.pick(found)
        total, _ = self.fold("add", x, shape, dtype, [*range(len(shape))], 0)
        self.numbers.append(self.op("i32", (), f"and {total}, {self.constant((), 'i32', 15)}"))

    def exchanged(self) -> None:
        """Two states of a type change their places."""
        i, j = self.below(0, len(self.states)), self.below(0, len(self.states))
        if self.kinds[i] != self.kinds[j]:
            raise IndexError
        self.states[i], self.states[j] = self.states[j], self.states[i]

    def whole_changed(self) -> None:
        i = self.below(0, len(self.states))
        self.replaced(i, self.whole(self.states[i], *self.kinds[i]))

    def inner(self, most: int) -> list[str]:
        """Some statements, as in a region; returns the states after them."""
        for _ in range(self.below(0, most + 1)):
            self.step(self.statements())
        return list(self.states)

    def statements(self) -> list[Any]:
        found = [self.updated, self.updated, self.selected, self.selected, self.element_read, self.sum_read]
        found += [self.exchanged, self.whole_changed]
        return found + ([self.branches, self.branches, self.loop] if self.depth < DEEPEST else [])

    def scope(self) -> tuple[list[str], list[tuple[str, Shape, str]], list[str], list[str]]:
        return list(self.states), list(self.older), list(self.numbers), list(self.conditions)

    def leave(self, before: tuple[list[str], list[tuple[str, Shape, str]], list[str], list[str]]) -> None:
        """Forgets the values of a region."""
        self.states, self.older, self.numbers, self.conditions = map(list, before)

    def branches(self) -> None:
        """An if or a case over some of the states."""
        used = self.some(len(self.states), 1)
        types = ", ".join(type_of(*self.kinds[i]) for i in used)
        is_if = self.chance(0.6)
        chosen = self.condition() if is_if else self.place(3)
        before, regions = self.scope(), []
        for _ in range(2 if is_if else self.below(1, 4)):
            with self.region() as lines:
                after = self.inner(3) if self.chance(0.7) else self.states
                lines.append(f"stablehlo.return {', '.join(after[i] for i in used)} : {types}")
            regions.append("{\n" + "\n".join(lines) + "\n}")
            self.leave(before)
        k = self.fresh()
        op, t = ("if", "i1") if is_if else ("case", "i32")
        text = f'"stablehlo.{op}"({chosen}) ({", ".join(regions)}) : (tensor<{t}>) -> ({types})'
        self.lines.append(f"{k}:{len(used)} = {text}")
        for j, i in enumerate(used):
            self.replaced(i, f"{k}#{j}")

    def loop(self, limit: str | None = None) -> None:
        """A while over all states and a counter, with a number of iterations that is not known."""
        k = self.fresh()
        last = limit if limit is not None else self.op("i32", (), f"and {self.number()}, "
                                                                  f"{self.constant((), 'i32', 3)}")  # fmt: skip
        zero = self.constant((), "i32", 0)
        types = ", ".join([I32, *(type_of(*kind) for kind in self.kinds)])
        names = [f"{k}_s{i}" for i in range(len(self.states))]
        binds = ", ".join(f"{a} = {b}" for a, b in zip([f"{k}_i", *names], [zero, *self.states], strict=True))
        before = self.scope()
        with self.region() as condition:
            go = self.line(f"stablehlo.compare LT, {k}_i, {last} : ({I32}, {I32}) -> tensor<i1>")
            condition.append(f"stablehlo.return {go} : tensor<i1>")
        with self.region() as body:
            self.states, self.numbers = names, [*self.numbers, f"{k}_i", f"{k}_i"]
            if self.chance(0.5):  # older versions from outside survive the loop, which keeps them from being reused
                self.older = []
            self.inner(4)
            one = self.constant((), "i32", 1)
            following = self.op("i32", (), f"add {k}_i, {one}")
            body.append(f"stablehlo.return {', '.join([following, *self.states])} : {types}")
        self.leave(before)
        head = f"{k}:{1 + len(names)} = stablehlo.while({binds}) : {types}"
        self.lines += [head, "cond {", *condition, "} do {", *body, "}"]
        for i in range(len(names)):
            self.replaced(i, f"{k}#{i + 1}")

    # ------------------------------------------------------------------ the program
    def program(self) -> tuple[str, list[np.ndarray], list[int]]:
        """Returns the text, arguments, and which of them are states."""
        arguments: list[np.ndarray] = []
        types = [type_of(*kind) for kind in self.kinds]
        for shape, dtype in self.kinds:
            x = self.rng.integers(-6, 7, shape) * (1 if dtype == "i32" else 0.5)
            x = np.where(self.rng.random(shape) < 0.2, -0.0, x) if dtype == "f32" else np.abs(x)
            arguments.append(x.astype(np.float32 if dtype == "f32" else np.int32))
        names = [f"%x{i}" for i in range(len(types))]
        self.states = list(names)
        if self.chance(0.4):  # states that begin at zero accumulate without -0
            i = self.below(0, len(types))
            self.states[i] = self.constant(*self.kinds[i], 0)
        self.numbers = ["%n", "%m"]
        self.inner(1)
        self.loop("%n")
        for _ in range(max(0, self.size - 8)):
            self.step(self.statements())
        results = [*self.states]
        if self.chance(0.2) and self.older:
            results.append(self.older[-1][0])
            types.append(type_of(*self.older[-1][1:]))
        heads = [f"{a}: {t}" for a, t in zip([*names, "%n", "%m"], [*types[: len(names)], I32, I32], strict=True)]
        end = f"return {', '.join(results)} : {', '.join(types)}"
        text = "\n".join([f"func.func @main({', '.join(heads)}) -> ({', '.join(types)}) {{", *self.lines, end, "}"])
        numbers = [np.int32(self.below(0, 6)), np.int32(self.below(-5, 40))]
        return text, [*arguments, *map(np.asarray, numbers)], [*range(len(arguments))]


def random_states(seed: int, size: int = 10) -> tuple[str, list[np.ndarray], list[int]]:
    """Returns a random program with its arguments, and the numbers of the arguments that are states."""
    return States(seed, size).program()


