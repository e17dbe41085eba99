"""Complex and quantized numbers in random programs: chains of ops on them that begin and end with f32."""

from __future__ import annotations

from random_writer import Named, Shape, Writer, count_of, type_of

COMPLEX_UNARY = "negate sine exponential tanh sqrt log_plus_one".split()
COMPLEX_BINARY = "add subtract multiply divide".split()
QUANTIZED = ("!quant.uniform<i8:f32, 0.0625:3>", "!quant.uniform<u8:f32, 0.03125:128>", "!quant.uniform<i8:f32, 0.1>")
QUANTIZED_OPS = "add subtract multiply maximum minimum".split()


class Numbers(Writer):
    """`self.values` only holds f32 and i32, so complex and quantized values exist within one step."""

    # ------------------------------------------------------------------ complex
    def complex(self) -> None:
        x, shape, _ = self.any("f32")
        z, shape = self.complex_steps(self.complex_of(x, shape), shape)
        t, f = type_of(shape, "complex<f32>"), type_of(shape, "f32")
        for op in self.pick([["real"], ["imag"], ["abs"], ["real", "imag"]]):
            self.emit(shape, "f32", f"stablehlo.{op} {z} : ({t}) -> {f}")

    def complex_of(self, x: str, shape: Shape) -> str:
        """A complex value of moderate size."""
        t = type_of(shape, "f32")
        parts = [self.line(f"stablehlo.tanh {part} : {t}") for part in (x, self.same(shape, "f32"))]
        return self.line(f"stablehlo.complex {parts[0]}, {parts[1]} : {type_of(shape, 'complex<f32>')}")

    def complex_steps(self, z: str, shape: Shape) -> tuple[str, Shape]:
        steps = [self.complex_unary, self.complex_binary, self.complex_binary, self.complex_map, self.complex_choice]
        for _ in range(self.below(1, 4)):
            z, shape = self.pick([*steps, self.complex_sum, self.complex_product])(z, shape)
        return z, shape

    def complex_unary(self, z: str, shape: Shape) -> tuple[str, Shape]:
        return self.line(f"stablehlo.{self.pick(COMPLEX_UNARY)} {z} : {type_of(shape, 'complex<f32>')}"), shape

    def complex_binary(self, z: str, shape: Shape) -> tuple[str, Shape]:
        t = type_of(shape, "complex<f32>")
        w = self.line(f"stablehlo.constant dense<({self.pick([0.5, -1.25, 2.0])}, {self.pick([-0.75, 1.5])})> : {t}")
        operands = self.pick([(z, w), (w, z), (z, z)])
        op = self.pick(COMPLEX_BINARY if operands == (z, w) else COMPLEX_BINARY[:3])  # z may be 0
        return self.line(f"stablehlo.{op} {operands[0]}, {operands[1]} : {t}"), shape

    def complex_map(self, z: str, shape: Shape) -> tuple[str, Shape]:
        order = self.rng.permutation(len(shape)).tolist()
        out = tuple(shape[d] for d in order)
        types = f"({type_of(shape, 'complex<f32>')}) -> {type_of(out, 'complex<f32>')}"
        return self.line(f"stablehlo.transpose {z}, dims = {order} : {types}"), out

    def complex_choice(self, z: str, shape: Shape) -> tuple[str, Shape]:
        t, p = type_of(shape, "complex<f32>"), type_of(shape, "i1")
        w = self.line(f"stablehlo.constant dense<(0.25, -0.5)> : {t}")
        types = f"({t}, {t}) -> {p}"
        c = self.line(f"stablehlo.compare {self.pick(['EQ', 'NE'])}, {z}, {w} : {types}")
        return self.line(f"stablehlo.select {c}, {z}, {w} : {p}, {t}"), shape

    def complex_sum(self, z: str, shape: Shape) -> tuple[str, Shape]:
        if not shape:
            return z, shape
        dims = self.some(len(shape), 1)
        out = tuple(n for d, n in enumerate(shape) if d not in dims)
        e = "complex<f32>"
        start = self.line(f"stablehlo.constant dense<(0.5, 0.0)> : tensor<{e}>")
        types = f"({type_of(shape, e)}, tensor<{e}>) -> {type_of(out, e)}"
        text = f"stablehlo.reduce({z} init: {start}) applies stablehlo.add across dimensions = {dims} : {types}"
        return self.line(text), out

    def complex_product(self, z: str, shape: Shape) -> tuple[str, Shape]:
        """A product of a value with itself, over one dimension."""
        if not shape or count_of(shape) > 400:
            return z, shape
        d = self.below(0, len(shape))
        rest = tuple(n for i, n in enumerate(shape) if i != d)
        t = type_of(shape, "complex<f32>")
        types = f"({t}, {t}) -> {type_of(rest + rest, 'complex<f32>')}"
        return self.line(f"stablehlo.dot_general {z}, {z}, contracting_dims = [{d}] x [{d}] : {types}"), rest + rest

    # ------------------------------------------------------------------ quantized
    def quantized(self) -> None:
        """A chain of quantized ops, with a change of scale, and back."""
        x, shape, _ = self.any("f32")
        q = self.pick(QUANTIZED)
        z = self.quantized_of((x, shape, "f32"), q)
        for _ in range(self.below(0, 3)):
            op, t = self.pick(QUANTIZED_OPS), type_of(shape, q)
            other = self.quantized_of((self.same(shape, "f32"), shape, "f32"), q)
            z = self.line(f"stablehlo.{op} {z}, {self.pick([z, other])} : {t}")
        if self.chance(0.4):
            old, q = q, self.pick(QUANTIZED)
            z = self.line(f"stablehlo.uniform_quantize {z} : ({type_of(shape, old)}) -> {type_of(shape, q)}")
        if self.chance(0.4) and shape:
            order = self.rng.permutation(len(shape)).tolist()
            old, shape = type_of(shape, q), tuple(shape[d] for d in order)
            z = self.line(f"stablehlo.transpose {z}, dims = {order} : ({old}) -> {type_of(shape, q)}")
        self.emit(shape, "f32", f"stablehlo.uniform_dequantize {z} : ({type_of(shape, q)}) -> {type_of(shape, 'f32')}")

    def quantized_of(self, value: Named, q: str) -> str:
        x, shape, dtype = value
        return self.line(f"stablehlo.uniform_quantize {x} : ({type_of(shape, dtype)}) -> {type_of(shape, q)}")

    def quantized_product(self) -> None:
        """A matrix product of quantized operands with 32-bit sums, as frontends write it."""
        rows, inner, columns = (self.pick([1, 3, 8, 20]) for _ in range(3))
        shapes = [(rows, inner), (inner, columns)]
        types = [f"!quant.uniform<i8:f32, 0.0625:{self.pick([0, 3])}>", "!quant.uniform<i8:f32, 0.125>"]
        x, w = (self.quantized_of((self.filled(s, "f32"), s, "f32"), q) for s, q in zip(shapes, types, strict=True))
        t = [type_of(s, q) for s, q in zip(shapes, types, strict=True)]
        out, sums = (rows, columns), "!quant.uniform<i32:f32, 0.0078125>"
        words = f"contracting_dims = [1] x [0] : ({t[0]}, {t[1]}) -> {type_of(out, sums)}"
        y = self.line(f"stablehlo.dot_general {x}, {w}, {words}")
        narrow = "!quant.uniform<i8:f32, 0.5:-4>"
        y = self.line(f"stablehlo.uniform_quantize {y} : ({type_of(out, sums)}) -> {type_of(out, narrow)}")
        self.emit(out, "f32", f"stablehlo.uniform_dequantize {y} : ({type_of(out, narrow)}) -> {type_of(out, 'f32')}")
