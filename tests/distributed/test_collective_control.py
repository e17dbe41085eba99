"""Collective ops inside control flow, called functions and long programs."""

from __future__ import annotations

import numpy as np
import pytest
from collective_programs import Writer, arguments_of_ranks, assert_same, check, type_text

import shlo_jit
from shlo_jit.errors import WorkerError

ADD = """({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %s = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %s : tensor<f32>
})"""
EXTENTS = [3, 5000]
"""Inline messages, and messages that are read in place."""


def reduced(name: str, x: str, t: str, groups: str, more: str = "") -> str:
    attributes = f"replica_groups = dense<{groups}> : tensor<2x2xi64>{more}"
    return f'{name} = "stablehlo.all_reduce"({x}) {ADD} {{{attributes}}} : ({t}) -> {t}'


def vectors(seed: int, extent: int) -> list[np.ndarray]:
    """Returns a vector for each of four ranks."""
    return [own[0] for own in arguments_of_ranks(seed, 4, [Writer().argument((extent,), "f32")])]


@pytest.mark.parametrize("extent", EXTENTS)
def test_trip_counts_that_a_group_agrees_on(transport: str, extent: int) -> None:
    """Groups have different trip counts; the condition communicates in the group, too."""
    t = type_text((extent,), "f32")
    text = f"""func.func @main(%x: {t}, %d: tensor<f32>, %limit: tensor<f32>) -> ({t}, tensor<i32>) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:3 = stablehlo.while(%v = %x, %n = %zero, %c = %d) : {t}, tensor<i32>, tensor<f32>
      cond {{
        {reduced("%all", "%c", "tensor<f32>", "[[0, 1], [2, 3]]")}
        %q = stablehlo.compare LT, %all, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %q : tensor<i1>
      }} do {{
        {reduced("%w", "%v", t, "[[1, 0], [3, 2]]")}
        %half = stablehlo.constant dense<0.5> : {t}
        %z = stablehlo.multiply %w, %half : {t}
        %m = stablehlo.add %n, %one : tensor<i32>
        %e = stablehlo.add %c, %d : tensor<f32>
        stablehlo.return %z, %m, %e : {t}, tensor<i32>, tensor<f32>
      }}
      return %r#0, %r#1 : {t}, tensor<i32>
    }}"""
    given = vectors(0, extent)
    steps = [1.0, 2.0, 0.125, 0.25]
    arguments = [(x, np.float32(s), np.float32(30)) for x, s in zip(given, steps, strict=True)]
    turns = [int(np.ceil(30 / (steps[r] + steps[r ^ 1]))) - 1 for r in range(4)]
    assert turns == [9, 9, 79, 79]
    means = [(given[r] + given[r ^ 1]) * np.float32(0.5) for r in range(4)]
    with shlo_jit.compile(text, num_replicas=4, transport=transport, time_out=20.0) as exe:
        for _ in range(2):
            assert_same(exe(arguments), [(m, np.int32(n)) for m, n in zip(means, turns, strict=True)])


@pytest.mark.parametrize("extent", EXTENTS)
def test_groups_take_different_branches(transport: str, extent: int) -> None:
    """Ops in a branch communicate among the ranks that take it: some ops in one, more in the other."""
    t = type_text((extent,), "f32")
    first = reduced("%p", "%x", t, "[[0, 1], [2, 3]]")
    more = "\n".join(reduced(f"%w{i + 1}", f"%w{i}", t, "[[0, 1], [2, 3]]") for i in range(12))
    text = f"""func.func @main(%x: {t}) -> {t} {{
      %id = stablehlo.replica_id : tensor<ui32>
      %two = stablehlo.constant dense<2> : tensor<ui32>
      %low = stablehlo.compare LT, %id, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %r = "stablehlo.if"(%low) ({{
        {first}
        stablehlo.return %p : {t}
      }}, {{
        %w0 = stablehlo.negate %x : {t}
        {more}
        stablehlo.return %w12 : {t}
      }}) : (tensor<i1>) -> {t}
      {reduced("%q", "%r", t, "[[0, 2], [1, 3]]")}
      return %q : {t}
    }}"""
    xs = vectors(1, extent)
    result = (xs[0] + xs[1]) - (xs[2] + xs[3]) * np.float32(2**11)
    with shlo_jit.compile(text, num_replicas=4, transport=transport, time_out=20.0) as exe:
        for _ in range(3):
            assert_same(exe([[x] for x in xs]), [[result]] * 4)


