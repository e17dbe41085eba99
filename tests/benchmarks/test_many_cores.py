"""The simulator of many cores: task sets with known answers, and a recorded program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import many_cores
from benchmarks.schedule_model import FREE, Costs, Job, Memory, Segment, Serial, simulate, slowdown, work_of
from benchmarks.task_times import with_regions

ONE = Memory("one", of_thread=1.0, of_node=4.0)


def job(*seconds: float, nbytes: float = 0.0) -> Job:
    return Job("a", np.array(seconds), nbytes)


def equal(tasks: int, seconds: float = 1.0) -> Job:
    return job(*[seconds] * tasks)


# ---------------------------------------------------------------------- without costs
def test_serial_work_takes_as_long_on_any_number_of_threads() -> None:
    found = simulate([Serial("a", 3.0)], 4)
    assert found.seconds == 3.0
    assert found.efficiency == 0.25
    assert found.losses.serial == found.losses.total == 2.25


@pytest.mark.parametrize(("tasks", "threads", "seconds"), [(8, 4, 2), (5, 4, 2), (4, 4, 1), (3, 4, 1), (1, 4, 1),
                                                           (8, 1, 8), (129, 128, 2)])  # fmt: skip
def test_equal_tasks_run_in_rounds(tasks: int, threads: int, seconds: float) -> None:
    found = simulate([equal(tasks)], threads)
    assert found.seconds == seconds
    assert found.losses.imbalance == pytest.approx(seconds - tasks / threads)


def test_the_caller_takes_tasks_from_the_front_and_workers_from_the_end() -> None:
    assert simulate([job(3, 1, 1, 1)], 2).seconds == 3
    assert simulate([job(1, 1, 1, 3)], 2).seconds == 3
    # The worker has the last task, then the caller runs the long one.
    assert simulate([job(1, 1, 3, 1)], 2).seconds == 4


def test_a_job_begins_when_the_one_before_has_ended() -> None:
    assert simulate([equal(3), equal(3)], 2).seconds == 4


# ---------------------------------------------------------------------- costs
def test_two_threads_pay_for_publishing_seeing_and_leaving() -> None:
    costs = Costs(start=0.2, see=0.5, line=0.1, wake=0, awake=0, spin=1e9)
    assert simulate([equal(2)], 2, costs).seconds == pytest.approx(1 + 0.2 + 0.5 + 0.1)


def test_taking_tasks_is_one_thread_at_a_time() -> None:
    costs = Costs(start=0, see=0, line=1, wake=0, awake=0, spin=1e9)
    found = simulate([equal(100, seconds=0.0)], 4, costs)
    assert found.seconds >= 100 - 3  # those that come with places are not counted down
    assert found.losses.largest() == "pool"


def test_workers_that_waited_too_long_have_to_be_woken() -> None:
    costs = Costs(start=0, see=0, line=0, wake=0.5, awake=2, spin=10)
    job_of_two = job(1, 1)
    assert simulate([Serial("s", 9), job_of_two], 2, costs).seconds == 10
    woken = simulate([Serial("s", 11), job_of_two], 2, costs)
    # The caller runs the task of the worker's place, because it comes too late.
    assert woken.seconds == pytest.approx(11 + 0.5 + 2)


def test_losses_and_work_add_up_to_the_time() -> None:
    rng = np.random.default_rng(1)
    program: list[Segment] = []
    for n in (1, 3, 20, 70, 300):
        program += [Serial("s", float(rng.random())), Job("j", rng.random(n), 50.0)]
    for threads in (2, 7, 64):
        found = simulate(program, threads, Costs(0.1, 0.1, 0.01, 0.1, 0.5, 1.0), ONE)
        assert found.work == pytest.approx(work_of(program))
        assert found.seconds == pytest.approx(found.work / threads + found.losses.total)
        assert sum(lost.total for lost in found.by_step.values()) == pytest.approx(found.losses.total)


# ---------------------------------------------------------------------- regions
def test_tasks_of_steps_that_run_together_are_one_job() -> None:
    a, b, c = (Job(f"{i} dot_general", np.full(i, 1.0)) for i in (1, 2, 3))
    packing, between = Job("2 dot_general", np.full(5, 1.0)), Serial("between steps", 0.1)
    found = with_regions([a, between, packing, b, between, c, a], [{"1", "2"}])
    together = Job("1 dot_general + 2 dot_general", np.full(3, 1.0))
    wanted = [between, packing, together, between, c, a]
    assert [(type(s), s.step, np.size(s.seconds)) for s in found] == [
        (type(s), s.step, np.size(s.seconds)) for s in wanted
    ]
    assert simulate(found, 4).seconds < simulate([a, between, packing, b, between, c, a], 4).seconds


# ---------------------------------------------------------------------- memory
def test_tasks_that_share_memory_take_longer() -> None:
    bound = job(1, 1, 1, 1, 1, 1, 1, 1, nbytes=8.0)  # a byte per second each
    assert [simulate([bound], n, FREE, ONE).seconds for n in (1, 2, 4, 8)] == [8, 4, 2, 2]
    assert simulate([bound], 8, FREE, ONE).losses.largest() == "bandwidth"
    assert slowdown(job(1, 1), 2, ONE) == 1


def test_memory_of_several_nodes() -> None:
    def bandwidth(threads: int, *, interleaved: bool, link: float = 100.0) -> float:
        memory = Memory("two", 1.0, 4.0, nodes=2, cores_of_node=8, interleaved=interleaved, link=link)
        return memory.of_all(threads)

    assert [bandwidth(n, interleaved=True) for n in (2, 8, 16)] == [2, 8, 8]
    assert [bandwidth(n, interleaved=False) for n in (2, 8, 16)] == [2, 4, 4]
    assert bandwidth(16, interleaved=True, link=1.0) == 4  # half of all bytes go through two links


# ---------------------------------------------------------------------- files and tables
def recording() -> many_cores.Recording:
    program: list[Segment] = [Serial("0 loop", 1e-5), Job("1 dot_general", np.full(256, 1e-4), 1e6)]
    programs: dict[int, list[Segment]] = {n: program for n in many_cores.THREADS}
    return many_cores.Recording("dot f32 512", programs, {1: 0.0256, 2: 0.0129}, Costs(), ONE)


def test_recordings_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = recording()
    read = many_cores.load(many_cores.save(written, tmp_path))
    assert read.measured == written.measured and read.costs == written.costs and read.memory == written.memory
    for one, other in zip(read.programs[64], written.programs[64], strict=True):
        assert type(one) is type(other) and one.step == other.step
        np.testing.assert_allclose(one.seconds, other.seconds)


def test_every_table_has_a_row_for_a_model() -> None:
    for block in many_cores.BLOCKS_OF_PAGE.values():
        assert any("dot f32 512" in line for line in block([recording()]))


# ---------------------------------------------------------------------- a program
SCRIPT = """
import json
import numpy as np
import shlo_jit
from benchmarks import task_times
from benchmarks.schedule_model import Job, work_of

