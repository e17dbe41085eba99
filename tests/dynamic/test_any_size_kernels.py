"""Kernels other than loop nests, with a batch that is known only at the call: one code agrees with code for each size,
and stays within its memory."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable

SIZES = (2, 3, 7, 64, 257)
SCALAR = "(tensor<f32>, tensor<f32>) -> tensor<f32>"


def compiled(text: str, **options: object) -> DynamicExecutable:
    found = shlo_jit.compile(text, dynamic="symbolic", cache=False, threads=2, **options)
    assert isinstance(found, DynamicExecutable)
    return found


def arguments(executable: DynamicExecutable, size: int) -> list[np.ndarray]:
    """Numbers with some equal ones; integers are indices, some of them out of bounds."""
    rng = np.random.default_rng(size)
    found = []
    for port in executable.inputs:
        shape = tuple(size if n is None else n for n in port.shape)
        if port.dtype.kind == "f":
            found.append(np.round(rng.standard_normal(shape), 1).astype(port.dtype))
        elif port.dtype.kind == "c":
            found.append((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(port.dtype))
        else:
            found.append(rng.integers(-2, size + 2, shape).astype(port.dtype))
    return found


def main(arguments: str, results: str, *lines: str) -> str:
    return f"func.func @main({arguments}) -> ({results}) {{\n" + "\n".join(lines) + "\n}"


def transposed(text: str, argument: str, shape: str) -> str:
    """The program with one argument transposed to `shape`, whose first dimension is the batch."""
    old, new = f"{argument}: tensor<{'x'.join(reversed(shape.split('x')))}xf32>", f"%w: tensor<{shape}xf32>"
    assert old in text
    head, body = text.replace(old, new, 1).split("{\n", 1)
    kind = old.partition(": ")[2]
    return f"{head}{{\n{argument} = stablehlo.transpose %w, dims = [1, 0] : (tensor<{shape}xf32>) -> {kind}\n{body}"


def sort(shape: str, dimension: int, dtype: str = "f32", body: str = "") -> str:
    t = f"tensor<{shape}x{dtype}>"
    body = body or f"""%l = stablehlo.compare LT, %a, %b : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>"""
    return main(f"%x: {t}", t, f"""
      %0 = "stablehlo.sort"(%x) ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        {body}
        stablehlo.return %l : tensor<i1>
      }}) {{dimension = {dimension} : i64, is_stable = true}} : ({t}) -> {t}
      return %0 : {t}""")  # fmt: skip


def scatter(operand: str, indices: str, updates: str, numbers: str, op: str = "add", unique: str = "false") -> str:
    operand, indices, updates = f"tensor<{operand}xf32>", f"tensor<{indices}xi32>", f"tensor<{updates}xf32>"
    return main(f"%x: {operand}, %i: {indices}, %u: {updates}", operand, f"""
      %0 = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.{op} %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) {{indices_are_sorted = false, unique_indices = {unique},
          scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}} : ({operand}, {indices}, {updates}) -> {operand}
      return %0 : {operand}""")  # fmt: skip


def gather(operand: str, indices: str, result: str, numbers: str, sizes: str) -> str:
    operand, indices, result = f"tensor<{operand}xf32>", f"tensor<{indices}xi32>", f"tensor<{result}xf32>"
    return main(f"%x: {operand}, %i: {indices}", result, f"""
      %0 = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: {sizes}>}}
        : ({operand}, {indices}) -> {result}
      return %0 : {result}""")  # fmt: skip


def fft(operand: str, kind: str, length: str, result: str) -> str:
    return main(f"%x: {operand}", result, f"""
      %0 = stablehlo.fft %x, type = {kind}, length = [{length}] : ({operand}) -> {result}
      return %0 : {result}""")  # fmt: skip


def top_k(shape: str, k: int) -> str:
    head = f"tensor<{shape.rpartition('x')[0]}x{k}x"
    return main(f"%x: tensor<{shape}xf32>", f"{head}f32>, {head}i32>",
                f"%0, %1 = chlo.top_k(%x, k = {k}) : tensor<{shape}xf32> -> ({head}f32>, {head}i32>)",
                f"return %0, %1 : {head}f32>, {head}i32>")  # fmt: skip


ABSOLUTE = """%p = stablehlo.multiply %a, %a : tensor<f32>
  %q = stablehlo.multiply %b, %a : tensor<f32>
  %l = stablehlo.compare GT, %q, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
