"""Refinement: programs with unknown dimensions become static ones for given shapes."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit

MLP = """
func.func @main(%x: tensor<?x16xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x16xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %eight = stablehlo.constant dense<8> : tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %eight, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %1 = stablehlo.dynamic_broadcast_in_dim %b, %shape, dims = [1] : (tensor<8xf32>, tensor<2xi32>) -> tensor<?x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}
"""


def refined(text: str, *shapes) -> str:
    """Returns the text of the refined program, after checking that it verifies, is static, and round-trips."""
    module = shlo_jit.refine(text, shapes)
    assert shlo_jit.verify(module) == []
    assert shlo_jit.parse(str(module)) == module
    return str(module)


def ops(text: str) -> list[str]:
    return [word for word in text.replace('"', "").split() if word.startswith(("stablehlo.", "chlo."))]


@pytest.mark.parametrize("n", [0, 1, 2, 17, 1000])
def test_types_follow_from_the_arguments(n: int) -> None:
    text = refined(MLP, (n, 16), (16, 8), (8,))
    assert "?" not in text
    assert f"-> tensor<{n}x8xf32>" in text
    assert "stablehlo.broadcast_in_dim" in ops(text)
    assert not {"stablehlo.dynamic_broadcast_in_dim", "stablehlo.get_dimension_size"} & set(ops(text))


def test_forms_of_shapes() -> None:
    x = np.zeros((3, 16), np.float32)
    want = refined(MLP, (3, 16), (16, 8), (8,))
    assert refined(MLP, "3x16xf32", "tensor<16x8xf32>", [8]) == want
    assert refined(MLP, x, np.zeros((16, 8), np.float32), (np.int64(8),)) == want


def test_a_static_program_stays_what_it_is() -> None:
    static = refined(MLP, (3, 16), (16, 8), (8,))
    assert shlo_jit.refine(static, [(3, 16), (16, 8), (8,)]) == shlo_jit.parse(static)


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ([(3, 17), (16, 8), (8,)], shlo_jit.VerifyError, r"argument 0 \(%x\) .*dimension 1 .*16.* 17"),
        ([(3,), (16, 8), (8,)], shlo_jit.VerifyError, r"argument 0 \(%x\) .*tensor<3xf32>"),
        (["3x16xf64", (16, 8), (8,)], shlo_jit.VerifyError, r"argument 0 \(%x\) .*tensor<3x16xf64>"),
        ([(3, 16), (16, 8)], ValueError, "3 arguments.*got 2"),
        (["3x16", (16, 8), (8,)], ValueError, r"argument 0 \(%x\): .*element type"),
        ([3, (16, 8), (8,)], TypeError, r"argument 0 \(%x\): .*got 3"),
        ([(-1, 16), (16, 8), (8,)], TypeError, r"argument 0 \(%x\): .*extents"),
        ("3x16xf32", TypeError, "one for each argument"),
    ],
)
def test_shapes_that_do_not_fit(shapes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shlo_jit.refine(MLP, shapes)


def test_two_uses_of_one_dimension() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %y : tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        shlo_jit.refine(text, [(3,), (4,)])
    assert (refusal.value.line, refusal.value.diagnostics[0].op) == (3, "stablehlo.add")
    assert "tensor<3xf32>" in str(refusal.value)
    assert "tensor<4xf32>" in str(refusal.value)


ASSERTION = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %rest = stablehlo.remainder %n, %two : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %even = stablehlo.compare EQ, %rest, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%even, %n) {error_message = "{0} elements are not even",
    has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  return %x : tensor<?xf32>
}
"""


def test_assertions() -> None:
    assert "shape_assertion" not in refined(ASSERTION, (4,))
    with refused(shlo_jit.VerifyError, "assertion", (8, 3), shows="5 elements") as refusal:
        shlo_jit.refine(ASSERTION, [(5,)])
    assert refusal.value.line == 8


