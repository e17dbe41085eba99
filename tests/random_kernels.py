"""Random convolutions of which the kernel is computed from narrower arrays: the forms in which programs keep weights, with
any layout, window and groups."""

from __future__ import annotations

import random

import numpy as np
from random_convolutions import shapes_of
from random_operands import NUMPY, Program, tensor

PRODUCTS = (("f32", "f32"), ("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("i8", "i32"), ("i32", "i32"))
"""Elements of operands and result."""


def random_kernel(seed: int) -> tuple[str, list[np.ndarray]]:
    """A program with a convolution that computes its kernel, and its arguments."""
    p = Program(seed)
    image, kernel, result, numbers, window, groups = shapes_of(random.Random(seed))
    dtype, out = p.rng.choice(PRODUCTS)
    names = [p.argument(image, dtype), p.operand(kernel, dtype)]
    if dtype == "bf16":  # small integers, whose sums are exact
        p.arrays[0] = p.made.integers(-2, 3, image).astype(NUMPY[dtype])
    attributes = f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
    types, t = f"({tensor(image, dtype)}, {tensor(kernel, dtype)})", tensor(result, out)
    y = p.op(
        f"convolution({', '.join(names)}) dim_numbers = {numbers}, window = {{{window}}} {attributes} : {types} -> {t}"
    )
    if p.rng.random() < 0.3:
        y = p.op(f"negate {y} : {t}")
    body = "\n".join([*p.lines, f"return {y} : {t}"])
    heads = ", ".join(f"{name}: {kind}" for name, kind in p.arguments)
    return f"func.func @main({heads}) -> {t} {{\n{body}\n}}", p.arrays
