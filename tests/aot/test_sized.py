"""Functions with unknown dimensions: libraries with code for several shapes."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest
from building import SQUARE, Host, build, dense, exported, needs_cc, run, same
from refusing import refused
from test_names import check_header

import shlo_jit
from shlo_jit.aot import description
from shlo_jit.runtime.library_file import read_library
from shlo_jit.runtime.library_symbols import needs

NETWORK = f"""
func.func @main(%x: tensor<?x160xf32>) -> (tensor<?x160xf32>, tensor<?xf32>) {{
  %w = stablehlo.constant dense<{dense(160, 160)}> : tensor<160x160xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x160xf32>, tensor<160x160xf32>) -> tensor<?x160xf32>
  %1 = stablehlo.tanh %0 : tensor<?x160xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<?x160xf32>, tensor<f32>) -> tensor<?xf32>
  return %1, %2 : tensor<?x160xf32>, tensor<?xf32>
}}
"""
ADD = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x?xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.add %x, %y : (tensor<?x4xf32>, tensor<?x?xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""
COUNT = """
func.func @main(%n: tensor<i32>, %x: tensor<?xi64>) -> (tensor<?xi32>, tensor<?xi64>) {
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %1 = stablehlo.add %x, %x : tensor<?xi64>
  return %0, %1 : tensor<?xi32>, tensor<?xi64>
}
"""
POSITIVE = """
func.func @main(%x: tensor<?xi32>) -> tensor<?xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0]
    : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}