def test_functions_are_specialized_for_their_arguments() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
      %0 = call @twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
      %1 = call @twice(%y) : (tensor<?xf32>) -> tensor<?xf32>
      %2 = call @twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
      return %0, %1, %2 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
    }
    func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %x : tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    found = refined(text, (3,), (4,))
    assert found.count("func.func private @twice") == 2
    assert found.count("stablehlo.add") == 2
    assert refined(text, (3,), (3,)).count("func.func private @twice") == 1


def test_sizes_through_calls() -> None:
    """A size that a function takes or returns is known there."""
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xi32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %m = call @plus_one(%n) : (tensor<i32>) -> tensor<i32>
      %0 = call @count(%m) : (tensor<i32>) -> tensor<?xi32>
      return %0 : tensor<?xi32>
    }
    func.func private @plus_one(%n: tensor<i32>) -> tensor<i32> {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %0 = stablehlo.add %n, %one : tensor<i32>
      return %0 : tensor<i32>
    }
    func.func private @count(%n: tensor<i32>) -> tensor<?xi32> {
      %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %1 : tensor<?xi32>
    }
    """
    assert "-> tensor<6xi32>" in refined(text, (5,))


def test_loops_and_branches() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %p: tensor<i1>) -> (tensor<i32>, tensor<?xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<?xf32>
      cond {
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %2 = stablehlo.add %i, %one : tensor<i32>
        %3 = "stablehlo.if"(%p) ({
          %4 = stablehlo.add %y, %x : tensor<?xf32>
          stablehlo.return %4 : tensor<?xf32>
        }, {
          stablehlo.return %y : tensor<?xf32>
        }) : (tensor<i1>) -> tensor<?xf32>
        stablehlo.return %2, %3 : tensor<i32>, tensor<?xf32>
      }
      return %0#0, %0#1 : tensor<i32>, tensor<?xf32>
    }
    """
    found = refined(text, (3,), ())
    assert "?" not in found
    executable = shlo_jit.compile(text)
    for n in (0, 1, 3):
        x = np.arange(n, dtype=np.float32)
        count, y = executable(x, np.True_)
        assert count == 10
        assert y.tolist() == (x * 11).tolist()


