"""sort and top_k access nothing but their memory: random ones of every kind beside inaccessible pages.

All ten thousand: SHLO_JIT_RANDOM_SORTS=2000 pytest tests/lower/test_guarded_sorts.py -m slow
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from random_sorts import (
    CHUNKS,
    KEYS,
    Program,
    add_top_k,
    check,
    random_program,
    run,
    short_lines_in_chunks,
    type_of,
    values,
)

PROGRAMS = int(os.environ.get("SHLO_JIT_RANDOM_SORTS", "200"))
BLOCK = 50


@pytest.mark.parametrize("seed", range(6))
def test_random_sorts(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_many_random_sorts(first: int) -> None:
    for seed in range(first, min(first + BLOCK, PROGRAMS)):
        run(seed)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_keys_of_few_bits_in_chunks(chunks: int, target: str) -> None:
    """The fewer digits a key has, the less memory its counters take."""
    rng, p = np.random.default_rng(chunks), Program()
    for t in ("i1", "i2", "ui4"):
        key, rest = values(rng, (97,), t), np.arange(97, dtype=np.int64)
        names, kinds = (p.argument(key, t), p.argument(rest, "i64")), (type_of((97,), t), type_of((97,), "i64"))
        p.lines += [
            f'%{t}:2 = "stablehlo.sort"({", ".join(names)}) <{{dimension = 0 : i64, is_stable = true}}> ({{',
            f"^bb0(%a: tensor<{t}>, %b: tensor<{t}>, %c: tensor<i64>, %d: tensor<i64>):",
            f"%r = stablehlo.compare LT, %a, %b : (tensor<{t}>, tensor<{t}>) -> tensor<i1>",
            f"stablehlo.return %r : tensor<i1> }}) : ({', '.join(kinds)}) -> ({', '.join(kinds)})",
        ]
        order = np.argsort(key.astype(np.int64), kind="stable")
        p.results += [(f"%{t}#0", kinds[0]), (f"%{t}#1", kinds[1])]
        p.expected += [key[order], rest[order]]
    with short_lines_in_chunks(chunks):
        check(p, target)


@pytest.mark.parametrize("chunks", [1, 2])
def test_top_k_of_long_lines_has_counters_for_all_digits(chunks: int) -> None:
    """A line that a sort would cut into chunks, whose key has more digits than there would be chunks."""
    rng, p = np.random.default_rng(3), Program()
    for _ in range(8):
        add_top_k(p, rng, 700)
    with short_lines_in_chunks(chunks):
        check(p, "x86-64-v3", threads=(1, 3))


def test_programs_hold_keys_of_all_types() -> None:
    texts = "".join(random_program(seed).text for seed in range(60))
    assert all(f"x{t}>" in texts for t in KEYS)
    assert all(
        word in texts
        for word in ("chlo.top_k", "stablehlo.while", "TOTALORDER", "stablehlo.abs", "GT", "is_stable = false")
    )
