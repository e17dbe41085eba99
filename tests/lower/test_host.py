"""Tokens, tuples, host communication, composites, async ops and collectives of one process, compiled and run."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.errors import ExecutionError, UnsupportedError
from shlo_jit.runtime.host import HostTimeoutError

STATEFUL = True

X = np.arange(4, dtype=np.float32)
TOKEN = "!stablehlo.token"


def compiled(body: str, arguments: str, results: str, before: str = "", **options):
    text = f"{before}\nfunc.func @main({arguments}) -> ({results}) {{\n{body}\n}}"
    assert not shlo_jit.verify(text), [str(d) for d in shlo_jit.verify(text)]
    return shlo_jit.compile(text, cache=False, **options)


# ---------------------------------------------------------------------------- infeed, outfeed
ECHO = f"""
  %t = stablehlo.after_all : {TOKEN}
  %x:3 = "stablehlo.infeed"(%t) : ({TOKEN}) -> (tensor<4xf32>, tensor<i32>, {TOKEN})
  %y = stablehlo.add %x#0, %a : tensor<4xf32>
  %u = "stablehlo.outfeed"(%y, %x#2) : (tensor<4xf32>, {TOKEN}) -> {TOKEN}
  %v = "stablehlo.outfeed"(%x#0, %x#1, %u) : (tensor<4xf32>, tensor<i32>, {TOKEN}) -> {TOKEN}
  return %x#1 : tensor<i32>
"""


def echo():
    return compiled(ECHO, "%a: tensor<4xf32>", "tensor<i32>")


def test_infeed_and_outfeed_in_order() -> None:
    exe = echo()
    exe.infeed.put(X, np.int32(5))
    exe.infeed.put(X * 2, 6)
    assert exe(X) == 5
    assert exe(X) == 6
    np.testing.assert_array_equal(exe.outfeed.get(), X + X)
    first, number = exe.outfeed.get(time_out=0)
    np.testing.assert_array_equal(first, X)
    assert number == 5 and len(exe.outfeed) == 2
    np.testing.assert_array_equal(exe.outfeed.get(), X * 3)
    np.testing.assert_array_equal(exe.outfeed.get()[0], X * 2)


def test_put_copies() -> None:
    exe, x = echo(), X.copy()
    exe.infeed.put(x, 1)
    x[:] = 100
    exe(X)
    np.testing.assert_array_equal(exe.outfeed.get(), X + X)


def test_program_waits_for_another_thread() -> None:
    exe = echo()
    timer = threading.Timer(0.1, exe.infeed.put, (X, np.int32(7)))
    timer.start()
    assert exe(X) == 7


def test_nothing_waits_for_ever() -> None:
    exe = echo()
    exe.infeed.time_out = 0.05
    start = time.monotonic()
    with pytest.raises(HostTimeoutError, match=r"infeed: .*0.05 s"):
        exe(X)
    with pytest.raises(TimeoutError):
        exe.outfeed.get(0.05)
    assert time.monotonic() - start < 5
    exe.infeed.put(X, 1)
    assert exe(X) == 1


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ((X,), TypeError, "infeed: .*2 tensors.*1"),
        ((X[:2], np.int32(0)), ValueError, r"infeed: argument 0"),
        ((X, np.float32(0)), TypeError, r"infeed: argument 1"),
    ],
)
def test_what_does_not_fit_is_refused_and_dropped(item: tuple, error: type[Exception], message: str) -> None:
    exe = echo()
    exe.infeed.put(*item)
    exe.infeed.put(X, 3)
    with pytest.raises(error, match=message):
        exe(X)
    assert exe(X) == 3


def test_many_threads() -> None:
    """Every call takes one whole item, every item is taken once."""
    exe = echo()
    count = 40
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(int(exe(X)))) for _ in range(count)]
    for t in threads:
        t.start()
    for i in range(count):
        exe.infeed.put(X + i, i)
    for t in threads:
        t.join(30)
    assert sorted(results) == list(range(count))
    assert len(exe.outfeed) == 2 * count


def test_feeds_inside_a_loop_stay_in_order() -> None:
    exe = compiled(
        f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %t = stablehlo.create_token : {TOKEN}
  %r:2 = stablehlo.while(%i = %zero, %k = %t) : tensor<i32>, {TOKEN}
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %u = "stablehlo.outfeed"(%i, %k) : (tensor<i32>, {TOKEN}) -> {TOKEN}
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %u : tensor<i32>, {TOKEN}
    }}
  return %r#0 : tensor<i32>""",
        "%n: tensor<i32>", "tensor<i32>",
    )  # fmt: skip
    assert exe(np.int32(5)) == 5
    assert [int(exe.outfeed.get()) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_host_channels() -> None:
    exe = compiled(
        f"""
  %t = stablehlo.create_token : {TOKEN}
  %x:2 = "stablehlo.recv"(%t) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>,
    is_host_transfer = true}} : ({TOKEN}) -> (tensor<4xf32>, {TOKEN})
  %y = stablehlo.negate %x#0 : tensor<4xf32>
  %u = "stablehlo.send"(%y, %x#1) {{channel_handle = #stablehlo.channel_handle<handle = 8, type = 2>,
    is_host_transfer = true}} : (tensor<4xf32>, {TOKEN}) -> {TOKEN}
  return""",
        "", "",
    )  # fmt: skip
    exe.channel(3).put(X)
    assert exe() == ()
    np.testing.assert_array_equal(exe.channel(8).get(), -X)
    exe.channel(3).time_out = 0.01
    with pytest.raises(HostTimeoutError, match="recv on channel 3"):
        exe()


def test_cached_programs_feed_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    text = f"func.func @main(%a: tensor<4xf32>) -> tensor<i32> {{{ECHO}}}"
    for _ in range(2):
        exe = shlo_jit.compile(text)
        exe.infeed.put(X, 9)
        assert exe(X) == 9
        np.testing.assert_array_equal(exe.outfeed.get(), X + X)


def test_device_transfers_need_more_processes() -> None:
    with refused(UnsupportedError, "process-groups", shows="one process") as caught:
        compiled(
            f"""
  %t = stablehlo.create_token : {TOKEN}
  %u = "stablehlo.send"(%x, %t) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}
    : (tensor<4xf32>, {TOKEN}) -> {TOKEN}
  return""",
            "%x: tensor<4xf32>", "",
        )  # fmt: skip
    assert caught.value.line == 5


# ---------------------------------------------------------------------------- tuples, tokens
def test_tuples_are_flattened() -> None:
    pair = "tuple<tensor<4xf32>, tuple<tensor<i32>, tensor<4xf32>>>"
    exe = compiled(
        f"""
  %a = stablehlo.get_tuple_element %p[0] : ({pair}) -> tensor<4xf32>
  %q = stablehlo.get_tuple_element %p[1] : ({pair}) -> tuple<tensor<i32>, tensor<4xf32>>
  %b = stablehlo.get_tuple_element %q[1] : (tuple<tensor<i32>, tensor<4xf32>>) -> tensor<4xf32>
  %s = stablehlo.subtract %a, %b : tensor<4xf32>
  %r = stablehlo.tuple %s, %q : tuple<tensor<4xf32>, tuple<tensor<i32>, tensor<4xf32>>>
  return %r, %t : {pair}, {TOKEN}""",
        f"%p: {pair}, %t: {TOKEN}", f"{pair}, {TOKEN}",
    )  # fmt: skip
    assert [p.shape for p in exe.inputs] == [(4,), (), (4,)]
    x, n, y = exe(X, np.int32(3), X * 3)
    np.testing.assert_array_equal(x, X * -2)
    np.testing.assert_array_equal(y, X * 3)
    assert n == 3


def test_async_runs_where_it_starts() -> None:
    future = "!stablehlo.future<tensor<4xf32>, tensor<2xf32>>"
    exe = compiled(
        f"""
  %f = "stablehlo.async_start"(%x) ({{
  ^bb0(%a: tensor<4xf32>):
    %b = stablehlo.slice %a [1:3] : (tensor<4xf32>) -> tensor<2xf32>
    stablehlo.return %a, %b : tensor<4xf32>, tensor<2xf32>
  }}) : (tensor<4xf32>) -> {future}
  %r:2 = "stablehlo.async_done"(%f) : ({future}) -> (tensor<4xf32>, tensor<2xf32>)
  return %r#1 : tensor<2xf32>""",
        "%x: tensor<4xf32>", "tensor<2xf32>",
    )  # fmt: skip
    np.testing.assert_array_equal(exe(X), X[1:3])


def test_barrier_passes_values_on() -> None:
    exe = compiled(
        "  %a:2 = stablehlo.optimization_barrier %x, %y : tensor<4xf32>, tensor<i32>\n"
        "  return %a#1, %a#0 : tensor<i32>, tensor<4xf32>",
        "%x: tensor<4xf32>, %y: tensor<i32>", "tensor<i32>, tensor<4xf32>",
    )  # fmt: skip
    n, x = exe(X, np.int32(2))
    assert n == 2
    np.testing.assert_array_equal(x, X)


# ---------------------------------------------------------------------------- composites
COMPOSITE = """
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.add %x, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}"""
BODY = """
  %r = stablehlo.composite "my.op" %x {composite_attributes = {k = 3 : i64, s = "t"}, decomposition = @twice}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>"""


def test_composite() -> None:
    arguments = (BODY, "%x: tensor<4xf32>", "tensor<4xf32>", COMPOSITE)
    np.testing.assert_array_equal(compiled(*arguments)(X), 2 * X)
    seen = []

    def mine(x, k, s):
        seen.append((k, s))
        return x * k

    np.testing.assert_array_equal(compiled(*arguments, composites={"my.op": mine})(X), 3 * X)
    assert seen == [(3, "t")]
    np.testing.assert_array_equal(compiled(*arguments, composites={"other.op": mine})(X), 2 * X)
    np.testing.assert_array_equal(compiled(*arguments, custom_calls={"my.op": mine})(X), 2 * X)


def test_composite_in_the_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    text = f"{COMPOSITE}\nfunc.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{{BODY}\n}}"
    for composites, factor in ((None, 2), ({"my.op": lambda x: x * 5}, 5), (None, 2)):
        np.testing.assert_array_equal(shlo_jit.compile(text, composites=composites)(X), factor * X)


# ---------------------------------------------------------------------------- custom calls
def call(target: str, more: str, signature: str = "(tensor<4xf32>) -> tensor<4xf32>") -> str:
    return f"  %r = stablehlo.custom_call @{target}(%x) {{{more}}} : {signature}\n"


def test_unknown_target_is_named_with_its_line() -> None:
    with refused(UnsupportedError, "unregistered-call", (3, 8), shows="@nobody_knows") as caught:
        compiled(call("nobody_knows", "") + "  return %r : tensor<4xf32>", "%x: tensor<4xf32>", "tensor<4xf32>")
    assert caught.value.line == 3


def test_annotations_need_no_registration() -> None:
    body = call("Sharding", 'mhlo.sharding = "{replicated}"') + "  return %r : tensor<4xf32>"
    exe = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>")
    np.testing.assert_array_equal(exe(X), X)
    mine = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>", custom_calls={"Sharding": lambda x: x + 1})
    np.testing.assert_array_equal(mine(X), X + 1)


def test_ops_under_their_mhlo_name() -> None:
    body = call("mhlo.erf", "mhlo.attributes = {}, mhlo.version = 1 : i64") + "  return %r : tensor<4xf32>"
    exe = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>")
    np.testing.assert_allclose(exe(X / 4), [0, 0.27632639, 0.52049988, 0.71115563], rtol=1e-6)
    body = (
        "  %r:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = true}} : "
        "(tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)\n  return %r#0, %r#1 : tensor<2xf32>, tensor<2xi32>"
    )
    values, indices = compiled(body, "%x: tensor<4xf32>", "tensor<2xf32>, tensor<2xi32>")(X[[2, 0, 3, 1]])
    np.testing.assert_array_equal(values, [3, 2])
    np.testing.assert_array_equal(indices, [2, 0])
    body = """  %c = "mhlo.copy"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %r = mhlo.erf %c : tensor<4xf32>
      return %r : tensor<4xf32>"""
    exe = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>")
    np.testing.assert_allclose(exe(X / 4), [0, 0.27632639, 0.52049988, 0.71115563], rtol=1e-6)


def test_shape_assertion() -> None:
    body = (
        '  stablehlo.custom_call @shape_assertion(%c, %x) {error_message = "got {0}", api_version = 2 : i32} : '
        "(tensor<i1>, tensor<i32>) -> ()\n  return"
    )
    exe = compiled(body, "%c: tensor<i1>, %x: tensor<i32>", "")
    assert exe(np.True_, np.int32(1)) == ()
    with pytest.raises(ExecutionError, match="got 17"):
        exe(np.False_, np.int32(17))


LAYOUTS = "operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>]"


def test_layouts() -> None:
    """A Python callable gets the value, a C function the memory in the given layouts."""
    body = call("f", LAYOUTS, "(tensor<2x3xf32>) -> tensor<2x3xf32>") + "  return %r : tensor<2x3xf32>"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    seen = []

    def python(a):
        seen.append(a.copy())
        return a * [[1, 10, 100]]

    def python_f32(a):
        return python(a).astype(np.float32)

    exe = compiled(body, "%x: tensor<2x3xf32>", "tensor<2x3xf32>", custom_calls={"f": python_f32})
    np.testing.assert_array_equal(exe(x), x * [[1, 10, 100]])
    np.testing.assert_array_equal(seen[0], x)

    def c(operands, results):
        source = ctypes.cast(ctypes.cast(operands, ctypes.POINTER(ctypes.c_void_p))[0], ctypes.POINTER(ctypes.c_float))
        target = ctypes.cast(ctypes.cast(results, ctypes.POINTER(ctypes.c_void_p))[0], ctypes.POINTER(ctypes.c_float))
        seen.append([source[i] for i in range(6)])
        for i in range(6):
            target[i] = i

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(c)
    exe = compiled(body, "%x: tensor<2x3xf32>", "tensor<2x3xf32>", custom_calls={"f": function})
    np.testing.assert_array_equal(exe(x), np.arange(6).reshape(3, 2).T)
    assert seen[-1] == [0, 3, 1, 4, 2, 5]


ALIAS = (
    "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, "
    "operand_tuple_indices = []>]"
)


@pytest.mark.parametrize("more", ["", "  %y = stablehlo.add %x, %r : tensor<4xf32>\n"])
def test_aliases(more: str) -> None:
    """The result has the operand's memory, with its elements in it; the argument itself is not written to."""
    body = call("f", ALIAS) + more + f"  return {'%y' if more else '%r'} : tensor<4xf32>"

    def add_one(x):
        x += 1

    exe = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>", custom_calls={"f": add_one})
    x = X.copy()
    np.testing.assert_array_equal(exe(x), 2 * X + 1 if more else X + 1)
    np.testing.assert_array_equal(x, X)
    returning = compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>", custom_calls={"f": lambda x: x * 2})
    np.testing.assert_array_equal(returning(x), 3 * X if more else 2 * X)
    same = []

    def c(operands, results):
        pointers = [ctypes.cast(p, ctypes.POINTER(ctypes.c_void_p))[0] for p in (operands, results)]
        same.append(pointers[0] == pointers[1])

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(c)
    compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>", custom_calls={"f": function})(x)
    assert same == [True]


def test_effects_happen_in_order_and_once() -> None:
    seen: list[int] = []
    body = "".join(
        f"  stablehlo.custom_call @f(%x) {{has_side_effect = true, backend_config = {{n = {n} : i64}}, "
        "api_version = 4 : i32} : (tensor<4xf32>) -> ()\n"
        for n in range(6)
    )
    exe = compiled(body + "  return", "%x: tensor<4xf32>", "", custom_calls={"f": lambda x, n: seen.append(n)})
    exe(X)
    assert seen == list(range(6))


def test_called_computations_and_string_config() -> None:
    seen = []

    def f(x, backend_config, called_computations):
        seen.append((backend_config, called_computations))
        return x

    body = call("f", 'backend_config = "abc", called_computations = [@twice]') + "  return %r : tensor<4xf32>"
    compiled(body, "%x: tensor<4xf32>", "tensor<4xf32>", COMPOSITE, custom_calls={"f": f})(X)
    assert seen == [("abc", ("twice",))]


# ---------------------------------------------------------------------------- collectives of one process
ONE = "replica_groups = dense<0> : tensor<1x1xi64>"
ADD = """({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  })"""
T = "tensor<4xf32>"
COLLECTIVES = [
    (f'"stablehlo.all_reduce"(%x) {ADD} {{{ONE}}}', 1),
    (f'"stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, {ONE}}}', 1),
    (f'"stablehlo.all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, '
     f"{ONE}}}", 1),
    (f'"stablehlo.reduce_scatter"(%x) {ADD} {{scatter_dimension = 0 : i64, {ONE}}}', 1),
    (f'"stablehlo.collective_broadcast"(%x) {{{ONE}}}', 1),
    (f'"stablehlo.collective_reduce"(%x) {ADD} {{{ONE}}}', 1),
    ('"stablehlo.collective_broadcast"(%x) {replica_groups = dense<> : tensor<0x0xi64>}', 0),
    ('"stablehlo.collective_permute"(%x) {source_target_pairs = dense<0> : tensor<1x2xi64>}', 1),
    ('"stablehlo.collective_permute"(%x) {source_target_pairs = dense<> : tensor<0x2xi64>}', 0),
    (f'"stablehlo.cross-replica-sum"(%x) {{{ONE}}}', 1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "factor"), COLLECTIVES)
def test_collectives_of_one(op: str, factor: int) -> None:
    exe = compiled(f"  %r = {op} : ({T}) -> {T}\n  return %r : {T}", f"%x: {T}", T)
    np.testing.assert_array_equal(exe(X + 1), (X + 1) * factor)


def test_collectives_of_more_are_refused() -> None:
    op = COLLECTIVES[0][0].replace("dense<0> : tensor<1x1xi64>", "dense<[[0, 1]]> : tensor<1x2xi64>")
    with refused(UnsupportedError, "process-groups", (3, 8), shows="process 1"):
        compiled(f"  %r = {op} : ({T}) -> {T}\n  return %r : {T}", f"%x: {T}", T)


def test_ids() -> None:
    exe = compiled(
        "  %p = stablehlo.partition_id : tensor<ui32>\n  %q = stablehlo.replica_id : tensor<ui32>\n"
        "  return %p, %q : tensor<ui32>, tensor<ui32>",
        "", "tensor<ui32>, tensor<ui32>",
    )  # fmt: skip
    assert [int(n) for n in exe()] == [0, 0]
