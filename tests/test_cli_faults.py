"""The commands that find faults: comparison of results, and single passes."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit.cli import app
from shlo_jit.passes import PASSES

ADD = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""
X, Y = np.full((2, 3), 1.5, np.float32), np.full((2, 3), 2, np.float32)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("add.mlir").write_text(ADD)
    for name, array in (("x", X), ("y", Y), ("sum", X + Y), ("near", X + Y + np.float32(1e-2)), ("wide", np.ones(4))):
        np.save(name, array)


def invoke(*args: str, status: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    return result.stderr if status == 2 else result.stdout


RUN = ["run", "add.mlir", "--input", "x.npy", "y.npy", "--repeat", "1"]


def test_results_are_held_against_files() -> None:
    assert "0 expected   float32   2 x 3   0      0          0.00035   same bits" in invoke(
        *RUN, "--expected", "sum.npy"
    )
    shown = invoke(*RUN, "--expected", "near.npy", status=1)
    assert "DIFFERS" in shown and shown.splitlines()[-1] == "0 at [0, 0]: 3.5, expected 3.51"
    assert "close" in invoke(*RUN, "--expected", "near.npy", "--rtol", "1e-2")
    assert "close" in invoke(*RUN, "--expected", "near.npy", "--atol", "2e-2")
    assert "DIFFERS" in invoke(*RUN, "--expected", "near.npy", "--rtol", "1e-3", status=1)
    assert "same bits" in invoke(*RUN, "--check", "--atol", "0")


def test_results_of_libraries_and_other_processes_too() -> None:
    invoke("export", "add.mlir", "-o", "add.so")
    library = ["run", "add.so", *RUN[2:]]
    assert "same bits" in invoke(*library, "--expected", "sum.npy")
    assert "a library has no program to interpret" in invoke(*library, "--check", status=2)
    np.save("xs", np.stack([X, X]))
    np.save("sums", np.stack([X + X, X + X]))
    several = ["run", "add.mlir", "--processes", "2", "--repeat", "1", "--input", "xs.npy", "xs.npy"]
    assert "same bits" in invoke(*several, "--expected", "sums.npy")
    assert "one process" in invoke(*several, "--check", status=2)


def test_several_results_and_types_that_numpy_does_not_know() -> None:
    text = "func.func @main(%x: tensor<2xbf16>, %y: tensor<3xi32>) -> (tensor<3xi32>, tensor<2xbf16>) { return %y, %x : tensor<3xi32>, tensor<2xbf16> }"
    a, b = np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2, 3], np.int32)
    np.save("a", a)
    np.save("b", b)
    shown = invoke("run", "-", "--input", "a.npy", "b.npy", "--expected", "b.npy", "a.npy", stdin=text)
    assert shown.count("same bits") == 2
    assert "result 0 is int32[3], got" in invoke(
        "run", "-", "--input", "a.npy", "b.npy", "--expected", "a.npy", "b.npy", stdin=text, status=2
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--expected", "wide.npy"], "wide.npy: result 0 is float32[2, 3], got float64[4]"),
        (["--expected", "sum.npy", "sum.npy"], "--expected: the program has 1 result(s), got 2 file(s)"),
        (["--expected", "sum.npy", "--check"], "--check and --expected: give one of them"),
        (["--rtol", "1"], "--rtol and --atol are for --check or --expected"),
    ],
)
def test_mistakes(args: list[str], message: str) -> None:
    assert invoke(*RUN, *args, status=2) == f"shlo-jit: error: {message}\n"


def test_json() -> None:
    found = json.loads(invoke(*RUN, "--check", "--json", "--output-dir", "out"))
    assert found["program"] == "add.mlir" and found["run_seconds"]["calls"] == 1
    assert [i["from"] for i in found["inputs"]] == ["x.npy", "y.npy"]
    (result,) = found["results"]
    assert (result["dtype"], result["shape"], result["verdict"], result["close"]) == (
        "float32",
        [2, 3],
        "same bits",
        True,
    )
    assert np.array_equal(np.load("out/output0.npy"), X + Y)
    np.save("nan", np.full((2, 3), np.nan, np.float32))
    (result,) = json.loads(invoke(*RUN, "--expected", "nan.npy", "--json", status=1))["results"]
    assert (result["relative"], result["verdict"], result["expected"]) == ("inf", "DIFFERS", "nan")
    assert "verdict" not in json.loads(invoke(*RUN, "--json"))["results"][0]


TUPLES = """
func.func @main(%t: !stablehlo.token, %x: tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> (!stablehlo.token, tuple<tensor<i32>, tensor<2xf32>>) {
  %0 = stablehlo.get_tuple_element %x[0] : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tensor<2xf32>
  %1 = stablehlo.get_tuple_element %x[1] : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>
  %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<i32>>) -> tensor<i32>
  %3 = stablehlo.tuple %2, %0 : tuple<tensor<i32>, tensor<2xf32>>
  %4 = stablehlo.after_all %t : !stablehlo.token
  return %4, %3 : !stablehlo.token, tuple<tensor<i32>, tensor<2xf32>>
}
"""
RNG = """
func.func @main() -> tensor<8xf32> {
  %a = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %s = stablehlo.constant dense<8> : tensor<1xi64>
  %0 = stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def test_tuples_and_tokens_are_held_against_the_interpreter() -> None:
    assert invoke("run", "-", "--random", "--check", stdin=TUPLES).count("same bits") == 2


def test_check_mentions_implementation_defined_random_numbers() -> None:
    shown = invoke("run", "-", "--check", stdin=RNG, status=1)
    assert shown.splitlines()[-1].startswith("rng draws different numbers")


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["run", "no.mlir"], 2, "cannot read no.mlir: no such file"),
        (
            ["run", "add.mlir"],
            2,
            "the program takes 2 input(s), got 0: give --input for each, or --random for the rest",
        ),
        ([*RUN, "--expected", "no.npy"], 2, "cannot read no.npy: No such file or directory"),
        ([*RUN, "--expected", "sum.npy", "--check"], 2, "--check and --expected: give one of them"),
        (["run", "add.mlir", "--random", "--entry", "f"], 1, "no function @f; the program has @main"),
        (["run", "call.mlir", "--random"], 1, "custom_call: no callable is registered for target @f"),
        (["verify", "no.mlir"], 2, "cannot read no.mlir: no such file"),
        (["export", "add.mlir", "-o", "no/add.so"], 2, "cannot write to no: No such file or directory"),
        (["inspect", "add.mlir"], 2, "cannot load add.mlir: it was not made by shlo_jit"),
    ],
)
def test_what_is_wrong_is_json_too(args: list[str], status: int, message: str) -> None:
    Path("call.mlir").write_text(ADD.replace("stablehlo.add %x, %y : tensor<2x3xf32>", CALL))
    result = CliRunner().invoke(app, [*args, "--json"])
    assert result.exit_code == status
    (error,) = json.loads(result.stdout)["errors"]
    assert error["message"] == message and message in result.stderr


