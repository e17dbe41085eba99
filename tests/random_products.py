"""Random matrix products, with what may come after them, and random moves for them. Many of the moves are illegal."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8}
TYPES = (("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("bf16", "bf16"), ("i32", "i32"), ("i8", "i32"))
"""Elements of operands and result."""
ROWS, COLUMNS, TERMS = (1, 2, 3, 5, 7, 13, 33, 48, 97, 260), (1, 4, 16, 30, 64, 130, 300, 700), (1, 3, 8, 40, 130, 700, 1400)
WORK = 12 << 20
"""Maximum multiply-adds."""
THEN = ("", "", "bias", "tanh", "transpose", "concatenate", "reverse")

Move = dict[str, Any]


def tensor(*shape: int, dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def random_product(seed: int) -> tuple[str, list[np.ndarray]]:
    """A program with one product, and its arguments."""
    rng = random.Random(seed)
    dtype, out = rng.choice(TYPES)
    m, n, k = rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(TERMS)
    batch = rng.choice((0, 0, 0, 2, 9, 40))
    while max(batch, 1) * m * n * k > WORK:
        m, k, batch = (m + 1) // 2, (k + 1) // 2, batch // 2
    lead = (batch,) if batch else ()
    left, right = ((m, k) if rng.random() < 0.7 else (k, m)), ((k, n) if rng.random() < 0.7 else (n, k))
    at = len(lead)
    dims = "batching_dims = [0] x [0], " if batch else ""
    dims += f"contracting_dims = [{at + left.index(k) if left[0] != left[1] else at + 1}] x "
    left = (*lead, *left)
    dims += f"[{at + right.index(k) if right[0] != right[1] else at}]"
    right = (*lead, *right)
    a, b, y = tensor(*left, dtype=dtype), tensor(*right, dtype=dtype), tensor(*lead, m, n, dtype=out)
    arrays = [_values(rng, dtype, left), _values(rng, dtype, right)]
    product = f"%d = stablehlo.dot_general %a, {{}}, {dims} : ({a}, {b}) -> {y}"
    kind = rng.random()
    if kind < 0.25:  # a constant
        hexadecimal = arrays.pop().tobytes().hex().upper()
        lines = [f'%b = stablehlo.constant dense<"0x{hexadecimal}"> : {b}', product.format("%b")]
        return _program([f"%a: {a}"], lines, lead, m, n, out, rng), arrays
    if kind < 0.4:  # in a loop, which does not compute the second operand
        return _program([f"%x: {a}", f"%b: {b}"], _loop(a, y, product.format("%b")), lead, m, n, out, rng), arrays
    return _program([f"%a: {a}", f"%b: {b}"], [product.format("%b")], lead, m, n, out, rng), arrays


def _values(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random elements. Those of bf16 are small integers: their sums are exact, and a result is rounded once."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    t = np.dtype(NUMPY[dtype])
    if t.kind == "f":
        return made.standard_normal(shape).astype(t)
    return made.integers(-100, 100, shape).astype(t) if t.kind == "i" else made.integers(-3, 4, shape).astype(t)


def _loop(state: str, result: str, product: str) -> list[str]:
    """A loop of two iterations: each multiplies its state, which it then negates."""
    scalar = f"tensor<{result.removesuffix('>').rpartition('x')[2]}>"
    return f"""%zero = stablehlo.constant dense<0> : tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %none = stablehlo.constant dense<0> : tensor<i32>
      %nothing = stablehlo.convert %none : (tensor<i32>) -> {scalar}
      %start = stablehlo.broadcast_in_dim %nothing, dims = [] : ({scalar}) -> {result}
      %r:3 = stablehlo.while(%i = %zero, %a = %x, %l = %start) : tensor<i32>, {state}, {result}
        cond {{
          %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          {product}
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %n = stablehlo.negate %a : {state}
          stablehlo.return %j, %n, %d : tensor<i32>, {state}, {result}
        }}
      %last = stablehlo.negate %r#2 : {result}""".splitlines()


