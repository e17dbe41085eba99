"""The command: its output, its refusals, and its exit status."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import examples
from shlo_jit.cli import app, mistakes, running, timing
from shlo_jit.passes import PASSES
from shlo_jit.reference import flattened
from shlo_jit.stages import STAGES

ADD = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""
WRONG = """
func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.negate %x : tensor<2x3xf32>
  %1 = stablehlo.transpose %0, dims = [1, 7] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %1 : tensor<3x2xf32>
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def add(tmp_path: Path) -> str:
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    return str(path)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    path = tmp_path / "wrong.mlir"
    path.write_text(WRONG)
    return str(path)


EXPONENTIAL = """func.func @main(%x: tensor<64x100xf32>) -> tensor<64x100xf32> {
  %e = stablehlo.exponential %x : tensor<64x100xf32>
  return %e : tensor<64x100xf32>
}
"""


def save_text(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def save(path: Path, array: np.ndarray) -> str:
    np.save(path, array)
    return str(path)


def invoke(*args: str, status: int = 0, stdin: str | None = None):
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    return result


def mistake(*args: str) -> str:
    """The one line that a usage error prints on stderr."""
    result = invoke(*args, status=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("shlo-jit: error: ")
    return line.removeprefix("shlo-jit: error: ")


# ---------------------------------------------------------------------- run
def test_run_prints_program_inputs_results_and_times(add: str, tmp_path: Path) -> None:
    x, y = (save(tmp_path / f"{n}.npy", np.full((2, 3), v, np.float32)) for n, v in (("x", 1.5), ("y", 2.0)))
    lines = invoke("run", add, "--input", x, "--input", y).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line}
    assert add in rows["program"]
    assert "@main" in rows["functions"]
    assert "1 add" in rows["ops"]
    assert "1 loop" in rows["kernels"]
    assert "best" in rows["run"] and "median" in rows["run"]
    assert any("x.npy" in line and "2 x 3" in line and "float32" in line for line in lines)
    assert any("3.5" in line and "2 x 3" in line for line in lines)


def test_run_takes_several_files_after_one_input_option(add: str, tmp_path: Path) -> None:
    x, y = (save(tmp_path / f"{n}.npy", np.full((2, 3), v, np.float32)) for n, v in (("x", 10), ("y", -3)))
    invoke("run", add, "--input", x, y, "--output-dir", str(tmp_path / "out"))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "output0.npy"), np.full((2, 3), 7, np.float32))


