"""Events of programs in the format of trace viewers (Chrome's, Perfetto): a JSON object, times in microseconds.

Each process of a trace has a track for each of its threads that made calls. Events within a step are drawn below it.
Times are those of CLOCK_MONOTONIC (`time.monotonic()`), so processes of one machine are aligned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen.program import TimedStep


class Recording(NamedTuple):
    """Events of one program."""

    label: str
    """Prefix of the labels of its steps."""
    steps: Sequence[TimedStep]
    events: np.ndarray
    """EVENT_TYPE[n] of `runtime/measured.py`."""
    missed: int
    """Number of events that did not fit."""


class ProcessEvents(NamedTuple):
    """Events of a process. It can be pickled, so that one of several processes can gather them."""

    number: int
    """Number of the process in its grid."""
    name: str
    recordings: Sequence[Recording]
    threads: Mapping[int, str] = {}
    """Names of threads, by `threading.get_ident()`."""

    @property
    def noted(self) -> int:
        return sum(len(r.events) for r in self.recordings)

    @property
    def missed(self) -> int:
        return sum(r.missed for r in self.recordings)


def write_trace(path: Path, processes: Sequence[ProcessEvents]) -> None:
    """Writes a trace of processes, each of which has its number as `pid`. Raises OSError."""
    events = [event for process in processes for event in trace_events(process)]
    missed = sum(process.missed for process in processes)
    trace = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"missed_events": missed}}
    path.write_text(json.dumps(trace, separators=(",", ":"), allow_nan=False), encoding="utf-8")


def trace_events(process: ProcessEvents) -> Iterator[dict[str, Any]]:
    """Yields the events of a process: its name and those of its threads, each run of a step, and a mark at the end if
    some are missing."""
    pid = process.number
    yield _metadata("process_name", pid, name=process.name)
    yield _metadata("process_sort_index", pid, sort_index=pid)
    tracks: dict[int, int] = {}
    end = 0
    for recording in process.recordings:
        for number, thread, begin, until in recording.events.tolist():
            if thread not in tracks:
                tracks[thread] = len(tracks) + 1
                name = process.threads.get(thread, f"thread {tracks[thread]}")
                yield _metadata("thread_name", pid, tracks[thread], name=name)
            end = max(end, until)
            step = recording.steps[number]
            place = {"pid": pid, "tid": tracks[thread], "ts": begin / 1e3, "dur": (until - begin) / 1e3}
            args = _arguments(recording.label, step, until - begin)
            yield {"ph": "X", "name": step.title, "cat": step.category, **place, "args": args}
    if process.missed:
        name = f"{process.missed:,} more events did not fit"
        yield {"ph": "i", "name": name, "cat": "missed", "s": "p", "pid": pid, "tid": 1, "ts": end / 1e3}


def _metadata(what: str, pid: int, tid: int = 0, **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _arguments(label: str, step: TimedStep, nanoseconds: int) -> dict[str, Any]:
    """Returns the details that viewers show of a selected event."""
    args: dict[str, Any] = {"step": (label + step.label).strip(), "ops": step.ops, "kernels": " ".join(step.kernels)}
    for amount, unit, rate in ((step.nbytes, "bytes", "GB/s"), (step.operations, "operations", "GFLOP/s")):
        if amount:
            args[unit] = amount
            if nanoseconds:
                args[rate] = float(f"{amount / nanoseconds:.3g}")
    return {name: value for name, value in args.items() if value != ""}
