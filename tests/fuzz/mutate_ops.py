"""Damage that keeps the syntax valid, so that the verifier must reject it: other types, attributes, numbers and
operands in the programs of `tests/verify`.

    data = damaged_op(programs(), number)        # the same for the same number, as in `mutate.py`
"""

from __future__ import annotations

import functools
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_VERIFY = Path(__file__).parents[1] / "verify"
_TYPE = re.compile(r"tensor<[^<>]*(?:<[^<>]*>)*[^<>]*>|!stablehlo\.token|tuple<[^<>]*>")
_ATTRIBUTE = re.compile(r"(?<=[ {])\w+ = ([^=,{}<>]*<[^<>{}]*>(?: : tensor<[^<>]*>)?|[^,=<>{}]+)(?=[,}])")
_NUMBER = re.compile(r"(?<![\w%.])-?\d+(?!\w)")
_VALUE = re.compile(r"%\w+")
TYPES = [
    "tensor<*xf32>", "tensor<f32>", "tensor<?x?xf32>", "tensor<0x0xf32>", "f32", "index", "none", "!stablehlo.token",
    "tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>", "tensor<2x!quant.uniform<i8:f32, 0.5>>", "tuple<>", "memref<2xf32>",
    "!stablehlo.future<>", "tensor<?xf32, #stablehlo.bounds<3>>", "tensor<4x4xindex>", 'tensor<2xf32, "encoding">',
    "tensor<9223372036854775807x2xi8>", "tensor<2x3xi1>", "tensor<2x3xcomplex<f32>>", "tensor<2xui8>",
]  # fmt: skip
ATTRIBUTES = [
    "array<i64>", "array<i64: 0>", "array<i64: -1>", "array<i64: 1, 2, 3, 4, 5>", "array<i1: true>", "array<i32: 1, 1>",
    "array<f32: 1.0>", "dense<> : tensor<0xi64>", "dense<1> : tensor<i64>", "dense<[[1, 2]]> : tensor<1x2xi64>",
    "dense<1> : tensor<99999999999xi64>", "dense<true> : tensor<2xi1>", "dense<0.5> : tensor<2x2xf32>",
    "dense<(1.0,2.0)> : tensor<complex<f32>>", "unit", "true", '"x"', "@f", "[]", "[[]]", "{}", "1 : i64", "-1 : i32",
    "9223372036854775807 : i64", "1.5 : f32", "tensor<2xf32>", "#stablehlo<precision HIGH>", "#other.x",
    "[#stablehlo<precision HIGH>]", "#stablehlo.gather<>", "#stablehlo.dot<>", "#stablehlo.scatter<>",
    "#stablehlo.channel_handle<handle = 1, type = 1>",
]  # fmt: skip
NUMBERS = ["0", "-1", "1", "2", "3", "7", "4294967296", "9223372036854775807", "-9223372036854775808"]


@functools.cache
def programs() -> tuple[str, ...]:
    """Returns the valid programs of the tests of constraints."""
    sys.path.insert(0, str(_VERIFY))
    from table import CASES, program
    from test_constraints import EDGES

    return tuple(sorted({case.good for case in CASES} | {program(op) for _, op in EDGES}))


def _replaced(text: str, places: Sequence[re.Match[str]], group: int, new: Sequence[str], rng: random.Random) -> str:
    """One of the places, or all that read like it, replaced by one of `new`."""
    if not places:
        return text
    place, word = rng.choice(places), rng.choice(new)
    if group == 0 and rng.random() < 0.3:
        return text.replace(place[0], word)
    return text[: place.start(group)] + word + text[place.end(group) :]


def damaged_op(texts: Sequence[str], number: int) -> str:
    """Returns the damaged program with this number."""
    rng = random.Random(number)
    text = rng.choice(texts)
    for _ in range(rng.choice([1, 1, 2, 3])):
        values = list(_VALUE.finditer(text))
        pattern, group, new = rng.choice([
            (_TYPE, 0, TYPES + _TYPE.findall(rng.choice(texts))), (_ATTRIBUTE, 1, ATTRIBUTES), (_NUMBER, 0, NUMBERS),
            (_VALUE, 0, [m[0] for m in values] or ["%a"]),
        ])  # fmt: skip
        text = _replaced(text, list(pattern.finditer(text)), group, new, rng)
    return text