def test_run_makes_up_the_inputs_that_are_missing(add: str, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    args = ["run", add, "--input", save(tmp_path / "x.npy", x), "--random"]
    results = []
    for seed in ("1", "1", "2"):
        invoke(*args, "--seed", seed, "--output-dir", str(tmp_path / "out"))
        results.append(np.load(tmp_path / "out" / "output0.npy"))
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


@pytest.mark.parametrize("dtype", ["i1", "i4", "ui8", "i64", "f8E5M2", "f16", "bf16", "f64", "complex<f64>"])
def test_random_inputs_have_the_type_the_program_wants(dtype: str) -> None:
    text = f"func.func @main(%x: tensor<7x{dtype}>) -> tensor<7x{dtype}> {{ return %x : tensor<7x{dtype}> }}"
    assert "7" in invoke("run", "-", "--random", stdin=text).stdout


def test_bfloat16_goes_through_npy_files(tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<3xbf16>) -> tensor<3xbf16> { return %x : tensor<3xbf16> }"
    x = np.array([1, -2, 0.5], ml_dtypes.bfloat16)
    out = tmp_path / "out"
    invoke("run", "-", "--input", save(tmp_path / "x.npy", x), "--output-dir", str(out), stdin=text)
    assert np.array_equal(np.load(out / "output0.npy").view(ml_dtypes.bfloat16), x)


def test_run_shows_scalars_and_programs_without_results() -> None:
    constant = "%0 = stablehlo.constant dense<41> : tensor<i32>"
    scalar = f"func.func @main() -> tensor<i32> {{ {constant} return %0 : tensor<i32> }}"
    assert "scalar   41" in invoke("run", "-", stdin=scalar).stdout
    assert "no results" in invoke("run", "-", stdin="func.func @main() { return }").stdout


def test_run_compiles_the_entry_named(tmp_path: Path) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(ADD + ADD.replace("@main", "@other").replace("add", "multiply"))
    assert "@main, @other" in invoke("run", str(path), "--random", "--entry", "other").stdout
    result = invoke("run", str(path), "--random", "--entry", "third", status=1)
    assert "no function @third" in result.stderr


# ---------------------------------------------------------------------- check
def row(text: str, index: int) -> list[str]:
    """Cells of a result's row."""
    (line,) = [line for line in text.splitlines() if line.startswith((f"{index} interpreted", f"{index} expected"))]
    return line.split()


def test_check_compares_with_the_interpreter(add: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert row(invoke("run", add, "--random", "--check").stdout, 0)[-2:] == ["same", "bits"]
    meaning = flattened.evaluate
    for moved, status, word in ((1e-6, 0, "close"), (1e-2, 1, "DIFFERS")):
        monkeypatch.setattr(
            flattened, "evaluate", lambda *a, moved=moved, **k: [x + np.float32(moved) for x in meaning(*a, **k)]
        )
        assert row(invoke("run", add, "--random", "--check", status=status).stdout, 0)[-1] == word


def test_check_says_which_result_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    t = "tensor<2x2xi32>"
    text = f"func.func @main(%x: {t}, %y: {t}) -> ({t}, {t}) {{ return %x, %y : {t}, {t} }}"
    wrong = np.array([[0, 0], [1, 0]], np.int32)
    monkeypatch.setattr(flattened, "evaluate", lambda function, x, y, module: (x, y + wrong))
    shown = invoke("run", "-", "--random", "--check", status=1, stdin=text).stdout
    assert row(shown, 0)[-2:] == ["same", "bits"] and row(shown, 1)[-1] == "DIFFERS" and "[1, 0]" in shown


def test_check_takes_the_first_platform() -> None:
    """Uses the first platform, like `compile`."""
    index = 'tensor<i32> {jax.global_constant = "_platform_index"}'
    text = f"func.func public @main(%p: {index}, %x: tensor<2xf32>) -> tensor<2xf32> {{ return %x : tensor<2xf32> }}"
    assert row(invoke("run", "-", "--random", "--check", stdin=text).stdout, 0)[-2:] == ["same", "bits"]


# ---------------------------------------------------------------------- mistakes
def test_mistakes_are_one_line(add: str, tmp_path: Path) -> None:
    assert mistake("run") == "give a FILE, or --example NAME"
    assert mistake("run", add, "--example", "mlp") == "give a FILE, or --example NAME"
    assert mistake("verify", str(tmp_path / "none.mlir")).endswith("none.mlir: no such file")
    assert mistake("verify", str(tmp_path)).endswith("it is a folder")
    assert mistake("run", "--example", "none").startswith("no example 'none'; examples are attention")
    assert mistake("run", "--example", "mpl") == "no example 'mpl'; did you mean 'mlp'?"
    meant = Path(add).with_name("adds.mlir")
    assert mistake("verify", str(meant)) == f"cannot read {meant}: no such file; did you mean {add}?"


WORDS = [
    (["show", "--example", "mlp", "--stage", "shedule"], "schedule"),
    (["show", "--example", "mlp", "--stage", "graph", "--format", "svgg"], "svg"),
    (["run", "--example", "mlp", "--dynamic", "symblic"], "symbolic"),
    (["run", "--example", "mlp", "--transport", "process"], "processes"),
    (["export", "--example", "mlp", "-o", "x.so", "--weights", "fle"], "file"),
    (["pass", "--example", "mlp", "--passes", "simplfy"], "simplify"),
    (["shwo", "--example", "mlp"], "show"),
    (["cache", "cler"], "clear"),
]


@pytest.mark.parametrize(("args", "meant"), WORDS)
def test_wrong_words_get_a_suggestion(args: list[str], meant: str) -> None:
    shown = " ".join(invoke(*args, status=2).stderr.split())  # lines are as wide as the terminal
    assert f"did you mean '{meant}'?" in shown


def test_a_defect_says_where_and_how_to_see_more(add: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("shlo_jit.pipeline.plan", fail)
    shown = invoke("run", add, "--random", "--no-cache", status=1).stderr
    assert "(KeyError: 'x') at " in shown and "test_cli.py:" in shown and "--debug COMMAND" in shown


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin1.mlir"
    path.write_bytes(b"// caf\xe9\n")
    for command in (["run"], ["verify"], ["show", "--stage", "module"]):
        assert invoke(*command, str(path), status=1).output.startswith(f"{path}:1:7: error: the text is not UTF-8\n")
        stdin = invoke(*command, "-", status=1, stdin="HloModule f\n").output
        assert stdin.startswith("<stdin>:1:1: error: this is HLO text, not StableHLO\n  hint: ")


def test_inputs_that_do_not_fit_are_mistakes(add: str, tmp_path: Path) -> None:
    good = save(tmp_path / "good.npy", np.ones((2, 3), np.float32))
    shape = save(tmp_path / "shape.npy", np.ones((3, 2), np.float32))
    dtype = save(tmp_path / "dtype.npy", np.ones((2, 3)))
    assert "got 1: " in mistake("run", add, "--input", good)
    assert mistake("run", add, "--input", good, good, good).endswith("got 3")
    assert "argument 1 (y): expected float32[2,3], got float32[3,2]" in mistake("run", add, "--input", good, shape)
    assert "argument 0 (x): expected float32[2,3], got float64[2,3]" in mistake("run", add, "--input", dtype, good)


def test_files_that_are_no_arrays_are_mistakes(add: str, tmp_path: Path) -> None:
    pickled, many, empty = (tmp_path / n for n in ("pickled.npy", "many.npz", "empty.npy"))
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    np.savez(many, a=np.ones(2))
    empty.write_bytes(b"")
    for path in (pickled, many, empty, tmp_path / "none.npy", Path(add)):
        assert f"cannot read {path}" in mistake("run", add, "--random", "--input", str(path))


def test_output_folder_that_cannot_be_made(add: str) -> None:
    result = invoke("run", add, "--random", "--output-dir", add, status=2)
    assert add in result.stderr


def test_thread_count_of_the_environment(add: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", "many")
    assert "SHLO_JIT_NUM_THREADS" in mistake("run", add, "--random")
    assert "1 thread" in invoke("run", add, "--random", "--threads", "1").stdout


def test_programs_that_the_memory_is_too_small_for() -> None:
    shape = "tensor<1000000x1000000xf32>"
    text = f"func.func @main(%x: {shape}) -> {shape} {{ return %x : {shape} }}"
    result = invoke("run", "-", "--random", status=1, stdin=text)
    assert result.stderr.startswith("shlo-jit: error: ") and result.stderr.count("\n") == 1


def test_variables_that_make_no_sense(add: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_BYTES", "1Q")
    expected = "SHLO_JIT_CACHE_BYTES must be a number of bytes such as 500M or 2GiB, got '1Q'"
    assert mistake("run", add, "--random") == expected
    assert mistake("cache", "info") == expected
    monkeypatch.setenv("SHLO_JIT_CACHE_BYTES", "1G")
    assert "of 1.0 GiB" in invoke("cache", "info").stdout


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_run_calls_as_often_as_asked(calls: int, add: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    timed = timing.timed
    monkeypatch.setattr(running, "timed", lambda call, repeat: timed(lambda: made.append(1) or call(), repeat))
    words = "in one call" if calls == 1 else f"median of {calls} calls"
    assert words in invoke("run", add, "--random", "--repeat", str(calls)).stdout
    assert len(made) == calls


def test_run_calls_a_long_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 2))  # the clock advances two seconds whenever it is read
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(now)))
    assert timing.timed(lambda: "result", None) == ("result", [2.0])


def test_run_reads_pipes(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(ADD,))
    writer.start()
    assert str(path) in invoke("run", str(path), "--random").stdout
    writer.join()


def test_tables_are_not_cut_where_there_is_no_terminal(tmp_path: Path) -> None:
    name = "a" * 150
    text = f"func.func @{name}(%{name}: tensor<2xf32>) -> tensor<2xf32> {{ return %{name} : tensor<2xf32> }}"
    shown = invoke("run", "-", "--random", "--entry", name, stdin=text).stdout
    assert f"1: @{name}" in shown and f"0 {name} " in shown


def test_version() -> None:
    assert invoke("--version").stdout == f"shlo-jit {shlo_jit.__version__}\n"
    assert importlib.metadata.version("shlo_jit") == shlo_jit.__version__


# ---------------------------------------------------------------------- verify, show, ops, cache
def test_verify_points_at_the_line(wrong: str) -> None:
    head, line, carets, rule = invoke("verify", wrong, status=1).stdout.splitlines()
    assert head.startswith(f"{wrong}:4:8: error: transpose C2")
    assert line.strip() == WRONG.splitlines()[3].strip()
    assert carets.strip() == "^" * len(carets.strip())
    assert line[carets.index("^") :].startswith("stablehlo.transpose %0")
    assert rule == "  rule: permutation is a permutation of range(rank(operand))"


def test_verify_as_json(wrong: str, add: str) -> None:
    (finding,) = json.loads(invoke("verify", wrong, "--json", status=1).stdout)
    assert (finding["file"], finding["line"], finding["column"]) == (wrong, 4, 8)
    assert finding["severity"] == "error" and finding["message"].startswith("transpose C2")
    assert {"op", "label", "found", "expected", "hint", "rule", "source_line"} <= set(finding)
    assert json.loads(invoke("verify", add, "--json").stdout) == []


def test_verify_in_colour_on_a_terminal(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    mistakes.print_diagnostics(shlo_jit.verify(Path(wrong)), stream)
    head, line, caret, *_ = stream.getvalue().splitlines()
    assert head.startswith(f"\x1b[1m{wrong}:4:8:\x1b[0m\x1b[1;31m error:\x1b[0m transpose C2")
    assert line.lstrip() == Path(wrong).read_text().splitlines()[3].lstrip()
    assert caret.startswith("\x1b[1;32m") and "^" in caret


def test_verify_says_that_a_program_is_valid(add: str) -> None:
    assert invoke("verify", add).stdout == f"{add}: valid\n"


@pytest.mark.parametrize("command", [["run", "--random"], ["show", "--stage", "llvm"]])
def test_refused_programs_end_with_status_1(command: list[str], wrong: str) -> None:
    result = invoke(*command, wrong, status=1)
    assert result.stdout == ""
    assert result.stderr.startswith(f"{wrong}:4:8: error: ")


def test_syntax_errors_end_with_status_1(tmp_path: Path) -> None:
    path = tmp_path / "broken.mlir"
    path.write_text("func.func @main(%x: tensor<2xf32>) -> {")
    assert invoke("run", str(path), status=1).stderr.startswith(f"{path}:1:")


@pytest.mark.parametrize(
    ("stage", "expected"),
    [("module", "stablehlo.add"), ("plan", "loop"), ("llvm", "define i32 @shlo_main("), ("asm", "shlo_main:")],
)
def test_show_prints_the_stage(stage: str, expected: str, add: str) -> None:
    assert expected in invoke("show", add, "--stage", stage).stdout


def test_show_prints_the_plan_unless_asked(add: str) -> None:
    assert invoke("show", add).stdout == invoke("show", add, "--stage", "plan").stdout


def test_show_writes_a_file_for_every_stage_and_pass(add: str, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    assert invoke("show", add, "--dump-dir", str(folder)).stdout.startswith("wrote ")
    names = sorted(file.name for file in folder.iterdir())
    assert [int(name[:2]) for name in names] == list(range(len(names)))
    stages = [name[3:].partition(".")[0] for name in names if "pass-" not in name]
    assert stages == list(STAGES)
    passes = [name[3:].removeprefix("pass-").removesuffix(".mlir") for name in names if "pass-" in name]
    assert [name.partition("-")[0] for name in passes] == ["inline", *(step.name for step in PASSES)]
    for name in names:
        if name.endswith(".mlir"):
            shlo_jit.parse(folder / name)
    for stage in ("core", "plan", "schedule", "memory", "lowered"):
        (file,) = folder.glob(f"*-{stage}.*")
        assert file.read_text() == invoke("show", add, "--stage", stage).stdout


def test_show_says_where_it_cannot_write(add: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert mistake("show", add, "--dump-dir", str(tmp_path / "file")).startswith("cannot write to ")


def test_profile_prints_the_steps_of_the_plan(add: str) -> None:
    head, *rest = invoke("profile", add, "--random", "--repeat", "3").stdout.splitlines()
    assert head.split()[0] == "program"
    assert "median of 3 calls" in rest[0]
    (row,) = [line for line in rest if line.split()[1:2] == ["loop"]]
    assert row.split()[:3] == ["0", "loop", "3"]
    assert "100.0 %" in row and "add" in row


def test_profile_asks_for_inputs(add: str) -> None:
    assert "--random" in mistake("profile", add)


def test_ops_lists_every_record() -> None:
    from shlo_jit.op_table import STRUCTURE
    from shlo_jit.ops import OPS

    listed = {line.split()[0] for line in invoke("ops").stdout.splitlines()[2:]}
    assert listed == set(OPS) - STRUCTURE


def test_cache_info_and_clear(add: str, own_cache: Path) -> None:
    invoke("run", add, "--random")
    assert list(own_cache.glob("*.shlo"))
    assert own_cache.name in invoke("cache", "info").stdout
    assert invoke("cache", "clear").stdout.startswith("deleted ")
    assert not list(own_cache.glob("*.shlo"))


def test_no_cache_stores_no_program(add: str, own_cache: Path) -> None:
    invoke("run", add, "--random", "--no-cache")
    assert not list(own_cache.glob("*.shlo"))


# ---------------------------------------------------------------------- as a process
def python(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment)


def test_module_is_the_command(add: str, wrong: str) -> None:
    assert python("-m", "shlo_jit", "run", add, "--random").returncode == 0
    refused = python("-m", "shlo_jit", "verify", wrong)
    assert refused.returncode == 1 and refused.stdout.startswith(f"{wrong}:4:8: error: ")
    usage = python("-m", "shlo_jit", "run", "no-such-file")
    assert usage.returncode == 2 and "Traceback" not in usage.stderr
    assert python("-m", "shlo_jit", "no-such-command").returncode == 2


def test_debug_logs_stages(add: str) -> None:
    log = python("-m", "shlo_jit", "--debug", "run", add, "--random", "--repeat", "1").stderr
    assert f"{add}: not in the object cache" in log
    assert all(
        f"{stage}: " in log for stage in ("parse", "verify", "passes", "fuse", "lower", "optimize and emit", "load")
    )
    assert f"{add}: in the object cache" in python("-m", "shlo_jit", "--debug", "run", add, "--random").stderr


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    command = [sys.executable, "-m", "shlo_jit", "run", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        writer = os.open(path, os.O_WRONLY)  # returns when the command has opened it for reading
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        os.close(writer)
    assert (process.returncode, out, error) == (130, b"", b"")


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_while_importing(tmp_path: Path) -> None:
    """Interrupts while the package itself is slow to import."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("import time; print('here', flush=True); time.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "shlo_jit", "--help"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"")


@pytest.mark.usefixtures("ctrl_c")
def test_importing_leaves_interrupts_alone() -> None:
    code = "import signal, shlo_jit; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert python("-c", code).stdout == "True\n"


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    lines = "\n".join(f"  %v{i} = stablehlo.negate %v{i - 1} : tensor<2xf32>" for i in range(1, 5000))
    path = tmp_path / "long.mlir"
    path.write_text(
        f"func.func @main(%v0: tensor<2xf32>) -> tensor<2xf32> {{\n{lines}\n  return %v9 : tensor<2xf32>\n}}"
    )
    command = f"{sys.executable} -m shlo_jit show {path} --stage module | head -1"
    shown = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=120)
    assert shown.stdout.count("\n") == 1 and shown.stderr == ""


def test_importing_the_package_imports_no_command_line() -> None:
    code = "import sys, shlo_jit; print(sorted({'typer', 'rich', 'numba', 'jax'} & set(sys.modules)))"
    assert python("-c", code).stdout.strip() == "[]"


@pytest.mark.parametrize("name", examples.names())
def test_examples_are_found_by_name(name: str) -> None:
    assert examples.summary(name)
    assert invoke("verify", "--example", name).stdout.startswith(f"{name} (example): valid")


# ---------------------------------------------------------------------- traces
def test_run_traces_one_call(add: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    plain = invoke("run", add, "--random", "--repeat", "1").stdout
    traced = invoke("run", add, "--random", "--repeat", "1", "--trace", str(path)).stdout
    assert traced.splitlines()[-1] == f"wrote 2 events to {path}"
    assert traced.splitlines()[-3] == plain.splitlines()[-1]  # the results
    events = [e["name"] for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert events == ["@main", "loop"]


def test_traces_say_what_did_not_fit(add: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shlo_jit.tuning.TRACE_EVENTS", 1)
    printed = invoke("run", add, "--random", "--trace", str(tmp_path / "t.json")).stdout
    last = printed.splitlines()[-1]
    assert last.startswith(f"wrote 1 event to {tmp_path / 't.json'}, 1 more")


def test_run_says_where_it_cannot_write_a_trace(add: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    expected = f"cannot write to {missing}: No such file or directory"
    assert mistake("run", add, "--random", "--trace", str(missing / "t.json")) == expected


# ---------------------------------------------------------------------- unknown dimensions
UNKNOWN = """
func.func @main(%x: tensor<?x3xf32>, %y: tensor<3xf32>, %z: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.add %x, %z : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
"""
COMPUTED = """
func.func @main(%x: tensor<?xi32>) -> tensor<?xi32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.reduce(%x init: %c) applies stablehlo.maximum across dimensions = [0]
    : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}
"""


def output(*args: str) -> str:
    return invoke(*args).stdout


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    path = tmp_path / "unknown.mlir"
    path.write_text(UNKNOWN)
    return str(path)


def test_shapes_of_inputs_with_unknown_dimensions(unknown: str, tmp_path: Path) -> None:
    shapes = ("--shape", "2x3xf32", "--shape", "2x3xf32")
    for command, printed in (("run", "2 x 3"), ("run --check", "same bits"), ("profile", "add (line 3)")):
        assert printed in output(*command.split(), unknown, "--random", *shapes)
    x = save(tmp_path / "x.npy", np.ones((4, 3), np.float32))
    assert "4 x 3" in output("run", unknown, "--random", "--input", x, "--shape", "4x3xf32")
    assert "tensor<2x3xf32>" in output("show", unknown, "--stage", "module", *shapes)
    assert "2x3xf32" in output("show", unknown, *shapes)
    assert "?" not in output("refine", unknown, *shapes)
    output("show", unknown, "--dump-dir", str(tmp_path / "dump"), *shapes)
    assert "?" not in (tmp_path / "dump" / "00-module.mlir").read_text()


@pytest.mark.parametrize("command", ["run", "run --check", "profile"])
def test_sizes_that_follow_from_data(command: str, tmp_path: Path) -> None:
    path = tmp_path / "computed.mlir"
    path.write_text(COMPUTED)
    x = save(tmp_path / "x.npy", np.array([3, 5], np.int32))
    printed = output(*command.split(), str(path), "--input", x)
    assert ("sizes 0" if command == "profile" else " 5 ") in printed
    if command == "run":
        trace = tmp_path / "t.json"
        output(command, str(path), "--input", x, "--trace", str(trace))
        assert '"sizes 0"' in trace.read_text()


def test_shapes_that_are_wrong(unknown: str, add: str) -> None:
    missing = "input 2 (%z) is float32[?,3], with unknown dimensions: give --shape 8x3xf32"
    for command in ("run", "show", "refine"):
        random = ["--random"] if command == "run" else []
        shown = mistake(command, unknown, *random, "--shape", "2x3xf32")
        assert missing in shown and ("--input" in shown) == (command == "run")  # the other commands have no such option
        assert "expected extents and an element type" in mistake(command, unknown, *random, "--shape", "2x3")
        wrong = mistake(command, unknown, *random, "--shape", "2x3xf64")
        assert "--shape: input 0 (%x) is float32[?,3], got one of float64" in wrong
        assert "fewer inputs with unknown dimensions" in mistake(command, add, *random, "--shape", "2x3xf32")


def test_a_given_schedule(tmp_path: Path) -> None:
    moves = tmp_path / "moves.json"
    program = save_text(tmp_path / "exp.mlir", EXPONENTIAL)
    printed = json.loads(invoke("show", "--stage", "moves", program).output)
    for move in printed["0"]:
        if move["move"] == "unroll":
            move["by"] = 2
    moves.write_text(json.dumps(printed))
    assert (
        "unroll          2 vectors" in invoke("show", "--stage", "schedule", "--schedule", str(moves), program).output
    )
    invoke("run", "--schedule", str(moves), "--random", "--check", program)
    for text in ("{", '{"7": []}', '{"0": [{"move": "jump"}]}', '{"0": [{"move": "unroll", "loop": 1, "by": 3}]}'):
        moves.write_text(text)
        assert "schedule" in mistake("run", "--schedule", str(moves), "--random", program)
    assert "none.json" in mistake("run", "--schedule", str(tmp_path / "none.json"), "--random", program)
