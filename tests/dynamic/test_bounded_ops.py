"""Ops on tensors with a bounded dimension whose size is known only at run time: elements beyond it are NaN, and never
affect valid ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shlo_jit

ROWS, MOST = 4, 6
PART = f"tensor<{ROWS}x?xf32, #stablehlo.bounds<?, {MOST}>>"
TURNED = f"tensor<?x{ROWS}xf32, #stablehlo.bounds<{MOST}, ?>>"
PROGRAM = """
func.func @main(%x: tensor<4x6xf32>, %n: tensor<f32>, %p: tensor<i1>) -> (RESULTS) {
  %a = "stablehlo.if"(%p) ({
    %size = stablehlo.convert %n : (tensor<f32>) -> tensor<i32>
    %part = stablehlo.set_dimension_size %x, %size, dim = 1 : (tensor<4x6xf32>, tensor<i32>) -> PART
    stablehlo.return %part : PART
  }, {
    stablehlo.return %x : tensor<4x6xf32>
  }) : (tensor<i1>) -> PART
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %k = stablehlo.get_dimension_size %a, dim = 1 : (PART) -> tensor<i32>
  %k1 = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %rows = stablehlo.constant dense<4> : tensor<1xi32>
  %s = stablehlo.concatenate %rows, %k1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  OPS
  return %r : RESULTS
}
"""


def program(ops: str, results: str) -> str:
    """A program that computes `%r` from `%a`, whose second dimension has size `%k`."""
    return PROGRAM.replace("OPS", ops).replace("RESULTS", results).replace("PART", PART).replace("TURNED", TURNED)


def poisoned(n: int) -> np.ndarray:
    x = np.random.default_rng(n).normal(size=(ROWS, MOST)).astype(np.float32)
    x[:, n:] = np.nan
    return x


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    return e / e.sum(1, keepdims=True)


def padded(x: np.ndarray) -> np.ndarray:
    n = x.shape[1]
    y = np.full((5, 1 + n + max(n - 1, 0) * 2 + 2), 0, np.float32)
    y[1:, 1 : 1 + n + max(n - 1, 0) * 2 : 3] = x
    return y


def updated(x: np.ndarray) -> np.ndarray:
    y, n = np.full((4, 7), 9, np.float32), x.shape[1]
    start = min(n, 7 - n)
    y[:, start : start + n] = x
    return y


SOFTMAX = """
  %m = stablehlo.reduce(%a init: %lowest) applies stablehlo.maximum across dimensions = [1] : (PART, tensor<f32>) -> tensor<4xf32>
  %mb = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0] : (tensor<4xf32>, tensor<2xi32>) -> PART
  %d = stablehlo.subtract %a, %mb : PART
  %e = stablehlo.exponential %d : PART
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (PART, tensor<f32>) -> tensor<4xf32>
  %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0] : (tensor<4xf32>, tensor<2xi32>) -> PART
  %r = stablehlo.divide %e, %tb : PART
"""
TWO_OPS = """
  %r = "stablehlo.reduce"(%a, %lowest) ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>):
    %q = stablehlo.compare GT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %w = stablehlo.select %q, %u, %v : tensor<i1>, tensor<f32>
    stablehlo.return %w : tensor<f32>
  }) {dimensions = array<i64: 1>} : (PART, tensor<f32>) -> tensor<4xf32>
"""
SORT = """
  %r = "stablehlo.sort"(%a) ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>):
    %q = stablehlo.compare DIRECTION, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %q : tensor<i1>
  }) {dimension = AXIS : i64, is_stable = true} : (PART) -> PART
"""
MAP = """
  %r = "stablehlo.map"(%a, %a) ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>):
    %w = stablehlo.multiply %u, %v : tensor<f32>
    stablehlo.return %w : tensor<f32>
  }) {dimensions = array<i64: 0, 1>} : (PART, PART) -> PART
"""
WINDOWS = """
  %r = "stablehlo.reduce_window"(%a, %zero) ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>):
    %w = stablehlo.add %u, %v : tensor<f32>
    stablehlo.return %w : tensor<f32>
  }) {window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 2, 1>} : (PART, tensor<f32>) -> tensor<2x?xf32, #stablehlo.bounds<?, 6>>
