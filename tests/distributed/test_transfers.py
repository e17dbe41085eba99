"""send and recv between processes: each channel has its own order, and a send does not wait for its receiver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from collective_programs import assert_same, type_text
from refusing import refused

import shlo_jit
from shlo_jit.errors import WorkerError

TOKEN = "!stablehlo.token"
GROUP = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"


def send(values: Sequence[str], types: Sequence[str], channel: int, token: str, out: str, pairs: str = "") -> str:
    more = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>, is_host_transfer = false{pairs}"
    given = ", ".join([*values, token])
    return f'{out} = "stablehlo.send"({given}) {{{more}}} : ({", ".join([*types, TOKEN])}) -> {TOKEN}'


def recv(values: Sequence[str], types: Sequence[str], channel: int, token: str, out: str, pairs: str = "") -> str:
    more = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>, is_host_transfer = false{pairs}"
    made = ", ".join([*values, out])
    return f'{made} = "stablehlo.recv"({token}) {{{more}}} : ({TOKEN}) -> ({", ".join([*types, TOKEN])})'


def function(name: str, arguments: Sequence[str], results: Sequence[str], types: Sequence[str], *lines: str) -> str:
    """Returns a function with a token %t."""
    body = "\n".join(["%t = stablehlo.create_token : !stablehlo.token", *lines])
    end = f"return {', '.join(results)} : {', '.join(types)}" if results else "return"
    return f"func.func @{name}({', '.join(arguments)}) -> ({', '.join(types)}) {{\n{body}\n{end}\n}}\n"


def values(count: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1000 * i for i in range(count)]


@pytest.mark.parametrize("extent", [3, 5000])
def test_channels_are_received_in_another_order_than_they_are_sent(transport: str, extent: int) -> None:
    """Uses twelve channels, more than the maximum number of pending messages of a rank on one."""
    t, n = type_text((extent,), "f32"), 12
    sends = [send([f"%x{i}"], [t], i + 1, "%t", f"%s{i}") for i in range(n)]
    recvs = [recv([f"%y{i}"], [t], i + 1, "%t", f"%r{i}") for i in reversed(range(n))]
    text = function("give", [f"%x{i}: {t}" for i in range(n)], [], [], *sends)
    text += function("take", [], [f"%y{i}" for i in range(n)], [t] * n, *recvs)
    xs = values(n, (extent,))
    with shlo_jit.compile(text, programs=[["give"], ["take"]], transport=transport, time_out=20.0) as exe:
        for _ in range(2):
            assert_same([exe([xs, ()])[1]], [xs])


def all_reduces(count: int, t: str) -> list[str]:
    return [
        f'%x{i + 1} = "stablehlo.all_reduce"(%x{i}) ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n'
        "%s = stablehlo.maximum %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n"
        f"}}) {{{GROUP}}} : ({t}) -> {t}"
        for i in range(count)
    ]


@pytest.mark.parametrize("extent", [3, 5000])
def test_what_is_sent_is_received_after_many_other_messages(transport: str, extent: int) -> None:
    t, n = type_text((extent,), "f32"), 30
    text = function("a", [f"%x0: {t}"], [f"%x{n}"], [t], send(["%x0"], [t], 7, "%t", "%u"), *all_reduces(n, t))
    text += function("b", [f"%x0: {t}"], [f"%x{n}", "%y"], [t, t], *all_reduces(n, t), recv(["%y"], [t], 7, "%t", "%u"))
    x, y = values(2, (extent,))
    with shlo_jit.compile(text, programs=[["a"], ["b"]], transport=transport, time_out=20.0) as exe:
        for _ in range(2):
            assert_same(exe([[x], [y]]), [[y], [y, x]])


def test_large_messages_in_both_directions(transport: str) -> None:
    """Sends several tensors; both processes send first."""
    types = [type_text((300, 500), "f32"), type_text((7,), "i8"), type_text((100001,), "i16")]
    given, got = ["%x", "%y", "%z"], ["%u", "%v", "%w"]
    arguments = [f"{x}: {t}" for x, t in zip(given, types, strict=True)]
    text = ""
    for name, out, back in (("a", 3, 4), ("b", 4, 3)):
        lines = send(given, types, out, "%t", "%s"), recv(got, types, back, "%s", "%r")
        text += function(name, arguments, got, types, *lines)
    rng = np.random.default_rng(0)
    shapes = ((300, 500), np.float32), ((7,), np.int8), ((100001,), np.int16)
    ours, theirs = ([rng.integers(0, 99, s).astype(d) for s, d in shapes] for _ in range(2))
    with shlo_jit.compile(text, programs=[["a"], ["b"]], transport=transport, time_out=20.0) as exe:
        for _ in range(3):
            assert_same(exe([ours, theirs]), [theirs, ours])


@pytest.mark.parametrize("extent", [5, 4000])
def test_a_ring_in_a_loop(transport: str, extent: int) -> None:
    """Every iteration passes all values on by one; there are more iterations than pending messages."""
    t, turns = type_text((extent,), "f32"), 25
    pairs = ", source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>"
    text = f"""func.func @main(%x: {t}) -> {t} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %n = stablehlo.constant dense<{turns}> : tensor<i32>
      %ones = stablehlo.constant dense<1.0> : {t}
      %t = stablehlo.create_token : {TOKEN}
      %r:3 = "stablehlo.while"(%zero, %x, %t) ({{
      ^bb0(%i: tensor<i32>, %v: {t}, %k: {TOKEN}):
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}, {{
      ^bb0(%i: tensor<i32>, %v: {t}, %k: {TOKEN}):
        %j = stablehlo.add %i, %one : tensor<i32>
        {send(["%v"], [t], 1, "%k", "%s", pairs)}
        {recv(["%w"], [t], 1, "%s", "%u", pairs)}
        %q = stablehlo.add %w, %ones : {t}
        stablehlo.return %j, %q, %u : tensor<i32>, {t}, {TOKEN}
      }}) : (tensor<i32>, {t}, {TOKEN}) -> (tensor<i32>, {t}, {TOKEN})
      return %r#1 : {t}
    }}"""
    xs = values(3, (extent,))
    with shlo_jit.compile(text, num_partitions=3, transport=transport, time_out=20.0) as exe:
        for _ in range(2):
            assert_same(exe([[x] for x in xs]), [[xs[(rank - turns) % 3] + turns] for rank in range(3)])


def test_who_is_in_no_pair_receives_zeros_and_sends_nothing(transport: str) -> None:
    """There is an after_all between the two."""
    t = type_text((4,), "f32")
    pairs = ", source_target_pairs = dense<[[2, 0], [0, 1]]> : tensor<2x2xi64>"
    lines = (
        send(["%x"], [t], 5, "%t", "%s", pairs),
        f"%k = stablehlo.after_all %s, %t : {TOKEN}",
        recv(["%y"], [t], 5, "%k", "%u", pairs),
    )
    text = function("main", [f"%x: {t}"], ["%y"], [t], *lines)
    a, b, c = values(3, (4,))
    with shlo_jit.compile(text, num_partitions=3, transport=transport, time_out=20.0) as exe:
        assert_same(exe([[a], [b], [c]]), [[c], [a], [np.zeros_like(c)]])


def test_one_side_gets_ahead_of_the_other() -> None:
    """A process may send messages that the other receives much later, up to the number of slots; then it waits."""
    t = type_text((2,), "f32")
    sends = [send([f"%x{i}"], [t], 1, "%t", f"%s{i}") for i in range(40)]
    recvs = [recv([f"%y{i}"], [t], 1, "%t", f"%r{i}") for i in range(40)]
    text = function("give", [f"%x{i}: {t}" for i in range(40)], [], [], *sends)
    text += function("take", [], [f"%y{i}" for i in range(40)], [t] * 40, *recvs)
    xs = values(40, (2,))
    with shlo_jit.compile(text, programs=[["give", "take"]], transport="threads", time_out=20.0) as exe:
        for _ in range(5):
            assert_same([exe([xs, ()])[1]], [xs])


def test_pairs_of_unknown_ranks_are_refused() -> None:
    t, pairs = type_text((4,), "f32"), ", source_target_pairs = dense<[[0, 3]]> : tensor<1x2xi64>"
    text = function("main", [f"%x: {t}"], [], [], send(["%x"], [t], 5, "%t", "%s", pairs))
    with refused(shlo_jit.UnsupportedError, "process-groups", (3, 6), shows="partition 3"):
        shlo_jit.compile(text, num_partitions=2)


def test_transfers_of_different_types_are_named() -> None:
    text = function("a", ["%x: tensor<3xf32>"], [], [], send(["%x"], ["tensor<3xf32>"], 1, "%t", "%s"))
    text += function("b", [], ["%y"], ["tensor<4xf32>"], recv(["%y"], ["tensor<4xf32>"], 1, "%t", "%s"))
    exe = shlo_jit.compile(text, programs=[["a"], ["b"]], transport="threads", time_out=5.0)
    with exe, pytest.raises(WorkerError, match=r"rank 1.*recv of f32\[4\].*send of f32\[3\]"):
        exe([[np.zeros(3, np.float32)], []])
