"""Records how long each task of a program takes, alone on one core.

The programs of a process share one thread pool. `Recorder` replaces it by one that, during a recorded call, runs all
tasks on the caller and reads the clock after each of them. Kernels still divide their work for as many threads as the
call may use, because they are called as usual. Together with the profile of the steps, that gives a program as a list
of serial segments and jobs, which `schedule_model.py` schedules on any number of threads.

Only for processes that do nothing else: the other programs of the process get the recording pool as well. Programs are
compiled without the object cache, in which the pool would otherwise remain.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.schedule_model import Job, Segment, Serial
from shlo_jit.codegen.objects import compile_routine
from shlo_jit.codegen.program import TimedStep
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import labels_of
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import pool
from shlo_jit.runtime import routines
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.measured import Measured, Part

MONOTONIC = 1
"""Value of CLOCK_MONOTONIC, which the profile of the steps reads as well."""
HEAD = 3
"""Words of a job before its times: the address of its task, the number of tasks, the maximum number of threads."""
ROOM = 1 << 22
"""Words of the record of one call."""
EVENTS = 1 << 17
"""Steps of one call that are recorded, at most."""
RECORD, USED = V("ptr", "@shlo_task_record"), V("ptr", "@shlo_task_words")
"""Memory for the record, or null, and the number of words in use."""
INSIDE = V("ptr", "@shlo_inside_task")
"""Whether a recorded task is running."""
USUAL = "shlo_usual_parallel"


# ---------------------------------------------------------------------- the pool
def build(module: ModuleText, target: Target) -> None:
    """Emits the usual pool, with a function before its `shlo_parallel` that records while there is a record."""
    pool.build(module, target)
    text = module.functions.pop("shlo_parallel")
    module.functions[USUAL] = text.replace("@shlo_parallel(", f"@{USUAL}(")
    module.define_global(RECORD.text[1:], "global ptr null, align 8")
    module.define_global(USED.text[1:], "global i64 0, align 8")
    module.define_global(INSIDE.text[1:], "internal global i64 0, align 8")
    _write_parallel(module)


def _write_parallel(module: ModuleText) -> None:
    """Emits `shlo_parallel`. Jobs that a recorded task starts are a part of that task."""
    b = module.function("shlo_parallel", pool.PARAMETERS, linkage="external", attributes="nounwind")
    task, frame, tasks, threads = b.params
    time, record = b.alloca("i64", 2), b.load("ptr", RECORD)
    with b.if_(b.icmp("eq", record, V("ptr", "null"))):
        b.call("void", USUAL, b.params, declare=False)
        b.ret_early()
    used = b.load("i64", USED)
    end = b.add(used, b.add(tasks, HEAD + 1))
    with b.if_(b.or_(b.icmp("ne", b.load("i64", INSIDE), 0), b.icmp("sgt", end, ROOM))):
        with b.loop(0, tasks) as index:
            b.call_pointer("void", task, [frame, index, i64(0)])
        b.ret_early()
    b.store(i64(1), INSIDE)
    words = b.element(record, "i64", used)
    for i, word in enumerate((b.cast("ptrtoint", task, "i64"), tasks, threads)):
        b.store(word, b.element(words, "i64", i))
    times = b.element(words, "i64", HEAD)
    b.store(_now(b, time), times)
    with b.loop(0, tasks) as index:
        b.call_pointer("void", task, [frame, index, i64(0)])
        b.store(_now(b, time), b.element(times, "i64", b.add(index, 1)))
    b.store(end, USED)
    b.store(i64(0), INSIDE)
    b.ret()


def _now(b: Builder, time: V) -> V:
    """Returns the time in nanoseconds."""
    b.call("i32", "clock_gettime", [i32(MONOTONIC), time])
    return b.add(b.mul(b.load("i64", time), 1_000_000_000), b.load("i64", b.element(time, "i64", 1)))


RECORDING = Routine("threads", (*pool.SYMBOLS, *(v.text[1:] for v in (pool.ASK, pool.PINS, RECORD, USED))), build)


class Recorder:
    """The recording pool of this process."""

    def __init__(self) -> None:
        """Replaces the pool. Raises RuntimeError if a program has loaded the usual one."""
        target = resolve()
        routines.adopt(compile_routine(RECORDING, target), target)
        library = routines.load(RECORDING.name, target, None)
        if library is None or USED.text[1:] not in library.addresses:
            raise RuntimeError("record tasks in a process that has not compiled a program yet")
        self.addresses = library.addresses
        self._record = ctypes.c_uint64.from_address(self.addresses[RECORD.text[1:]])
        self._used = ctypes.c_int64.from_address(self.addresses[USED.text[1:]])
        self._words = np.zeros(ROOM, np.int64)

    def run(self, call: Callable[[], Any]) -> list[RecordedJob]:
        """Calls a program, and returns its jobs in order. Raises RuntimeError if they are too many."""
        self._used.value, self._record.value = 0, self._words.ctypes.data
        try:
            call()
        finally:
            self._record.value = 0
        used, at, jobs = self._used.value, 0, []
        if used > ROOM * 3 // 4:
            raise RuntimeError(f"the program has more than {ROOM * 3 // 4:,} tasks")
        while at < used:
            count = int(self._words[at + 1])
            times = self._words[at + HEAD : at + HEAD + count + 1].copy()
            jobs.append(RecordedJob(int(self._words[at]), times))
            at += HEAD + count + 1
        return jobs


class RecordedJob(NamedTuple):
    """A job as it ran."""

    task: int
    """Address of the task's code."""
    times: np.ndarray
    """i64[tasks + 1]: when the job began, and when each task ended, in nanoseconds."""


