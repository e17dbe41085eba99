"""The commands for libraries: export, inspect, and run with a library."""

from __future__ import annotations

import io
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from shlo_jit.cli import app, progress
from shlo_jit.runtime import library_symbols

TWO = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
func.func @twice(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = stablehlo.add %x, %x : tensor<4xi32>
  return %0 : tensor<4xi32>
}
"""
CALLS = """
func.func @main(%x: tensor<4xf32>, %a: tensor<3x3xf64>) -> (tensor<4xf32>, tensor<3x3xf64>, tensor<3xi32>, tensor<i32>) {
  %0 = stablehlo.custom_call @my_op(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %lu, %pivots, %info = stablehlo.custom_call @lapack_dgetrf_ffi(%a)
    {mhlo.backend_config = {}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
     result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>]}
    : (tensor<3x3xf64>) -> (tensor<3x3xf64>, tensor<3xi32>, tensor<i32>)
  return %0, %lu, %pivots, %info : tensor<4xf32>, tensor<3x3xf64>, tensor<3xi32>, tensor<i32>
}
"""
HERE = platform.machine()


def invoke(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the programs, in which the command runs."""
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.mlir").write_text(TWO)
    (tmp_path / "calls.mlir").write_text(CALLS)
    return tmp_path


def cells(text: str, first: str) -> str:
    """The line that begins with a word."""
    return next(line for line in text.splitlines() if line.startswith(first))


def symbols_of_nm(file: str, *options: str) -> list[str]:
    done = subprocess.run(["nm", "--undefined-only", *options, file], capture_output=True, text=True, check=True)
    return sorted({line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if " " in line})


# ---------------------------------------------------------------------- export
def test_export_says_what_was_written(folder: Path) -> None:
    shown = invoke("export", "two.mlir", "-o", "two.so", "--header", "two.h", "--entry", "main", "--entry", "twice")
    for file in ("two.so", "two.h"):
        assert cells(shown, file).split()[1:3] == [f"{(folder / file).stat().st_size / 1024:.1f}", "KiB"]
    assert cells(shown, "@main").split("  ")[-1].strip() == "f32[2, 3]"
    assert "x: f32[2, 3], y: f32[3]  " in cells(shown, "@main")
    assert cells(shown, "@twice").split() == ["@twice", "two_twice", "x:", "i32[4]", "i32[4]"]
    assert "runs on this machine" in cells(shown, "native")
    assert "libc.so.6" in cells(shown, "needs")


def test_export_with_everything(folder: Path) -> None:
    text = f"""
func.func @go(%x: tensor<4096xf32>) -> tensor<4096xf32> {{
  %w = stablehlo.constant dense<{[float(i * i % 7) for i in range(4096)]}> : tensor<4096xf32>
  %0 = stablehlo.custom_call @"my.op"(%x) : (tensor<4096xf32>) -> tensor<4096xf32>
  %1 = stablehlo.add %0, %w : tensor<4096xf32>
  return %1 : tensor<4096xf32>
}}"""
    (folder / "go.mlir").write_text(text)
    report = json.loads(
        invoke(
            *("export", "go.mlir", "-o", "libx.o", "--name", "y", "--entry", "go", "--weights", "file"),
            *("--no-threads", "--custom-call", "my.op", "--target", f"{HERE}-linux", "--json"),
        )
    )
    assert report["files"] == ["libx.o", "y.weights"] and report["linker"] == ""
    assert report["custom_calls"] == {"my.op": "my_op"} and "my_op" in report["symbols"]
    assert (report["name"], [f["name"] for f in report["functions"]]) == ("y", ["go"])
    assert report["weights"]["bytes"] == 4 * 4096 and report["weights"]["file"] == "y.weights"
    assert not any(s.startswith("pthread_create") for s in report["symbols"])


def test_export_refuses(folder: Path) -> None:
    assert "no function @none" in invoke("export", "two.mlir", "-o", "two.o", "--entry", "none", status=1)
    assert "two.txt" in invoke("export", "two.mlir", "-o", "two.txt", status=1)
    assert "there is no command 'no-such-ld'" in invoke(
        "export", "two.mlir", "-o", "two.so", "--linker", "no-such-ld", status=1
    )
    assert "did you mean 'file'?" in invoke("export", "two.mlir", "-o", "two.o", "--weights", "fle", status=2)
    assert "cannot write to no: No such file" in invoke("export", "two.mlir", "-o", "no/two.o", status=2)
    assert "no callable is registered for target @my_op" in invoke("export", "calls.mlir", "-o", "calls.o", status=1)
    assert list(folder.glob("*.o")) == list(folder.glob("*.so")) == []


