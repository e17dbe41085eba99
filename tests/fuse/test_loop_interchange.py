"""Loop interchange: all iterations run on a tile before the next one, compared with the reference and with the loop
that is not interchanged."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import call, outputs
from printed_codes import codes

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable

HEAD = "%one = stablehlo.constant dense<1> : tensor<i32>\n%zero = stablehlo.constant dense<0> : tensor<i32>"


def loop(arguments: str, states: str, types: str, body: str, results: str, cond: str = "", wide: str = "") -> str:
    """A function that iterates `%n` times; states are `%s0 = %x, ...`, the counter is added before them."""
    cond = cond or "%go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    count = states.count("=")
    names = ", ".join(f"%w#{k + 1}" for k in range(count))
    return f"""func.func @main(%n: tensor<i32>, {arguments}) -> ({types}) {{
      {HEAD}
      {wide}
      %w:{count + 1} = stablehlo.while(%i = %zero, {states}) : tensor<i32>, {types}
      cond {{
        {cond}
        stablehlo.return %go : tensor<i1>
      }} do {{
        %next = stablehlo.add %i, %one : tensor<i32>
        {body}
        stablehlo.return %next, {results} : tensor<i32>, {types}
      }}
      return {names} : {types}
    }}"""


def check(text: str, *calls: list, by_tiles: bool = True, refusal: str = "") -> None:
    """Compares each call bit for bit with the reference, on one thread and several, in guarded memory."""
    for threads in (1, 2):
        exe = shlo_jit.compile(text, threads=threads, cache=False)
        assert isinstance(exe, Executable)
        plan = exe.text("plan")
        assert (" interchanged " in plan) == by_tiles, plan
        assert not refusal or refusal in codes(plan, "no interchange")
        for arrays in calls:
            wanted = evaluate(shlo_jit.parse(text), *arrays)
            for found in (outputs(exe(*arrays)), call(exe, arrays, True), call(exe, arrays, False)):
                for got, want in zip(found, wanted, strict=True):
                    assert got.tobytes() == want.tobytes(), (got, want)


def escape(shape: str) -> str:
    """z = z * z + c where |z| < 2, and the number of these iterations; both of a tensor type `shape`xf32."""
    f, i, p = f"tensor<{shape}xf32>", f"tensor<{shape}xi32>", f"tensor<{shape}xi1>"
    return loop(
        f"%c: {f}",
        "%z = %c, %k = %counts",
        f"{f}, {i}",
        f"""%q = stablehlo.multiply %z, %z : {f}
        %a = stablehlo.compare LT, %q, %four : ({f}, {f}) -> {p}
        %m = stablehlo.add %q, %c : {f}
        %z2 = stablehlo.select %a, %m, %z : {p}, {f}
        %d = stablehlo.convert %a : ({p}) -> {i}
        %k2 = stablehlo.add %k, %d : {i}""",
        "%z2, %k2",
        wide=f"""%four = stablehlo.constant dense<4.0> : {f}
        %counts = stablehlo.constant dense<0> : {i}""",
    )


@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (257,), (5, 7), (33, 64), (1, 1), (3, 1, 50), (40_001,)])
def test_several_states_in_one_nest(shape: tuple[int, ...]) -> None:
    c = np.random.default_rng(sum(shape)).uniform(-2, 2, shape).astype(np.float32)
    c.reshape(-1)[:3] = np.array([np.nan, -0.0, np.inf], np.float32)[: c.size]
    check(escape("x".join(map(str, shape))), *([np.int32(iterations), c] for iterations in (0, 1, 2, 13)))


def test_a_long_loop_continues_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nest runs a bounded number of iterations, then the outer loop iterates again."""
    monkeypatch.setattr(tuning, "INTERCHANGE_WORK", 1)
    monkeypatch.setattr(tuning, "INTERCHANGE_LEAST_ITERATIONS", 5)
    c = np.random.default_rng(0).uniform(-2, 2, 1000).astype(np.float32)
    check(escape("1000"), *([np.int32(iterations), c] for iterations in (1, 4, 5, 6, 23)))


