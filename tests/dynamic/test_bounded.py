"""Bounded tensors whose sizes change at run time: in loops, branches and functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.runtime.dynamic import DynamicExecutable

PART = "tensor<?xf32, #stablehlo.bounds<8>>"


def compiled(text: str) -> DynamicExecutable:
    found = shlo_jit.compile(text.replace("PART", PART))
    assert isinstance(found, DynamicExecutable)
    return found


GROWS = """
func.func @main(%x: tensor<?xf32>, %turns: tensor<i64>) -> (PART, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i64>, tensor<?xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %turns : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i64>
    %2 = stablehlo.add %i, %one : tensor<i64>
    %f = stablehlo.convert %i : (tensor<i64>) -> tensor<f32>
    %e = stablehlo.reshape %f : (tensor<f32>) -> tensor<1xf32>
    %3 = stablehlo.concatenate %a, %e, dim = 0 : (tensor<?xf32>, tensor<1xf32>) -> tensor<?xf32>
    stablehlo.return %2, %3 : tensor<i64>, tensor<?xf32>
  }
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%0#1 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  return %0#1, %s : tensor<?xf32>, tensor<f32>
}
""".replace("tensor<?xf32>", PART)


def test_a_state_that_grows() -> None:
    executable = compiled(GROWS)
    for n in (0, 1, 3, 8):
        x = np.arange(n, dtype=np.float32)
        for iterations in range(9 - n):
            got, total = executable(x, np.int64(iterations))
            want = np.concatenate([x, np.arange(iterations, dtype=np.float32)])
            assert got.shape == want.shape
            assert got.tolist() == want.tolist()
            assert total == want.sum()


def test_beyond_the_bound() -> None:
    """The loop ends at the bound, though its trip count is practically infinite."""
    executable = compiled(GROWS)
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        executable(np.zeros(3, np.float32), np.int64(2**62))
    (diagnostic,) = refusal.value.diagnostics
    assert (diagnostic.line, diagnostic.message) == (
        13, "concatenate: dimension 0 has 9 elements, but may have at most 8",
    )  # fmt: skip
    assert executable(np.zeros(3, np.float32), np.int64(1))[0].shape == (4,)


SHRINKS = """
func.func @main(%x: tensor<8x2xf32>) -> (STATE, tensor<i32>) {
  %s = stablehlo.constant dense<8> : tensor<i32>
  %b = stablehlo.set_dimension_size %x, %s, dim = 0 : (tensor<8x2xf32>, tensor<i32>) -> STATE
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %a = %b) : tensor<i32>, STATE
  cond {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %t = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0, 1] : (STATE, tensor<f32>) -> tensor<f32>
    %ten = stablehlo.constant dense<10.0> : tensor<f32>
    %1 = stablehlo.compare GT, %t, %ten : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    %n = stablehlo.get_dimension_size %a, dim = 0 : (STATE) -> tensor<i32>
    %m = stablehlo.subtract %n, %one : tensor<i32>
    %3 = stablehlo.set_dimension_size %a, %m, dim = 0 : (STATE, tensor<i32>) -> STATE
    stablehlo.return %2, %3 : tensor<i32>, STATE
  }
  return %0#1, %0#0 : STATE, tensor<i32>
}
""".replace("STATE", "tensor<?x2xf32, #stablehlo.bounds<8, ?>>")


def test_a_state_that_shrinks() -> None:
    """Until the sum of the rest is small. A result of the leading dimension is a view of the buffer."""
    executable = compiled(SHRINKS)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(0, 3, (8, 2)).astype(np.float32)
        want = x
        while want.sum() > 10:
            want = want[:-1]
        got, iterations = executable(x)
        assert (got.shape, int(iterations)) == (want.shape, 8 - len(want))
        np.testing.assert_array_equal(got, want)


def test_after_sizes_that_are_computed_first() -> None:
    """Code is compiled for the size before the loop; those in the loop stay unknown."""
    text = SHRINKS.replace("%x: tensor<8x2xf32>)", "%x: tensor<8x2xf32>, %many: tensor<f32>)").replace(
        "%s = stablehlo.constant dense<8> : tensor<i32>", "%s = stablehlo.convert %many : (tensor<f32>) -> tensor<i32>"
    )
    executable = compiled(text)
    for n in (8, 3, 0):
        x = np.full((8, 2), 2, np.float32)
        x[n:] = np.nan
        got, iterations = executable(x, np.float32(n))
        assert (got.tolist(), int(iterations)) == ([[2, 2]] * min(n, 2), max(n - 2, 0))
    with executable.profile() as profile:
        executable(np.zeros((8, 2), np.float32), np.float32(0))
    assert any(step.label.startswith("sizes ") for step in profile.steps)
    assert any(not step.label.startswith("sizes ") for step in profile.steps)


BRANCHES = """
    func.func @main(%i: tensor<i32>, %x: tensor<3x4xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
      %0 = "stablehlo.case"(%i) ({
        %1 = stablehlo.abs %x : (tensor<3x4xf32>) -> tensor<?x?xf32>
        stablehlo.return %1 : tensor<?x?xf32>
      }, {
        %1 = stablehlo.slice %x [0:1, 0:2] : (tensor<3x4xf32>) -> tensor<1x2xf32>
        %2 = stablehlo.abs %1 : (tensor<1x2xf32>) -> tensor<?x?xf32>
        stablehlo.return %2 : tensor<?x?xf32>
      }, {
        %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<?x?xf32>
        stablehlo.return %1 : tensor<?x?xf32>
      }) : (tensor<i32>) -> tensor<?x?xf32>
      %c = stablehlo.constant dense<1.0> : tensor<f32>
      %2 = stablehlo.reduce(%0 init: %c) applies stablehlo.multiply across dimensions = [0] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
      return %0, %2 : tensor<?x?xf32>, tensor<?xf32>
    }
    """


def test_branches_of_different_sizes() -> None:
    """If the branches' sizes are known, the largest is a bound."""
    executable = compiled(BRANCHES)
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    for i, want in ((0, x), (1, x[:1, :2]), (2, x.T), (7, x.T)):
        part, products = executable(np.int32(i), x)
        assert part.flags.c_contiguous
        assert (part.shape, part.tolist()) == (want.shape, want.tolist())
        assert products.tolist() == want.prod(0).tolist()