SHAPES = """
func.func @main(%n: tensor<2xi32>, %x: tensor<?x4xf32>) -> (tensor<?x?xf32>, tensor<?x4xf32>) {
  %0 = stablehlo.constant dense<1.0> : tensor<f32>
  %1 = stablehlo.dynamic_broadcast_in_dim %0, %n, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %1, %x : tensor<?x?xf32>, tensor<?x4xf32>
}
func.func @twice(%x: tensor<?xi32>) -> tensor<?xi32> {
  %0 = stablehlo.add %x, %x : tensor<?xi32>
  return %0 : tensor<?xi32>
}
"""
CALLS_OF_SHAPES = ("--entry", "main", "--entry", "twice", "--shapes", "main:2xi32=3x1,5x4xf32")


def test_export_for_shapes(folder: Path) -> None:
    (folder / "shapes.mlir").write_text(SHAPES)
    invoke(
        "export",
        "shapes.mlir",
        "-o",
        "shapes.so",
        *CALLS_OF_SHAPES,
        "--shapes",
        "twice:3xi32",
        "--shapes",
        "twice:8xi32",
    )
    shown = invoke("inspect", "shapes.so").splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("@main"))
    words = [line.split() for line in shown[at : at + 5]]
    assert words[0] == "@main shapes_main n: i32[2], x: f32[?, 4] f32[?, ?], f32[?, 4]".split()
    assert words[1] == "n: i32[2], x: f32[5, 4]; n = [3, 1] f32[3, 1], x: f32[5, 4]".split()
    assert words[2] == "@twice shapes_twice x: i32[?] i32[?]".split()
    assert [w[1] for w in words[3:]] == ["i32[3]", "i32[8]"]
    report = json.loads(invoke("inspect", "shapes.so", "--json"))
    assert [f["name"] for f in report["functions"]] == ["main", "twice", "twice"]
    main, twice = report["sized"]
    assert main["calls"] == [{"sizes": [5], "values": [[3, 1]]}] and main["by_value"] == [0]
    assert twice["inputs"] == [{"name": "x", "dtype": "i32", "shape": [None]}] and twice["first"] == 1
    assert [call["sizes"] for call in twice["calls"]] == [[3], [8]]


def test_run_takes_a_library_with_several_shapes(folder: Path) -> None:
    (folder / "shapes.mlir").write_text(SHAPES)
    invoke("export", "shapes.mlir", "-o", "twice.so", "--entry", "twice", "--shapes", "3xi32", "--shapes", "8xi32")
    assert "int32   8" in invoke("run", "twice.so", "--random", "--shape", "8xi32")
    np.save("x.npy", np.arange(3, dtype=np.int32))
    invoke("run", "twice.so", "--input", "x.npy", "--output-dir", "out")
    assert np.load("out/output0.npy").tolist() == [0, 2, 4]
    shown = invoke("run", "twice.so", "--random", "--shape", "5xi32", status=2)
    assert "x = int32[3], int32[8]" in shown and "int32[5]" in shown
    assert "--shape" in invoke("run", "twice.so", "--random", status=2)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--entry", "twice"], 1, "hint: give the shapes to compile code for"),
        (["--entry", "twice", "--shapes", "3xi32,3xi32"], 2, "--shapes 3xi32,3xi32: expected 1 types, or one for each input with unknown dimensions (%x)"),
        (["--entry", "twice", "--shapes", "3xf32"], 1, "does not fit the program"),
        (["--entry", "twice", "--shapes", "x"], 2, "call 0 of shapes: shape of argument 0 (%x): expected extents and an element type"),
        (["--entry", "twice", "--shapes", "main:3xi32"], 2, "shapes: @main is not exported; expected one of @twice"),
        (["--entry", "twice", "--shapes", "none:3xi32"], 2, "shapes: @none is not exported"),
        ([*CALLS_OF_SHAPES, "--shapes", "3xi32"], 2, "several functions are exported: write NAME:3xi32"),
        (["--shapes", "3xi32=1x2,5x4xf32"], 2, "expected integers of that type"),
        (["--shapes", "3xi32=1x2x3,5x4xf32"], 1, "argument 0 (%n) does not fit the program"),
        (["--shapes", "2xi32=1xx,5x4xf32"], 2, "expected integers of that type, such as i32=8 or 2xi32=8x4; got 2xi32=1xx"),
        (["--shapes", "?xi32=1,5x4xf32"], 2, "expected integers of that type"),
        (["--shapes", "f32=1,5x4xf32"], 2, "expected integers of that type"),
        (["--shapes", "5x4xf32"], 1, "stablehlo.dynamic_broadcast_in_dim: its result's shape depends on values"),
    ],
)  # fmt: skip
def test_export_refuses_shapes(options: list[str], status: int, message: str, folder: Path) -> None:
    (folder / "shapes.mlir").write_text(SHAPES)
    assert message in invoke("export", "shapes.mlir", "-o", "shapes.o", *options, status=status)
    assert not (folder / "shapes.o").exists()