CALL = "stablehlo.custom_call @f(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>"


def test_tolerances_without_end_are_json() -> None:
    (result,) = json.loads(invoke(*RUN, "--expected", "sum.npy", "--rtol", "inf", "--json"))["results"]
    assert result["bound"] == {"rtol": "inf", "atol": 0.0}


@pytest.mark.slow
def test_differences_fit_a_page() -> None:
    for example in ("mlp", "attention", "heat", "mandelbrot"):
        shown = invoke("run", "--example", example, "--random", "--check", "--repeat", "1")
        lines = shown[shown.index("against") :].splitlines()
        assert [line for line in lines if len(line.rstrip()) > 80] == []


# ---------------------------------------------------------------------- single passes
CALLS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.constant dense<1.0> : tensor<4xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<4xf32>
  %2 = chlo.sinh %1 : tensor<4xf32> -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
"""


def test_passes_run_alone_and_in_order() -> None:
    Path("calls.mlir").write_text(CALLS)
    alone = invoke("pass", "calls.mlir", "--passes", "simplify")
    assert "@f" in alone and "multiply" not in alone
    inlined = invoke("pass", "calls.mlir", "--passes", "inline")
    assert "@f" not in inlined and "multiply" in inlined and "sinh" in inlined
    both = invoke("pass", "calls.mlir", "--passes", "inline,simplify")
    assert "multiply" not in both
    for text in (alone, inlined, both):
        assert shlo_jit.verify(text) == []
    assert invoke("pass", "-", "--passes", "simplify", stdin=inlined) == both


def test_the_list_of_passes() -> None:
    lines = invoke("pass", "--list").splitlines()
    assert all(len(line) <= 80 for line in lines)
    names = [line.split()[0] for line in lines[2:] if not line.startswith(" ")]
    assert names == list(dict.fromkeys(["inline", *(step.name for step in PASSES)]))
    assert not [line for line in lines[2:] if len(line.split()) < 1]


def test_passes_of_unknown_dimensions_take_shapes() -> None:
    text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { %0 = stablehlo.tanh %x : tensor<?xf32> return %0 : tensor<?xf32> }"
    assert "tensor<3xf32>" in invoke("pass", "-", "--passes", "simplify", "--shape", "3xf32", stdin=text)


def test_a_pass_that_wants_others_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def simplify(function: object, context: object) -> None:
        raise KeyError("x")

    broken = tuple(step._replace(run=simplify) if step.name == "simplify" else step for step in PASSES)
    monkeypatch.setattr("shlo_jit.passes.PASSES", broken)
    result = CliRunner().invoke(app, ["pass", "add.mlir", "--passes", "simplify"])
    assert result.exit_code == 1
    first, hint = result.stderr.splitlines()
    assert first.startswith("shlo-jit: error: simplify failed (KeyError: 'x')")
    assert "--debug" in hint


def test_passes_that_there_are_none_of() -> None:
    assert invoke("pass", "add.mlir", status=2) == "shlo-jit: error: give --passes A,B,..., or --list\n"
    assert "no pass 'simplfy'; did you mean 'simplify'?" in invoke("pass", "add.mlir", "--passes", "simplfy", status=2)
    assert "no pass 'what'; `shlo-jit pass --list`" in invoke("pass", "add.mlir", "--passes", "simplify,what", status=2)
    assert "no function @other" in invoke("pass", "add.mlir", "--passes", "inline", "--entry", "other", status=2)
