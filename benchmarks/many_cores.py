"""Predicts how programs run on many cores, from the times of their tasks on one.

    python -m benchmarks.many_cores record FOLDER [--only NAMES]     record tasks, and measure 1 and 2 threads
    python -m benchmarks.many_cores show FOLDER [--only NAMES]       print tables
    python -m benchmarks.many_cores show FOLDER --write              write them to docs/many_cores.md, with its picture

`task_times.py` records the tasks, `schedule_model.py` simulates their schedule, and `pool_costs.py` measures the costs
that it needs. Every model is recorded by a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import table, written
from benchmarks.report import seconds as shown_seconds
from benchmarks.schedule_model import Costs, Job, Memory, Outcome, Segment, Serial, simulate, work_of

PAGE = Path(__file__).parents[1] / "docs" / "many_cores.md"
PICTURES = PAGE.parent / "many_cores"
THREADS = (2, 4, 8, 16, 32, 64, 128)
FAR_BYTES = 32 << 20
"""Bytes of a program that stay in the last-level cache. The rest reaches memory."""
CALLS, SECONDS = 5, 4.0
"""Minimum measured calls of each number of threads, and seconds for which short ones are repeated."""
STEPS = 3
"""Steps that are listed for a model."""
MILAN = Memory("one memory", 20e9, 170e9)
"""One socket with eight channels of DDR4-3200: 83 % of the peak. Assumed, as is all that follows."""
MEMORIES = (
    MILAN,
    replace(MILAN, name="2 nodes, pages spread", nodes=2, cores_of_node=64, link=70e9),
    replace(MILAN, name="2 nodes, pages on one", nodes=2, cores_of_node=64, link=70e9, interleaved=False),
    replace(MILAN, name="4 nodes, pages on one", of_node=42e9, nodes=4, cores_of_node=32, link=42e9,
            interleaved=False),
)  # fmt: skip
SERVER = Costs(line=100e-9, see=0.3e-6, wake=2e-6, awake=30e-6)
"""Costs of the pool on a server: a cache line moves between core complexes."""


@dataclass
class Recording:
    """A model's tasks by number of threads, and what was measured with 1 and 2."""

    name: str
    programs: dict[int, list[Segment]]
    measured: dict[int, float]
    """Seconds of a call, see `task_times.measure`."""
    costs: Costs
    memory: Memory

    def outcome(self, threads: int, memory: Memory = MILAN, costs: Costs = SERVER) -> Outcome:
        found = simulate(self.programs[threads], threads, costs, memory)
        return replace(found, work=work_of(self.programs[2]))

    def predicted(self) -> float:
        """Seconds of a call on two threads of this machine."""
        return simulate(self.programs[2], 2, self.costs, self.memory).seconds


# ---------------------------------------------------------------------- recording
def record(name: str) -> Recording:
    """Records a model in this process, which has compiled nothing."""
    import shlo_jit
    from benchmarks import pool_costs, task_times
    from benchmarks.many_cores_models import MODELS
    from shlo_jit.runtime.executable import Executable

    recorder = task_times.Recorder()
    (model,) = (m for m in MODELS if m.name == name)
    built = model.build()
    executable = shlo_jit.compile(built.program, threads=THREADS[-1], cache=False, constants=built.constants)
    assert isinstance(executable, Executable)
    programs = task_times.record(recorder, executable, built.inputs, THREADS, FAR_BYTES, seconds=SECONDS)
    measured = task_times.measure(executable, built.inputs, (1, 2), CALLS, SECONDS)
    costs, memory = pool_costs.measured_costs(recorder), pool_costs.measured_memory(recorder)
    return Recording(name, programs, measured, costs, memory)


def save(recording: Recording, folder: Path) -> Path:
    """Writes a recording; times in nanoseconds."""
    def written(s: Segment) -> list[Any]:
        if isinstance(s, Serial):
            return [s.step, round(s.seconds * 1e9)]
        return [s.step, [round(float(x) * 1e9) for x in s.seconds], s.nbytes]

    path = folder / f"{recording.name.replace('/', '-').replace(' ', '_')}.json"
    path.write_text(json.dumps({
        "name": recording.name, "measured": recording.measured, "costs": asdict(recording.costs),
        "memory": asdict(recording.memory),
        "programs": {n: [written(s) for s in program] for n, program in recording.programs.items()},
    }), encoding="utf-8")  # fmt: skip
    return path


def load(path: Path) -> Recording:
    read = json.loads(path.read_text(encoding="utf-8"))

    def segment(words: list[Any]) -> Segment:
        step, times, *nbytes = words
        return Job(step, np.array(times) / 1e9, *nbytes) if nbytes else Serial(step, times / 1e9)

    programs = {int(n): [segment(w) for w in program] for n, program in read["programs"].items()}
    measured = {int(n): s for n, s in read["measured"].items()}
    return Recording(read["name"], programs, measured, Costs(**read["costs"]), Memory(**read["memory"]))