@pytest.mark.parametrize(
    ("text", "shapes", "type"),
    [
        (GROWS, [(3,), ()], "tensor<?xf32, #stablehlo.bounds<8>>"),
        (SHRINKS, [(8, 2)], "tensor<?x2xf32, #stablehlo.bounds<8, ?>>"),
        (BRANCHES, [(), (3, 4)], "tensor<?x?xf32, #stablehlo.bounds<4, 4>>"),
    ],
)
def test_refined(text: str, shapes: list[tuple[int, ...]], type: str) -> None:
    """The result of refinement verifies and prints, and has the bounds."""
    module = shlo_jit.refine(text.replace("PART", PART), shapes)
    assert shlo_jit.verify(module) == []
    assert shlo_jit.parse(str(module)) == module
    assert f") -> ({type}, " in str(module)


def test_through_functions() -> None:
    """A function that slices, called twice in a loop, and one that takes the size."""
    text = """
    func.func @main(%x: tensor<8xf32>, %n: tensor<f32>) -> (PART, tensor<f32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %full = call @cut(%x, %n) : (tensor<8xf32>, tensor<f32>) -> PART
      %0:2 = stablehlo.while(%i = %zero, %a = %full) : tensor<i32>, PART
      cond {
        %two = stablehlo.constant dense<2> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %2 = stablehlo.add %i, %one : tensor<i32>
        %3 = call @without_last(%a) : (PART) -> PART
        %4 = call @without_last(%3) : (PART) -> PART
        stablehlo.return %2, %4 : tensor<i32>, PART
      }
      %5 = call @norm(%0#1) : (PART) -> tensor<f32>
      return %0#1, %5 : PART, tensor<f32>
    }
    func.func private @cut(%x: tensor<8xf32>, %n: tensor<f32>) -> PART {
      %0 = stablehlo.convert %n : (tensor<f32>) -> tensor<i32>
      %1 = stablehlo.set_dimension_size %x, %0, dim = 0 : (tensor<8xf32>, tensor<i32>) -> PART
      return %1 : PART
    }
    func.func private @without_last(%a: PART) -> PART {
      %n = stablehlo.get_dimension_size %a, dim = 0 : (PART) -> tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %m = stablehlo.subtract %n, %one : tensor<i32>
      %0 = stablehlo.set_dimension_size %a, %m, dim = 0 : (PART, tensor<i32>) -> PART
      return %0 : PART
    }
    func.func private @norm(%a: PART) -> tensor<f32> {
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : (PART, PART) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    executable = compiled(text)
    x = np.arange(1, 9, dtype=np.float32)
    for n in (4, 6, 8):
        x[n - 4 :] = np.nan
        got, norm = executable(x, np.float32(n))
        assert (got.shape, norm) == ((n - 4,), np.square(x[: n - 4]).sum())
        x = np.arange(1, 9, dtype=np.float32)
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        executable(x, np.float32(3))
    (diagnostic,) = refusal.value.diagnostics
    assert (diagnostic.line, diagnostic.message) == (
        29, "set_dimension_size: -1 is not a size of dimension 0, which has 0",
    )  # fmt: skip


def test_loops_in_loops() -> None:
    """Rows that end at the first negative number, concatenated."""
    text = """
    func.func @main(%x: tensor<3x4xf32>) -> tensor<?xf32, #stablehlo.bounds<12>> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %none = stablehlo.slice %x [0:1, 0:0] : (tensor<3x4xf32>) -> tensor<1x0xf32>
      %empty = stablehlo.reshape %none : (tensor<1x0xf32>) -> tensor<0xf32>
      %start = stablehlo.abs %empty : (tensor<0xf32>) -> ALL
      %0:2 = stablehlo.while(%i = %zero, %a = %start) : tensor<i32>, ALL
      cond {
        %three = stablehlo.constant dense<3> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %2 = stablehlo.add %i, %one : tensor<i32>
        %r = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 4] : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
        %row = stablehlo.reshape %r : (tensor<1x4xf32>) -> tensor<4xf32>
        %3 = stablehlo.while(%k = %row) : ROW
        cond {
          %c = stablehlo.constant dense<0x7F800000> : tensor<f32>
          %least = stablehlo.reduce(%k init: %c) applies stablehlo.minimum across dimensions = [0] : (ROW, tensor<f32>) -> tensor<f32>
          %f = stablehlo.constant dense<0.0> : tensor<f32>
          %5 = stablehlo.compare LT, %least, %f : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %5 : tensor<i1>
        } do {
          %n = stablehlo.get_dimension_size %k, dim = 0 : (ROW) -> tensor<i32>
          %m = stablehlo.subtract %n, %one : tensor<i32>
          %6 = stablehlo.set_dimension_size %k, %m, dim = 0 : (ROW, tensor<i32>) -> ROW
          stablehlo.return %6 : ROW
        }
        %4 = stablehlo.concatenate %a, %3, dim = 0 : (ALL, ROW) -> ALL
        stablehlo.return %2, %4 : tensor<i32>, ALL
      }
      return %0#1 : ALL
    }
    """.replace("ALL", "tensor<?xf32, #stablehlo.bounds<12>>").replace("ROW", "tensor<?xf32, #stablehlo.bounds<4>>")
    text = text.replace(
        "%row = stablehlo.reshape %r : (tensor<1x4xf32>) -> tensor<4xf32>",
        "%flat = stablehlo.reshape %r : (tensor<1x4xf32>) -> tensor<4xf32>\n        %row = stablehlo.tanh %flat : (tensor<4xf32>) -> tensor<?xf32, #stablehlo.bounds<4>>",
    )
    executable = compiled(text)
    for seed in range(6):
        x = np.random.default_rng(seed).normal(0.6, 1, (3, 4)).astype(np.float32)
        rows = [row[: next((i for i, v in enumerate(row) if v < 0), 4)] for row in x]
        want = np.tanh(np.concatenate(rows))
        got = executable(x)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_guarded_iteration() -> None:
    """With the initial sizes, the guarded branch would exceed the bound, but it never runs."""
    text = """
    func.func @main(%x: PART) -> PART {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, PART
      cond {
        %three = stablehlo.constant dense<3> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %2 = stablehlo.add %i, %one : tensor<i32>
        %n = stablehlo.get_dimension_size %a, dim = 0 : (PART) -> tensor<i32>
        %four = stablehlo.constant dense<4> : tensor<i32>
        %fits = stablehlo.compare LE, %n, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %3 = "stablehlo.if"(%fits) ({
          %4 = stablehlo.concatenate %a, %a, dim = 0 : (PART, PART) -> PART
          stablehlo.return %4 : PART
        }, {
          stablehlo.return %a : PART
        }) : (tensor<i1>) -> PART
        stablehlo.return %2, %3 : tensor<i32>, PART
      }
      return %0#1 : PART
    }
    """
    executable = compiled(text)
    for n, want in ((0, 0), (1, 8), (2, 8), (3, 6), (5, 5), (8, 8)):
        x = np.arange(n, dtype=np.float32)
        assert executable(x).tolist() == np.resize(x, want).tolist()


TWO = """
func.func @main(%x: tensor<8xf32>, %n: tensor<f32>, %m: tensor<f32>, %p: tensor<i1>) -> RESULT {
  %0:2 = "stablehlo.if"(%p) ({
    %a = stablehlo.convert %n : (tensor<f32>) -> tensor<i32>
    %b = stablehlo.convert %m : (tensor<f32>) -> tensor<i32>
    %1 = stablehlo.set_dimension_size %x, %a, dim = 0 : (tensor<8xf32>, tensor<i32>) -> PART
    %2 = stablehlo.set_dimension_size %x, %b, dim = 0 : (tensor<8xf32>, tensor<i32>) -> PART
    stablehlo.return %1, %2 : PART, PART
  }, {
    stablehlo.return %x, %x : tensor<8xf32>, tensor<8xf32>
  }) : (tensor<i1>) -> (PART, PART)
  OP
  return %r : RESULT
}
"""
FAULTS = {
    "sizes that differ": ("%r = stablehlo.add %0#0, %0#1 : PART", "PART", 2, 3,
        "add: expected equal sizes, got 3 and 2"),
    "a static size": ("%r = stablehlo.tanh %0#0 : (PART) -> tensor<8xf32>", "tensor<8xf32>", 7, 7,
        "tanh: expected equal sizes, got 7 and 8"),
    "contracted": ("%r = stablehlo.dot_general %0#0, %0#1, contracting_dims = [0] x [0] : (PART, PART) -> tensor<f32>",
        "tensor<f32>", 0, 1, "dot_general: expected equal sizes, got 1 and 0"),
    "a slice": ("%r = stablehlo.slice %0#0 [1:4] : (PART) -> tensor<3xf32>", "tensor<3xf32>", 3, 3,
        "slice: the limit 4 is beyond dimension 0, which has 3"),
    "a window": ("%c = stablehlo.constant dense<0> : tensor<i32>\n"
        "  %r = stablehlo.dynamic_slice %0#0, %c, sizes = [4] : (PART, tensor<i32>) -> tensor<4xf32>", "tensor<4xf32>",
        3, 3, "dynamic_slice: it takes 4 elements of dimension 0, which has 3"),
    "a tighter bound": ("%r = stablehlo.tanh %0#0 : (PART) -> tensor<?xf32, #stablehlo.bounds<5>>",
        "tensor<?xf32, #stablehlo.bounds<5>>", 6, 6, "tanh: dimension 0 has 6 elements, but may have at most 5"),
    "a split": ("%r = stablehlo.reshape %0#0 : (PART) -> tensor<?x2xf32, #stablehlo.bounds<4, ?>>",
        "tensor<?x2xf32, #stablehlo.bounds<4, ?>>", 5, 5, "reshape: dimension 0 has 5, which is no multiple of 2"),
    "padding": ("%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "  %r = stablehlo.pad %0#0, %c, low = [0], high = [-3], interior = [0] : (PART, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<5>>",
        "tensor<?xf32, #stablehlo.bounds<5>>", 2, 2, "pad: padding leaves dimension 0 -1 elements"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_invalid_sizes(case: str) -> None:
    op, result, n, m, message = FAULTS[case]
    text = TWO.replace("OP", op).replace("RESULT", result)
    executable = compiled(text)
    x = np.arange(8, dtype=np.float32)
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        executable(x, np.float32(n), np.float32(m), np.bool_(True))
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.message == message
    assert f"stablehlo.{message.split(':')[0]}" in text.splitlines()[diagnostic.line - 1]


REFUSED = {
    "scatter": ('%z = stablehlo.constant dense<0> : tensor<1x1xi32>\n  %u = stablehlo.constant dense<0.0> : tensor<1xf32>\n'
        '  %r = "stablehlo.scatter"(%0#0, %z, %u) ({\n  ^bb0(%s: tensor<f32>, %t: tensor<f32>):\n    stablehlo.return %t : tensor<f32>\n'
        '  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}'
        ' : (PART, tensor<1x1xi32>, tensor<1xf32>) -> PART', "PART",
        "stablehlo.scatter: the result has dynamic dimensions; only static shapes can be compiled yet"),
    "an uneven reshape": (
        "%t = stablehlo.concatenate %0#0, %0#1, dim = 0 : (PART, PART) -> tensor<?xf32, #stablehlo.bounds<16>>\n"
        "  %r = stablehlo.reshape %t : (tensor<?xf32, #stablehlo.bounds<16>>) -> tensor<2x?xf32, #stablehlo.bounds<?, 8>>",
        "tensor<2x?xf32, #stablehlo.bounds<?, 8>>",
        "reshape: this regrouping of a dimension whose size is only known at run time is not supported",
    ),
    "windows": ('%z = stablehlo.constant dense<0.0> : tensor<f32>\n  %r = "stablehlo.reduce_window"(%0#0, %z) ({\n'
        '  ^bb0(%s: tensor<f32>, %t: tensor<f32>):\n    %q = stablehlo.add %s, %t : tensor<f32>\n    stablehlo.return %q : tensor<f32>\n'
        '  }) {window_dimensions = array<i64: 2>} : (PART, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<7>>',
        "tensor<?xf32, #stablehlo.bounds<7>>",
        "reduce_window: windows along dimension 0, whose size is only known at run time, are not compiled"),
    "a size without a bound": ("%n_ = stablehlo.get_dimension_size %0#0, dim = 0 : (PART) -> tensor<i32>\n"
        "  %s = stablehlo.reshape %n_ : (tensor<i32>) -> tensor<1xi32>\n"
        "  %r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>", "tensor<?xi32>",
        "dynamic_iota: dimension 0 of its result has a size that is only known at run time: a bound "
        "(#stablehlo.bounds<...>) would allow a buffer of that size"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    op, result, message = REFUSED[case]
    text = TWO.replace("OP", op).replace("RESULT", result)
    with pytest.raises(shlo_jit.UnsupportedError) as refusal:
        compiled(text).specialize([(8,), (), (), ()])
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.message == message
    assert "%r = " in text.splitlines()[diagnostic.line - 1]


REPEATED = {
    "static": ("%r = stablehlo.broadcast_in_dim %0#0, dims = [0] : (PART) -> tensor<8xf32>", "tensor<8xf32>"),
    "dynamic": (
        "%m_ = stablehlo.get_dimension_size %0#1, dim = 0 : (PART) -> tensor<i32>\n"
        "  %m1 = stablehlo.reshape %m_ : (tensor<i32>) -> tensor<1xi32>\n"
        "  %r = stablehlo.dynamic_broadcast_in_dim %0#0, %m1, dims = [0] : (PART, tensor<1xi32>) -> PART",
        "PART",
    ),
}


@pytest.mark.parametrize("case", REPEATED)
def test_one_element_is_repeated(case: str) -> None:
    """A dimension of one element is broadcast to any size, whether its size was known or not."""
    op, result = REPEATED[case]
    executable = compiled(TWO.replace("OP", op).replace("RESULT", result))
    x = np.arange(5, 13, dtype=np.float32)
    for n, m in ((1, 8), (8, 8), (1, 1), (1, 3), (3, 3)) if case == "dynamic" else ((1, 8), (8, 8)):
        want = np.broadcast_to(x[:n], m).tolist()
        assert executable(x, np.float32(n), np.float32(m), np.bool_(True)).tolist() == want
    with refused(shlo_jit.VerifyError, "size", shows="broadcast_in_dim"):
        executable(x, np.float32(3), np.float32(8), np.bool_(True))


def test_export(tmp_path: Path) -> None:
    """A library has code for shapes, and none that slices results."""
    with refused(shlo_jit.UnsupportedError, "dynamic-dimensions", (6, 10)) as refusal:
        shlo_jit.export(SHRINKS, tmp_path / "shrinks.so")
    assert refusal.value.line > 0


def test_what_an_executable_knows(tmp_path: Path) -> None:
    executable = compiled(SHRINKS)
    x = np.ones((8, 2), np.float32)
    executable(x)
    assert "stablehlo.while" in executable.text("module")
    assert executable.memory.outputs == 64 + 4 + 4 * 4  # as large as the bound, a number, a fault and a size
    assert [p.shape for p in executable.executable().outputs] == [(None, 2), ()]
    with executable.profile() as profile:
        executable(x)
    assert len(profile.steps) > 0
    with executable.trace(tmp_path / "t.json") as trace:
        executable(x)
    assert trace.noted > len(profile.steps)


def test_results_belong_to_the_caller() -> None:
    """Also large ones, whose valid part is a view of a pooled block."""
    text = """
    func.func @main(%x: tensor<500x500xf32>, %p: tensor<i1>) -> tensor<?x500xf32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.abs %x : (tensor<500x500xf32>) -> tensor<?x500xf32>
        stablehlo.return %1 : tensor<?x500xf32>
      }, {
        %1 = stablehlo.slice %x [0:300, 0:500] : (tensor<500x500xf32>) -> tensor<300x500xf32>
        %2 = stablehlo.abs %1 : (tensor<300x500xf32>) -> tensor<?x500xf32>
        stablehlo.return %2 : tensor<?x500xf32>
      }) : (tensor<i1>) -> tensor<?x500xf32>
      return %0 : tensor<?x500xf32>
    }
    """
    executable = compiled(text)
    xs = [np.full((500, 500), i, np.float32) for i in range(4)]
    results = [executable(x, np.bool_(i % 2)) for i, x in enumerate(xs)]
    for i, result in enumerate(results):
        assert result.shape == (500 if i % 2 else 300, 500)
        assert (result == i).all()
        assert result.flags.writeable