"""
SIZES = (0, 1, 3, 40)
CALLS = [[(n, 160)] for n in SIZES]
ADD_CALLS = [["1x4xf32", "1x4xf32"], [(2, 4), (2, 4)]]
COUNT_CALLS = [[np.int32(n), (m,)] for n, m in ((2, 3), (5, 3), (2, 4))]


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 160)).astype(np.float32)


# ---------------------------------------------------------------------- in Python
@pytest.mark.parametrize("weights", ["embedded", "file"])
@pytest.mark.parametrize("ending", [".so", ".o"])
def test_same_bits_as_compiled(ending: str, weights: str, tmp_path: Path) -> None:
    path = exported(NETWORK, tmp_path, ending, weights=weights, shapes=CALLS)
    loaded, compiled = shlo_jit.load(path), shlo_jit.compile(NETWORK)
    for n in (*SIZES, *SIZES):
        assert same(loaded(rows(n)), compiled(rows(n)))
    assert (loaded.inputs, loaded.outputs) == (compiled.inputs, compiled.outputs)
    assert repr(loaded) == repr(compiled)
    # The matrix, and the zero of a reduction that may have no rows, are stored once for all shapes.
    assert read_library(path).metadata["weights"]["bytes"] - 160 * 160 * 4 in (0, 64)


def test_several_targets(tmp_path: Path) -> None:
    path = exported(NETWORK, tmp_path, target="x86-64-v2,x86-64-v3", shapes=CALLS)
    loaded, best = shlo_jit.load(path), shlo_jit.compile(NETWORK, target="x86-64-v3")
    for n in SIZES:
        assert same(loaded(rows(n)), best(rows(n)))


def test_shapes_that_there_are_not(tmp_path: Path) -> None:
    loaded = shlo_jit.load(exported(NETWORK, tmp_path, shapes=CALLS))
    with pytest.raises(ValueError) as raised:
        loaded(rows(2))
    there = ", ".join(f"float32[{n},160]" for n in SIZES)
    assert f"x = {there}" in str(raised.value) and str(raised.value).endswith("float32[2,160]")
    with pytest.raises(ValueError, match=r"argument 0 \(x\): .*float32\[\?,160\].*float32\[3,159\]"):
        loaded(rows(3)[:, 1:])
    assert same(loaded(rows(3)), shlo_jit.compile(NETWORK)(rows(3)))


def test_values_select_too(tmp_path: Path) -> None:
    loaded, compiled = shlo_jit.load(exported(COUNT, tmp_path, shapes=COUNT_CALLS)), shlo_jit.compile(COUNT)
    for n, m in ((2, 3), (5, 3), (2, 4)):
        x = np.arange(m)
        assert same(loaded(np.int32(n), x), compiled(np.int32(n), x))
    with pytest.raises(ValueError) as raised:
        loaded(np.int32(5), np.arange(4))
    there = "(2, int64[3]), (5, int64[3]), (2, int64[4])"
    assert f"(n, x) = {there}" in str(raised.value) and str(raised.value).endswith("(5, int64[4])")


def test_values_that_nothing_follows_from_do_not_select(tmp_path: Path) -> None:
    text = COUNT.replace("%n: ", "%m: tensor<i32>, %n: ").replace("(tensor<?xi32>, ", "(tensor<i32>, tensor<?xi32>, ")
    text = text.replace("return %0, %1 : ", "return %m, %0, %1 : tensor<i32>, ")
    loaded = shlo_jit.load(exported(text, tmp_path, shapes=[[np.int32(3), *call] for call in COUNT_CALLS]))
    assert [x.tolist() for x in loaded(np.int32(7), np.int32(2), np.arange(3))] == [7, [0, 1], [0, 2, 4]]


def test_values_where_no_size_follows_from_any(tmp_path: Path) -> None:
    text = "func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> (tensor<i32>, tensor<?xf32>) {\n  return %n, %x : tensor<i32>, tensor<?xf32>\n}"
    loaded = shlo_jit.load(exported(text, tmp_path, shapes=[[np.int32(3), (2,)]]))
    assert loaded(np.int32(7), np.ones(2, np.float32))[0] == 7


def test_threads_call_it_with_different_shapes(tmp_path: Path) -> None:
    loaded, compiled = shlo_jit.load(exported(NETWORK, tmp_path, shapes=CALLS)), shlo_jit.compile(NETWORK)
    wrong: list[int] = []

    def work(n: int) -> None:
        wrong.extend(n for _ in range(50) if not same(loaded(rows(n)), compiled(rows(n))))

    workers = [threading.Thread(target=work, args=(n,)) for n in (*SIZES, *SIZES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_custom_calls_and_donated_arguments(tmp_path: Path) -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.custom_call @op(%x) : (tensor<?xf32>) -> tensor<?xf32>
      %1 = stablehlo.add %0, %x : tensor<?xf32>
      return %1 : tensor<?xf32>
    }
    """
    with refused(shlo_jit.UnsupportedError, "dynamic-dimensions", (3, 12), shows="custom_call"):
        exported(text, tmp_path, custom_calls=["op"], shapes=[[(2,)]])
    calls = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c = stablehlo.constant dense<1.0> : tensor<2xf32>
      %0 = stablehlo.custom_call @op(%c) : (tensor<2xf32>) -> tensor<f32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %b = stablehlo.dynamic_broadcast_in_dim %0, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %1 = stablehlo.add %b, %x : tensor<?xf32>
      return %1 : tensor<?xf32>
    }
    """
    path = exported(calls, tmp_path, custom_calls=["op"], donate=[0], shapes=[[(200,)], [(300,)]])
    with pytest.raises(shlo_jit.ExecutionError, match="'op'.*registered"):
        shlo_jit.load(path)
    loaded = shlo_jit.load(path, custom_calls={"op": lambda c: np.float32(c.sum())})
    for n in (200, 300):
        x = np.arange(n, dtype=np.float32)
        result = loaded(x)
        assert np.shares_memory(result, x)
        assert result.tolist() == [i + 2 for i in range(n)]
    header = (tmp_path / "model.h").read_text()
    assert "(the same pointer as x)" in header
    assert "model_main(model_instance *instance, float *x, int64_t x_dim0, float *output);" in header


def test_several_functions(tmp_path: Path) -> None:
    text = ADD.replace("@main", "@sized") + SQUARE + NETWORK.replace("@main", "@net")
    shapes = {"sized": ADD_CALLS, "@net": CALLS[1:]}
    path = exported(text, tmp_path, entry=["sized", "main", "net"], shapes=shapes)
    x = np.ones((2, 4), np.float32)
    assert shlo_jit.load(path, "sized")(x, x).tolist() == (2 * x).tolist()
    assert shlo_jit.load(path)(x[0]).tolist() == [1, 1, 1, 1]
    assert same(shlo_jit.load(path, "net")(rows(3)), shlo_jit.compile(NETWORK)(rows(3)))
    header = (tmp_path / "model.h").read_text()
    assert "model_sized_(" in header and "model_sized_shapes(" in header  # `sized` is a function of the interface
    assert "const shlo_sized *model_sized(void);" in header
    assert "/* model: 3 functions, compiled by" in header


# ---------------------------------------------------------------------- in C
@needs_cc
def test_names_that_are_taken(tmp_path: Path) -> None:
    """Names taken by sizes, by shapes, by the second function of a sized one, and by the interface."""
    t = "tensor<?xf32>"
    arguments = f"%output_shape: {t}, %output: {t}, %output_dim0: {t}, %int: {t}, %instance: {t}"
    text = "\n".join(
        f"func.func @{name}({arguments}) -> {t} {{\n  return %output : {t}\n}}"
        for name in ("main", "main_shapes", "sized", "library")
    )
    entries = ["main", "main_shapes", "sized", "library"]
    exported(text, tmp_path, ".a", entry=entries, shapes={name: [["2xf32"] * 5] for name in entries})
    check_header(tmp_path)
    (tmp_path / "main.c").write_text(NAMES_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", tmp_path / "model.a")])


NAMES_HOST = """
#include "model.h"

