"""The transport `mpi`, by the cases of `mpi_ranks.py` in the processes that mpiexec starts; and without MPI."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shlo_jit

BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
HAS_MPI = MPIEXEC is not None and importlib.util.find_spec("mpi4py") is not None
with_mpi = pytest.mark.skipif(not HAS_MPI, reason="needs mpi4py, and mpiexec")
ROOT = Path(shlo_jit.__file__).parents[1]
COUNTS = [2, 4]


@functools.cache
def command() -> list[str]:
    """Returns the command mpiexec, with options that permit more processes than CPUs, and any user."""
    assert MPIEXEC is not None
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=True).stdout
    is_open = "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version
    return [MPIEXEC, *(["--oversubscribe", "--allow-run-as-root"] if is_open else [])]


def start(n: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    whole = [*command(), "-n", str(n), sys.executable, *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=120, env=environment, check=False)


def outputs(case: str, n: int, folder: Path) -> list[str]:
    """Returns the output of each process in a case."""
    ended = start(n, str(Path(__file__).with_name("mpi_ranks.py")), case, str(folder))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [(folder / str(rank)).read_text() for rank in range(n)]


@with_mpi
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("case", ["matrix", "loop", "global_arrays"])
def test_results(case: str, n: int, tmp_path: Path) -> None:
    assert outputs(case, n, tmp_path) == ["fine"] * n


@with_mpi
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize(("case", "what"), [("mismatch", "f32[4]"), ("large_mismatch", "f32[40000]")])
def test_processes_that_do_not_agree(case: str, what: str, n: int, tmp_path: Path) -> None:
    """All report the same disagreement of two of them, whichever noticed it first."""
    texts, at = outputs(case, n, tmp_path), re.escape(f"all_reduce of {what}")
    assert len(set(texts)) == 1
    found = re.fullmatch(
        rf"WorkerError: the processes do not agree: rank (\d) is at {at} \(line (\d+)\), "
        rf"but rank (\d) is at {at} \(line (\d+)\), with other groups, dimensions or another body",
        texts[0],
    )
    assert found is not None, texts[0]
    lines = {int(rank): line for rank, line in (found.groups()[:2], found.groups()[2:])}
    last = lines.pop(n - 1)
    assert (last, [*lines.values()]) == ("14", ["4"])


@with_mpi
@pytest.mark.parametrize("n", COUNTS)
def test_a_rank_that_ends_without_an_op(n: int, tmp_path: Path) -> None:
    texts = outputs("ended_early", n, tmp_path)
    assert len(set(texts)) == 1
    assert texts[0].startswith("WorkerError: the processes do not agree: rank ")
    assert texts[0].endswith(f" is at all_reduce of f32[4] (line 4), but rank {n - 1} has ended its program without it")


@with_mpi
@pytest.mark.parametrize("n", COUNTS)
def test_what_a_custom_call_raises(n: int, tmp_path: Path) -> None:
    assert (
        outputs("raises", n, tmp_path)
        == [f"WorkerError: rank {n - 1} is at custom_call @mine (line 3): KeyError: 'oops'"] * n
    )


@with_mpi
def test_a_rank_that_is_late(tmp_path: Path) -> None:
    text = "rank 0 is at all_reduce of f32[40000] (line 4), and rank 1 made no progress for 1 s"
    assert outputs("late", 2, tmp_path) == [f"WorkerTimeoutError: {text}"] * 2


@with_mpi
def test_a_rank_that_does_not_come(tmp_path: Path) -> None:
    text = "rank 0 is at all_reduce of f32[4] (line 4), and rank 1 made no progress for 1 s"
    assert outputs("absent", 2, tmp_path) == [f"WorkerTimeoutError: {text}", "did not come"]


@with_mpi
def test_programs_that_are_not_the_same(tmp_path: Path) -> None:
    text = "ExecutionError: transport='mpi': rank {} has compiled another program than rank {}"
    assert outputs("other_program", 2, tmp_path) == [text.format(1, 0), text.format(0, 1)]


@with_mpi
def test_grids_of_another_size(tmp_path: Path) -> None:
    grid = "num_replicas * num_partitions is 2 * 3 = 6"
    text = f"ValueError: transport='mpi': {grid}, but MPI has started 2 processes: run it by mpiexec -n 6"
    assert outputs("grid", 2, tmp_path) == [text] * 2


@with_mpi
def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    texts = outputs("arguments", 2, tmp_path)
    for rank, text in enumerate(texts):
        shape, count, local = text.splitlines()
        assert shape.startswith("ValueError: rank 0: argument 0 (x): ") and "float32[4], got float32[3]" in shape
        assert count.startswith("TypeError: ") and "2 processes, got 1" in count
        assert local.startswith(f"TypeError: rank {rank}: ")


@with_mpi
def test_the_variable_names_the_transport(tmp_path: Path) -> None:
    text = "<DistributedExecutable of 1 x 2 mpi (float32[4]) -> (float32[4])>"
    assert outputs("variable", 2, tmp_path) == [text] * 2


PROGRAM = """
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<ui32>) {
  %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.partition_id : tensor<ui32>
  return %0, %1 : tensor<2xf32>, tensor<ui32>
}
"""


@with_mpi
def test_the_command_prints_once(tmp_path: Path) -> None:
    file, x = tmp_path / "p.mlir", tmp_path / "x.npy"
    file.write_text(PROGRAM)
    np.save(x, np.float32([[1, 2], [3, 4]]))
    run = ["-m", "shlo_jit", "run", str(file), "--input", str(x), "--output-dir", str(tmp_path)]
    ended = start(2, *run)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("1 replica(s) x 2 partition(s), mpi") == 1
    np.testing.assert_array_equal(np.load(tmp_path / "output0.npy"), [[3, 4], [1, 2]])
    np.testing.assert_array_equal(np.load(tmp_path / "output1.npy"), [0, 1])
    refused = start(2, *run, "--processes", "3")
    assert refused.returncode == 2
    assert refused.stderr.count("MPI has started 2 processes") == 1


@pytest.mark.parametrize("transport", ["processes", "threads"])
def test_local_is_for_mpi_alone(transport: str) -> None:
    with (
        shlo_jit.compile(PROGRAM, num_partitions=2, transport=transport) as exe,
        pytest.raises(shlo_jit.ExecutionError, match=f"^local: .*{transport}.*mpi"),
    ):
        exe.local(np.zeros(2, np.float32))


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    from shlo_jit.runtime.transport.world import world

    world.cache_clear()
    with pytest.raises(ImportError, match=r"mpi4py.*pip install mpi4py"):
        shlo_jit.compile(PROGRAM, num_partitions=2, transport="mpi")


def test_the_variable_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_TRANSPORT", "pigeons")
    with pytest.raises(ValueError, match="^SHLO_JIT_TRANSPORT: .*'pigeons'$"):
        shlo_jit.compile(PROGRAM, num_partitions=2)
    monkeypatch.setenv("SHLO_JIT_TRANSPORT", "threads")
    with shlo_jit.compile(PROGRAM, num_partitions=2) as exe:
        assert exe.transport == "threads"