# ---------------------------------------------------------------------- inspect
@pytest.mark.parametrize("target", ["native", "aarch64", "riscv64", "x86_64-macos", "x86_64-windows", "wasm32"])
def test_inspect_objects_for_any_machine(target: str) -> None:
    invoke("export", "two.mlir", "-o", "two.o", "--target", target, "--entry", "twice")
    shown = invoke("inspect", "two.o")
    assert "two_twice" in cells(shown, "@twice")
    here = "runs on this machine" if target in ("native", HERE) else "for another machine"
    assert cells(shown, target).endswith(f"  {here}")
    assert cells(shown, "features")
    report = json.loads(invoke("inspect", "two.o", "--json"))
    assert report["functions"][0]["inputs"] == [{"name": "x", "dtype": "i32", "shape": [4], "bytes": 16}]
    assert report["targets"][0]["is_native"] == (here == "runs on this machine")


def test_inspect_reports_what_each_target_reads(folder: Path) -> None:
    rows = ", ".join(f"[{', '.join(f'{64 * i + j}.0' for j in range(64))}]" for i in range(64))
    text = f"""func.func @main(%x: tensor<32x64xf32>) -> tensor<32x64xf32> {{
      %w = stablehlo.constant dense<[{rows}]> : tensor<64x64xf32>
      %b = stablehlo.constant dense<[{", ".join(f"{n}.0" for n in range(64))}]> : tensor<64xf32>
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x64xf32>, tensor<64x64xf32>) -> tensor<32x64xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<64xf32>) -> tensor<32x64xf32>
      %2 = stablehlo.add %0, %1 : tensor<32x64xf32>
      return %2 : tensor<32x64xf32>
    }}"""
    (folder / "dense.mlir").write_text(text)
    invoke("export", "dense.mlir", "-o", "dense.o", "--target", "x86-64-v4,x86-64-v2")
    report = json.loads(invoke("inspect", "dense.o", "--json"))
    matrix = 64 * 64 * 4
    shared = {target["weights_bytes"] - target["own_weights_bytes"] for target in report["targets"]}
    assert [target["own_weights_bytes"] for target in report["targets"]] == [matrix, matrix]  # packed for each
    assert len(shared) == 1 and report["weights"]["bytes"] == 2 * matrix + shared.pop()
    assert "(16.0 KiB for this target alone)" in invoke("inspect", "dense.o")
    invoke("export", "dense.mlir", "-o", "dense.o", "--target", "x86-64-v2")
    assert "for this target alone" not in invoke("inspect", "dense.o")


def test_inspect_names_features_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from shlo_jit.cli import inspection

    if HERE != "x86_64":
        pytest.skip("levels of x86-64")
    invoke("export", "two.mlir", "-o", "two.o", "--target", "x86-64-v3,x86-64")
    monkeypatch.setattr(inspection, "required_features", lambda target: ("avx", "fma"))
    shown = invoke("inspect", "two.o")
    assert "this machine lacks avx2, bmi" in cells(shown, "x86-64-v3")
    assert cells(shown, "x86-64 ").endswith("  runs on this machine")
    assert "avx2, bmi" in cells(shown, "features of x86-64-v3")


def test_inspect_reports_the_memory_of_an_instance() -> None:
    """The sizes that the library itself reports."""
    from shlo_jit import load

    invoke("export", "--example", "mlp", "-o", "mlp.so")
    report = json.loads(invoke("inspect", "mlp.so", "--json"))
    for threads in (1, 2, 8):
        assert load("mlp.so", threads=threads).memory.arena == report["memory"][str(threads)]


