"""Random programs whose loops read rows of stacked tensors, change them, and write them to stacked results, as `scan`
over layers does with caches: forward, reversed, in another order, a part of the rows, loops in loops, with other readers
of the rows and of the stacks."""

from __future__ import annotations

import numpy as np
from random_states import I32, States
from random_writer import Shape, type_of

ORDERS = ["forward", "forward", "forward", "reversed", "reversed", "wrapped", "strided", "by data", "shifted"]


class Stacks(States):
    """Writes one program. The states are rows of stacks while a loop over them is written."""

    def __init__(self, seed: int, size: int):
        super().__init__(seed, size)
        n = self.pick([1030, 1500])
        rows: list[Shape] = [(n,), (n,), (3, n // 2), (n, 1), (1, n)]
        self.kinds = [(self.pick(rows), self.pick(["f32", "f32", "i32"])) for _ in range(self.below(1, 4))]
        self.counts = [self.pick([2, 3, 5])]
        if self.chance(0.3):
            self.counts.insert(0, 2)
        self.stacks: list[str] = []

    # ------------------------------------------------------------------ rows
    def row_index(self, i: str, count: int, order: str) -> str:
        """The row of an iteration: an i32."""
        if order == "by data":
            return self.place(count)
        if order in ("reversed", "shifted"):
            last = self.constant((), "i32", count - 1 if order == "reversed" else count)
            return self.op("i32", (), f"subtract {last}, {i}")
        if order == "strided":
            twice = self.op("i32", (), f"add {i}, {i}")
            return self.op("i32", (), f"remainder {twice}, {self.constant((), 'i32', count)}")
        if order == "wrapped":
            zero, n = self.constant((), "i32", 0), self.constant((), "i32", count)
            below = self.line(f"stablehlo.compare LT, {i}, {zero} : ({I32}, {I32}) -> tensor<i1>")
            return self.line(f"stablehlo.select {below}, {self.op('i32', (), f'add {i}, {n}')}, {i} : tensor<i1>, {I32}")
        return i

    def read_row(self, x: str, shape: Shape, dtype: str, index: str) -> str:
        row, zero = shape[1:], self.constant((), "i32", 0)
        if self.chance(0.25):
            clause = f"offset_dims = {[*range(len(row))]}, collapsed_slice_dims = [0], start_index_map = [0], " \
                     "index_vector_dim = 0"  # fmt: skip
            one = self.line(f"stablehlo.reshape {index} : ({I32}) -> tensor<1xi32>")
            sizes = ", ".join(map(str, (1, *row)))
            return self.line(f'"stablehlo.gather"({x}, {one}) <{{dimension_numbers = #stablehlo.gather<{clause}>, '
                             f"slice_sizes = array<i64: {sizes}>}}> : ({type_of(shape, dtype)}, tensor<1xi32>) -> "
                             f"{type_of(row, dtype)}")  # fmt: skip
        found = self.window(x, shape, dtype, (1, *row), [index, *[zero] * len(row)])
        return self.line(f"stablehlo.reshape {found} : ({type_of((1, *row), dtype)}) -> {type_of(row, dtype)}")

    def write_row(self, x: str, row: str, shape: Shape, dtype: str, index: str) -> str:
        inner, zero = shape[1:], self.constant((), "i32", 0)
        if self.chance(0.25):
            one = self.line(f"stablehlo.reshape {index} : ({I32}) -> tensor<1xi32>")
            clause = f"update_window_dims = {[*range(len(inner))]}, inserted_window_dims = [0], " \
                     "scatter_dims_to_operand_dims = [0], index_vector_dim = 0"  # fmt: skip
            types = type_of(shape, dtype), "tensor<1xi32>", type_of(inner, dtype)
            t, p, q = type_of((), dtype), self.fresh(), self.fresh()
            return self.line(
                f'"stablehlo.scatter"({x}, {one}, {row}) <{{scatter_dimension_numbers = #stablehlo.scatter<{clause}>}}>'
                f" ({{\n^bb0({p}: {t}, {q}: {t}):\nstablehlo.return {q} : {t}\n}}) : ({', '.join(types)}) -> {types[0]}"
            )
        whole = self.line(f"stablehlo.reshape {row} : ({type_of(inner, dtype)}) -> {type_of((1, *inner), dtype)}")
        return self.set_window(x, whole, shape, dtype, (1, *inner), [index, *[zero] * len(inner)])

    # ------------------------------------------------------------------ loops
    def over_rows(self, inputs: list[str], depth: int) -> list[str]:
        """A loop over the rows of some stacks. Returns the stacks after it."""
        count, k = self.counts[depth], self.fresh()
        full = [(*self.counts[depth:], *shape) for shape, _ in self.kinds]
        dtypes = [dtype for _, dtype in self.kinds]
        is_carried = [self.chance(0.3) for _ in inputs]
        first = [x if carried else self.constant(shape, dtype, self.below(0, 2))
                 for x, carried, shape, dtype in zip(inputs, is_carried, full, dtypes, strict=True)]  # fmt: skip
        names = [f"{k}_s{i}" for i in range(len(inputs))]
        types = ", ".join([I32, *map(type_of, full, dtypes)])
        binds = ", ".join(f"{a} = {b}" for a, b in zip([f"{k}_i", *names], [self.constant((), "i32", 0), *first],
                                                       strict=True))  # fmt: skip
        last = self.constant((), "i32", count if self.chance(0.9) else count - 1)
        order = self.pick(ORDERS)
        before = self.scope()
        with self.region() as condition:
            go = self.line(f"stablehlo.compare LT, {k}_i, {last} : ({I32}, {I32}) -> tensor<i1>")
            condition.append(f"stablehlo.return {go} : tensor<i1>")
        with self.region() as body:
            self.numbers, self.older, self.conditions = [*self.numbers, f"{k}_i"], [], []
            at = self.row_index(f"{k}_i", count, order)
            read = [y if carried else x for x, y, carried in zip(inputs, names, is_carried, strict=True)]
            places = [at if self.chance(0.95) else self.row_index(f"{k}_i", count, self.pick(ORDERS)) for _ in read]
            rows = [self.read_row(x, s, t, p) for x, s, t, p in zip(read, full, dtypes, places, strict=True)]
            if depth + 1 < len(self.counts):
                rows = self.over_rows(rows, depth + 1)
            else:
                self.states = rows
                self.inner(3)
                rows = self.states
            results = [self.write_row(y, r, s, t, at) for y, r, s, t in zip(names, rows, full, dtypes, strict=True)]
            following = self.op("i32", (), f"add {k}_i, {self.constant((), 'i32', 1)}")
            body.append(f"stablehlo.return {', '.join([following, *results])} : {types}")
        self.leave(before)
        head = f"{k}:{1 + len(names)} = stablehlo.while({binds}) : {types}"
        self.lines += [head, "cond {", *condition, "} do {", *body, "}"]
        return [f"{k}#{i + 1}" for i in range(len(names))]

    # ------------------------------------------------------------------ the program
    def program(self) -> tuple[str, list[np.ndarray], list[int]]:
        """Returns the text, arguments, and which of them are stacks."""
        shapes = [((*self.counts, *shape), dtype) for shape, dtype in self.kinds]
        types = [type_of(*kind) for kind in shapes]
        arguments: list[np.ndarray] = []
        for shape, dtype in shapes:
            x = self.rng.integers(-6, 7, shape) * (1 if dtype == "i32" else 0.5)
            x = np.where(self.rng.random(shape) < 0.2, -0.0, x) if dtype == "f32" else np.abs(x)
            arguments.append(x.astype(np.float32 if dtype == "f32" else np.int32))
        names = [f"%x{i}" for i in range(len(types))]
        self.numbers = ["%n", "%m"]
        results = self.over_rows(names, 0)
        if self.chance(0.3):
            results = self.over_rows(results, 0)
        if self.chance(0.2):  # a stack that is needed afterwards
            results, types = [*results, names[0]], [*types, types[0]]
        heads = [f"{a}: {t}" for a, t in zip([*names, "%n", "%m"], [*types[: len(names)], I32, I32], strict=True)]
        end = f"return {', '.join(results)} : {', '.join(types)}"
        text = "\n".join([f"func.func @main({', '.join(heads)}) -> ({', '.join(types)}) {{", *self.lines, end, "}"])
        numbers = [np.int32(self.below(0, 6)), np.int32(self.below(-5, 40))]
        return text, [*arguments, *map(np.asarray, numbers)], [*range(len(arguments))]


def random_stacks(seed: int, size: int = 6) -> tuple[str, list[np.ndarray], list[int]]:
    """Returns a random program with its arguments, and the numbers of the arguments that are stacks."""
    return Stacks(seed, size).program()