recorder = task_times.Recorder()
text = '''func.func @main(%a: tensor<300x256xf32>, %b: tensor<256x512xf32>) -> tensor<300x512xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
     : (tensor<300x256xf32>, tensor<256x512xf32>) -> tensor<300x512xf32>
  %1 = stablehlo.tanh %0 : tensor<300x512xf32>
  return %1 : tensor<300x512xf32>
}'''
a, b = (np.random.default_rng(i).standard_normal(s, np.float32) for i, s in enumerate([(300, 256), (256, 512)]))
executable = shlo_jit.compile(text, threads=64, cache=False)
found = task_times.record(recorder, executable, (a, b), (2, 64), 1 << 30)
measured = task_times.measure(executable, (a, b), (1, 2), 3)
print(json.dumps({
    "tasks": {n: [len(s.seconds) for s in p if isinstance(s, Job)] for n, p in found.items()},
    "steps": sorted({s.step for s in found[2]}), "work": work_of(found[2]), "measured": measured,
    "error": float(abs(executable(a, b) - np.tanh(a @ b)).max()),
}))
"""


def test_the_tasks_of_a_program_are_recorded() -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
                         capture_output=True, text=True, timeout=300, check=True)  # fmt: skip
    found = json.loads(ran.stdout)
    assert found["error"] < 1e-4
    few, many = (found["tasks"][n] for n in ("2", "64"))
    assert len(few) == len(many) > 0
    assert max(many) > max(few)
    assert any("dot_general" in step for step in found["steps"])
    # 39 million multiply-adds take more than 0.1 ms on any core, and recorded tasks are most of the call.
    assert 1e-4 < found["work"] < 20 * found["measured"]["1"]
    assert found["measured"]["1"] > 1e-4
