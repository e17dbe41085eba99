"""Files that are written for perf, and where they are not."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET, binary, parallel

import shlo_jit
from shlo_jit.codegen import perf
from shlo_jit.runtime.build import build

X = np.ones(4, np.float32)
TEXT = """func.func @main(%x: tensor<1024x512xf32>) -> tensor<1024xf32> {
  %0 = stablehlo.exponential %x : tensor<1024x512xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<1024x512xf32>, tensor<f32>) -> tensor<1024xf32>
  return %1 : tensor<1024xf32>
}"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of this process, in a folder of the test."""
    monkeypatch.setenv("SHLO_JIT_PERF", "1")
    monkeypatch.setattr(perf, "FOLDER", str(tmp_path))
    return tmp_path / f"perf-{os.getpid()}.map"


def lines(path: Path) -> list[tuple[int, int, str]]:
    rows = [line.split(" ", 2) for line in path.read_text().splitlines()]
    return [(int(start, 16), int(size, 16), name) for start, size, name in rows]


def test_functions_are_where_the_map_says(names: Path) -> None:
    exe = build(parallel(64, 4), TARGET, cache=False)
    found = {name: (start, size) for start, size, name in lines(names)}
    entry, task = found["shlo_jit:shlo_main"], found["shlo_jit:task"]
    assert entry[0] == exe._front.instance.loaded.entry
    assert entry[1] > 0
    assert task[1] > 0
    assert entry[0] + entry[1] <= task[0] or task[0] + task[1] <= entry[0]
    assert stat.S_IMODE(names.stat().st_mode) == 0o600


def test_kernels_of_a_program_have_names(names: Path) -> None:
    exe = shlo_jit.compile(TEXT, cache=False)
    kernels = {
        line[line.index("@") + 1 : line.index("(")] for line in exe.text("llvm").splitlines() if "define" in line
    }
    assert any("reduce" in kernel for kernel in kernels), kernels
    assert {f"shlo_jit:{kernel}" for kernel in kernels} <= {name for _, _, name in lines(names)}


def test_lines_of_all_threads_are_whole(names: Path) -> None:
    def work() -> None:
        for i in range(50):
            perf.note([(f"f{i}", 1 << 40, 16)] * 20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lines(names)) == sorted([(1 << 40, 16, f"shlo_jit:f{i}") for i in range(50)] * 80)


def test_off_by_default(names: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHLO_JIT_PERF")
    build(binary(4), TARGET, cache=False)
    assert not names.exists()


def test_lines_of_an_earlier_process_are_dropped(names: Path) -> None:
    names.write_text("1000 10 stale\n")
    os.utime(names, (1, 1))
    names.chmod(0o644)
    perf.note([("f", 0x2000, 16)])
    perf.note([("g", 0x3000, 16), ("empty", 0x4000, 0)])
    assert names.read_text() == "2000 10 shlo_jit:f\n3000 10 shlo_jit:g\n"
    assert stat.S_IMODE(names.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "fifo", "folder"])
def test_existing_files_are_not_written_to(names: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    if kind != "dangling":
        victim.write_text("precious")
    if kind in ("link", "dangling"):
        names.symlink_to(victim)
    elif kind == "hard link":
        names.hardlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(names)
    else:
        names.mkdir()
    with pytest.warns(RuntimeWarning, match="perf"):
        exe = build(binary(4), TARGET, cache=False)
    assert exe(X, X).tolist() == [2, 2, 2, 2]
    assert victim.exists() == (kind != "dangling")
    assert kind == "dangling" or victim.read_text() == "precious"