def _program(
    arguments: list[str], lines: list[str], lead: tuple[int, ...], m: int, n: int, out: str, rng: random.Random
) -> str:
    """The program that computes some function of the product `%d`."""
    shape, value = (*lead, m, n), "%last" if "%last" in lines[-1] else "%d"
    t, result, then = tensor(*shape, dtype=out), (*lead, m, n), rng.choice(THEN)
    if then == "bias":
        arguments.append(f"%bias: {tensor(n, dtype=out)}")
        lines += [
            f"%wide = stablehlo.broadcast_in_dim %bias, dims = [{len(shape) - 1}] : ({tensor(n, dtype=out)}) -> {t}",
            f"%y = stablehlo.add {value}, %wide : {t}",
        ]
    elif then == "tanh" and out.startswith("f"):
        lines.append(f"%y = stablehlo.tanh {value} : {t}")
    elif then == "transpose":
        result = (*lead, n, m)
        order = [*range(len(lead)), len(lead) + 1, len(lead)]
        lines.append(f"%y = stablehlo.transpose {value}, dims = {order} : ({t}) -> {tensor(*result, dtype=out)}")
    elif then == "concatenate":
        result = (*lead, m, n + 16)
        other = tensor(*lead, m, 16, dtype=out)
        arguments.append(f"%side: {other}")
        types = f"({t}, {other}) -> {tensor(*result, dtype=out)}"
        lines.append(f"%y = stablehlo.concatenate {value}, %side, dim = {len(shape) - 1} : {types}")
    elif then == "reverse":
        lines.append(f"%y = stablehlo.reverse {value}, dims = [{len(lead)}] : {t}")
    else:
        lines.append(f"%y = stablehlo.reshape {value} : ({t}) -> {t}")
    body = "\n".join(lines)
    r = tensor(*result, dtype=out)
    return f"func.func @main({', '.join(arguments)}) -> {r} {{\n{body}\nreturn %y : {r}\n}}"


def more_arguments(text: str, seed: int) -> list[np.ndarray]:
    """The arguments that only the epilogue reads."""
    head = text.partition("->")[0]
    found = []
    for name in ("%bias: ", "%side: "):
        if name in head:
            t = head.partition(name)[2].partition(">")[0].removeprefix("tensor<")
            *shape, dtype = t.split("x")
            found.append(_values(random.Random(seed), dtype, tuple(map(int, shape))))
    return found


# ---------------------------------------------------------------------- moves
def changed_product(moves: list[Move], units: dict[str, int], seed: int) -> list[Move]:
    """The moves of a product with one to three changes, or some of its moves. `units`: parts of m, n and k are usually
    multiples of these."""
    rng, found = random.Random(seed), [dict(move) for move in moves]
    for move in found:
        move.pop("why", None)
    for _ in range(rng.randint(1, 3)):
        if found and rng.random() < 0.15:
            found.pop(rng.randrange(len(found)))
        elif found:
            _change(rng.choice(found), units, rng)
    if rng.random() < 0.15:
        found.append({"move": "parallel", "grain": 1})
    return found


def _change(move: Move, units: dict[str, int], rng: random.Random) -> None:
    kind = move["move"]
    if kind == "use_leaf":
        move["leaf"] = rng.choice(("tiles", "tiles", "skinny", "vectors", "any"))
    elif kind == "pack":
        move["where"] = rng.choice((*("in_place", "private", "shared") * 3, "loop", "ahead"))
    elif kind == "split":
        unit = units[move["loop"]]
        most = -(-move["by"] // unit)
        move["by"] = rng.choice((1, 7)) if rng.random() < 0.05 else unit * rng.randint(1, rng.choice((most, 2 * most)))
    elif kind == "parallel":
        move["grain"] = rng.choice((0, 1, 1, 2, 5, move["grain"] * 2))
    elif kind == "compute_at":
        move["at"] = rng.choice(("tile", "after", "inline"))
