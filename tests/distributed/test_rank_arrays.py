"""Arguments and results of ranks: the memory they are in, and that all ranks get the same bits, in every run."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from collective_programs import Writer, arguments_of_ranks, assert_same, check, meaning, results_of, type_text

import shlo_jit

EVERYBODY = [[0, 1, 2]]
EXTENTS = [3, 5000, 300_000]
"""Inline; results copied; results that stay in shared memory."""


def sum_text(extent: int) -> str:
    p = Writer()
    p.give(*p.all_reduce([p.argument((extent,), "f32")], "add", EVERYBODY))
    return p.text()


def vectors(extent: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(extent).astype(np.float32) for _ in range(3)]


def summed(xs: list[np.ndarray]) -> np.ndarray:
    """Returns the sum in the order of the group."""
    return (xs[0] + xs[1]) + xs[2]


@pytest.mark.parametrize("extent", EXTENTS)
def test_results_that_are_arguments_constants_and_others(transport: str, extent: int) -> None:
    """An argument goes to others and is a result; others read a constant; one value is two results."""
    p = Writer()
    x, y = p.argument((extent,), "f32"), p.argument((2,), "i32")
    seven = p.constant("7.0", (extent,), "f32")
    varied = p.op("iota", [], [((extent,), "f32")], "iota_dimension = 0 : i64")[0]
    (s,) = p.all_reduce([x], "add", EVERYBODY)
    (moved,) = p.permute([x], [[0, 1], [1, 2], [2, 0]])
    p.give(x, y, s, s, seven, moved)
    for constant in (seven, varied):
        p.give(*p.all_reduce([constant], "add", EVERYBODY), p.all_gather(constant, 0, EVERYBODY))
        p.give(*p.permute([constant], [[0, 1], [2, 0]]), *p.broadcast([constant], [[1, 2]]))
    check(p.text(), arguments_of_ranks(0, 3, p.arguments), 3, 1, transport)


def test_groups_of_different_sizes_write_over_no_operands() -> None:
    """Members of a group read the operands of others, large ones in place, while these write their results."""
    p = Writer()
    x, y = (p.elementwise("negate", p.argument((15_000,), "i32")) for _ in range(2))
    for _ in range(4):
        x, y = p.all_reduce([x, y], "add", [[1], [0, 4, 3, 2]])
    p.give(p.elementwise("negate", x))
    check(p.text(), arguments_of_ranks(6, 5, p.arguments), 5, 1, "threads")


def test_a_value_is_there_for_an_earlier_and_a_later_op() -> None:
    """A later reader cannot overwrite the value: it follows all collective ops before it."""
    p = Writer()
    x = p.argument((10,), "i32")
    y = p.elementwise("add", x, x)
    p.all_reduce([y], "minimum", [[0, 1]])
    (z,) = p.all_reduce([x], "add", [[1, 0]])
    p.give(p.elementwise("subtract", z, y))
    check(p.text(), arguments_of_ranks(7, 2, [x]), 2, 1, "threads")


@pytest.mark.parametrize("extent", EXTENTS)
def test_large_dense_constants(extent: int) -> None:
    """Others read memory that does not contain constants; ranks that are processes have them in separate memory."""
    data = np.random.default_rng(1).standard_normal(min(extent, 20_000)).astype(np.float32)
    t = type_text(data.shape, "f32")
    text = f"""func.func @main() -> {t} {{
      %c = stablehlo.constant dense<"0x{data.tobytes().hex()}"> : {t}
      %r = "stablehlo.collective_permute"(%c) {{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}}
        : ({t}) -> {t}
      return %r : {t}
    }}"""
    for transport in ("threads", "processes"):
        with shlo_jit.compile(text, num_replicas=2, transport=transport, time_out=20.0) as exe:
            assert_same(exe([(), ()]), [[data], [data]])


@pytest.mark.parametrize("extent", EXTENTS)
def test_donated_arguments(transport: str, extent: int) -> None:
    """The caller's arrays are unchanged: the rank has a copy of a donated argument."""
    p = Writer()
    x = p.argument((extent,), "f32")
    (s,) = p.all_reduce([x], "add", EVERYBODY)
    p.give(p.elementwise("negate", s))
    (moved,) = p.permute([x], [[0, 1], [1, 2], [2, 0]])
    p.give(p.elementwise("add", moved, x))
    arguments = arguments_of_ranks(2, 3, [x])
    kept = [own[0].copy() for own in arguments]
    check(p.text(), arguments, 3, 1, transport, donate=[0])
    assert_same([own[0] for own in arguments], [[k] for k in kept])