def test_operand_wrappers() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c = stablehlo.constant dense<4> : tensor<1xi64>
      %0 = stablehlo.custom_call @stablehlo.shape_refinement_operand_wrapper(%x, %c)
        {indices_of_shape_operands = dense<1> : tensor<1xi64>} : (tensor<?xf32>, tensor<1xi64>) -> tensor<?xf32>
      %1 = stablehlo.add %0, %0 : tensor<?xf32>
      return %1 : tensor<?xf32>
    }
    """
    assert "custom_call" not in refined(text, (4,))


def test_functions_that_are_named_but_not_called_stay() -> None:
    """A mesh, and the reducer function of a custom call."""
    text = """
    module {
      sdy.mesh @mesh = <["a"=1]>
      func.func @main(%x: tensor<?xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> tensor<?xf32> {
        %0 = stablehlo.custom_call @reducer(%x) {called_computations = [@plus]} : (tensor<?xf32>) -> tensor<?xf32>
        return %0 : tensor<?xf32>
      }
      func.func private @plus(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.add %a, %b : tensor<f32>
        return %0 : tensor<f32>
      }
      func.func private @unused(%a: tensor<?xf32>) -> tensor<?xf32> {
        return %a : tensor<?xf32>
      }
    }
    """
    found = str(shlo_jit.refine(text, [(3,)]))
    assert "sdy.mesh @mesh" in found
    assert "func.func private @plus" in found
    assert "@unused" not in found
    assert shlo_jit.verify(found) == []


def test_locations_stay() -> None:
    """Including aliases, without which other tools cannot read the text."""
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.tanh %x : tensor<?xf32> loc(#loc1)
      return %0 : tensor<?xf32>
    } loc(#loc1)
    #loc1 = loc("model.py":3:4)
    """
    found = refined(text, (3,))
    assert found.count("loc(#loc1)") == 2
    assert '#loc1 = loc("model.py":3:4)' in found


SLICE = """
func.func @main(%x: tensor<?x10xf32>, %i: tensor<i32>) -> tensor<?x3xf32> {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x10xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %w = stablehlo.constant dense<{width}> : tensor<1xi32>
  %length = stablehlo.concatenate %n1, %w, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %i1 = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
  %start = stablehlo.concatenate %zero, %i1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %limit = stablehlo.add {sum} : tensor<2xi32>
  %one = stablehlo.constant dense<1> : tensor<2xi32>
  %r = stablehlo.real_dynamic_slice %x, %start, %limit, %one
    : (tensor<?x10xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x3xf32>
  return %r : tensor<?x3xf32>
}}
"""


@pytest.mark.parametrize("sum", ["%start, %length", "%length, %start"])
def test_slices_with_data_dependent_starts_have_known_lengths(sum: str) -> None:
    text = SLICE.format(width=3, sum=sum)
    assert "stablehlo.dynamic_slice" in refined(text, (4, 10), ())
    executable = shlo_jit.compile(text)
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    for start in (0, 2, 7):
        assert executable(x, np.int32(start)).tolist() == x[:, start : start + 3].tolist()
    assert executable.specialisations == 1


@pytest.mark.parametrize("width", [11, -1])
def test_slices_that_are_longer_than_their_operand(width: int) -> None:
    with refused(shlo_jit.VerifyError, "C3", (12, 8), shows=f"slice of {width} "):
        refined(SLICE.format(width=width, sum="%start, %length"), (4, 10), ())


def test_calls_without_their_shape_operands() -> None:
    """The operands with the shapes of a call's results are removed, and so are their layouts."""
    text = """
    func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<i32>) {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
      %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %s = stablehlo.concatenate %m, %m, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %e = stablehlo.constant dense<> : tensor<0xi32>
      %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x, %s, %e) {
        indices_of_shape_operands = dense<[1, 2]> : tensor<2xi64>, mhlo.backend_config = {uplo = 76 : ui8},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]
      } : (tensor<?x?xf32>, tensor<2xi32>, tensor<0xi32>) -> (tensor<?x?xf32>, tensor<i32>)
      return %0#0, %0#1 : tensor<?x?xf32>, tensor<i32>
    }
    """
    found = refined(text, (3, 3))
    assert "@lapack_spotrf_ffi(%x) {" in found
    assert "indices_of_shape_operands" not in found
    factor, info = shlo_jit.compile(text)(4 * np.eye(3, dtype=np.float32))
    assert info == 0
    assert np.tril(factor).tolist() == (2 * np.eye(3)).tolist()


def test_the_platform_argument_is_removed() -> None:
    text = """
    func.func public @main(%i: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<?xf32>) -> tensor<?xf32> {
      return %x : tensor<?xf32>
    }
    """
    assert "func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32>" in str(shlo_jit.refine(text, [(3,)]))


def test_an_argument_of_a_region_alone_has_an_unknown_dimension() -> None:
    text = """
      func.func @main(%x: tensor<17xi8>, %y: tensor<17xi8>) -> tensor<17xi8> {
        %n = stablehlo.constant dense<3> : tensor<i32>
        %w:3 = "stablehlo.while"(%n, %x, %y) ({
        ^bb0(%i: tensor<i32>, %a: tensor<17xi8>, %b: tensor<?xi8>):
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %more : tensor<i1>
        }, {
        ^bb0(%i: tensor<i32>, %a: tensor<17xi8>, %b: tensor<17xi8>):
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.subtract %i, %one : tensor<i32>
          stablehlo.return %j, %b, %a : tensor<i32>, tensor<17xi8>, tensor<17xi8>
        }) : (tensor<i32>, tensor<17xi8>, tensor<17xi8>) -> (tensor<i32>, tensor<17xi8>, tensor<17xi8>)
        return %w#1 : tensor<17xi8>
      }"""
    x, y = np.arange(17, dtype=np.int8), np.ones(17, np.int8)
    np.testing.assert_array_equal(shlo_jit.compile(text)(x, y), y)