def test_scalars_are_carried_with_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scalar that changes, read by every tile and written once; a result that is another state's old value."""
    monkeypatch.setattr(tuning, "INTERCHANGE_WORK", 1)
    monkeypatch.setattr(tuning, "INTERCHANGE_LEAST_ITERATIONS", 3)
    f = "tensor<70x33xf32>"
    text = loop(
        f"%x: {f}, %y: {f}, %t0: tensor<f32>",
        "%a = %x, %b = %y, %t = %t0",
        f"{f}, {f}, tensor<f32>",
        f"""%half = stablehlo.constant dense<0.5> : tensor<f32>
        %t2 = stablehlo.multiply %t, %half : tensor<f32>
        %tb = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> {f}
        %s = stablehlo.multiply %b, %tb : {f}
        %c = stablehlo.add %a, %s : {f}""",
        "%b, %c, %t2",
    )
    r = np.random.default_rng(1)
    x, y = (r.integers(-9, 9, (70, 33)).astype(np.float32) for _ in range(2))
    check(text, *([np.int32(iterations), x, y, np.float32(8)] for iterations in (1, 2, 7)))


SCALARS = {
    "f32": ("f32", "divide"),
    "f64": ("f64", "divide"),
    "i32": ("i32", "remainder"),
    "ui8": ("ui8", "remainder"),
    "complex": ("complex<f32>", "multiply"),
    "bf16": ("bf16", "divide"),
}