@pytest.mark.parametrize("extent", EXTENTS)
def test_results_are_arguments_of_the_next_call(transport: str, extent: int) -> None:
    """Results may be arguments in another order, of any earlier call; results that are held are unchanged."""
    p = Writer()
    x = p.argument((extent,), "f32")
    (y,) = p.permute([x], [[0, 1], [1, 2], [2, 0]])
    p.give(p.elementwise("maximum", p.elementwise("negate", y), x), y)
    held, want = [], []
    now = [own[0] for own in arguments_of_ranks(3, 3, [x])]
    with shlo_jit.compile(p.text(), num_replicas=3, transport=transport, time_out=20.0) as exe:
        for _ in range(12):
            want.append(meaning(p.text(), [[a] for a in now], 3, 1))
            held.append(exe([[a] for a in now]))
            now = [held[-1][1][0], held[-1][0][1], held[len(held) // 2][2][0]]
        for got, expected in zip(held, want, strict=True):
            assert_same(got, expected)
    for got, expected in zip(held, want, strict=True):  # nor do they end with the ranks
        assert_same(got, expected)


def test_strided_and_unaligned_arguments(transport: str) -> None:
    xs = vectors(6002)
    given = [
        xs[0][1:6001:2],
        np.frombuffer(b"\0" + xs[1][:3000].tobytes(), np.uint8)[1:].view(np.float32),
        xs[2][2999::-1],
    ]
    with shlo_jit.compile(sum_text(3000), num_replicas=3, transport=transport, time_out=20.0) as exe:
        assert_same(exe([[x] for x in given]), [[summed(given)]] * 3)


def test_the_same_bits_on_all_ranks_in_all_runs() -> None:
    """The order is the group's over both transports, for one and two threads per rank, on all ranks, in every run."""
    for extent in (1000, 100_003):
        xs = vectors(extent, 4)
        for transport in ("threads", "processes"):
            for threads in (1, 2):
                options = {"num_replicas": 3, "transport": transport, "threads": threads, "time_out": 20.0}
                with shlo_jit.compile(sum_text(extent), **options) as exe:
                    for _ in range(3):
                        assert_same(exe([[x] for x in xs]), [[summed(xs)]] * 3)


def resident() -> int:
    """Returns the resident memory of this process in bytes, including shared memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("extent", [3, 30_000])
@pytest.mark.sampled(3)
def test_many_calls_take_no_more_memory(transport: str, extent: int) -> None:
    xs = vectors(extent, 5)
    want = summed(xs)
    with shlo_jit.compile(sum_text(extent), num_replicas=3, transport=transport, time_out=20.0) as exe:
        results = None
        for turn in range(1500):
            if turn == 300:
                before, files = resident(), descriptors()
            results = exe([[x] for x in xs])
        assert resident() - before < 2 << 20
        assert descriptors() == files
        assert_same(results, [[want]] * 3)


@pytest.mark.slow
def test_ranks_leak_nothing(transport: str) -> None:
    xs = vectors(100)
    before = None
    for turn in range(6):
        if turn == 2:
            gc.collect()
            before = descriptors(), set(os.listdir("/dev/shm"))
        with shlo_jit.compile(sum_text(100), num_replicas=3, transport=transport, time_out=20.0) as exe:
            assert len(results_of(exe([[x] for x in xs])[0])) == 1
            pids = exe.pids[1:]
    gc.collect()
    assert before is not None
    assert descriptors() <= before[0]
    assert set(os.listdir("/dev/shm")) <= before[1]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