# ---------------------------------------------------------------------- programs
def record(
    recorder: Recorder,
    executable: Executable,
    arguments: Sequence[Any],
    threads: Sequence[int],
    far_bytes: int,
    rounds: int = 2,
    seconds: float = 0.0,
) -> dict[int, list[Segment]]:
    """Returns the program of a call as segments in order, by the maximum number of threads of the call. `executable`
    was compiled for at least that many threads. Each time is the shortest of `rounds` calls, or of those that fit into
    so many `seconds`, with each number of threads that divides the segment alike. `far_bytes` of the bytes that a
    program touches stay in the caches, whichever these are; that share of its traffic does not reach memory."""
    far = max(0.0, 1 - far_bytes / max(1, memory_bytes(executable)))
    runs: dict[int, list[list[Segment]]] = {n: [] for n in threads}
    with Measured(executable.parts(), EVENTS) as measured:
        (part,) = measured._parts
        executable(*arguments)
        began = time.perf_counter()
        while rounds > 0 or time.perf_counter() - began < seconds:
            rounds -= 1
            for n in threads:
                part.variant._front.instance.record.threads = n
                measured.reset()
                jobs = recorder.run(lambda: executable(*arguments))
                runs[n].append(_segments(part, jobs, far))
    joined = regions_of(executable)
    return {n: with_regions(program, joined) for n, program in _merged(runs).items()}


def regions_of(executable: Executable) -> list[set[str]]:
    """Returns the labels of the steps that run together, for each of the program's parallel regions."""
    ((_, planned),) = executable.planned()
    found = []
    for i, function in enumerate(planned):
        prefix = "" if i == len(planned) - 1 else f"@{function.name} "
        labels = labels_of(function.plan)
        found += [{prefix + labels[id(step)] for step in region.shared} for region in function.schedule.regions.all]
    return found


def with_regions(program: Sequence[Segment], regions: Sequence[set[str]]) -> list[Segment]:
    """Puts the tasks of steps that run together into one job, in place of the last of their jobs. Of a step with
    several jobs, only the last one takes part. Steps that ran without a job stay serial."""
    number_of = {label: number for number, labels in enumerate(regions) for label in labels}
    out: list[Segment] = []
    region: list[Segment] = []
    number: int | None = None
    for segment in program:
        if isinstance(segment, Serial):
            region.append(segment)
            continue
        if number_of.get(_label(segment)) != number:
            out += _together(region)
            region, number = [], number_of.get(_label(segment))
        if number is None:
            out += [*region, segment]
            region = []
        else:
            region.append(segment)
    return out + _together(region)


def _together(segments: Sequence[Segment]) -> list[Segment]:
    """Returns the segments with the last job of each step put into one."""
    last = {_label(s): i for i, s in enumerate(segments) if isinstance(s, Job)}
    jobs = [s for i, s in enumerate(segments) if isinstance(s, Job) and last[_label(s)] == i]
    if len(jobs) < 2:
        return list(segments)
    job = Job(" + ".join(j.step for j in jobs), np.concatenate([j.seconds for j in jobs]), sum(j.nbytes for j in jobs))
    end = max(last.values())
    kept = [s for i, s in enumerate(segments[:end]) if not (isinstance(s, Job) and last[_label(s)] == i)]
    return [*kept, job, *segments[end + 1 :]]


def _label(segment: Segment) -> str:
    return segment.step.rpartition(" ")[0]