def of_scalars(dtype: str, op: str, n: int) -> str:
    """Two states of n elements. Those of an iteration are computed from a scalar that takes five ops of a kind, whether
    another is odd, and a row of a table at an index that takes a remainder."""
    f, s, p = f"tensor<{n}x{dtype}>", f"tensor<{dtype}>", f"tensor<{n}xi1>"
    chain = "\n".join(f"%t{k + 1} = stablehlo.{op} %t{k}, %d : {s}" for k in range(5))
    return loop(
        f"%x: {f}, %y: {f}, %d: {s}, %first: {s}, %table: tensor<3x{n}x{dtype}>",
        "%a = %x, %b = %y, %t = %first",
        f"{f}, {f}, {s}",
        f"""%three = stablehlo.constant dense<3> : tensor<i32>
        %r = stablehlo.remainder %i, %three : tensor<i32>
        %two = stablehlo.constant dense<2> : tensor<i32>
        %r2 = stablehlo.remainder %i, %two : tensor<i32>
        %odd = stablehlo.compare NE, %r2, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %odds = stablehlo.broadcast_in_dim %odd, dims = [] : (tensor<i1>) -> {p}
        %row1 = stablehlo.dynamic_slice %table, %r, %zero, sizes = [1, {n}] : (tensor<3x{n}x{dtype}>, tensor<i32>, tensor<i32>) -> tensor<1x{n}x{dtype}>
        %row = stablehlo.reshape %row1 : (tensor<1x{n}x{dtype}>) -> {f}
        %t0 = stablehlo.add %t, %d : {s}
        {chain}
        %ts = stablehlo.broadcast_in_dim %t5, dims = [] : ({s}) -> {f}
        %u = stablehlo.add %ts, %ts : {f}
        %m = stablehlo.add %a, %u : {f}
        %a2 = stablehlo.select %odds, %m, %b : {p}, {f}
        %b2 = stablehlo.subtract %m, %row : {f}""",
        "%a2, %b2, %t5",
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", SCALARS)
def test_expensive_scalars_are_computed_once_for_all_tiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables of all iterations, of a few, and of one; the bits do not depend on the number of threads."""
    (dtype, op), n, r = SCALARS[kind], 1100, np.random.default_rng(7)
    text = of_scalars(dtype, op, n)
    types = [port.dtype for port in shlo_jit.compile(text, cache=False).inputs]
    shapes = [(n,), (n,), (), (), (3, n)]
    arrays = [np.asarray(r.integers(1, 9, s)).astype(t) for s, t in zip(shapes, types[1:], strict=True)]
    calls = [[np.int32(iterations), *arrays] for iterations in (0, 1, 4, 37)]
    wanted = [evaluate(shlo_jit.parse(text), *arguments) for arguments in calls]
    for nbytes, threads in ((1 << 14, 1), (1 << 14, 3), (100, 2), (100, 8), (1, 1), (1, 8)):
        monkeypatch.setattr(tuning, "SCALAR_TABLE_BYTES", nbytes)
        exe = shlo_jit.compile(text, threads=threads, cache=False)
        assert isinstance(exe, Executable)
        assert codes(exe.text("schedule"), "scalar table") == ["scalars-of-iterations"]
        for arguments, wants in zip(calls, wanted, strict=True):
            for found in (call(exe, arguments, at_end) for at_end in (True, False)):
                for got, want in zip(found, wants, strict=True):
                    assert got.tobytes() == np.asarray(want).tobytes(), (nbytes, threads, arguments[0])


def test_cheap_scalars_are_computed_on_each_tile() -> None:
    schedule = shlo_jit.compile(escape("5000"), cache=False).text("schedule")
    assert "iterations " in schedule and "scalar table" not in schedule


def test_loop_invariant_tensors_are_read_anywhere() -> None:
    """A row, a column, a transposed tensor, a table's entry of the iteration, and one at an index from a state."""
    f, i = "tensor<6x19xf32>", "tensor<6x19xi32>"
    text = loop(
        f"%x: {f}, %row: tensor<19xf32>, %column: tensor<6xf32>, %turned: tensor<19x6xf32>, %table: tensor<8xf32>",
        "%a = %x, %k = %from",
        f"{f}, {i}",
        f"""%r = stablehlo.broadcast_in_dim %row, dims = [1] : (tensor<19xf32>) -> {f}
        %c = stablehlo.broadcast_in_dim %column, dims = [0] : (tensor<6xf32>) -> {f}
        %t = stablehlo.transpose %turned, dims = [1, 0] : (tensor<19x6xf32>) -> {f}
        %e1 = stablehlo.dynamic_slice %table, %i, sizes = [1] : (tensor<8xf32>, tensor<i32>) -> tensor<1xf32>
        %e2 = stablehlo.reshape %e1 : (tensor<1xf32>) -> tensor<f32>
        %e = stablehlo.broadcast_in_dim %e2, dims = [] : (tensor<f32>) -> {f}
        %k3 = stablehlo.reshape %k : ({i}) -> tensor<6x19x1xi32>
        %g = "stablehlo.gather"(%table, %k3) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
          start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1>, indices_are_sorted = false}}
          : (tensor<8xf32>, tensor<6x19x1xi32>) -> {f}
        %s1 = stablehlo.add %r, %c : {f}
        %s2 = stablehlo.add %s1, %t : {f}
        %s3 = stablehlo.add %s2, %e : {f}
        %s4 = stablehlo.add %s3, %g : {f}
        %a2 = stablehlo.subtract %s4, %a : {f}
        %o = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<i32>) -> {i}
        %k2 = stablehlo.add %k, %o : {i}""",
        "%a2, %k2",
        wide=f"%from = stablehlo.iota dim = 1 : {i}",
    )
    r = np.random.default_rng(2)
    arrays = [r.integers(-99, 99, s).astype(np.float32) for s in ((6, 19), (19,), (6,), (19, 6), (8,))]
    check(text, *([np.int32(iterations), *arrays] for iterations in (1, 11)))


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i8", "ui32", "i64", "i1", "complex<f32>"])
def test_every_kind_of_element(dtype: str) -> None:
    f = f"tensor<77x{dtype}>"
    text = loop(
        f"%x: {f}, %y: {f}",
        "%a = %x",
        f,
        f"%p = stablehlo.multiply %a, %y : {f}\n%q = stablehlo.add %p, %y : {f}",
        "%q",
    )
    port = shlo_jit.compile(text, cache=False).inputs[1]
    x, y = (np.random.default_rng(k).integers(0, 3, 77).astype(port.dtype) for k in (3, 4))
    check(text, [np.int32(5), x, y])


def test_scalars_only() -> None:
    """Collatz: the condition depends on the state."""
    text = loop(
        "%x: tensor<i32>",
        "%c = %x",
        "tensor<i32>",
        """%two = stablehlo.constant dense<2> : tensor<i32>
        %three = stablehlo.constant dense<3> : tensor<i32>
        %odd = stablehlo.remainder %c, %two : tensor<i32>
        %is = stablehlo.compare EQ, %odd, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %half = stablehlo.divide %c, %two : tensor<i32>
        %more = stablehlo.multiply %c, %three : tensor<i32>
        %up = stablehlo.add %more, %one : tensor<i32>
        %d = stablehlo.select %is, %half, %up : tensor<i1>, tensor<i32>""",
        "%d",
        cond="%go = stablehlo.compare NE, %c, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>",
    )
    check(text, [np.int32(1), np.int32(27)])


def test_states_that_are_replaced() -> None:
    """A state that becomes a constant, one that becomes a tensor from outside, two that become the same value."""
    f = "tensor<3x21xf32>"
    text = loop(
        f"%x: {f}, %y: {f}",
        "%a = %x, %b = %y, %c = %x, %d = %x, %e = %y",
        ", ".join([f] * 5),
        f"""%v = stablehlo.constant dense<2.5> : {f}
        %s = stablehlo.add %a, %b : {f}
        %t = stablehlo.add %s, %c : {f}""",
        "%v, %y, %t, %t, %e",
    )
    x, y = (np.random.default_rng(k).integers(-9, 9, (3, 21)).astype(np.float32) for k in (5, 6))
    check(text, *([np.int32(iterations), x, y] for iterations in (0, 1, 4)))


F = "tensor<20xf32>"
REFUSED = {
    "body-not-elementwise": f"""%o = stablehlo.constant dense<0.0> : tensor<f32>
        %r = stablehlo.reduce(%a init: %o) applies stablehlo.add across dimensions = [0] : ({F}, tensor<f32>) -> tensor<f32>
        %q = stablehlo.broadcast_in_dim %r, dims = [] : (tensor<f32>) -> {F}""",
    "state-read-elsewhere": f"%q = stablehlo.reverse %a, dims = [0] : {F}",
}


@pytest.mark.parametrize("code", REFUSED)
def test_bodies_that_need_other_elements_are_not_interchanged(code: str) -> None:
    x = np.arange(20, dtype=np.float32)
    check(loop(f"%x: {F}", "%a = %x", F, REFUSED[code], "%q"), [np.int32(2), x], by_tiles=False, refusal=code)


def test_a_scalar_computed_from_a_state_of_one_element() -> None:
    text = loop(
        "%x: tensor<1xf32>, %y: tensor<f32>",
        "%a = %x, %t = %y",
        "tensor<1xf32>, tensor<f32>",
        """%q = stablehlo.add %a, %a : tensor<1xf32>
        %u = stablehlo.reshape %a : (tensor<1xf32>) -> tensor<f32>""",
        "%q, %u",
    )
    arrays = np.array([3], np.float32), np.float32(5)
    check(text, [np.int32(4), *arrays], by_tiles=False, refusal="scalar-from-state")


def test_states_of_several_shapes_are_not_interchanged() -> None:
    text = loop(
        "%x: tensor<4xf32>, %y: tensor<5xf32>",
        "%a = %x, %b = %y",
        "tensor<4xf32>, tensor<5xf32>",
        "%p = stablehlo.add %a, %a : tensor<4xf32>\n%q = stablehlo.add %b, %b : tensor<5xf32>",
        "%p, %q",
    )
    arrays = np.ones(4, np.float32), np.ones(5, np.float32)
    check(text, [np.int32(3), *arrays], by_tiles=False, refusal="states-differ-in-shape")


def test_empty_states() -> None:
    check(escape("0x3"), [np.int32(3), np.zeros((0, 3), np.float32)], by_tiles=False)


def test_any_batch() -> None:
    """Sizes known only at the call."""
    text = (
        escape("?x5")
        .replace(
            "%four = stablehlo.constant dense<4.0> : tensor<?x5xf32>",
            """%f0 = stablehlo.constant dense<4.0> : tensor<f32>
        %shape = shape.shape_of %c : tensor<?x5xf32> -> tensor<2xindex>
        %four = stablehlo.dynamic_broadcast_in_dim %f0, %shape, dims = [] : (tensor<f32>, tensor<2xindex>) -> tensor<?x5xf32>""",
        )
        .replace(
            "%counts = stablehlo.constant dense<0> : tensor<?x5xi32>",
            "%counts = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = [] : (tensor<i32>, tensor<2xindex>) -> tensor<?x5xi32>",
        )
    )
    exe = shlo_jit.compile(text, dynamic="symbolic", cache=False)
    assert isinstance(exe, DynamicExecutable)
    for batch in (2, 3, 700):
        c = np.random.default_rng(batch).uniform(-2, 2, (batch, 5)).astype(np.float32)
        arrays = [np.int32(9), c]
        shapes = [(), c.shape]
        assert " interchanged " in exe.text("plan", shapes)
        wanted = evaluate(shlo_jit.refine(text, shapes), *arrays)
        for got, want in zip(outputs(exe(*arrays)), wanted, strict=True):
            assert got.tobytes() == want.tobytes()


def test_any_batch_with_expensive_scalars() -> None:
    f = "tensor<?x5xi32>"
    chain = "\n".join(f"%t{k + 1} = stablehlo.remainder %t{k}, %d : tensor<i32>" for k in range(3))
    text = loop(
        f"%x: {f}, %d: tensor<i32>",
        "%a = %x, %t = %d",
        f"{f}, tensor<i32>",
        f"""%t0 = stablehlo.add %t, %i : tensor<i32>
        {chain}
        %ts = stablehlo.dynamic_broadcast_in_dim %t3, %shape, dims = [] : (tensor<i32>, tensor<2xindex>) -> {f}
        %a2 = stablehlo.add %a, %ts : {f}""",
        "%a2, %t3",
        wide=f"%shape = shape.shape_of %x : {f} -> tensor<2xindex>",
    )
    exe = shlo_jit.compile(text, dynamic="symbolic", cache=False)
    assert isinstance(exe, DynamicExecutable)
    for batch in (2, 3, 700):
        x = np.random.default_rng(batch).integers(0, 99, (batch, 5)).astype(np.int32)
        arrays = [np.int32(9), x, np.int32(7)]
        shapes = [(), x.shape, ()]
        assert codes(exe.text("schedule", shapes), "scalar table") == ["scalars-of-iterations"]
        wanted = evaluate(shlo_jit.refine(text, shapes), *arrays)
        for got, want in zip(outputs(exe(*arrays)), wanted, strict=True):
            assert got.tobytes() == np.asarray(want).tobytes()


def test_the_schedule_states_the_iterations() -> None:
    text = escape("4096")
    schedule = shlo_jit.compile(text, cache=False).text("schedule")
    assert codes(schedule, "iterations") == ["interruptible"]
    fixed = text.replace("%n: tensor<i32>, ", "").replace(
        HEAD, f"{HEAD}\n%n = stablehlo.constant dense<40> : tensor<i32>"
    )
    (line,) = [s for s in shlo_jit.compile(fixed, cache=False).text("schedule").splitlines() if "iterations " in s]
    assert " 40 " in line and codes(line) == ["all-iterations"]


def test_other_targets_and_profiles() -> None:
    """Code for a processor without masks, and profiled code."""
    text, c = escape("129"), np.linspace(-2, 2, 129, dtype=np.float32)
    wanted = evaluate(shlo_jit.parse(text), np.int32(9), c)
    for target in ("x86-64", "x86-64-v3"):
        for got, want in zip(
            outputs(shlo_jit.compile(text, target=target, cache=False)(np.int32(9), c)), wanted, strict=True
        ):
            assert got.tobytes() == want.tobytes()
    exe = shlo_jit.compile(text, cache=False)
    assert isinstance(exe, Executable)
    with exe.profile() as p:
        exe(np.int32(9), c)
    (iterations,) = (s for s in p.steps if s.title == "interchanged")
    assert iterations.calls == 1 and iterations.gigaflops is None
