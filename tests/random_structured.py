"""Compound ops of the random programs: products, windows, gather and scatter, sort, rows."""

from __future__ import annotations

from collections.abc import Sequence

from random_writer import Shape, Writer, count_of, type_of


class Structured(Writer):
    # ------------------------------------------------------------------ rows and reductions
    def rows(self) -> None:
        """Softmax or a normalization over some dimensions."""
        x, shape, dtype = self.any("f32", rank=1)
        dims = [len(shape) - 1] if self.chance(0.6) else self.some(len(shape), 1)
        kept = [d for d in range(len(shape)) if d not in dims]
        t = type_of(shape, dtype)
        x = self.emit(shape, dtype, f"stablehlo.tanh {x} : {t}")
        softmax = self.chance(0.5)
        top, small = self.fold("maximum" if softmax else "add", x, shape, dtype, dims, -9 if softmax else 0)
        if not softmax:
            top = self.mean(top, small, count_of(shape) // count_of(small))
        wide = self.expand(top, small, kept, shape, dtype)
        y = self.emit(shape, dtype, f"stablehlo.subtract {x}, {wide} : {t}")
        e = self.emit(
            shape, dtype, f"stablehlo.exponential {y} : {t}" if softmax else f"stablehlo.multiply {y}, {y} : {t}"
        )
        total, _ = self.fold("add", e, shape, dtype, dims, 0)
        if softmax:
            wide = self.expand(total, small, kept, shape, dtype)
            self.emit(shape, dtype, f"stablehlo.divide {e}, {wide} : {t}")
            return
        s = type_of(small, dtype)
        spread = self.mean(total, small, count_of(shape) // count_of(small))
        spread = self.emit(small, dtype, f"stablehlo.add {spread}, {self.constant(small, dtype, 0.125)} : {s}")
        root = self.emit(small, dtype, f"stablehlo.rsqrt {spread} : {s}")
        wide = self.expand(root, small, kept, shape, dtype)
        self.emit(shape, dtype, f"stablehlo.multiply {y}, {wide} : {t}")

    def mean(self, total: str, shape: Shape, count: int) -> str:
        scale = self.constant(shape, "f32", 1 / count)
        return self.emit(shape, "f32", f"stablehlo.multiply {total}, {scale} : {type_of(shape, 'f32')}")

    def argmax(self) -> None:
        """A reduce of two operands: the largest value and its index."""
        x, shape, dtype = self.any(rank=1)
        dims = self.some(len(shape), 1)
        out = tuple(n for d, n in enumerate(shape) if d not in dims)
        place = self.line(f"stablehlo.iota dim = {dims[0]} : {type_of(shape, 'i32')}")
        low, zero = self.constant((), dtype, -1000), self.constant((), "i32", 0)
        k, t = self.fresh(), f"tensor<{dtype}>"
        operands = f"{type_of(shape, dtype)}, {type_of(shape, 'i32')}, {t}, tensor<i32>"
        self.lines += [
            f"{k}:2 = stablehlo.reduce({x} init: {low}), ({place} init: {zero}) across dimensions = {dims} : "
            f"({operands}) -> ({type_of(out, dtype)}, {type_of(out, 'i32')})",
            f"reducer({k}_a: {t}, {k}_b: {t}) ({k}_i: tensor<i32>, {k}_j: tensor<i32>) {{",
            f"{k}_p = stablehlo.compare GE, {k}_a, {k}_b : ({t}, {t}) -> tensor<i1>",
            f"{k}_v = stablehlo.select {k}_p, {k}_a, {k}_b : tensor<i1>, {t}",
            f"{k}_w = stablehlo.select {k}_p, {k}_i, {k}_j : tensor<i1>, tensor<i32>",
            f"stablehlo.return {k}_v, {k}_w : {t}, tensor<i32>",
            "}",
        ]
        self.values += [(f"{k}#0", out, dtype), (f"{k}#1", out, "i32")]

    def sort(self) -> None:
        """A sort of one value, or of one by another."""
        x, shape, dtype = self.any(rank=1)
        operands = [(x, dtype)]
        if self.chance(0.5):
            other = self.pick(["f32", "i32"])
            operands.append((self.filled(shape, other), other))
        d, k = self.below(0, len(shape)), self.fresh()
        order = f"stablehlo.compare {self.pick(['LT', 'GT'])}, {k}_a, {k}_b" + (
            ", TOTALORDER" if dtype == "f32" else ""
        )
        arguments = [f"{k}_{a}: tensor<{t}>" for i, (_, t) in enumerate(operands) for a in ("ab", "cd")[i]]
        types = ", ".join(type_of(shape, t) for _, t in operands)
        head = (
            f'"stablehlo.sort"({", ".join(n for n, _ in operands)}) <{{dimension = {d} : i64, is_stable = true}}> ({{'
        )
        self.lines += [
            f"{k}:{len(operands)} = {head}",
            f"^bb0({', '.join(arguments)}):",
            f"{k}_p = {order} : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>",
            f"stablehlo.return {k}_p : tensor<i1>",
            f"}}) : ({types}) -> ({types})",
        ]
        self.values += [(f"{k}#{i}", shape, t) for i, (_, t) in enumerate(operands)]

    # ------------------------------------------------------------------ windows
    def window(self) -> None:
        """reduce_window, with padding of both signs."""
        x, shape, dtype = self.any(rank=1)
        size = [min(n, self.pick([1, 1, 2, 3])) for n in shape]
        stride = [self.pick([1, 1, 2]) for _ in shape]
        dilation = [self.pick([1, 1, 1, 2]) for _ in shape]
        base = [self.pick([1, 1, 1, 2]) for _ in shape]
        edges = [(self.below(-1, 3), self.below(-1, 3)) for _ in shape]
        out = []
        for n, w, s, wd, b, (low, high) in zip(shape, size, stride, dilation, base, edges, strict=True):
            room = (n - 1) * b + 1 + low + high - ((w - 1) * wd + 1)
            out.append(room // s + 1)
        if min(out) < 1 or count_of(tuple(out)) > self.most:
            return
        op = self.pick(["add", "maximum", "minimum"])
        init = self.constant((), dtype, {"add": 0, "maximum": -9, "minimum": 9}[op])
        names = ("window_dimensions", "window_strides", "window_dilations", "base_dilations")
        words = [f"{a} = {array(v)}" for a, v in zip(names, (size, stride, dilation, base), strict=True)]
        words.append(f"padding = dense<{[list(e) for e in edges]}> : tensor<{len(shape)}x2xi64>")
        self.reducer("reduce_window", [(x, shape), (init, ())], dtype, words, [op], tuple(out))

    def select_and_scatter(self) -> None:
        x, shape, dtype = self.any(rank=1)
        size = [min(n, self.pick([1, 2, 3])) for n in shape]
        stride = [self.pick([1, 2]) for _ in shape]
        out = tuple((n - w) // s + 1 for n, w, s in zip(shape, size, stride, strict=True))
        source = self.filled(out, dtype)
        words = [f"window_dimensions = {array(size)}", f"window_strides = {array(stride)}"]
        operands = [(x, shape), (source, out), (self.constant((), dtype, 0), ())]
        self.reducer("select_and_scatter", operands, dtype, words, ["GE", "add"], shape)

    def reducer(
        self,
        op: str,
        operands: Sequence[tuple[str, Shape]],
        dtype: str,
        words: Sequence[str],
        ops: Sequence[str],
        out: Shape,
    ) -> None:
        """An op with regions of one op of two scalars each; an upper-case name is a comparison."""
        k, t = self.fresh(), f"tensor<{dtype}>"
        regions = []
        for r, name in enumerate(ops):
            a, b, c = (f"{k}_{letter}{r}" for letter in "abc")
            to = "tensor<i1>" if name.isupper() else t
            line = f"stablehlo.compare {name}, {a}, {b} : ({t}, {t}) -> {to}" if name.isupper() else None
            line = line or f"stablehlo.{name} {a}, {b} : {t}"
            regions.append(f"{{\n^bb0({a}: {t}, {b}: {t}):\n{c} = {line}\nstablehlo.return {c} : {to}\n}}")
        types = ", ".join(type_of(s, dtype) for _, s in operands)
        names = ", ".join(n for n, _ in operands)
        text = f'"stablehlo.{op}"({names}) <{{{", ".join(words)}}}> ({", ".join(regions)})'
        self.lines.append(f"{k} = {text} : ({types}) -> {type_of(out, dtype)}")
        self.values.append((k, out, dtype))

    # ------------------------------------------------------------------ places that are values
    def places(self, shape: Shape) -> tuple[list[int], list[int], list[int], list[int], Shape, int, Shape]:
        """Parameters of a gather or scatter.

        Returns slice sizes, collapsed dimensions, index map, window dimensions of the result, shape of the indices, its
        index dimension and the result's shape.
        """
        rank = len(shape)
        collapsed = [d for d in range(rank) if self.chance(0.4)]
        mapped = self.some(rank)
        sizes = [1 if d in collapsed else n if self.chance(0.6) else self.below(1, n + 1) for d, n in enumerate(shape)]
        window = [n for d, n in enumerate(sizes) if d not in collapsed]
        free = [self.pick([1, 2, 3, 7]) for _ in range(self.below(0, 3))]
        at = self.below(0, len(free) + 1)
        indices = (*free[:at], len(mapped), *free[at:])
        dims = sorted(self.some(len(free) + len(window), len(window))[: len(window)])
        rest, inner = iter(free), iter(window)
        out = tuple(next(inner) if d in dims else next(rest) for d in range(len(free) + len(window)))
        return sizes, collapsed, mapped, dims, indices, at, out

    def indices(self, shape: Shape) -> str:
        if self.chance(0.3):
            return self.filled(shape, "i32")
        return self.literal(self.rng.integers(-1, 8, shape), "i32")

    def gather(self) -> None:
        x, shape, dtype = self.any(rank=1)
        sizes, collapsed, mapped, dims, indices, at, out = self.places(shape)
        if count_of(out) > self.most:
            return
        numbers = f"offset_dims = {dims}, collapsed_slice_dims = {collapsed}, start_index_map = {mapped}"
        words = (
            f"dimension_numbers = #stablehlo.gather<{numbers}, index_vector_dim = {at}>, slice_sizes = {array(sizes)}"
        )
        types = f"({type_of(shape, dtype)}, {type_of(indices, 'i32')}) -> {type_of(out, dtype)}"
        self.emit(out, dtype, f'"stablehlo.gather"({x}, {self.indices(indices)}) <{{{words}}}> : {types}')

    def scatter(self) -> None:
        x, shape, dtype = self.any(rank=1)
        _, inserted, mapped, dims, indices, at, out = self.places(shape)
        if count_of(out) > self.most:
            return
        update, places = self.filled(out, dtype), self.indices(indices)
        numbers = f"update_window_dims = {dims}, inserted_window_dims = {inserted}"
        numbers += f", scatter_dims_to_operand_dims = {mapped}, index_vector_dim = {at}"
        k, t = self.fresh(), f"tensor<{dtype}>"
        ordered = dims == list(range(len(out) - len(dims), len(out)))  # the order of others is implementation-defined
        op = self.pick(["add", "maximum", "set" if ordered else "minimum"])
        body = f"{k}_c = stablehlo.{op} {k}_a, {k}_b : {t}\n" if op != "set" else ""
        types = (
            f"({type_of(shape, dtype)}, {type_of(indices, 'i32')}, {type_of(out, dtype)}) -> {type_of(shape, dtype)}"
        )
        self.lines.append(
            f'{k} = "stablehlo.scatter"({x}, {places}, {update}) <{{scatter_dimension_numbers = '
            f"#stablehlo.scatter<{numbers}>}}> ({{\n^bb0({k}_a: {t}, {k}_b: {t}):\n{body}"
            f"stablehlo.return {k}_{'b' if op == 'set' else 'c'} : {t}\n}}) : {types}"
        )
        self.values.append((k, shape, dtype))

    # ------------------------------------------------------------------ products
    def dot(self) -> None:
        """A product with any number of dimensions of each kind in any order, often with an epilogue."""
        sizes = lambda most: [self.pick([1, 2, 3, 5, 8, 16, 20]) for _ in range(self.below(0, most + 1))]  # noqa: E731
        batch, inner, rows, columns = sizes(self.pick([0, 1, 2])), sizes(2), sizes(2), sizes(2)
        out = tuple(batch + rows + columns)
        if max(count_of(tuple(part)) for part in (out, batch + rows + inner, batch + columns + inner)) > self.most:
            return
        left, right = (
            self.rng.permutation(len(batch + inner + rows)),
            self.rng.permutation(len(batch + inner + columns)),
        )
        sides, numbers = [], []
        for order, free in ((left, rows), (right, columns)):
            dims = batch + inner + free
            shape = [0] * len(dims)
            for n, place in zip(dims, order, strict=True):
                shape[place] = n
            tail = order[len(batch) + len(inner) :].tolist()
            if tail != sorted(tail):  # the result has the free dimensions in the order of the operand
                places = iter(sorted(tail))
                order = [*order[: len(batch) + len(inner)].tolist(), *places]
                for n, place in zip(dims, order, strict=True):
                    shape[place] = n
            order = [int(p) for p in order]
            numbers.append((order[: len(batch)], order[len(batch) : len(batch) + len(inner)]))
            sides.append((self.filled(tuple(shape), "f32"), type_of(tuple(shape), "f32")))
        (x, tx), (y, ty) = sides
        words = f"batching_dims = {numbers[0][0]} x {numbers[1][0]}, " if batch else ""
        words += f"contracting_dims = {numbers[0][1]} x {numbers[1][1]}"
        r = self.emit(out, "f32", f"stablehlo.dot_general {x}, {y}, {words} : ({tx}, {ty}) -> {type_of(out, 'f32')}")
        self.epilogue(r, out, len(out) - 1)

    def epilogue(self, x: str, shape: Shape, d: int) -> None:
        """A scaled product with a bias along dimension d, something added, and an activation, or some of these."""
        t = type_of(shape, "f32")
        x = self.emit(shape, "f32", f"stablehlo.multiply {x}, {self.constant(shape, 'f32', 0.125)} : {t}")
        if shape and self.chance(0.5):
            bias = self.expand(self.filled((shape[d],), "f32"), (shape[d],), [d], shape, "f32")
            x = self.emit(shape, "f32", f"stablehlo.add {x}, {bias} : {t}")
        if self.chance(0.3):
            x = self.emit(shape, "f32", f"stablehlo.add {x}, {self.filled(shape, 'f32')} : {t}")
        if self.chance(0.5):
            x = self.emit(shape, "f32", f"stablehlo.maximum {x}, {self.constant(shape, 'f32', 0)} : {t}")

    def convolution(self) -> None:
        """A convolution of two dimensions, in any layout."""
        groups, batches = self.pick([(1, 1), (1, 1), (2, 1), (1, 2), (1, 3)])
        n, inputs = self.pick([1, 2]), self.pick([1, 3, 4])
        outputs = self.pick([1, 3, 8]) * groups * batches
        sides, taps = [self.below(3, 9) for _ in range(2)], [self.pick([1, 2, 3]) for _ in range(2)]
        stride, pads = (
            [self.pick([1, 1, 2]) for _ in range(2)],
            [[self.below(-1, 3), self.below(0, 3)] for _ in range(2)],
        )
        spread, tap_spread = [self.pick([1, 1, 2]) for _ in range(2)], [self.pick([1, 1, 2]) for _ in range(2)]
        out = []
        for d in range(2):
            room = (sides[d] - 1) * spread[d] + 1 + sum(pads[d]) - ((taps[d] - 1) * tap_spread[d] + 1)
            out.append(room // stride[d] + 1)
        if min(out) < 1:
            return
        layouts = [self.rng.permutation(list("bf01" if i != 1 else "io01")).tolist() for i in range(3)]
        extents = [
            {"b": n * batches, "f": inputs * groups, "0": sides[0], "1": sides[1]},
            {"i": inputs, "o": outputs, "0": taps[0], "1": taps[1]},
            {"b": n, "f": outputs, "0": out[0], "1": out[1]},
        ]
        shapes = [tuple(int(e[a]) for a in layout) for e, layout in zip(extents, layouts, strict=True)]
        if max(map(count_of, shapes)) > self.most:
            return
        x, w = self.filled(shapes[0], "f32"), self.filled(shapes[1], "f32")
        dims = [f"[{', '.join(layout)}]" for layout in layouts]
        t = [type_of(s, "f32") for s in shapes]
        window = f"{{stride = {stride}, pad = {pads}, lhs_dilate = {spread}, rhs_dilate = {tap_spread}}}"
        counts = f"{{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}"
        r = self.emit(
            shapes[2], "f32",
            f"stablehlo.convolution({x}, {w}) dim_numbers = {dims[0]}x{dims[1]}->{dims[2]}, window = {window} {counts}"
            f" : ({t[0]}, {t[1]}) -> {t[2]}",
        )  # fmt: skip
        self.epilogue(r, shapes[2], layouts[2].index("f"))


def array(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(str(v) for v in values)}>"
