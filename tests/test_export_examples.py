"""The examples that use exported models: built with their Makefiles, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import shlo_jit

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
sys.path.insert(0, str(EXAMPLES / "digits"))
from draw import draw  # type: ignore[import-not-found]

MISSING = "the example needs {}, which is not installed"


def needs(*tools: str):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=MISSING.format(" and ".join(missing)))


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the folder, without build products."""
    made = tmp_path / "examples"
    shutil.copytree(EXAMPLES, made, ignore=shutil.ignore_patterns("*.o", "*.a", "*.so", "*.wasm", "*.pgm", "classify"))
    command = tmp_path / "shlo-jit"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m shlo_jit "$@"\n')
    command.chmod(0o755)
    return made


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(cwd.parents[1] / "go"), "GOTOOLCHAIN": "local"}
    line = [str(word) for word in command]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def make(folder: Path, *targets: str) -> str:
    command = folder.parents[1] / "shlo-jit"
    return run("make", f"SHLO_JIT={command}", f"PYTHON={sys.executable}", *targets, cwd=folder)


def picture(folder: Path, digit: int, seed: int) -> str:
    name = f"{digit}-{seed}.pgm"
    run(sys.executable, "../digits/draw.py", str(digit), name, str(seed), cwd=folder)
    return name


def test_the_network_recognises_digits() -> None:
    exe = shlo_jit.compile(EXAMPLES / "digits" / "digits.mlir")
    random = np.random.default_rng(2)
    right = [int(np.argmax(exe(draw(i % 10, random)))) == i % 10 for i in range(500)]
    assert np.mean(right) > 0.99


@needs("make", "cc")
def test_c(examples: Path) -> None:
    shown = make(examples / "c", "run")
    assert "-Wall -Wextra -Wpedantic -Werror" in shown and shown.endswith("this is a 7\n")
    for digit in range(10):
        assert run("./classify", picture(examples / "c", digit, 5), cwd=examples / "c").endswith(f"a {digit}\n")
    assert "not a PGM file" in run("./classify", "classify.c", cwd=examples / "c", status=1)
    assert "No such file" in run("./classify", "none.pgm", cwd=examples / "c", status=1)
    assert "usage" in run("./classify", cwd=examples / "c", status=1)
    libraries = run("ldd", "classify", cwd=examples / "c")
    assert set(re.findall(r"\blib(\w+)[.-]", libraries)) <= {"c", "m", "pthread"}


@needs("make", "c++")
def test_cpp(examples: Path) -> None:
    shown = make(examples / "cpp", "run").splitlines()
    assert shown[-10:] == [f"{digit}.pgm is a {digit}" for digit in range(10)]
    assert "main.o: cannot be read" in run("./classify", "main.o", cwd=examples / "cpp", status=1)
    assert "not a PGM file" in run("./classify", "classify.cpp", cwd=examples / "cpp", status=1)
    assert "usage: classify PICTURE" in run("./classify", cwd=examples / "cpp", status=1)


@needs("make", "rustc")
def test_rust(examples: Path) -> None:
    assert "this is a 7 (" in make(examples / "rust", "run")
    assert "this is a 4 (" in run("./classify", picture(examples / "rust", 4, 5), cwd=examples / "rust")
    assert "not a PGM file" in run("./classify", "main.rs", cwd=examples / "rust", status=1)


@needs("make", "go", "cc")
def test_go(examples: Path) -> None:
    assert "this is a 7 (" in make(examples / "go", "run")
    assert "this is a 4 (" in run("./classify", picture(examples / "go", 4, 5), cwd=examples / "go")
    assert "not a PGM file" in run("./classify", "main.go", cwd=examples / "go", status=1)


@needs("make", "cc")
def test_python_ctypes(examples: Path) -> None:
    """Runs with `-I -S`: only Python's own library."""
    folder = examples / "python_ctypes"
    make(folder, "libdigits.so")
    script = [sys.executable, "-I", "-S", "call.py"]
    command = [*script, "./libdigits.so"]
    assert run(*command, cwd=folder) == "main(ui8[28, 28]) -> f32[10]\n"
    likely = run(*command, "main", picture(folder, 7, 5), cwd=folder)
    assert np.argmax([float(part) for part in likely.split(", ")]) == 7
    for words, said in {
        (): "usage: call.py LIBRARY",
        ("libnone.so",): "libnone.so: no such file",
        ("call.py",): "call.py: not a shared library for this machine",
        ("libdigits.so", "other"): "no function other; the library has main",
        ("libdigits.so", "main"): "main(ui8[28, 28]) -> f32[10] takes 1 files, one for each input; got 0",
        ("libdigits.so", "main", "none.pgm"): "none.pgm: No such file or directory",
        ("libdigits.so", "main", "Makefile"): "Makefile: ui8[28, 28] has 784 bytes, and the file has",
    }.items():
        shown = run(*script, *words, cwd=folder, status=1)
        assert said in shown and "Traceback" not in shown


def test_the_scripts_of_the_model_say_what_they_take(examples: Path) -> None:
    folder = examples / "digits"
    for words in ([], ["7"], ["x", "seven.pgm"], ["7", "seven.pgm", "x"], ["7", "seven.pgm", "1", "2"]):
        assert run(sys.executable, "draw.py", *words, cwd=folder, status=1).startswith("usage: draw.py")
    shown = run(sys.executable, "draw.py", "7", "none/seven.pgm", cwd=folder, status=1)
    assert shown == "none/seven.pgm: No such file or directory\n"


