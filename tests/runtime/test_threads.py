"""The thread pool by itself, and how many threads a call gets."""

import ctypes
import threading
import time

import numpy as np
import pytest
from programs import TARGET

import shlo_jit
from shlo_jit.codegen import jit
from shlo_jit.codegen.optimize import emit_assembly, emit_object, optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels import threads
from shlo_jit.kernels.builder import ModuleText, V, i64
from shlo_jit.runtime import cpus


def pool_with_tasks() -> ModuleText:
    """The pool, `count` (adds 1 to an i64 per index), `who` (notes the worker number, slowly), `nest` (starts `count`
    from inside of a task) and `many` (starts a task many times)."""
    m = ModuleText(TARGET)
    threads.build(m, TARGET)
    params = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]

    b = m.function("count", params, linkage="external")
    at = b.element(b.params[0], "i64", b.params[1])
    b.store(b.add(b.load("i64", at), 1), at)
    b.ret()

    b = m.function("who", params, linkage="external")
    frame, _, worker = b.params
    # frame[worker] is in use while a task runs: a second one with the same number would find it so.
    mine = b.element(frame, "i64", b.add(worker, 1))
    before = b.emit("i64", f"atomicrmw add ptr {mine.text}, i64 1 seq_cst")
    with b.if_(b.icmp("ne", before, i64(0))):
        b.store(i64(1), frame)
    spun = b.alloca("i64")
    with b.loop(0, 20_000) as i:
        b.line(f"store volatile i64 {i.text}, ptr {spun.text}")
    b.emit("i64", f"atomicrmw sub ptr {mine.text}, i64 1 seq_cst")
    b.ret()

    b = m.function("nest", params, linkage="external")
    inner = b.element(b.params[0], "i64", b.mul(b.params[1], 8))
    b.call("void", "shlo_parallel", [V("ptr", "@count"), inner, i64(8), i64(4)], declare=False)
    b.ret()

    b = m.function(
        "many", [("ptr", "task"), ("ptr", "frame"), ("i64", "times"), ("i64", "tasks"), ("i64", "threads")],
        linkage="external",
    )  # fmt: skip
    task, frame, times, tasks, count = b.params
    with b.loop(0, times):
        b.call("void", "shlo_parallel", [task, frame, tasks, count], declare=False)
    b.ret()
    return m


@pytest.fixture(scope="module")
def pool():
    names = ["many", "count", "who", "nest"]
    library = jit.load([emit_object(optimize(pool_with_tasks().text(), TARGET), TARGET)], names)
    library.keep_for_ever()  # its workers outlive the test
    many = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3)(library.addresses["many"])

    def run(task: str, frame: np.ndarray, times: int, tasks: int, count: int) -> None:
        many(library.addresses[task], frame.ctypes.data, times, tasks, count)

    return run


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 100])
@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 64])
def test_every_index_once(pool, count, tasks):
    frame = np.zeros(max(tasks, 1), np.int64)
    pool("count", frame, 300, tasks, count)
    assert (frame[:tasks] == 300).all()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_worker_numbers_are_unique(pool, count):
    frame = np.zeros(count + 1, np.int64)
    pool("who", frame, 50, 4 * count, count)
    assert not frame.any()


def test_nested(pool):
    frame = np.zeros(64, np.int64)
    pool("nest", frame, 200, 8, 3)
    assert (frame == 200).all()


def test_several_callers(pool):
    frames = [np.zeros(16, np.int64) for _ in range(8)]
    callers = [threading.Thread(target=pool, args=("count", f, 5000, 16, 2 + k % 3)) for k, f in enumerate(frames)]
    for t in callers:
        t.start()
    for t in callers:
        t.join(timeout=60)
    assert all((f == 5000).all() for f in frames)


def test_idle_pool_uses_no_cpu(pool):
    pool("count", np.zeros(8, np.int64), 10, 8, 8)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.02


def test_cold_calls(pool):
    frame = np.zeros(8, np.int64)
    for _ in range(100):
        time.sleep(0.001)
        pool("count", frame, 1, 8, 4)
    assert (frame == 100).all()


def test_cost_of_a_fork(pool, capsys):
    frame, best = np.zeros(8, np.int64), {}
    for tasks in (2, 4):
        pool("count", frame, 100, tasks, 2)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            pool("count", frame, 5000, tasks, 2)
            times.append((time.perf_counter() - begin) / 5000)
        best[tasks] = min(times)
    with capsys.disabled():
        print("\nfork and join, 2 threads:", ", ".join(f"{t} tasks {s * 1e6:.2f} us" for t, s in best.items()))


def test_other_architecture():
    target = resolve("aarch64:neoverse-n1")
    m = ModuleText(target)
    threads.build(m, target)
    assembly = emit_assembly(optimize(m.text(), target), target)
    assert "shlo_parallel" in assembly
    assert "yield" in assembly


# ---------------------------------------------------------------------- how many
def test_argument_comes_first(monkeypatch):
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", "3")
    assert cpus.thread_count(5) == 5
    assert cpus.thread_count() == 3
    monkeypatch.delenv("SHLO_JIT_NUM_THREADS")
    assert cpus.thread_count() == cpus.usable_cpus() >= 1


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_bad_argument(value):
    with pytest.raises(ValueError, match="threads must be a positive integer"):
        cpus.thread_count(value)


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_bad_variable(monkeypatch, value):
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", value)
    with pytest.raises(ValueError, match="SHLO_JIT_NUM_THREADS must be a positive integer"):
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
    """More chunks than tasks there may be, two a task: in place, a task without a chunk of its own would compute the tail once more."""
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