"""
TRANSPOSE = "%t = stablehlo.transpose %a, dims = [1, 0] : (PART) -> TURNED\n"
Meaning = Callable[[np.ndarray], np.ndarray | int]
CASES: dict[str, tuple[str, str, Meaning]] = {
    "size": ("%r = stablehlo.add %k, %k : tensor<i32>", "tensor<i32>", lambda x: 2 * x.shape[1]),
    "elementwise": ("%b = stablehlo.tanh %a : PART\n%r = stablehlo.add %b, %a : PART", "PART", lambda x: np.tanh(x) + x),
    "static beside it": (
        "%h = stablehlo.set_dimension_size %x, %k, dim = 1 : (tensor<4x6xf32>, tensor<i32>) -> PART\n"
        "%r = stablehlo.add %h, %a : PART", "PART", lambda x: x + x,
    ),
    "scalar predicate": ("%r = stablehlo.select %p, %a, %a : tensor<i1>, PART", "PART", lambda x: x),
    "clamp": (
        "%one_ = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "%r = stablehlo.clamp %zero, %a, %one_ : (tensor<f32>, PART, tensor<f32>) -> PART", "PART",
        lambda x: np.clip(x, 0, 1),
    ),
    "compare": (
        "%b = stablehlo.tanh %a : PART\n%r = stablehlo.compare LT, %a, %b : (PART, PART) -> tensor<4x?xi1, #stablehlo.bounds<?, 6>>",
        "tensor<4x?xi1, #stablehlo.bounds<?, 6>>", lambda x: x < np.tanh(x),
    ),
    "map": (MAP, "PART", lambda x: x * x),
    "sum": (
        "%r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (PART, tensor<f32>) -> tensor<4xf32>",
        "tensor<4xf32>", lambda x: x.sum(1),
    ),
    "sum of all, from a number": (
        "%c = stablehlo.constant dense<5.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0, 1] : (PART, tensor<f32>) -> tensor<f32>",
        "tensor<f32>", lambda x: x.sum() + 5,
    ),
    "sum along the other dimension": (
        "%r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (PART, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<6>>",
        "tensor<?xf32, #stablehlo.bounds<6>>", lambda x: x.sum(0),
    ),
    "body of two ops": (TWO_OPS, "tensor<4xf32>", lambda x: x.max(1, initial=-np.inf)),
    "softmax": (SOFTMAX, "PART", softmax),
    "contracted": (
        "%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (PART, PART) -> tensor<4x4xf32>",
        "tensor<4x4xf32>", lambda x: x @ x.T,
    ),
    "free": (
        "%r = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : (PART, PART) -> tensor<?x?xf32, #stablehlo.bounds<6, 6>>",
        "tensor<?x?xf32, #stablehlo.bounds<6, 6>>", lambda x: x.T @ x,
    ),
    "batching": (
        "%r = stablehlo.dot_general %a, %a, batching_dims = [1] x [1], contracting_dims = [0] x [0] : (PART, PART) -> tensor<?xf32, #stablehlo.bounds<6>>",
        "tensor<?xf32, #stablehlo.bounds<6>>", lambda x: (x * x).sum(0),
    ),
    "matrix product": (
        TRANSPOSE + "%r = stablehlo.dot %a, %t : (PART, TURNED) -> tensor<4x4xf32>", "tensor<4x4xf32>", lambda x: x @ x.T
    ),
    "transpose": (TRANSPOSE + "%r = stablehlo.negate %t : TURNED", "TURNED", lambda x: -x.T),
    "broadcast": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [1, 2] : (PART) -> tensor<2x4x?xf32, #stablehlo.bounds<?, ?, 6>>",
        "tensor<2x4x?xf32, #stablehlo.bounds<?, ?, 6>>", lambda x: np.stack([x, x]),
    ),
    "reshape beside it": (
        "%r = stablehlo.reshape %a : (PART) -> tensor<2x2x?xf32, #stablehlo.bounds<?, ?, 6>>",
        "tensor<2x2x?xf32, #stablehlo.bounds<?, ?, 6>>", lambda x: x.reshape(2, 2, x.shape[1]),
    ),
    "reshape that merges": (
        TRANSPOSE + "%r = stablehlo.reshape %t : (TURNED) -> tensor<?xf32, #stablehlo.bounds<24>>",
        "tensor<?xf32, #stablehlo.bounds<24>>", lambda x: x.T.reshape(-1),
    ),
    "reshape that splits": (
        TRANSPOSE + "%m = stablehlo.reshape %t : (TURNED) -> tensor<?xf32, #stablehlo.bounds<24>>\n"
        "%r = stablehlo.reshape %m : (tensor<?xf32, #stablehlo.bounds<24>>) -> tensor<?x2xf32, #stablehlo.bounds<12, ?>>",
        "tensor<?x2xf32, #stablehlo.bounds<12, ?>>", lambda x: x.T.reshape(-1, 2),
    ),
    "dynamic_reshape": (
        "%s3 = stablehlo.concatenate %one, %s, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>\n"
        "%r = stablehlo.dynamic_reshape %a, %s3 : (PART, tensor<3xi32>) -> tensor<1x4x?xf32, #stablehlo.bounds<?, ?, 6>>",
        "tensor<1x4x?xf32, #stablehlo.bounds<?, ?, 6>>", lambda x: x[None],
    ),
    "dynamic_iota": (
        "%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> PART", "PART",
        lambda x: np.broadcast_to(np.arange(x.shape[1], dtype=np.float32), x.shape),
    ),
    "broadcast of a bounded one": (
        "%s3 = stablehlo.concatenate %one, %s, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>\n"
        "%r = stablehlo.dynamic_broadcast_in_dim %a, %s3, dims = [1, 2] : (PART, tensor<3xi32>) -> tensor<1x4x?xf32, #stablehlo.bounds<?, ?, 6>>",
        "tensor<1x4x?xf32, #stablehlo.bounds<?, ?, 6>>", lambda x: x[None],
    ),
    "slice": (
        TRANSPOSE + "%r = stablehlo.slice %t [0:1, 1:3] : (TURNED) -> tensor<1x2xf32>", "tensor<1x2xf32>", lambda x: x.T[:1, 1:3]
    ),
    "pad": (
        '%r = stablehlo.pad %a, %zero, low = [1, 1], high = [0, 2], interior = [0, 2] : (PART, tensor<f32>) -> tensor<5x?xf32, #stablehlo.bounds<?, 19>>',
        "tensor<5x?xf32, #stablehlo.bounds<?, 19>>", padded,
    ),
    "concatenate": (
        "%r = stablehlo.concatenate %a, %x0, %a, dim = 1 : (PART, tensor<4x2xf32>, PART) -> tensor<4x?xf32, #stablehlo.bounds<?, 14>>",
        "tensor<4x?xf32, #stablehlo.bounds<?, 14>>",
        lambda x: np.concatenate([x, np.ones((4, 2), np.float32), x], 1),
    ),
    "concatenate after a static one": (
        "%r = stablehlo.concatenate %x0, %a, dim = 1 : (tensor<4x2xf32>, PART) -> tensor<4x?xf32, #stablehlo.bounds<?, 8>>",
        "tensor<4x?xf32, #stablehlo.bounds<?, 8>>", lambda x: np.concatenate([np.ones((4, 2), np.float32), x], 1),
    ),
    "concatenate beside it": (
        "%r = stablehlo.concatenate %a, %a, dim = 0 : (PART, PART) -> tensor<8x?xf32, #stablehlo.bounds<?, 6>>",
        "tensor<8x?xf32, #stablehlo.bounds<?, 6>>", lambda x: np.concatenate([x, x]),
    ),
    "reverse": ("%r = stablehlo.reverse %a, dims = [0, 1] : PART", "PART", lambda x: x[::-1, ::-1]),
    "sort along it": (SORT.replace("AXIS", "1").replace("DIRECTION", "LT"), "PART", lambda x: np.sort(x, 1)),
    "sort down along it": (
        SORT.replace("AXIS", "1").replace("DIRECTION", "GT"), "PART", lambda x: -np.sort(-x, 1)
    ),
    "sort beside it": (SORT.replace("AXIS", "0").replace("DIRECTION", "LT"), "PART", lambda x: np.sort(x, 0)),
    "windows beside it": (WINDOWS, "tensor<2x?xf32, #stablehlo.bounds<?, 6>>", lambda x: x[::2] + x[1::2]),
    "dynamic_slice": (
        "%far = stablehlo.constant dense<-7> : tensor<i8>\n"
        "%at = stablehlo.constant dense<9> : tensor<i8>\n"
        "%r = stablehlo.dynamic_slice %a, %at, %far, sizes = [2, 0] : (PART, tensor<i8>, tensor<i8>) -> tensor<2x0xf32>",
        "tensor<2x0xf32>", lambda x: x[2:, :0],
    ),
    "update": (
        "%u = stablehlo.slice %x0 [0:4, 0:0] : (tensor<4x2xf32>) -> tensor<4x0xf32>\n"
        "%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%r = stablehlo.dynamic_update_slice %a, %u, %c0, %k : (PART, tensor<4x0xf32>, tensor<i32>, tensor<i32>) -> PART",
        "PART", lambda x: x,
    ),
    "update by a part": (
        "%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%nines = stablehlo.constant dense<9.0> : tensor<4x7xf32>\n"
        "%r = stablehlo.dynamic_update_slice %nines, %a, %c0, %k : (tensor<4x7xf32>, PART, tensor<i32>, tensor<i32>) -> tensor<4x7xf32>",
        "tensor<4x7xf32>", updated,
    ),
    "gather": (
        TRANSPOSE + "%one_row = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1] : (TURNED, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<6>>\n"
        "%i = stablehlo.convert %one_row : (tensor<?xf32, #stablehlo.bounds<6>>) -> tensor<?xi32, #stablehlo.bounds<6>>\n"
        '%r = "stablehlo.gather"(%x0, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>, indices_are_sorted = false}'
        " : (tensor<4x2xf32>, tensor<?xi32, #stablehlo.bounds<6>>) -> tensor<?x2xf32, #stablehlo.bounds<6, ?>>",
        "tensor<?x2xf32, #stablehlo.bounds<6, ?>>", lambda x: np.ones((x.shape[1], 2), np.float32),
    ),
    "gather of a part": (
        TRANSPOSE + "%i = stablehlo.constant dense<[[9], [0], [-5]]> : tensor<3x1xi64>\n"
        '%r = "stablehlo.gather"(%t, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false}'
        " : (TURNED, tensor<3x1xi64>) -> tensor<3x4xf32>", "tensor<3x4xf32>", lambda x: x.T[[-1, 0, 0]],
    ),
    "real_dynamic_slice": (
        "%half = stablehlo.divide %k1, %two : tensor<1xi32>\n"
        "%start = stablehlo.concatenate %one, %half, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
        "%ones = stablehlo.constant dense<1> : tensor<2xi32>\n"
        "%r = stablehlo.real_dynamic_slice %a, %start, %s, %ones : (PART, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x?xf32, #stablehlo.bounds<?, 6>>",
        "tensor<3x?xf32, #stablehlo.bounds<?, 6>>", lambda x: x[1:, x.shape[1] // 2 :],
    ),
    "convolution of a batch": (
        TRANSPOSE + "%i = stablehlo.reshape %t : (TURNED) -> tensor<?x4x1xf32, #stablehlo.bounds<6, ?, ?>>\n"
        "%f = stablehlo.constant dense<1.0> : tensor<3x1x1xf32>\n"
        "%r = stablehlo.convolution(%i, %f) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<?x4x1xf32, #stablehlo.bounds<6, ?, ?>>, tensor<3x1x1xf32>) -> tensor<?x2x1xf32, #stablehlo.bounds<6, ?, ?>>",
        "tensor<?x2x1xf32, #stablehlo.bounds<6, ?, ?>>",
        lambda x: np.stack([x[:3].sum(0), x[1:].sum(0)], 1)[:, :, None],
    ),
    "barrier": ("%r = stablehlo.optimization_barrier %a : PART", "PART", lambda x: x),
    "bits": (
        "%r = stablehlo.bitcast_convert %a : (PART) -> tensor<4x?xi32, #stablehlo.bounds<?, 6>>",
        "tensor<4x?xi32, #stablehlo.bounds<?, 6>>", lambda x: np.ascontiguousarray(x).view(np.int32),
    ),
}  # fmt: skip
TAKES_ONE = {"slice", "gather of a part"}
"""Cases that read an element that the size must include."""
CONSTANTS = (
    "%x0 = stablehlo.constant dense<1.0> : tensor<4x2xf32>\n  %two = stablehlo.constant dense<2> : tensor<1xi32>\n"
)


@pytest.mark.parametrize("case", CASES)
def test_valid_elements(case: str) -> None:
    """Like NumPy on the valid part; also with the branch in which all of it is valid."""
    ops, results, meaning = CASES[case]
    executable = shlo_jit.compile(program(CONSTANTS + ops, results))
    for n in (1, 3, 6) if case in TAKES_ONE else (0, 1, 3, 6):
        x = poisoned(n)
        got, want = executable(x, np.float32(n), np.bool_(True)), np.asarray(meaning(x[:, :n]))
        assert got.shape == want.shape
        assert got.flags.c_contiguous
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    x = poisoned(6)
    np.testing.assert_allclose(executable(x, np.float32(0), np.bool_(False)), meaning(x), rtol=1e-5, atol=1e-6)