COMMANDS = re.findall(r"```sh\n(.*?)```", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.S)
TOOLS = {"digits": (), "python_ctypes": ("make", "cc"), "web": ("make", "node"), "pytorch": ()}
"""Required commands of a folder."""


def test_every_block_of_the_page_begins_in_its_folder() -> None:
    assert [re.match(r"cd (\w+)\n", block)[1] for block in COMMANDS] == list(TOOLS)  # type: ignore[index]


@pytest.mark.parametrize(("folder", "block"), list(zip(TOOLS, COMMANDS, strict=True)), ids=list(TOOLS))
def test_commands_of_the_page(folder: str, block: str, examples: Path) -> None:
    missing = [tool for tool in TOOLS[folder] if shutil.which(tool) is None]
    if missing:
        pytest.skip(MISSING.format(" and ".join(missing)))
    if folder == "web" and shutil.which("wasm-ld") is None:
        pytest.importorskip("ziglang", reason="linking WebAssembly needs wasm-ld or ziglang")
    if folder == "pytorch":
        pytest.importorskip("torch", reason="the example needs PyTorch")
    tools = examples.parent / "bin"
    tools.mkdir()
    for name in ("python", "python3"):
        (tools / name).symlink_to(sys.executable)
    (tools / "shlo-jit").symlink_to(examples.parent / "shlo-jit")
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    run("sh", "-e", "-c", f"PATH={path}; export PATH\n{block}", cwd=examples)


# ---------------------------------------------------------------------- web
STEPS, FEED, KILL = 600, 0.0545, 0.062


@pytest.fixture
def web(examples: Path) -> Path:
    if shutil.which("wasm-ld") is None:
        pytest.importorskip("ziglang", reason="linking WebAssembly needs wasm-ld or ziglang")
    make(examples / "web")
    return examples / "web"


def expected(steps: int) -> np.ndarray:
    """The picture, computed by the test."""
    exe = shlo_jit.compile(EXAMPLES / "web" / "reaction.mlir", "steps")
    u, v = np.ones((256, 256), np.float32), np.zeros((256, 256), np.float32)
    y, x = np.mgrid[:256, :256]
    for i in range(20):
        dy, dx = ((a + 128) % 256 - 128 for a in (y - (i * 61 + 90) % 256, x - (i * 97 + 40) % 256))
        inside = dx * dx + dy * dy <= (3 + i % 4) ** 2
        u[inside], v[inside] = 0.5, 0.25
    return exe(u, v, FEED, KILL, steps)[2]


@needs("make", "node")
def test_web_in_node(web: Path) -> None:
    assert "ms a step" in run("node", "render.mjs", "reaction.ppm", str(STEPS), cwd=web)
    for words in ([], ["x.ppm", "many"]):
        assert run("node", "render.mjs", *words, cwd=web, status=1) == "usage: node render.mjs PICTURE.ppm [STEPS]\n"
    (web / "reaction.wasm").rename(web / "other.wasm")
    assert run("node", "render.mjs", "x.ppm", cwd=web, status=1) == "no reaction.wasm: run make\n"
    (web / "other.wasm").rename(web / "reaction.wasm")
    data = (web / "reaction.ppm").read_bytes()
    drawn = np.frombuffer(data[-256 * 256 * 3 :], np.uint8).reshape(256, 256, 3).astype(int)
    wanted = expected(STEPS)[..., :3].astype(int)
    assert np.abs(drawn - wanted).max() <= 1  # f32 rounds differently without fused multiply-add, at most
    assert np.ptp(drawn) > 200  # the picture is not blank


CALL = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @triple(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""
CALL_HOST = """
import { readFile } from "node:fs/promises";
import { load } from "./library.js";

let status = 0;
const imports = { env: { triple(operands, results) {
  const { buffer } = library.exports.memory;
  const [from, to] = [operands, results].map((table) => new Uint32Array(buffer, table, 1)[0]);
  new Float32Array(buffer, to, 3).set(new Float32Array(buffer, from, 3).map((x) => 3 * x));
  return status;
} } };
const library = await load(await readFile("calls.wasm"), "calls", imports);
const [x, y] = [0, 0].map(() => library.array("f32", [3]));
x.view.set([1, 2, 3]);
library.functions.main(x, y);
console.log(...y.view);
status = 1;
try { library.functions.main(x, y); } catch (error) { console.log(error.message); }
try { library.functions.main(x); } catch (error) { console.log(error.message); }
"""


@needs("make", "node")
def test_custom_calls_in_javascript(web: Path) -> None:
    (web / "calls.mlir").write_text(CALL)
    (web / "calls.mjs").write_text(CALL_HOST)
    shlo_jit.export(web / "calls.mlir", web / "calls.wasm", target="wasm32", custom_calls=["triple"])
    assert run("node", "calls.mjs", cwd=web).splitlines() == [
        "3 6 9",
        "calls: a custom call of the program failed",
        "main: 2 arrays are wanted",
    ]


@pytest.fixture
def server(web: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(web))) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


@needs("make")
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING.format("chromium"))
def test_web_in_a_browser(server: str, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --virtual-time-budget=3000"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    page = run(*command, f"{server}/index.html?ahead={STEPS - 12}", cwd=tmp_path)
    found = re.search(r'data-drawn="(\d+)"', page)
    assert found is not None, page
    wanted = int(expected(STEPS).astype(int).sum())
    assert abs(int(found[1]) - wanted) < 256 * 256
