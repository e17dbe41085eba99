"""Random convolutions, with a loop that may finish them, and random moves for them. Many of the moves are illegal."""

from __future__ import annotations

import copy
import random
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}
TYPES = (("f32", "f32"), ("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("i8", "i32"))
"""Elements of operands and result."""
LAYOUTS = ("last", "last", "first", "images", "mixed")
WORK = 3 << 20
"""Maximum multiply-adds."""

Move = dict[str, Any]


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def random_convolution(seed: int) -> tuple[str, list[np.ndarray]]:
    """A program with one convolution, and its arguments."""
    rng = random.Random(seed)
    shapes = shapes_of(rng)
    dtype, out = rng.choice(TYPES)
    image, filters, result, numbers, window, groups = shapes
    x, w, y = tensor(image, dtype), tensor(filters, dtype), tensor(result, out)
    arrays = [_values(rng, dtype, image), _values(rng, dtype, filters)]
    attributes = f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
    lines, parameters = [], [f"%x: {x}"]
    if rng.random() < 0.5:  # a constant kernel
        hexadecimal = arrays.pop().tobytes().hex().upper()
        lines.append(f'%w = stablehlo.constant dense<"0x{hexadecimal}"> : {w}')
    else:
        parameters.append(f"%w: {w}")
    lines.append(
        f"%c = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {attributes}"
        f" : ({x}, {w}) -> {y}"
    )
    then = rng.choice(("", "", "negate", "bias"))
    if then == "bias":
        parameters.append(f"%b: {y}")
        arrays.append(_values(rng, out, result))
        lines.append(f"%y = stablehlo.add %c, %b : {y}")
    elif then:
        lines.append(f"%y = stablehlo.{then} %c : {y}")
    body = "\n  ".join([*lines, f"return {'%y' if then else '%c'} : {y}"])
    return f"func.func @main({', '.join(parameters)}) -> {y} {{\n  {body}\n}}", arrays


def shapes_of(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str, str, int]:
    """Shapes of image, kernel and result, dimension numbers, the window's attributes, and groups."""
    while True:
        rank = rng.choice((1, 2, 2, 2, 2, 3))
        groups, ci, co = rng.choice(
            [(1, 3, 16), (1, 16, 40), (1, 32, 64), (1, 64, 3), (1, 33, 70), (2, 8, 24), (24, 1, 1), (64, 1, 1), (40, 1, 1),
             (6, 1, 2), (16, 4, 4), (8, 8, 8), (1, 130, 1)]
        )  # fmt: skip
        batch = rng.choice((1, 1, 2, 3, 9))
        size = [rng.choice((1, 2, 3, 3, 3, 5)) for _ in range(rank)]
        if groups > 6 and rng.random() < 0.7:
            size = [rng.choice((3, 5))] * rank
        if rng.random() < 0.1:  # as in the gradient of a kernel
            size, batch, groups, ci, co = [rng.choice((5, 7, 9)) for _ in range(rank)], 16, 1, 3, 32
        extents = [rng.choice((1, 5, 9, 12, 14, 17, 28, 37)) for _ in range(rank)]
        strides, holes = ([rng.choice(n) for _ in range(rank)] for n in ((1, 1, 1, 2, 3), (1, 1, 1, 2, 6)))
        apart = [rng.choice((1, 1, 1, 1, 1, 2)) for _ in range(rank)]
        pads = [(rng.choice((0, 0, 1, 1, 2, -1)), rng.choice((0, 0, 1, 1, 2, -1))) for _ in range(rank)]
        if rng.random() < 0.2:
            pads = [((k - 1) * r // 2,) * 2 for k, r in zip(size, holes, strict=True)]
        every = zip(extents, apart, pads, size, holes, strides, strict=True)
        output = [((n - 1) * d + 1 + sum(p) - (k - 1) * r - 1) // s + 1 for n, d, p, k, r, s in every]
        work = batch * groups * ci * co * int(np.prod(output)) * int(np.prod(size))
        if min(output) > 0 and work <= WORK:
            break
    window = f"stride = {strides}, pad = {[list(p) for p in pads]}, lhs_dilate = {apart}, rhs_dilate = {holes}"
    if rng.random() < 0.2:
        window += f", reverse = {[bool(rng.randrange(2)) for _ in range(rank)]}".lower()
    spatial = [str(i) for i in range(rank)]
    extents_of = {"b": batch, "f": ci * groups, "i": ci, "o": co * groups}
    layout = rng.choice(LAYOUTS)
    orders = {
        "last": (["b", *spatial, "f"], [*spatial, "i", "o"], ["b", *spatial, "f"]),
        "first": (["b", "f", *spatial], ["o", "i", *spatial], ["b", "f", *spatial]),
        "images": (["f", *spatial, "b"], ["i", *spatial, "o"], ["b", *spatial, "f"]),
        "mixed": (
            *(rng.sample(names, rank + 2) for names in (["b", "f", *spatial], ["i", "o", *spatial])),
            rng.choice((["b", *spatial, "f"], ["b", "f", *spatial])),
        ),
    }[layout]
    parts = (extents, size, output)
    shapes = [
        tuple(extents_of[d] if d in extents_of else part[int(d)] for d in order)
        for order, part in zip(orders, parts, strict=True)
    ]
    shapes[2] = tuple(output[int(d)] if d.isdigit() else {"b": batch, "f": co * groups}[d] for d in orders[2])
    named = [", ".join(order) for order in orders]
    return shapes[0], shapes[1], shapes[2], f"[{named[0]}]x[{named[1]}]->[{named[2]}]", window, groups


def _values(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random elements. Those of bf16 are small integers: their sums are exact, and a result is rounded once."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    t = np.dtype(NUMPY[dtype])
    if t.kind == "f":
        return made.standard_normal(shape).astype(t)
    return made.integers(-50, 50, shape).astype(t) if t.kind == "i" else made.integers(-3, 4, shape).astype(t)


SIZES = (1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 16, 17, 32, 33, 48, 64, 100, 576, 1000)
WORDS = {
    "leaf": ("tiles", "dot", "direct", "vectors"),
    "where": ("in_place", "margins", "shared", "private", "ahead"),
    "operand": ("image", "pixels", "kernel", "a"),
    "loop": ("lines", "pixels", "features", "images", "width", "window", "k"),
    "what": ("epilogue",),
    "at": ("tile", "after", "inline"),
}


def changed_convolution(moves: list[Move], seed: int) -> list[Move]:
    """The moves with one to three changes at random."""
    rng, found = random.Random(seed), copy.deepcopy(moves)
    if rng.random() < 0.4:  # what is left out is decided again
        found = [move for move in found if rng.random() < 0.3]
    for _ in range(rng.randint(1, 3)):
        _change(found, rng)
    return found


def _change(moves: list[Move], rng: random.Random) -> None:
    chance = rng.random()
    if moves and chance < 0.15:
        moves.pop(rng.randrange(len(moves)))
    elif chance < 0.4:
        moves.insert(rng.randint(0, len(moves)), _new(rng))
    elif moves:
        move = rng.choice(moves)
        names = [name for name in move if name not in ("move", "why")]
        if names:
            name = rng.choice(names)
            move[name] = rng.choice(WORDS[name]) if name in WORDS else _size(move[name], rng)


def _size(now: int, rng: random.Random) -> int:
    return max(0, rng.choice((2 * now, now // 2, now + 1, rng.choice(SIZES))))


def _new(rng: random.Random) -> Move:
    loop, by = rng.choice(("lines", "pixels", "features", "width", "k")), rng.choice(SIZES)
    return rng.choice(
        (
            {"move": "use_leaf", "leaf": rng.choice(WORDS["leaf"])},
            {"move": "vectorize", "loop": rng.choice(("features", "pixels", "k")), "lanes": 8},
            {"move": "unroll", "loop": "pixels", "by": by},
            {
                "move": "unroll",
                "loop": rng.choice(("window", "images", "features")),
                "by": rng.choice((1, 3, 5, 6, 14)),
            },
            {"move": "pack", "operand": "image", "where": rng.choice(("in_place", "margins", "shared"))},
            {"move": "pack", "operand": "pixels", "where": rng.choice(("in_place", "private"))},
            {"move": "pack", "operand": "kernel", "where": rng.choice(("in_place", "shared", "ahead"))},
            {"move": "split", "loop": loop, "by": by},
            {"move": "split", "loop": loop, "by": by},
            {"move": "edge_tiles", "height": rng.choice((0, 1, 3, 5))},
            {"move": "skip_padding"},
            {"move": "parallel", "grain": 1},
        )
    )
