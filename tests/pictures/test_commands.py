"""The commands that draw: show --stage graph and memory, profile --html."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictured import CONTROL, UNKNOWN, Page, chain, of_kind, read_svg, words
from typer.testing import CliRunner

from shlo_jit.cli import app


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("control", CONTROL), ("unknown", UNKNOWN), ("chain", chain(200))):
        Path(f"{name}.mlir").write_text(text)


def invoke(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == status, (result.output, result.exception)
    return result.stderr if status == 2 else result.stdout


def test_the_form_is_that_of_the_file() -> None:
    assert invoke("show", "control.mlir", "--stage", "graph", "-o", "a.html") == "wrote a.html\n"
    Page(Path("a.html").read_text())
    invoke("show", "control.mlir", "--stage", "graph", "-o", "a.svg")
    read_svg(Path("a.svg").read_text())
    assert invoke("show", "control.mlir", "--stage", "graph") == Path("a.svg").read_text()
    invoke("show", "control.mlir", "--stage", "graph", "--format", "dot", "-o", "a.txt")
    assert Path("a.txt").read_text().startswith('digraph "control.mlir" {')
    invoke("show", "control.mlir", "--stage", "memory", "-o", "m.svg")
    assert "control.mlir" in words(read_svg(Path("m.svg").read_text()))
    Page(invoke("show", "control.mlir", "--stage", "memory", "--format", "html"))
    assert invoke("show", "control.mlir", "--stage", "memory").startswith("arena ")
    invoke("show", "control.mlir", "--stage", "plan", "-o", "plan.txt")
    assert Path("plan.txt").read_text() == invoke("show", "control.mlir")


def test_steps_are_coloured_by_time() -> None:
    page = Page(invoke("show", "control.mlir", "--stage", "graph", "--format", "html", "--profile"))
    assert any("with their times in a call and their shares of" in text for text in page.texts("p"))
    root = read_svg(invoke("show", "chain.mlir", "--stage", "graph", "--profile"))
    assert any(word.endswith(" %") for word in words(root))
    assert any(of_kind(root, f"heat{i}") for i in range(1, 6))


def test_some_steps() -> None:
    root = read_svg(invoke("show", "chain.mlir", "--stage", "graph", "--steps", "100-102"))
    assert len(of_kind(root, "card")) == 3


def test_shapes_that_are_not_known() -> None:
    for dynamic in ("specialize", "symbolic"):
        given = ["unknown.mlir", "--shape", "8x64xf32", "--dynamic", dynamic]
        assert "0  loop" in words(read_svg(invoke("show", *given, "--stage", "graph", "--profile")))
        read_svg(invoke("show", *given, "--stage", "memory", "--format", "svg"))
        invoke("profile", *given, "--random", "--repeat", "2", "--html", "p.html")
        assert "loop" in Page(Path("p.html").read_text()).texts("td")


def test_a_profile_as_a_page() -> None:
    printed = invoke("profile", "control.mlir", "--random", "--repeat", "3", "--html", "p.html")
    assert printed.endswith("\nwrote p.html\n") and "GFLOP/s" in printed
    page = Page(Path("p.html").read_text())
    assert page.texts("h1") == ["control.mlir"]
    assert any("median of 3 calls" in text for text in page.texts("p"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--stage", "graph", "--format", "text"], "--format text: the stage graph is shown as svg, html, dot"),
        (["--stage", "plan", "--format", "svg"], "--format svg: the stage plan is shown as text"),
        (["--stage", "memory", "--format", "dot"], "--format dot: the stage memory is shown as text, svg, html"),
        (["--profile"], "--profile is for --stage graph"),
        (["--stage", "graph", "--steps", "7-3"], "--steps 7-3: expected numbers of steps, such as 10-25"),
        (["--stage", "graph", "--steps", "x"], "--steps x: expected numbers of steps, such as 10-25"),
        (["--stage", "graph", "-o", "f.png"], "--output f.png: the stage graph is written as svg, html, dot"),
        (["--stage", "memory", "-o", "f.dot"], "--output f.dot: the stage memory is written as text, svg, html"),
        (["--rank", "1"], "--rank 1: the program runs in one process"),
        (["--processes", "2", "--rank", "2"], "rank: expected 0 to 1, got 2"),
        (
            ["--processes", "2", "--stage", "graph", "--profile"],
            "--profile: the program runs in several processes; `run --trace` shows when their steps run",
        ),
        (["--steps", "1-2"], "--steps is for --stage graph as svg or dot"),
        (["--stage", "graph", "-o", "no/f.svg"], "cannot write to no: No such file or directory"),
    ],
)
def test_mistakes(args: list[str], message: str) -> None:
    assert invoke("show", "control.mlir", *args, status=2) == f"shlo-jit: error: {message}\n"


MEAN = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<64xf32>) -> tensor<64xf32>
  %1 = stablehlo.tanh %0 : tensor<64xf32>
  return %1 : tensor<64xf32>
}
"""


def test_programs_in_several_processes() -> None:
    Path("mean.mlir").write_text(MEAN)
    show = ["show", "mean.mlir", "--processes", "2"]
    assert "all_reduce" in invoke(*show)
    page = Page(invoke(*show, "--stage", "graph", "--format", "html", "--rank", "1"))
    assert any("process 1 of 2, " in text for text in page.texts("p"))
    assert "0  all_reduce" in page.texts("text")
    read_svg(invoke(*show, "--stage", "memory", "--format", "svg"))
    assert "0  loop" in words(read_svg(invoke("show", "unknown.mlir", "--shape", "8x64xf32", "--stage", "graph")))
    assert invoke("show", "control.mlir", "--processes", "2") == invoke("show", "control.mlir")