def _merged(runs: Mapping[int, Sequence[Sequence[Segment]]]) -> dict[int, list[Segment]]:
    """Returns the shortest times. Segments at the same place of the program count together if they have as many tasks,
    whatever the number of threads; those of programs with other numbers of segments do not."""
    found: dict[tuple[int, int, int], Segment] = {}

    def key(program: Sequence[Segment], place: int) -> tuple[int, int, int]:
        return len(program), place, np.size(program[place].seconds)

    for several in runs.values():
        for program in several:
            for place, segment in enumerate(program):
                at = key(program, place)
                best = np.minimum(segment.seconds, found[at].seconds) if at in found else segment.seconds
                found[at] = segment._replace(seconds=best)
    return {n: [found[key(several[0], i)] for i in range(len(several[0]))] for n, several in runs.items()}


def measure(
    executable: Executable, arguments: Sequence[Any], threads: Sequence[int], calls: int, seconds: float = 0.0
) -> dict[int, float]:
    """Returns the seconds of a call by number of threads: the sum of the shortest times of its steps in so many calls,
    and of the rest. So it compares with tasks, of which the shortest times count, too, on a machine with other work.
    Short calls are repeated for so many `seconds`: a step on two threads is disturbed by other work on either core."""
    best: dict[int, np.ndarray] = {}
    with Measured(executable.parts(), EVENTS) as measured:
        (part,) = measured._parts
        began = time.perf_counter()
        while calls > 0 or time.perf_counter() - began < seconds:
            calls -= 1
            for n in threads:
                part.variant._front.instance.record.threads = n
                executable(*arguments)
                measured.reset()
                executable(*arguments)
                times = _step_times(part)
                best[n] = np.minimum(best.get(n, times), times)
    return {n: float(times.sum()) / 1e9 for n, times in best.items()}


def _step_times(part: Part) -> np.ndarray:
    """Returns the nanoseconds of each step of the last call, and those of the rest."""
    events = part.memory.events
    times = events["end"] - events["begin"]
    steps = times[np.array([part.timed[int(e["step"])].counts for e in events], bool)]
    return np.append(steps, times.max() - steps.sum())


def memory_bytes(executable: Executable) -> int:
    """Returns the bytes of all arrays of a program, without the scratch memory of threads."""
    memory, loaded = executable.memory_analysis(), executable._front.instance.loaded
    passed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return passed + loaded.program.arena_bytes + loaded.constant_bytes


def _segments(part: Part, jobs: Sequence[RecordedJob], far: float) -> list[Segment]:
    """Returns the segments of one call. Time between two jobs is serial, and belongs to the step around its middle.
    `far`: the share of the traffic that reaches memory."""
    events = part.memory.events
    whole = max(events, key=lambda e: int(e["end"] - e["begin"]))
    steps = _Steps(part.timed, events, jobs, far)
    out: list[Segment] = []
    last = int(whole["begin"])
    for job in jobs:
        begin, end = int(job.times[0]), int(job.times[-1])
        out.append(steps.serial(last, begin))
        out.append(steps.job(job))
        last = end
    out.append(steps.serial(last, max(last, int(whole["end"]))))
    return out


class _Steps:
    """The steps of one call by time."""

    def __init__(
        self, timed: Sequence[TimedStep], events: np.ndarray, jobs: Sequence[RecordedJob], far: float
    ) -> None:
        kept = np.array([timed[int(e["step"])].counts for e in events], bool)
        self._events = events[kept][np.argsort(events[kept]["begin"], kind="stable")]
        self._timed, self._far = timed, far

    def _at(self, time: int) -> np.void | None:
        place = int(np.searchsorted(self._events["begin"], time, "right")) - 1
        return self._events[place] if place >= 0 and time <= self._events[place]["end"] else None

    def _name(self, event: np.void | None) -> str:
        if event is None:
            return "between steps"
        step = self._timed[int(event["step"])]
        return f"{step.label} {step.title}".strip()

    def serial(self, begin: int, end: int) -> Serial:
        return Serial(self._name(self._at((begin + end) // 2)), (end - begin) / 1e9)

    def job(self, job: RecordedJob) -> Job:
        """Returns the job, with the share of its step's memory traffic that it has in the step's time."""
        begin, end = int(job.times[0]), int(job.times[-1])
        event = self._at((begin + end) // 2)
        nbytes = 0.0
        if event is not None:
            share = (end - begin) / max(1, int(event["end"] - event["begin"]))
            nbytes = self._timed[int(event["step"])].nbytes * min(1.0, share) * self._far
        return Job(self._name(event), np.diff(job.times) / 1e9, nbytes)