def recordings(folder: Path, only: str) -> list[Recording]:
    """Returns the recordings of a folder, in the order of the models."""
    from benchmarks.many_cores_models import select

    found = {r.name: r for r in map(load, sorted(folder.glob("*.json")))}
    return [found[m.name] for m in select(only) if m.name in found]


# ---------------------------------------------------------------------- tables
def signed(x: float) -> str:
    return f"{x:+.0%}".replace("%", " %")


def percent(x: float) -> str:
    return f"{x:.0%}".replace("%", " %")


def accuracy(found: Sequence[Recording]) -> list[str]:
    """Measured and predicted times of two threads: by the recorded tasks alone, and by the measured time of one thread
    and the predicted speedup. The second differs if the machine was busier when tasks were recorded."""
    rows, errors, by_speedup = [], [], []
    for r in found:
        predicted = r.predicted()
        errors.append(predicted / r.measured[2] - 1)
        by_speedup.append(predicted * r.measured[1] / work_of(r.programs[2]) / r.measured[2] - 1)
        times = map(shown_seconds, (r.measured[1], r.measured[2], predicted))
        rows.append([r.name, *times, signed(errors[-1]), signed(by_speedup[-1])])
    medians = (percent(float(np.median(np.abs(e)))) for e in (errors, by_speedup))
    rows.append(["median of the errors", "", "", "", *medians])
    return table(["model", "1 thread", "2 threads", "predicted", "error", "by speedup"], rows)


def efficiencies(found: Sequence[Recording]) -> list[str]:
    """Efficiency by number of threads, and what limits the model on 64."""
    rows = []
    for r in found:
        outcomes = {n: r.outcome(n) for n in THREADS}
        rows.append([r.name, *(percent(o.efficiency) for o in outcomes.values()), outcomes[64].losses.largest()])
    return table(["model", *map(str, THREADS), "limit at 64"], rows)


def losses(found: Sequence[Recording], threads: int = 64) -> list[str]:
    """Shares of the time on many threads: work, and each loss."""
    rows = []
    for r in found:
        o = r.outcome(threads)
        shares = (o.work / threads, *vars(o.losses).values())
        rows.append([r.name, shown_seconds(o.seconds), *(percent(s / o.seconds) for s in shares)])
    return table(["model", "time", "work", "serial", "imbalance", "pool", "bandwidth"], rows)


def offenders(found: Sequence[Recording], threads: int = 64) -> list[str]:
    """The steps by which most time is lost."""
    rows = []
    for r in found:
        o = r.outcome(threads)
        jobs = {s.step: s for s in r.programs[threads] if isinstance(s, Job)}
        for step, lost in sorted(o.by_step.items(), key=lambda item: -item[1].total)[:STEPS]:
            job = jobs.get(step)
            tasks = "-" if job is None else f"{len(job.seconds)} of {shown_seconds(float(np.median(job.seconds)))}"
            rows.append([r.name, step, lost.largest(), percent(lost.total / o.seconds), tasks])
    return table(["model", "step", "limit", "of the call", "tasks"], rows, words=3)


def nodes(found: Sequence[Recording], threads: int = 128) -> list[str]:
    """Efficiency of 128 threads by memory."""
    rows = [[r.name, *(percent(r.outcome(threads, m).efficiency) for m in MEMORIES)] for r in found]
    return table(["model", *(m.name for m in MEMORIES)], rows)


BLOCKS_OF_PAGE: dict[str, Callable[[Sequence[Recording]], list[str]]] = {
    "accuracy": accuracy,
    "efficiency": efficiencies,
    "losses": losses,
    "offenders": offenders,
    "nodes": nodes,
}


# ---------------------------------------------------------------------- commands
def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.many_cores", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("command", choices=("record", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="NAMES", help="words in the names of models")
    parser.add_argument("--write", action="store_true", help="write docs/many_cores.md and its picture")
    parser.add_argument("--model", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def record_all(folder: Path, only: str) -> Iterator[str]:
    """Records models in processes of their own. Yields the names of those that failed."""
    from benchmarks.many_cores_models import select

    folder.mkdir(parents=True, exist_ok=True)
    for model in select(only):
        command = [sys.executable, "-m", "benchmarks.many_cores", "record", str(folder), "--model", model.name]
        print(model.name, flush=True)
        if subprocess.run(command, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=False).returncode:
            yield model.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a model could not be recorded."""
    options = parse(arguments)
    if options.command == "record":
        if options.model:
            save(record(options.model), options.folder)
            return 0
        failed = list(record_all(options.folder, options.only))
        print(*(f"failed: {name}" for name in failed), sep="\n")
        return 1 if failed else 0
    found = recordings(options.folder, options.only)
    for name, block in BLOCKS_OF_PAGE.items():
        lines = block(found)
        print(f"{name}\n\n" + "\n".join(lines) + "\n")
        if options.write:
            PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), name, lines), encoding="utf-8")
    if options.write:
        from benchmarks.many_cores_pictures import draw

        print(f"wrote {draw(found, THREADS, PICTURES)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
