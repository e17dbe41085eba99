"""Binding workers to CPUs, and interleaving constants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit.errors import UsageValueError
from shlo_jit.kernels.threads.workers import MOST_CPUS
from shlo_jit.runtime import placement

PROGRAM = """func.func @main(%x: tensor<3000x1000xf32>) -> tensor<3000x1000xf32> {
  %y = stablehlo.tanh %x : tensor<3000x1000xf32>
  return %y : tensor<3000x1000xf32>
}"""
SCRIPT = f"""
import hashlib, os, sys
import numpy as np, shlo_jit
exe = shlo_jit.compile('''{PROGRAM}''', threads=4, cache=False)
before = {{*os.listdir("/proc/self/task")}}
x = np.random.default_rng(0).standard_normal((3000, 1000), np.float32)
y = exe(x)
workers = sorted((int(t) for t in {{*os.listdir("/proc/self/task")}} - before))
print([sorted(os.sched_getaffinity(t)) for t in workers])
print(sorted(os.sched_getaffinity(0)))
print(hashlib.sha256(y.tobytes()).hexdigest())
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads by this call")


def run(script: str, **variables: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(shlo_jit.__file__).parents[1]), **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()


@linux
def test_each_worker_is_bound_to_a_cpu() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    usual = run(SCRIPT)
    pinned = run(SCRIPT, SHLO_JIT_PIN_THREADS="1")
    assert usual[0] == str([cpus] * 3)
    assert pinned[0] == str([[cpus[(i + 1) % len(cpus)]] for i in range(3)])
    assert pinned[1] == usual[1] == str(cpus), "the caller's thread is left alone"
    assert pinned[2] == usual[2]


@linux
@pytest.mark.parametrize("variable", [placement.PIN_VARIABLE, placement.INTERLEAVE_VARIABLE])
def test_a_bad_value_names_the_variable(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "perhaps")
    with pytest.raises(ValueError, match=variable):
        placement.pin_workers({})
        placement.interleave(0, 1 << 21)


def test_the_caller_keeps_the_first_cpu() -> None:
    assert [*placement.table_of([2, 3, 7])] == [3, 3, 7, 2]
    assert [*placement.table_of([5])] == [1, 5]
    assert [*placement.table_of([0, MOST_CPUS])] == [1, 0]


def test_systems_without_affinity_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.PIN_VARIABLE, "1")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with pytest.raises(UsageValueError, match=placement.PIN_VARIABLE):
        placement.pin_workers({})


@linux
def test_constants_are_interleaved() -> None:
    """The policy of the mapping is that of the kernel's own list, or the refusal names the variable."""
    script = """
import numpy as np, shlo_jit
w = np.random.default_rng(0).standard_normal((1024, 1024)).astype("f4")
text = '''func.func @main(%x: tensor<8x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<8x1024xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x1024xf32>, tensor<1024x1024xf32>) -> tensor<8x1024xf32>
  return %0 : tensor<8x1024xf32>
}'''
try:
    exe = shlo_jit.compile(text, constants={"w": w}, cache=False)
except ValueError as error:
    assert "SHLO_JIT_INTERLEAVE" in str(error), error
    print("refused")
else:
    print(sum("interleave" in line for line in open("/proc/self/numa_maps")))
    x = np.ones((8, 1024), "f4")
    assert np.allclose(exe(x), x @ w, atol=1e-2)
"""
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("this kernel reports no memory policies")
    (usual,), (found,) = run(script), run(script, SHLO_JIT_INTERLEAVE="1")
    assert usual == "0"
    assert found == "refused" or int(found) >= 1


def test_nodes_are_words_of_bits(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nMems_allowed:\t00000001,00000000,80000003\nMems_allowed_list:\t0-1,31,64\n")
    assert placement.allowed_nodes(str(status)) == [0x80000003, 1]
    assert placement.allowed_nodes(str(tmp_path / "missing")) == [1]


@linux
def test_a_refusal_of_the_system_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.INTERLEAVE_VARIABLE, "1")
    monkeypatch.setattr(placement, "MBIND", dict.fromkeys(placement.MBIND, -1))
    data = np.ones(1 << 21, np.uint8)
    with pytest.raises(UsageValueError, match="SHLO_JIT_INTERLEAVE.*refuses.*ENOSYS"):
        placement.interleave(data.ctypes.data, data.nbytes)
    placement.interleave(data.ctypes.data, 1000)  # small constants are left alone
