"""Number of threads of a call."""

import numpy as np
import pytest

import shlo_jit
from shlo_jit.runtime import cpus


def test_argument_comes_first(monkeypatch):
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", "3")
    assert cpus.thread_count(5) == 5
    assert cpus.thread_count() == 3
    monkeypatch.delenv("SHLO_JIT_NUM_THREADS")
    assert cpus.thread_count() == cpus.usable_cpus() >= 1


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_bad_argument(value):
    with pytest.raises(ValueError, match="threads.*positive"):
        cpus.thread_count(value)


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_bad_variable(monkeypatch, value):
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", value)
    with pytest.raises(ValueError, match="SHLO_JIT_NUM_THREADS"):
        cpus.thread_count()


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "max 100000\n", "cpu.max": "400000 100000"}, 4.0),
        ("0::/\n", {}, None),
        ("4:cpu,a:/x\n", {"cpu,a/x/cpu.cfs_quota_us": "200000", "cpu,a/x/cpu.cfs_period_us": "100000"}, 2),
        ("4:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, None),
        ("4:memory:/x\n", {"memory/x/cpu.cfs_quota_us": "1", "memory/x/cpu.cfs_period_us": "1"}, None),
    ],
)  # fmt: skip
def test_quota(tmp_path, cgroup, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(cgroup)
    assert cpus._cgroup_quota(str(tmp_path), str(tmp_path / "own")) == expected


@pytest.mark.parametrize("count", [1, 3])
def test_no_task_is_beyond_the_end(count: int) -> None:
    """There are more chunks than the maximum number of tasks, two per task. In place, a task without a chunk would
    compute the tail twice."""
    text = """
func.func @main(%x: tensor<154200xf32>) -> tensor<154200xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<154200xf32>
  %y = stablehlo.tanh %x : tensor<154200xf32>
  %z = stablehlo.add %y, %one : tensor<154200xf32>
  return %z : tensor<154200xf32>
}"""
    x = np.linspace(-2, 2, 154200, dtype=np.float32)
    exe = shlo_jit.compile(text, threads=count, donate=(0,), cache=False)
    assert np.allclose(exe(x.copy()), np.tanh(x) + 1, atol=1e-6)