int main(void) {
  model_instance *instance;
  float x[2] = {1, 2}, y[2] = {0};
  int64_t shape[1] = {0};
  if (model_create(&instance, 0)) return 1;
  if (model_main(instance, x, 2, x, 2, x, 2, x, 2, x, 2, y) || y[1] != 2) return 2;
  if (model_main_shapes(2, 2, 2, 2, 2, shape) || shape[0] != 2) return 3;
  if (model_library_(instance, x, 2, x, 2, x, 2, x, 2, x, 1, y) != SHLO_UNKNOWN_SHAPES) return 4;
  for (int i = 0; i < 4; i++)
    if (model_sized()[i].count != 1 || model_sized()[i].first != i) return 5;
  return model_sized()[4].name != 0;
}
"""


@needs_cc
@pytest.mark.parametrize("ending", [".so", ".a"])
def test_c_program(ending: str, tmp_path: Path) -> None:
    library = exported(ADD, tmp_path, ending, shapes=ADD_CALLS)
    (tmp_path / "main.c").write_text(ADD_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", library, f"-Wl,-rpath,{tmp_path}")])
    check_header(tmp_path)


ADD_HOST = """
#include "model.h"
#include <string.h>

int main(void) {
  model_instance *instance;
  float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, z[8];
  if (model_create(&instance, 0)) return 1;
  int64_t shape[2] = {0, 0};
  if (model_main_shapes(2, 2, 4, shape) || shape[0] != 2 || shape[1] != 4) return 2;
  if (model_main_shapes(1, 1, 4, shape) || shape[0] != 1 || shape[1] != 4) return 3;
  if (model_main_shapes(1, 1, 4, NULL)) return 4;
  if (model_main(instance, x, 2, x, 2, 4, z) || z[7] != 14) return 5;
  if (model_main(instance, x, 1, x, 1, 4, z) || z[3] != 6) return 6;
  /* Sizes that there are not, that differ where they must be equal, and that none could be. */
  if (model_main_shapes(3, 3, 4, shape) != SHLO_UNKNOWN_SHAPES || shape[0] != 1) return 24;
  if (model_main(instance, x, 3, x, 3, 4, z) != SHLO_UNKNOWN_SHAPES) return 7;
  if (model_main_shapes(2, 1, 4, shape) != SHLO_UNKNOWN_SHAPES || model_main(instance, x, 2, x, 1, 4, z) != SHLO_UNKNOWN_SHAPES) return 8;
  if (model_main(instance, x, -2, x, INT64_MIN, 4, z) != SHLO_UNKNOWN_SHAPES) return 9;
  if (strcmp(model_status_text(SHLO_UNKNOWN_SHAPES), "the library has no code for arguments of these shapes: "
             "main: (x_dim0, y_dim0, y_dim1) = (1, 1, 4), (2, 2, 4)")) return 10;
  if (model_main(0, x, 2, x, 2, 4, z) != SHLO_BAD_POINTER) return 11;
  if (model_main(instance, 0, 2, x, 2, 4, z) != SHLO_BAD_POINTER) return 12;
  if (model_main(instance, x, 2, x, 2, 4, 0) != SHLO_BAD_POINTER) return 13;

  /* Without knowing the program. */
  const shlo_sized *sized = model_sized();
  if (strcmp(sized->name, "main") || sized[1].name || sized->first != 0 || sized->count != 2) return 14;
  if (sized->input_count != 2 || sized->inputs[0].shape[0] != -1 || sized->inputs[0].shape[1] != 4) return 15;
  if (sized->inputs[0].bytes || sized->outputs[0].shape[0] != -1 || sized->outputs[0].alignment != 4) return 16;
  int64_t sizes[] = {2, 2, 4}, others[] = {2, 2, 5}, *shapes[] = {shape}, *none[] = {NULL};
  const void *inputs[] = {x, x};
  void *outputs[] = {z};
  z[7] = 0;
  if (sized->shapes(inputs, sizes, shapes) || shape[0] != 2 || sized->shapes(0, sizes, none)) return 17;
  if (sized->shapes(inputs, others, shapes) != SHLO_UNKNOWN_SHAPES) return 25;
  if (sized->shapes(inputs, 0, shapes) != SHLO_BAD_POINTER) return 26;
  if (sized->shapes(inputs, sizes, 0) != SHLO_BAD_POINTER) return 27;
  if (sized->run(inputs, outputs, 0, 0, instance) != SHLO_BAD_POINTER) return 18;
  if (sized->run(inputs, outputs, sizes, 0, instance) || z[7] != 14) return 19;
  if (sized->run(inputs, outputs, others, 0, instance) != SHLO_UNKNOWN_SHAPES) return 20;
  if (sized->run(0, outputs, sizes, 0, instance) != SHLO_BAD_POINTER) return 21;
  z[7] = 0;
  const shlo_function *second = &model_library()->functions[sized->first + 1];
  if (second->inputs[0].shape[0] != 2 || second->outputs[0].bytes != sizeof z) return 28;
  if (model_call(instance, sized->first + 1, inputs, outputs) || z[7] != 14) return 22;
  if (model_call(instance, 2, inputs, outputs) != SHLO_BAD_ARGUMENT) return 23;
  model_destroy(instance);
  return 0;
}
"""


@needs_cc
def test_values_in_c(tmp_path: Path) -> None:
    library = exported(COUNT, tmp_path, ".a", shapes=COUNT_CALLS)
    (tmp_path / "main.c").write_text(COUNT_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", library)])


COUNT_HOST = """
#include "model.h"

