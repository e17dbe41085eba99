"""Programs that are chains of convolutions, products and pooling over images [image, line, pixel, feature]."""

from __future__ import annotations

import random

import numpy as np


def tensor(shape: tuple[int, ...], dtype: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"


class Program:
    """Writes a chain of steps over images [image, line, pixel, feature]."""

    def __init__(self, shape: tuple[int, int, int, int], seed: int):
        self.rng = np.random.default_rng(seed)
        self.shape: tuple[int, ...] = shape
        self.input = shape
        self.last, self.count = "%x", 0
        self.lines: list[str] = []
        self.returned: list[tuple[str, tuple[int, ...]]] = []

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def constant(self, shape: tuple[int, ...]) -> str:
        name, array = self.name(), self.rng.standard_normal(shape).astype(np.float32)
        self.lines.append(f'{name} = stablehlo.constant dense<"0x{array.tobytes().hex().upper()}"> : {tensor(shape)}')
        return name

    def step(self, text: str, shape: tuple[int, ...]) -> None:
        self.last, self.shape = self.name(), shape
        self.lines.append(f"{self.last} = {text}")

    def convolution(
        self, size: int, stride: int, pads: tuple[int, int], features: int, dilation: int = 1, *, wide: bool = True
    ) -> None:
        """Adds a convolution. `features`: 0 for a depthwise one. Not `wide`: windows of one pixel of each line."""
        n, h, w, c = self.shape
        groups, out = (c, c) if not features else (1, features)
        across, beside = (size, pads) if wide else (1, (0, 0))
        kernel = (size, across, c // groups, out)
        k = self.constant(kernel)
        sizes = (h, size, pads), (w, across, beside)
        oh, ow = ((x + sum(pad) - (window - 1) * dilation - 1) // stride + 1 for x, window, pad in sizes)
        window = f"stride = [{stride}, {stride}], pad = [[{pads[0]}, {pads[1]}], [{beside[0]}, {beside[1]}]]"
        window += f", rhs_dilate = [{dilation}, {dilation}]"
        dims = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
        counts = f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
        types = f"({tensor(self.shape)}, {tensor(kernel)}) -> {tensor((n, oh, ow, out))}"
        text = f"stablehlo.convolution({self.last}, {k}) {dims}, window = {{{window}}} {counts} : {types}"
        self.step(text, (n, oh, ow, out))

    def product(self, features: int) -> None:
        *outer, c = self.shape
        w = self.constant((c, features))
        types = f"({tensor(self.shape)}, {tensor((c, features))}) -> {tensor((*outer, features))}"
        self.step(f"stablehlo.dot_general {self.last}, {w}, contracting_dims = [3] x [0] : {types}", (*outer, features))

    def finish(self, *, added: str = "") -> None:
        """Adds elementwise ops on a product: a scale for each feature, images that are added, a bound."""
        scale = self.constant(self.shape[3:])
        t, one = tensor(self.shape), tensor(self.shape[3:])
        here, self.last = self.last, self.name()
        self.lines.append(f"{self.last} = stablehlo.broadcast_in_dim {scale}, dims = [3] : ({one}) -> {t}")
        self.step(f"stablehlo.multiply {here}, {self.last} : {t}", self.shape)
        if added:
            self.step(f"stablehlo.add {self.last}, {added} : {t}", self.shape)
        zero = self.name()
        self.lines.append(f"{zero} = stablehlo.constant dense<0.0> : {t}")
        self.step(f"stablehlo.maximum {self.last}, {zero} : {t}", self.shape)

    def pool(self, size: int, stride: int, pads: tuple[int, int], op: str = "maximum") -> None:
        n, h, w, c = self.shape
        start = self.name()
        first = "0xFF800000" if op == "maximum" else "0.0"
        self.lines.append(f"{start} = stablehlo.constant dense<{first}> : tensor<f32>")
        oh, ow = ((x + sum(pads) - size) // stride + 1 for x in (h, w))
        body = f"^bb0(%a: tensor<f32>, %b: tensor<f32>): %m = stablehlo.{op} %a, %b : tensor<f32> "
        body += "stablehlo.return %m : tensor<f32>"
        padding = f"dense<[[0, 0], [{pads[0]}, {pads[1]}], [{pads[0]}, {pads[1]}], [0, 0]]> : tensor<4x2xi64>"
        attributes = f"window_dimensions = array<i64: 1, {size}, {size}, 1>, padding = {padding}"
        attributes += f", window_strides = array<i64: 1, {stride}, {stride}, 1>"
        types = f"({tensor(self.shape)}, tensor<f32>) -> {tensor((n, oh, ow, c))}"
        text = f'"stablehlo.reduce_window"({self.last}, {start}) ({{ {body} }}) {{{attributes}}} : {types}'
        self.step(text, (n, oh, ow, c))

    def write(self, text: str) -> str:
        """Adds a line and returns the name of its value, which is not the next image."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def spread(self, value: str, shape: tuple[int, ...], dims: list[int]) -> str:
        return self.write(
            f"stablehlo.broadcast_in_dim {value}, dims = {dims} : ({tensor(shape)}) -> {tensor(self.shape)}"
        )

    def reduce(self, value: str, op: str, start: str) -> str:
        """Adds a reduction over the features of each pixel, and returns it with the shape of the images."""
        first = self.write(f"stablehlo.constant dense<{start}> : tensor<f32>")
        t, pixels = tensor(self.shape), tensor(self.shape[:3])
        found = self.write(
            f"stablehlo.reduce({value} init: {first}) applies stablehlo.{op} across dimensions = [3]"
            f" : ({t}, tensor<f32>) -> {pixels}"
        )
        return self.spread(found, self.shape[:3], [0, 1, 2])

    def norm(self) -> None:
        """Adds a normalization over the features of each pixel, and a scale for each feature."""
        t, x = tensor(self.shape), self.last
        n = self.write(f"stablehlo.constant dense<{self.shape[3]}.0> : {t}")
        mean = self.write(f"stablehlo.divide {self.reduce(x, 'add', '0.0')}, {n} : {t}")
        apart = self.write(f"stablehlo.subtract {x}, {mean} : {t}")
        squares = self.write(f"stablehlo.multiply {apart}, {apart} : {t}")
        eps = self.write(f"stablehlo.constant dense<1.0e-3> : {t}")
        variance = self.write(f"stablehlo.divide {self.reduce(squares, 'add', '0.0')}, {n} : {t}")
        root = self.write(f"stablehlo.rsqrt {self.write(f'stablehlo.add {variance}, {eps} : {t}')} : {t}")
        scaled = self.write(f"stablehlo.multiply {apart}, {root} : {t}")
        scale = self.spread(self.constant(self.shape[3:]), self.shape[3:], [3])
        self.step(f"stablehlo.multiply {scaled}, {scale} : {t}", self.shape)

    def elementwise(self, op: str, other: str = "") -> None:
        operands = f"{self.last}, {other}" if other else self.last
        self.step(f"stablehlo.{op} {operands} : {tensor(self.shape)}", self.shape)

    def join(self, other: str, shape: tuple[int, ...]) -> None:
        """Adds a concatenation of the features of two images."""
        whole = (*shape[:3], self.shape[3] + shape[3])
        types = f"({tensor(self.shape)}, {tensor(shape)}) -> {tensor(whole)}"
        self.step(f"stablehlo.concatenate {self.last}, {other}, dim = 3 : {types}", whole)

    def reshape(self, shape: tuple[int, ...]) -> None:
        self.step(f"stablehlo.reshape {self.last} : ({tensor(self.shape)}) -> {tensor(shape)}", shape)

    def keep(self) -> None:
        """Also returns the images at this point."""
        self.returned.append((self.last, self.shape))

    def text(self) -> str:
        results = [*self.returned, (self.last, self.shape)]
        names, types = ", ".join(r for r, _ in results), ", ".join(tensor(s) for _, s in results)
        body = "\n  ".join([*self.lines, f"return {names} : {types}"])
        return f"func.func @main(%x: {tensor(self.input)}) -> ({types}) {{\n  {body}\n}}"


def bottleneck(p: Program) -> None:
    """A block of MobileNetV2: more features, a window over each, fewer features, and the block's input added."""
    p.product(24)
    p.finish()
    p.convolution(3, 1, (1, 1), 0)
    p.finish()
    p.product(p.input[3])
    p.finish(added="%x")


def pooled(p: Program) -> None:
    p.convolution(3, 1, (1, 1), 10)
    p.finish()
    p.pool(2, 2, (0, 0))


def column(p: Program) -> None:
    """Windows of one column whose last lines are beyond the image."""
    p.convolution(3, 1, (0, 2), 10, wide=False)
    p.finish()
    p.pool(2, 2, (0, 0))


def skipped(p: Program) -> None:
    """Returns the images before pooling as well."""
    p.convolution(3, 1, (1, 1), 10)
    p.finish()
    p.keep()
    p.pool(2, 2, (0, 0), "add")


def stem(p: Program) -> None:
    p.convolution(7, 2, (3, 3), 16)
    p.finish()
    p.pool(3, 2, (1, 1))


def block(p: Program) -> None:
    """A block of ConvNeXt: a window over each feature, a normalization, two products, and the block's input added."""
    p.convolution(7, 1, (3, 3), 0)
    p.norm()
    p.product(3 * p.input[3])
    p.elementwise("logistic")
    p.product(p.input[3])
    p.elementwise("add", "%x")


def normalized(p: Program) -> None:
    """Ends in a row program."""
    p.convolution(3, 1, (1, 1), 12)
    p.norm()


def patches(p: Program) -> None:
    """A normalization before windows that do not overlap."""
    p.norm()
    p.convolution(2, 2, (0, 0), 14)


def normalized_between(p: Program) -> None:
    """A normalization between overlapping windows, whose lines are kept."""
    p.convolution(3, 2, (1, 1), 8)
    p.norm()
    p.convolution(5, 1, (2, 2), 0)
    p.norm()
    p.product(9)


def gated(p: Program) -> None:
    """Two products of the same images, one of which weighs the other."""
    p.convolution(3, 1, (1, 1), 0)
    images, shape = p.last, p.shape
    p.product(11)
    p.elementwise("logistic")
    gate = p.last
    p.last, p.shape = images, shape
    p.product(11)
    p.elementwise("multiply", gate)
    p.convolution(3, 1, (1, 1), 0)


def added(p: Program) -> None:
    """A product whose images are added to it."""
    p.convolution(3, 1, (1, 1), 8)
    images = p.last
    p.product(8)
    p.elementwise("add", images)
    p.pool(2, 2, (0, 0))


def softmax(p: Program) -> None:
    p.convolution(3, 1, (1, 1), 0)
    p.product(7)
    t = tensor(p.shape)
    high = p.reduce(p.last, "maximum", "0xFF800000")
    p.elementwise("subtract", high)
    p.elementwise("exponential")
    total = p.reduce(p.last, "add", "0.0")
    p.step(f"stablehlo.divide {p.last}, {total} : {t}", p.shape)


def joined(p: Program) -> None:
    """Two loops write parts of the images that windows read."""
    p.convolution(3, 1, (1, 1), 8)
    images, shape = p.last, p.shape
    p.elementwise("tanh")
    other = p.last
    p.last = images
    p.norm()
    p.join(other, shape)
    p.convolution(2, 2, (0, 0), 8)


def joined_before(p: Program) -> None:
    """A part of the images is complete before the others are computed."""
    images, shape = p.last, p.shape
    p.product(8)
    p.norm()
    other, width = p.last, p.shape
    p.last, p.shape = images, shape
    p.convolution(3, 1, (1, 1), 8)
    p.norm()
    p.join(other, width)
    p.convolution(3, 1, (1, 1), 0)
    p.norm()


def joined_products(p: Program) -> None:
    """Two loops write parts of images that nothing else reads; each reads another result of two products."""
    p.convolution(3, 1, (1, 1), 0)
    p.finish()
    p.product(4)
    p.finish()
    p.product(16)
    other, shape = p.last, p.shape
    p.product(16)
    p.norm()
    p.join(other, shape)


def stacked(p: Program) -> None:
    """A loop writes the lines of all images as those of one."""
    n, h, w, c = p.shape
    p.convolution(3, 1, (1, 1), c)
    p.elementwise("tanh")
    p.reshape((1, n * h, w, c))
    p.norm()
    p.pool(2, 2, (0, 0))


def halved(p: Program) -> None:
    """A loop writes each line as two."""
    n, h, w, c = p.shape
    p.convolution(3, 1, (1, 1), c)
    p.norm()
    p.reshape((n, 2 * h, w // 2, c))
    p.elementwise("tanh")
    p.convolution(3, 1, (1, 1), 0)
    p.norm()


def narrowed(p: Program) -> None:
    """Steps with the same lines, of other widths, one of them small."""
    p.convolution(3, 1, (1, 1), 8)
    images, shape = p.last, p.shape
    p.product(1)
    p.finish()
    small, width = p.last, p.shape
    p.last, p.shape = images, shape
    p.norm()
    p.join(small, width)
    p.product(5)
    p.pool(2, 2, (0, 0))


WRITERS = (
    *(bottleneck, pooled, column, skipped, stem, block, normalized, patches, normalized_between),
    *(gated, added, softmax, joined, joined_before, joined_products, stacked, halved, narrowed),
)
"""Functions that write these chains."""


# ---------------------------------------------------------------------- random chains
def add_layer(program: Program, pick: random.Random) -> None:
    """Adds a random step over images, and often elementwise ops after it."""
    stride, size = pick.randint(1, 2), pick.choice([2, 3, 5])
    pads = pick.randint(0, size - 1), pick.randint(0, size - 1)
    kind = pick.choice(["convolution", "depthwise", "product", "pool", "norm", "loop", "added", "joined", "reshape"])
    if kind == "pool" and program.lines:
        program.pool(size, pick.randint(1, size), pads, pick.choice(["maximum", "add"]))
        return
    if kind == "norm":
        program.norm()
        return
    if kind == "loop":
        program.elementwise(pick.choice(["logistic", "negate", "tanh"]))
        return
    if kind == "reshape":
        n, h, w, c = program.shape
        shapes = [(1, n * h, w, c), (n, 2 * h, w // 2, c), (n, h // 2, 2 * w, c)]
        program.reshape(pick.choice([s for s in shapes if np.prod(s) == n * h * w * c]))
        return
    if kind == "joined":
        images, shape = program.last, program.shape
        program.product(pick.choice([1, 4, 16]))
        if pick.random() < 0.5:
            program.norm()
        program.join(images, shape)
        return
    if kind == "added":
        images = program.last
        program.product(program.shape[3])
        program.elementwise(pick.choice(["add", "multiply"]), images)
        return
    if kind in ("convolution", "depthwise"):
        dilation = pick.choice([1, 1, 1, 2])
        features = 0 if kind == "depthwise" else pick.choice([2, 8, 17, 32])
        program.convolution(size, stride, pads, features, dilation)
    else:
        program.product(pick.choice([4, 16, 33]))
    if pick.random() < 0.7:
        program.finish()


def random_chain(seed: int, most: int = 40) -> tuple[Program, random.Random]:
    """A chain of two to five random steps over images of up to `most` lines, and a source of further random numbers."""
    pick = random.Random(seed)
    shape = (pick.randint(1, 3), pick.randint(18, most), pick.randint(10, most), pick.choice([3, 8, 16, 20]))
    program = Program(shape, seed)
    for _ in range(pick.randint(2, 5)):
        if min(program.shape[1:3]) < 8:
            break
        add_layer(program, pick)
        if pick.random() < 0.1:
            program.keep()
    return program, pick
