"""Custom calls with a known meaning, Shardy ops on one device, and functions as values."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

X = np.array([[3, 1, np.nan, -np.inf, 1], [0.0, -0.0, 5, np.inf, 2]], np.float32)
T = "tensor<2x5xf32>"
TOP = "(tensor<2x3xf32>, tensor<2x3xi32>)"


def run(body: str, results: str, *arrays: np.ndarray, arguments: str = f"%x: {T}", more: str = ""):
    text = f"func.func @main({arguments}) -> {results} {{\n{body}\n}}\n{more}"
    assert not shlo_jit.verify(text)
    return shlo_jit.compile(text, cache=False)(*arrays)


def test_smallest() -> None:
    """Ascending in the total order; the first of equal elements."""
    body = f"""%0:2 = stablehlo.custom_call @mhlo.topk(%x) {{mhlo.attributes = {{k = 3 : i64, largest = false}}}} : ({T}) -> {TOP}
      return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xi32>"""
    values, places = run(body, TOP, X)
    assert places.tolist() == [[3, 1, 4], [1, 0, 4]]
    np.testing.assert_array_equal(values, np.take_along_axis(X, places, 1))


def test_shapes_as_operands() -> None:
    """Calls that JAX writes for unknown shapes, with result types that specify the shapes."""
    body = f"""%k = stablehlo.constant dense<3> : tensor<i32>
      stablehlo.custom_call @dce_sink(%k) {{has_side_effect = true}} : (tensor<i32>) -> ()
      %0:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k) : ({T}, tensor<i32>) -> {TOP}
      return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xi32>"""
    assert run(body, TOP, X)[1].tolist() == [[2, 0, 1], [3, 2, 4]]
    bits = "(tensor<2xui64>, tensor<3xui32>)"
    algorithm = "#stablehlo<rng_algorithm THREE_FRY>"
    body = f"""%k = stablehlo.constant dense<3> : tensor<1xi32>
      %0:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%x, %k) {{rng_algorithm = {algorithm}}}
        : (tensor<2xui64>, tensor<1xi32>) -> {bits}
      %1, %2 = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> {bits}
      return %0#1, %2 : tensor<3xui32>, tensor<3xui32>"""
    state = np.array([1, 2], np.uint64)
    got, want = run(body, "(tensor<3xui32>, tensor<3xui32>)", state, arguments="%x: tensor<2xui64>")
    np.testing.assert_array_equal(got, want)


def test_window_as_operands() -> None:
    body = f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
      %w = stablehlo.constant dense<[2, 1]> : tensor<2xi32>
      %o = stablehlo.constant dense<1> : tensor<2xi32>
      %p = stablehlo.constant dense<[[1, 0], [0, 0]]> : tensor<2x2xi32>
      %0 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %w, %o, %o, %o, %p) {{called_computations = [@sum]}}
        : ({T}, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2x2xi32>) -> {T}
      return %0 : {T}"""
    scalars = "%a: tensor<f32>, %b: tensor<f32>"
    more = f"""func.func private @sum({scalars}) -> tensor<f32> {{
      %0 = func.call @plus(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }}
    func.func private @plus({scalars}) -> tensor<f32> {{
      %0 = stablehlo.add %a, %b : tensor<f32>
      return %0 : tensor<f32>
    }}"""
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_array_equal(run(body, T, x, more=more), x.cumsum(0))


@pytest.mark.parametrize("rows,width", [(1, 2), (4, 3), (4, None)])
def test_sparse_product(rows: int, width: int | None) -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(-3, 4, (rows, 6)) * (rng.random((rows, 6)) < 0.5)
    dense[-1] = 0
    if rows > 1:
        dense[0] = [0, 2, 0, 0, 1, 0]
    data = dense[dense != 0].astype(np.float32)
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(np.int32)
    columns = np.nonzero(dense)[1].astype(np.int32)
    x = rng.integers(-3, 4, (6,) if width is None else (6, width)).astype(np.float32)
    tail = "" if width is None else f"x{width}"
    types = [f"tensor<{data.size}xf32>", f"tensor<{rows + 1}xi32>", f"tensor<{data.size}xi32>", f"tensor<6{tail}xf32>"]
    result = f"tensor<{rows}{tail}xf32>"
    body = f"""%0 = stablehlo.custom_call @cpu_csr_sparse_dense_ffi(%d, %s, %c, %x) {{api_version = 4 : i32}}
      : ({", ".join(types)}) -> {result}
      return %0 : {result}"""
    arguments = ", ".join(f"%{name}: {t}" for name, t in zip("dscx", types, strict=True))
    np.testing.assert_array_equal(run(body, result, data, starts, columns, x, arguments=arguments), dense @ x)


def test_memory_and_places() -> None:
    body = f"""%e = stablehlo.custom_call @AllocateBuffer() : () -> tensor<3xf32>
      %y = stablehlo.custom_call @annotate_device_placement(%x) {{has_side_effect = true}} : ({T}) -> {T}
      %z = stablehlo.custom_call @MoveToHost(%y) : ({T}) -> {T}
      return %z, %e : {T}, tensor<3xf32>"""
    got, empty = run(body, f"({T}, tensor<3xf32>)", X)
    np.testing.assert_array_equal(got, X)
    assert empty.shape == (3,)


@pytest.mark.parametrize("target", ["__gpu$xla.gpu.triton", "cusolver_potrf_ffi", "lapack_sfoo_ffi", "mhlo.nothing"])
def test_unknown_target(target: str) -> None:
    body = f"  %0 = stablehlo.custom_call @{target}(%x) : ({T}) -> {T}\n  return %0 : {T}"
    with refused(shlo_jit.UnsupportedError, "unregistered-call", (2, 8), shows=f"@{target}"):
        run(body, T, X)


def test_approximate_top_k_in_a_loop() -> None:
    """The call is in a region, and its comparator calls a function."""
    body = """%i = stablehlo.iota dim = 1 : tensor<2x5xi32>
      %low = stablehlo.constant dense<0.0> : tensor<f32>
      %none = stablehlo.constant dense<-1> : tensor<i32>
      %p = stablehlo.constant dense<true> : tensor<i1>
      %0 = "stablehlo.if"(%q) ({
        %1:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %low, %none) {called_computations = [@greater], mhlo.backend_config = {
          aggregate_to_topk = true, recall_target = 0.9 : f32, reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64,
          top_k = 2 : i64}} : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
        stablehlo.return %1#1 : tensor<2x2xi32>
      }, {
        %2 = stablehlo.constant dense<0> : tensor<2x2xi32>
        stablehlo.return %2 : tensor<2x2xi32>
      }) : (tensor<i1>) -> tensor<2x2xi32>
      return %0 : tensor<2x2xi32>"""
    more = """func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
      %0 = func.call @gt(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %0 : tensor<i1>
    }
    func.func private @gt(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {
      %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %0 : tensor<i1>
    }"""
    x = np.array([[3, 1, 7, 5, 1], [0, 9, 5, 8, 2]], np.float32)
    got = run(body, "tensor<2x2xi32>", x, np.asarray(True), arguments="%x: tensor<2x5xf32>, %q: tensor<i1>", more=more)
    assert got.tolist() == [[2, 3], [1, 3]]


MESH = 'sdy.mesh @mesh = <["a"=SIZE]>\n'
MANUAL = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = sdy.sharding_constraint %x <@mesh, [{"a"}]> : tensor<4xf32>
  %c = sdy.constant dense<1.0> : tensor<4xf32>
  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>] manual_axes={"a"} (%y: tensor<PARTxf32>) {
    %d = sdy.constant dense<1.0> : tensor<PARTxf32>
    %2 = stablehlo.add %y, %d : tensor<PARTxf32>
    sdy.return %2 : tensor<PARTxf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  sdy.sharding_group %1 group_id=0 : tensor<4xf32>
  %3 = stablehlo.add %1, %c : tensor<4xf32>
  return %3 : tensor<4xf32>
}"""


def test_shardings_on_one_device() -> None:
    text = "module {\n" + MESH.replace("SIZE", "1") + MANUAL.replace("PART", "4") + "\n}"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), x + 2)
    parts = "module {\n" + MESH.replace("SIZE", "2") + MANUAL.replace("PART", "2") + "\n}"
    with refused(shlo_jit.UnsupportedError, "several-devices", (6, 8)):
        shlo_jit.compile(parts, cache=False)