@pytest.mark.parametrize("file", ["calls.o", "calls.a", "calls.so"])
def test_symbols_are_those_that_binutils_find(file: str) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    invoke("export", "calls.mlir", "-o", file, "--custom-call", "my_op")
    report = json.loads(invoke("inspect", file, "--json"))
    expected = symbols_of_nm(file, *(["-D"] if file.endswith(".so") else []))
    assert report["symbols"] == [s for s in expected if s != "_GLOBAL_OFFSET_TABLE_"]
    assert {"my_op", "dgetrf_"} <= set(expected)
    shown = invoke("inspect", file)
    assert "my_op as my_op" in cells(shown, "custom calls") and "dgetrf_" in cells(shown, "LAPACK")
    assert "my_op" not in cells(shown, "symbols  ") and "dgetrf_" not in cells(shown, "needs")


@pytest.mark.parametrize("file", ["calls.o", "calls.a"])
def test_symbols_of_formats_that_are_not_read(file: str) -> None:
    invoke("export", "calls.mlir", "-o", file, "--custom-call", "my_op", "--target", "aarch64-macos")
    assert json.loads(invoke("inspect", file, "--json"))["symbols"] is None
    shown = invoke("inspect", file)
    assert "\nneeds " not in shown and "my_op as my_op" in cells(shown, "custom calls")


def test_symbols_of_webassembly() -> None:
    """`nm` does not support WebAssembly."""
    for file in ("calls.a", "calls.o"):
        invoke("export", "calls.mlir", "-o", file, "--custom-call", "my_op", "--target", "wasm32")
        report = json.loads(invoke("inspect", file, "--json"))
        assert {"env.my_op", "env.dgetrf_"} <= set(report["symbols"])
    data = Path("calls.o").read_bytes()
    for end in range(9, len(data) // 4, 7):
        Path("cut.o").write_bytes(data[:end])
        try:
            assert set(library_symbols.needs("cut.o").symbols) <= set(report["symbols"])
        except ValueError as error:
            assert "it is damaged" in str(error)


def test_inspect_refuses_what_is_no_library(folder: Path) -> None:
    assert "two.mlir" in invoke("inspect", "two.mlir", status=2)
    assert "no such file" in invoke("inspect", "none.so", status=2)
    assert "it is a folder" in invoke("inspect", str(folder), status=2)


# ---------------------------------------------------------------------- run
def test_run_takes_a_library(folder: Path) -> None:
    x, y = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    for file in ("two.so", "two.o"):
        invoke("export", "two.mlir", "-o", file, "--entry", "main", "--entry", "twice")
        shown = invoke("run", file, "--input", "x.npy", "y.npy", "--output-dir", "out", "--threads", "1")
        assert cells(shown, "library").split()[1] == file and "1 thread" in cells(shown, "run")
        np.testing.assert_array_equal(np.load("out/output0.npy"), x + y)
        assert "@main, @twice" in invoke("run", file, "--random", "--entry", "third", status=2)
        assert "int32   4" in invoke("run", file, "--random", "--entry", "twice")
    invoke("export", "two.mlir", "-o", "one.so", "--entry", "twice")
    assert "int32   4" in invoke("run", "one.so", "--random")


@pytest.mark.parametrize("ending", ["a", "wasm"])
def test_run_says_what_it_cannot_load(ending: str) -> None:
    if ending == "wasm" and shutil.which("wasm-ld") is None:
        pytest.skip("wasm-ld is not installed")
    invoke("export", "two.mlir", "-o", f"two.{ending}", *(["--target", "wasm32"] if ending == "wasm" else []))
    assert ".so or .o" in invoke("run", f"two.{ending}", "--random", status=2)


@pytest.mark.parametrize("command", ["profile", "show", "reduce"])
def test_other_commands_want_a_program(command: str) -> None:
    invoke("export", "two.mlir", "-o", "two.o")
    shown = invoke(command, "two.o", *({"profile": ["--random"], "reduce": ["--crash"]}.get(command, [])), status=1)
    assert "this is an ELF object or library" in shown and "shlo_jit.load runs it" in shown


# ---------------------------------------------------------------------- on a terminal
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PROGRESS_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    invoked = []
    with progress.steps("parsing") as tell:
        while "parsing" not in terminal.getvalue():
            invoked.append(1)
        tell("writing weights", 3 << 20, 6 << 20)
        while "MiB" not in terminal.getvalue():
            invoked.append(1)
    assert "writing weights" in terminal.getvalue() and "3.0/6.0 MiB" in terminal.getvalue()