"""Not a lexicographic order of keys, so it is sorted by merging."""
SPD = """%t = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<?x5x5xf32>, tensor<?x5x5xf32>) -> tensor<?x5x5xf32>
  %e = stablehlo.constant dense<[[9., 0., 0., 0., 0.], [0., 9., 0., 0., 0.], [0., 0., 9., 0., 0.], [0., 0., 0., 9., 0.],
    [0., 0., 0., 0., 9.]]> : tensor<5x5xf32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x5x5xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %five = stablehlo.constant dense<5> : tensor<2xi32>
  %shape = stablehlo.concatenate %n1, %five, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %d = stablehlo.dynamic_broadcast_in_dim %e, %shape, dims = [1, 2] : (tensor<5x5xf32>, tensor<3xi32>) -> tensor<?x5x5xf32>
  %a = stablehlo.add %t, %d : tensor<?x5x5xf32>"""
"""Computes a positive definite %a for every matrix of %x, and %shape."""
MATRICES = "tensor<?x5x5xf32>"

PROGRAMS = {
    "product of complex numbers": main(
        "%x: tensor<?x7xcomplex<f32>>, %w: tensor<7x3xcomplex<f32>>", "tensor<?x3xcomplex<f32>>",
        "%0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] "
        ": (tensor<?x7xcomplex<f32>>, tensor<7x3xcomplex<f32>>) -> tensor<?x3xcomplex<f32>>",
        "return %0 : tensor<?x3xcomplex<f32>>"),
    "sort along another dimension": sort("?x33", 1),
    "sort in the middle": sort("?x7x3", 1),
    "sort along the batch": sort("?x3", 0),
    "sort of one line": sort("?", 0, "i32"),
    "sort along the batch behind": transposed(sort("3x?", 1), "%x", "?x3"),
    "sort of long lines": sort("?x140000", 1),
    "sort of narrow elements": sort("?x300", 1, "ui8"),
    "sort by merging": sort("?x20", 1, body=ABSOLUTE),
    "sort by merging along the batch": sort("?x2", 0, body=ABSOLUTE),
    "top_k": top_k("?x33", 3),
    "top_k of many": top_k("?x1000", 300),
    "top_k of matrices": top_k("?x4x50", 5),
    "scatter of a batch of updates": scatter(
        "50x4", "?x1", "?x4", "update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
    "scatter of single elements": scatter(
        "?", "?x1", "?", "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
    "scatter into a batch": scatter(
        "?x4", "3x1", "3x4", "update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1", "maximum"),
    "scatter of a column": scatter(
        "?x10", "1", "?", "update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], "
        "index_vector_dim = 0", unique="true"),
    "scatter with a batching dimension": scatter(
        "?x10", "?x3x1", "?x3", "inserted_window_dims = [1], input_batching_dims = [0], "
        "scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2"),
    "gather of rows": gather(
        "50x4", "?x1", "?x4", "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1",
        "1, 4"),
    "gather from a batch": gather(
        "?x4", "?x1", "?x4", "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1",
        "1, 4"),
    "gather with a batching dimension": gather(
        "?x9", "?x1", "?", "collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], "
        "start_index_map = [1], index_vector_dim = 1", "1, 1"),
    "dynamic_slice from a batch": main(
        "%x: tensor<?x4xf32>, %i: tensor<i32>", "tensor<2x4xf32>", "%z = stablehlo.constant dense<0> : tensor<i32>",
        "%0 = stablehlo.dynamic_slice %x, %i, %z, sizes = [2, 4] "
        ": (tensor<?x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>", "return %0 : tensor<2x4xf32>"),
    "dynamic_update_slice of a batch": main(
        "%x: tensor<?x9xf32>, %u: tensor<?x2xf32>, %i: tensor<i32>", "tensor<?x9xf32>",
        "%z = stablehlo.constant dense<0> : tensor<i32>",
        "%0 = stablehlo.dynamic_update_slice %x, %u, %z, %i "
        ": (tensor<?x9xf32>, tensor<?x2xf32>, tensor<i32>, tensor<i32>) -> tensor<?x9xf32>",
        "return %0 : tensor<?x9xf32>"),
    "fft": fft("tensor<?x100xcomplex<f32>>", "FFT", "100", "tensor<?x100xcomplex<f32>>"),
    "fft of two dimensions": fft("tensor<?x6x8xcomplex<f32>>", "IFFT", "6, 8", "tensor<?x6x8xcomplex<f32>>"),
    "rfft": fft("tensor<?x30xf32>", "RFFT", "30", "tensor<?x16xcomplex<f32>>"),
    "rfft of two dimensions": fft("tensor<?x6x10xf32>", "RFFT", "6, 10", "tensor<?x6x6xcomplex<f32>>"),
    "irfft of two dimensions": fft("tensor<?x6x6xcomplex<f32>>", "IRFFT", "6, 10", "tensor<?x6x10xf32>"),
    "fft of a prime length": fft("tensor<?x131xcomplex<f32>>", "FFT", "131", "tensor<?x131xcomplex<f32>>"),
    "cholesky": main(f"%x: {MATRICES}", MATRICES, SPD, f"%0 = stablehlo.cholesky %a, lower = true : {MATRICES}",
                     f"return %0 : {MATRICES}"),
    "triangular_solve": main(
        f"%x: {MATRICES}, %y: tensor<?x5x3xf32>", "tensor<?x5x3xf32>", SPD,
        '%0 = "stablehlo.triangular_solve"(%a, %y) {left_side = true, lower = true, unit_diagonal = false, '
        "transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<?x5x5xf32>, tensor<?x5x3xf32>) -> tensor<?x5x3xf32>",
        "return %0 : tensor<?x5x3xf32>"),
    "triangular_solve for a batch of right-hand sides": transposed(main(
        "%x: tensor<5x5xf32>, %y: tensor<5x?xf32>", "tensor<5x?xf32>",
        '%0 = "stablehlo.triangular_solve"(%x, %y) {left_side = true, lower = false, unit_diagonal = true, '
        "transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<5x5xf32>, tensor<5x?xf32>) -> tensor<5x?xf32>",
        "return %0 : tensor<5x?xf32>"), "%y", "?x5"),
    "a product of the batch with itself": main(
        "%x: tensor<?x8xf32>", "tensor<?x?xf32>",
        "%0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] "
        ": (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x?xf32>",
        "%1 = stablehlo.tanh %0 : tensor<?x?xf32>", "return %1 : tensor<?x?xf32>"),
    "two values that grow with the batch squared": main(
        "%x: tensor<?x8xf32>", "tensor<?x?xf32>, tensor<?xf32>",
        "%0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] "
        ": (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x?xf32>",
        "%1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [0] "
        ": (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>",
        "%2 = stablehlo.dot_general %1, %0, contracting_dims = [1] x [0] "
        ": (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>",
        "%z = stablehlo.constant dense<0.0> : tensor<f32>",
        "%3 = stablehlo.reduce(%1 init: %z) applies stablehlo.maximum across dimensions = [0] "
        ": (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>",
        "return %2, %3 : tensor<?x?xf32>, tensor<?xf32>"),
    "sort of all but the first": main(
        "%x: tensor<?x4xf32>", "tensor<?x4xf32>",
        "%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>",
        "%n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>",
        "%four = stablehlo.constant dense<4> : tensor<1xi32>",
        "%limit = stablehlo.concatenate %n1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>",
        "%start = stablehlo.constant dense<[1, 0]> : tensor<2xi32>",
        "%one = stablehlo.constant dense<1> : tensor<2xi32>",
        "%y = stablehlo.real_dynamic_slice %x, %start, %limit, %one "
        ": (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x4xf32>",
        '%0 = "stablehlo.sort"(%y) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):',
        "%l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "stablehlo.return %l : tensor<i1>\n}) {dimension = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>",
        "return %0 : tensor<?x4xf32>"),
}  # fmt: skip


def outputs(found: object) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [np.asarray(found)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(4)
def test_one_code_for_all_sizes(name: str) -> None:
    text = PROGRAMS[name]
    any_size = compiled(text)
    each = shlo_jit.compile(text, cache=False, threads=2)
    sizes = SIZES[:3] if "140000" in text else SIZES
    for size in sizes:
        given = arguments(any_size, size)
        code = any_size.executable(given)
        assert isinstance(code, Executable)
        assert code.symbol is not None, any_size.text("plan", given).partition("\n")[0]
        got, want = outputs(any_size(*given)), outputs(each(*given))
        for x, y in zip(got, want, strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5 * max(1.0, np.abs(y).max(initial=0)))
        if size in (3, 257):
            for at_end in (True, False):
                again = guarded.call(code, given, at_end)
                assert [x.tobytes() for x in again] == [x.tobytes() for x in got]


SHAPE = """%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %s = stablehlo.concatenate %n1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>"""
CALL = main("%x: tensor<?x4xf32>", "tensor<?x4xf32>", SHAPE,
            "%0 = stablehlo.custom_call @f(%x, %s) {indices_of_shape_operands = dense<1> : tensor<1xi64>} "
            ": (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>", "return %0 : tensor<?x4xf32>")  # fmt: skip
BITS = main("%x: tensor<?x4xf32>, %k: tensor<2xui64>", "tensor<?x4xui32>", SHAPE,
            "%0:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%k, %s) "
            "{rng_algorithm = #stablehlo<rng_algorithm PHILOX>} "
            ": (tensor<2xui64>, tensor<2xi32>) -> (tensor<2xui64>, tensor<?x4xui32>)",
            "return %0#1 : tensor<?x4xui32>")  # fmt: skip
RUNNING = main("%x: tensor<?x4xf32>", "tensor<?x4xf32>", SHAPE,
               "%z = stablehlo.constant dense<0.0> : tensor<f32>",
               "%one = stablehlo.constant dense<1> : tensor<1xi32>",
               "%ones = stablehlo.constant dense<1> : tensor<2xi32>",
               "%w = stablehlo.concatenate %n1, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>",
               "%before = stablehlo.subtract %w, %ones : tensor<2xi32>",
               "%column = stablehlo.reshape %before : (tensor<2xi32>) -> tensor<2x1xi32>",
               "%nothing = stablehlo.constant dense<0> : tensor<2x1xi32>",
               "%p = stablehlo.concatenate %column, %nothing, dim = 1 : (tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x2xi32>",
               "%0 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %w, %ones, %ones, %ones, %p) "
               "{called_computations = [@sum]} : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, "
               "tensor<2xi32>, tensor<2xi32>, tensor<2x2xi32>) -> tensor<?x4xf32>",
               "return %0 : tensor<?x4xf32>") + """
func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32>
}"""  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (CALL, "fixed-shapes-only"),
        (BITS, "random-bits"),
        (RUNNING, "parameters-unknown"),
    ],
)
def test_programs_compiled_for_fixed_sizes(text: str, code: str) -> None:
    """The plan has the reason, and each size gets separate code."""
    executable = compiled(text, custom_calls={"f": lambda x: 2 * x})
    for size in (2, 5):
        given = arguments(executable, size)
        assert code in codes(executable.text("plan", given).partition("\n")[0])
        (got,) = outputs(executable(*given))
        assert got.shape == (size, 4)
        if text == CALL:
            np.testing.assert_array_equal(got, 2 * given[0])
        if text == RUNNING:
            np.testing.assert_allclose(got, given[0].cumsum(0), rtol=1e-5, atol=1e-5)