FUNCTION = "(tensor<f32>) -> tensor<f32>"
CALLEES = f"""func.func private @twice(%a: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.add %a, %a : tensor<f32>
  return %0 : tensor<f32>
}}
func.func private @same(%f: {FUNCTION}) -> ({FUNCTION}) {{
  return %f : {FUNCTION}
}}"""


@pytest.mark.parametrize(
    "lines",
    [
        f"%f = func.constant @twice : {FUNCTION}\n%r = func.call_indirect %f(%x) : {FUNCTION}",
        f"%f = constant @twice : {FUNCTION}\n%r = call_indirect %f(%x) : {FUNCTION}",
        f"%f = func.constant @twice : {FUNCTION}\n%g = func.call @same(%f) : ({FUNCTION}) -> ({FUNCTION})\n"
        f"%r = func.call_indirect %g(%x) : {FUNCTION}",
        f"%f = func.constant @twice : {FUNCTION}\n%r = func.call @twice(%x) : {FUNCTION}",
    ],
)
def test_functions_as_values(lines: str) -> None:
    text = f"func.func @main(%x: tensor<f32>) -> tensor<f32> {{\n{lines}\nreturn %r : tensor<f32>\n}}\n{CALLEES}"
    module = shlo_jit.parse(text)
    assert shlo_jit.parse(str(module)) == module
    assert shlo_jit.compile(text, cache=False)(np.float32(3)) == 6
    assert evaluate(module, np.float32(3))[0] == 6


@pytest.mark.parametrize(
    "head,body,label",
    [
        (f"() -> ({FUNCTION})", f"%r = func.constant @twice : {FUNCTION}\nreturn %r : {FUNCTION}", "not-a-tensor"),
        (f"(%f: {FUNCTION}, %x: tensor<f32>) -> tensor<f32>",
         f"%r = func.call_indirect %f(%x) : {FUNCTION}\nreturn %r : tensor<f32>", "unknown-function"),
        ("(%x: tensor<f32>) -> tensor<f32>",
         f"%f = func.constant @nobody : {FUNCTION}\nreturn %x : tensor<f32>", "symbol"),
        ("(%x: tensor<f32>) -> tensor<f32>",
         "%f = func.constant @twice : () -> tensor<f32>\nreturn %x : tensor<f32>", "type"),
    ],
)  # fmt: skip
def test_functions_that_cannot_be_compiled(head: str, body: str, label: str) -> None:
    with refused(shlo_jit.StableHLOError, label, (2, 6)):
        shlo_jit.compile(f"func.func @main{head} {{\n{body}\n}}\n{CALLEES}", cache=False)