int main(void) {
  model_instance *instance;
  int32_t n = 5, numbers[5];
  int64_t x[4] = {1, 2, 3, 4}, y[4] = {0};
  if (model_create(&instance, 0)) return 1;
  int64_t first[1], second[1];
  if (model_main_shapes(&n, 3, first, second) || first[0] != 5 || second[0] != 3) return 2;
  if (model_main(instance, &n, x, 3, numbers, y) || numbers[4] != 4 || y[2] != 6) return 3;
  if (model_main_shapes(&n, 4, first, second) != SHLO_UNKNOWN_SHAPES) return 4;
  if (model_main(instance, &n, x, 4, numbers, y) != SHLO_UNKNOWN_SHAPES) return 8;
  n = 2;
  if (model_main(instance, &n, x, 4, numbers, y) || y[3] != 8) return 5;
  if (model_main_shapes(NULL, 4, first, second) != SHLO_BAD_POINTER) return 6;
  if (model_main(instance, NULL, x, 4, numbers, y) != SHLO_BAD_POINTER) return 9;
  n = -1;
  if (model_main(instance, &n, x, 4, numbers, y) != SHLO_UNKNOWN_SHAPES) return 7;
  model_destroy(instance);
  return 0;
}
"""


def test_values_alone(tmp_path: Path) -> None:
    """No dimension of an argument is unknown, and one argument has no elements."""
    text = """
    func.func @main(%n: tensor<2xi64>, %m: tensor<i8>) -> (tensor<?x?xi32>, tensor<?xi32>) {
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<2xi64>) -> tensor<?x?xi32>
      %s = stablehlo.reshape %m : (tensor<i8>) -> tensor<1xi8>
      %1 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi8>) -> tensor<?xi32>
      return %0, %1 : tensor<?x?xi32>, tensor<?xi32>
    }
    """
    values = [((2, 3), 4), ((3, 2), 4), ((0, 0), 0)]
    path = exported(text, tmp_path, shapes=[[np.array(n), np.int8(m)] for n, m in values])
    loaded, compiled = shlo_jit.load(path), shlo_jit.compile(text)
    for n, m in values:
        assert same(loaded(np.array(n), np.int8(m)), compiled(np.array(n), np.int8(m)))
    with pytest.raises(ValueError) as raised:
        loaded(np.array([1, 2]), np.int8(4))
    assert "(n, m) = ([2, 3], 4), ([3, 2], 4), ([0, 0], 0)" in str(raised.value)
    assert str(raised.value).endswith("([1, 2], 4)")


@needs_cc
def test_two_such_libraries_in_one_program(tmp_path: Path) -> None:
    for name, text, shapes in (("a", ADD, ADD_CALLS), ("b", COUNT, COUNT_CALLS), ("c", SQUARE, None)):
        shlo_jit.export(text, tmp_path / f"{name}.a", header=tmp_path / f"{name}.h", shapes=shapes)
    for order in ("abc", "cba"):
        includes = "".join(f'#include "{name}.h"\n' for name in order)
        text = f"{includes}int main(void) {{ return a_main_shapes(1, 1, 4, 0) || b_sized()[0].count != 3; }}\n"
        (tmp_path / "main.c").write_text(text)
        libraries = [tmp_path / f"{name}.a" for name in "abc"]
        run([build(tmp_path / "main.c", tmp_path / "main", *libraries, "-lm", "-lpthread")])


@pytest.mark.parametrize("target", ["x86_64-none:x86-64-v2", "aarch64-none", "riscv64-none"])
def test_bare_metal_needs_no_library(target: str, tmp_path: Path) -> None:
    for text, shapes in ((ADD, ADD_CALLS), (COUNT, COUNT_CALLS)):
        shlo_jit.export(text, tmp_path / "model.o", target=target, shapes=shapes)
        found = needs(tmp_path / "model.o")
        assert found is not None and found.symbols == ()


@needs_cc
def test_generic_host(tmp_path: Path) -> None:
    """A host that calls functions by number needs no knowledge of sizes."""
    path = exported(NETWORK, tmp_path, weights="file", shapes=CALLS)
    host, compiled = Host(tmp_path, tmp_path / "model.h"), shlo_jit.compile(NETWORK)
    for number, n in enumerate(SIZES):
        want = compiled(rows(n))
        static = shlo_jit.compile(shlo_jit.refine(NETWORK, [(n, 160)]))
        assert same(host.call(path, "model", [rows(n)], static.outputs, function=number), want)


def test_sizes_that_are_no_sizes(tmp_path: Path) -> None:
    """For any numbers that a host passes, the result is a status."""
    library = ctypes.CDLL(str(exported(ADD, tmp_path, shapes=ADD_CALLS)))
    instance = ctypes.c_void_p()
    assert library.model_create(ctypes.byref(instance), None) == 0
    x, z = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    at = ctypes.c_void_p(x.ctypes.data)
    generator = np.random.default_rng(0)
    numbers = [0, 1, 2, 3, 4, -1, 1 << 32, (1 << 32) + 2, -(1 << 63), (1 << 63) - 1]
    found = 0
    for _ in range(3000):
        a, b, c = (int(n) for n in generator.choice(numbers, 3))
        sizes = [ctypes.c_int64(n) for n in (a, b, c)]
        there = (a, b, c) in ((1, 1, 4), (2, 2, 4))
        found += there
        status = library.model_main(instance, at, sizes[0], at, *sizes[1:], ctypes.c_void_p(z.ctypes.data))
        assert status == (0 if there else 11)
        assert library.model_main_shapes(*sizes, None) == status
    assert found
    library.model_destroy(instance)


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (ADD, {}, shlo_jit.UnsupportedError, r"2:1: .*argument 0 \(%x\).*tensor<\?x4xf32>"),
        (ADD, {"shapes": []}, TypeError, r"shapes: .*got \[\]"),
        (ADD, {"shapes": "1x4xf32"}, TypeError, "shapes: .*list of calls"),
        (ADD, {"shapes": ["1x4xf32"]}, TypeError, "call 0 of shapes: .*'1x4xf32'"),
        (ADD, {"shapes": [*ADD_CALLS, [(1, 4)]]}, ValueError, "call 2 of shapes: .*2 arguments.*got 1"),
        (ADD, {"shapes": [[(1, 4), 4]]}, TypeError, r"call 0 of shapes: .*argument 1 \(%y\): .*extents"),
        (ADD, {"shapes": [[(1, 4), "x4"]]}, ValueError, r"call 0 of shapes: .*argument 1 \(%y\): .*extents"),
        (ADD, {"shapes": [[(1, 5), (1, 5)]]}, shlo_jit.VerifyError, r"argument 0 \(%x\).*dimension 1 .*4.* 5.*call 0 of shapes"),
        (ADD, {"shapes": [*ADD_CALLS, [(2, 4), (3, 4)]]}, shlo_jit.VerifyError, r"3:8: .*stablehlo.add.*call 2 of shapes"),
        (ADD, {"shapes": [*ADD_CALLS, ADD_CALLS[0]]}, ValueError, "shapes: call 2 .*call 0"),
        (ADD, {"shapes": {"other": ADD_CALLS}}, ValueError, "shapes: @other.*@main"),
        (ADD, {"shapes": {3: ADD_CALLS}}, TypeError, "shapes: .*got 3"),
        (SQUARE, {"shapes": [[(4,)]]}, ValueError, "shapes: @main"),
        (ADD + SQUARE.replace("@main", "@f"), {"entry": ["main", "f"], "shapes": ADD_CALLS}, ValueError, "several functions.*dictionary"),
        (COUNT, {"shapes": [[(), (3,)]]}, shlo_jit.UnsupportedError, r"4:8: .*stablehlo.dynamic_iota: (.|\n)*hint: .*argument 0 \(%n\)"),
        (COUNT, {"shapes": [[np.int32(3), (3,)], [(), (3,)]]}, ValueError, r"call 1 of shapes: argument 0 \(%n\): .*value"),
        (COUNT, {"shapes": [[np.float32(3), (3,)]]}, TypeError, r"call 0 of shapes: .*argument 0 \(%n\): .*int32.*float32\[\]"),
        (POSITIVE, {"shapes": [[(3,)]]}, shlo_jit.UnsupportedError, r"7:8: .*stablehlo.dynamic_iota"),
        (POSITIVE.replace("?xi32>)", "3xi32>)", 1).replace("x: tensor<?x", "x: tensor<3x").replace("(tensor<?xi32>,", "(tensor<3xi32>,"), {}, shlo_jit.UnsupportedError, r"7:8: .*stablehlo.dynamic_iota"),
        ("func.func @main(%x: tensor<*xf32>) -> tensor<*xf32> {\n  return %x : tensor<*xf32>\n}", {"shapes": [[(3,)]]}, shlo_jit.UnsupportedError, r"argument 0 \(%x\).*tensor<\*xf32>.*known rank"),
    ],
)  # fmt: skip
def test_refused(text: str, options: dict, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        shlo_jit.export(text, tmp_path / "model.o", **options)
    assert not list(tmp_path.iterdir())


def test_results_in_the_memory_of_arguments_for_some_shapes_only(tmp_path: Path) -> None:
    """A sum of one row is that row."""
    text = """
    func.func @main(%x: tensor<?x400xf32>) -> tensor<400xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<?x400xf32>, tensor<f32>) -> tensor<400xf32>
      %1 = stablehlo.add %0, %0 : tensor<400xf32>
      return %1 : tensor<400xf32>
    }
    """
    message = "donate: @main.*some of the shapes"
    with pytest.raises(ValueError, match=message):
        exported(text, tmp_path, donate=[0], shapes=[[(1, 400)], [(2, 400)]])


# ---------------------------------------------------------------------- older libraries
def test_libraries_that_say_nothing_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries written before sized functions existed can be loaded and inspected."""
    made = description.metadata
    monkeypatch.setattr(description, "metadata", lambda image: {k: v for k, v in made(image).items() if k != "sized"})
    path = exported(SQUARE, tmp_path)
    assert "sized" not in read_library(path).metadata
    assert shlo_jit.load(path)(np.full(4, 3, np.float32)).tolist() == [9] * 4
    assert "SIZED" not in (tmp_path / "model.h").read_text() and "sized" not in (tmp_path / "model.h").read_text()