def test_a_branch_that_some_of_a_group_do_not_take_is_an_error() -> None:
    t = "tensor<2xf32>"
    text = f"""func.func @main(%x: {t}, %p: tensor<i1>) -> {t} {{
      %r = "stablehlo.if"(%p) ({{
        {reduced("%p2", "%x", t, "[[0, 1], [2, 3]]")}
        stablehlo.return %p2 : {t}
      }}, {{
        stablehlo.return %x : {t}
      }}) : (tensor<i1>) -> {t}
      return %r : {t}
    }}"""
    x = np.zeros(2, np.float32)
    with shlo_jit.compile(text, num_replicas=4, transport="threads", time_out=20.0) as exe:
        assert len(exe([(x, np.array(r < 2)) for r in range(4)])) == 4
        with pytest.raises(WorkerError, match=r"rank 3.*all_reduce.*line 3.*rank 2.*ended") as caught:
            exe([(x, np.array(r != 2)) for r in range(4)])
        assert (caught.value.rank, caught.value.op) == (2, "all_reduce")


@pytest.mark.parametrize("count", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_long_programs(count: int) -> None:
    """A program of several parts has the same results over threads and processes."""
    p = Writer()
    x = y = p.argument((4, 6), "f32")
    everybody = [[1, 0, 2]]
    for i in range(count // 3):
        (y,) = p.all_reduce([y], "maximum" if i % 2 else "minimum", everybody)
        (y,) = p.permute([p.elementwise("negate", y)], [[0, 1], [1, 2], [2, 0]])
        y = p.elementwise("add", y, x)
        y = p.elementwise("remainder", y, x)
    p.give(y)
    arguments = [tuple(np.abs(x) + 1 for x in own) for own in arguments_of_ranks(2, 3, [x])]
    for transport in ("threads", "processes"):
        check(p.text(), arguments, 3, 1, transport)


@pytest.mark.parametrize("extent", [3, pytest.param(5000, marks=pytest.mark.slow)])
def test_chains(extent: int) -> None:
    """Chains of one op a few hundred times, of each kind: LLVM's work on a function grows with its size."""
    groups = [[1, 0]]
    p = Writer()
    x = p.argument((4, extent), "f32")
    for write in (
        lambda y: p.all_reduce([y], "maximum", groups)[0],
        lambda y: p.permute([y], [[0, 1], [1, 0]])[0],
        lambda y: p.broadcast([y], groups)[0],
        lambda y: p.all_to_all([y], 0, 0, groups)[0],
        lambda y: p.reduce_scatter(p.all_gather(y, 0, groups), "minimum", 0, groups),
    ):
        y = x
        for _ in range(120):
            y = write(y)
        p.give(y)
    check(p.text(), arguments_of_ranks(4, 2, [x]), 2, 1, "threads")


def test_more_operands_than_a_message_has_room_for() -> None:
    p = Writer()
    xs = ys = [p.argument((i % 5 + 1, 700), "f32") for i in range(70)]
    for _ in range(3):
        ys = p.all_reduce(ys, "add", [[0, 1]])
    p.give(*ys)
    check(p.text(), arguments_of_ranks(5, 2, xs), 2, 1, "threads")


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.sampled(3)
def test_called_functions(transport: str, extent: int) -> None:
    """A function that is not inlined, since that would be too large."""
    t = type_text((extent,), "f32")
    lines, last = [], "%x"
    for i in range(40):
        lines.append(reduced(f"%a{i}", last, t, "[[0, 2], [1, 3]]"))
        lines.append(f"%b{i} = stablehlo.multiply %a{i}, %half : {t}")
        last = f"%b{i}"
    body = "\n".join(lines)
    calls = "\n".join(f"%c{i + 1} = func.call @mean(%c{i}) : ({t}) -> {t}" for i in range(120))
    text = f"""func.func @main(%c0: {t}) -> {t} {{
      {calls}
      return %c120 : {t}
    }}
    func.func private @mean(%x: {t}) -> {t} {{
      %half = stablehlo.constant dense<0.5> : {t}
      {body}
      return {last} : {t}
    }}"""
    xs = vectors(3, extent)
    means = [(xs[r % 2] + xs[r % 2 + 2]) * np.float32(0.5) for r in range(4)]
    with shlo_jit.compile(text, num_replicas=4, transport=transport, time_out=20.0) as exe:
        assert_same(exe([[x] for x in xs]), [[m] for m in means])
