"""Simulates a program's tasks on many threads: the thread pool, its costs, and shared memory bandwidth.

A program is a list of serial segments and jobs. The caller runs a serial segment alone. A worker that joins a job gets
one of its last tasks. The other tasks are taken by the caller from the front, and by workers from the end, as
`kernels/threads/pool.py` describes. The next segment begins when all workers have left.

Costs of the pool are those of cache lines that all threads write: a line is held by one thread after the other, for
`line` seconds each. Workers that have waited longer than `spin` seconds sleep. A thread wakes at most WOKEN_WORKERS of
them, one after the other; so does each of these.

Memory is a limit of bytes per second for all threads together, and one for each of them. A job whose threads want more
takes longer by that factor, so its tasks are assumed to overlap their loads with their arithmetic.

Not modelled: lower clock frequencies with many busy cores, and misses in caches that cores share.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shlo_jit.tuning import WOKEN_WORKERS


class Serial(NamedTuple):
    """Work that the caller does alone."""

    step: str
    seconds: float


class Job(NamedTuple):
    """Tasks that any number of threads may share."""

    step: str
    seconds: np.ndarray
    """f64[tasks]: the time of each task alone on a core."""
    nbytes: float = 0.0
    """Bytes that all of them together read from and write to memory."""


Segment = Serial | Job


@dataclass(frozen=True)
class Memory:
    """Bandwidth in bytes per second."""

    name: str
    of_thread: float
    """Maximum of a thread."""
    of_node: float
    """Maximum of a node's memory."""
    nodes: int = 1
    cores_of_node: int = 1 << 30
    interleaved: bool = True
    """Whether pages are spread over all nodes, instead of all being on the caller's, which has touched them first."""
    link: float = float("inf")
    """Maximum between two nodes, in one direction."""

    def of_all(self, threads: int) -> float:
        """Returns the maximum of so many threads, which fill one node after the other."""
        if self.nodes == 1:
            return min(threads * self.of_thread, self.of_node)
        used = min(self.nodes, -(-threads // self.cores_of_node))
        if not self.interleaved:
            # Threads of other nodes read through the link, and all together what one memory provides.
            near = min(threads, self.cores_of_node)
            far = min((threads - near) * self.of_thread, (used - 1) * self.link)
            return min(near * self.of_thread + far, self.of_node)
        # Every node gets 1 - 1/nodes of its bytes through links from the others.
        through_links = used * (self.nodes - 1) * self.link / (1 - 1 / self.nodes)
        return min(threads * self.of_thread, self.nodes * self.of_node, through_links)


@dataclass(frozen=True)
class Costs:
    """Costs of the pool, in seconds."""

    start: float = 0.2e-6
    """For the caller, to publish a job and to close it."""
    see: float = 0.2e-6
    """From publishing to the moment when a waiting worker has seen it."""
    line: float = 60e-9
    """For each write to a cache line that others have written."""
    wake: float = 2e-6
    """For a thread, to wake a sleeping worker."""
    awake: float = 20e-6
    """From then until the worker runs."""
    spin: float = 40e-6
    """Time until a waiting worker sleeps."""


FREE = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class Losses:
    """Seconds by which a call takes longer than its work divided by the threads."""

    serial: float = 0.0
    """Work of the caller alone."""
    imbalance: float = 0.0
    """Threads without a task, because there are few, or of different length."""
    pool: float = 0.0
    """Waking, taking tasks, waiting for each other."""
    bandwidth: float = 0.0

    @property
    def total(self) -> float:
        return self.serial + self.imbalance + self.pool + self.bandwidth

    def add(self, other: Losses) -> None:
        self.serial += other.serial
        self.imbalance += other.imbalance
        self.pool += other.pool
        self.bandwidth += other.bandwidth

    def largest(self) -> str:
        """Returns the name of the largest part."""
        return max(vars(self), key=lambda name: getattr(self, name))


@dataclass
class Outcome:
    """A simulated call."""

    threads: int
    seconds: float = 0.0
    work: float = 0.0
    """Seconds on one thread, without the pool."""
    losses: Losses = field(default_factory=Losses)
    by_step: dict[str, Losses] = field(default_factory=lambda: defaultdict(Losses))

    @property
    def speedup(self) -> float:
        return self.work / self.seconds

    @property
    def efficiency(self) -> float:
        return self.speedup / self.threads


class _Workers:
    """The workers of a pool, and since when each waits."""

    def __init__(self, count: int) -> None:
        self.waiting_since = [0.0] * count


def work_of(program: Iterable[Segment]) -> float:
    """Returns the seconds of all segments on one thread."""
    return sum(float(np.sum(s.seconds)) for s in program)


def simulate(
    program: Sequence[Segment], threads: int, costs: Costs = FREE, memory: Memory | None = None
) -> Outcome:
    """Runs a program on so many threads, from a state in which all workers wait for the first job."""
    out = Outcome(threads, work=work_of(program))
    workers, now = _Workers(threads - 1), 0.0
    for segment in program:
        losses = Losses()
        if isinstance(segment, Serial):
            now += segment.seconds
            losses.serial = segment.seconds * (1 - 1 / threads)
        else:
            began = now
            now = _run(segment, threads, costs, memory, workers, began)
            losses = _losses(segment, threads, memory, now - began)
        out.losses.add(losses)
        out.by_step[segment.step].add(losses)
    out.seconds = now
    return out


def _losses(job: Job, threads: int, memory: Memory | None, span: float) -> Losses:
    """Divides the loss of a job that took `span` seconds."""
    even = float(np.sum(job.seconds)) / threads
    plain = _run(job, threads, FREE, None, _Workers(threads - 1), 0.0)
    slower = _run(job, threads, FREE, memory, _Workers(threads - 1), 0.0)
    return Losses(imbalance=plain - even, bandwidth=slower - plain, pool=span - slower)


def slowdown(job: Job, threads: int, memory: Memory | None) -> float:
    """Returns the factor by which the tasks of a job take longer than alone, because so many threads read memory."""
    seconds = float(np.sum(job.seconds))
    if memory is None or not job.nbytes or not seconds:
        return 1.0
    hands = min(threads, len(job.seconds))
    rate = job.nbytes / seconds
    return max(1.0, hands * rate / max(rate, memory.of_all(hands)))


def _run(
    job: Job, threads: int, costs: Costs, memory: Memory | None, workers: _Workers, begin: float
) -> float:
    """Returns the time when a job that begins at `begin` has ended. Changes the workers' times."""
    tasks = np.asarray(job.seconds) * slowdown(job, threads, memory)
    hands = min(threads, len(tasks))
    if hands <= 1:
        return begin + float(np.sum(tasks))
    ready, caller_ready = _joined(hands - 1, costs, workers, begin)
    queue = [(caller_ready, -1), *((time, worker) for worker, time in ready.items())]
    heapq.heapify(queue)
    first, last, place = 0, len(tasks) - hands, len(tasks)
    free, closed, left = begin, 0, 0.0
    ends: dict[int, float] = {}
    has_joined: set[int] = set()
    while queue:
        time, worker = heapq.heappop(queue)
        if worker >= 0 and worker not in has_joined:  # its time of joining includes the access to the places
            has_joined.add(worker)
            if closed + len(has_joined) < hands:
                place -= 1
                heapq.heappush(queue, (time + float(tasks[place]), worker))
            continue
        if first <= last:
            time = max(time, free) + costs.line  # the count of tasks that remain is in one line
            free = time
            index = first if worker < 0 else last
            first, last = (first + 1, last) if worker < 0 else (first, last - 1)
            heapq.heappush(queue, (time + float(tasks[index]), worker))
        elif closed + len(has_joined) < hands - 1:  # places are open: whoever has no other task takes one
            closed, place = closed + 1, place - 1
            heapq.heappush(queue, (time + costs.line + float(tasks[place]), worker))
        else:
            ends[worker] = time + (costs.line if len(tasks) > hands else 0.0)
    for worker, time in sorted(ends.items(), key=lambda item: item[1]):
        left = max(left, time) + (costs.line if worker >= 0 else 0.0)  # workers that leave count in one line
        if worker >= 0:
            workers.waiting_since[worker] = left
    return left + costs.start / 2


def _joined(helpers: int, costs: Costs, workers: _Workers, begin: float) -> tuple[dict[int, float], float]:
    """Returns when each of the helpers takes its first task, by worker, and when the caller does."""
    order = sorted(range(len(workers.waiting_since)), key=lambda w: -workers.waiting_since[w])
    awake = [w for w in order if begin - workers.waiting_since[w] <= costs.spin][:helpers]
    asleep = [w for w in order if w not in set(awake)][: helpers - len(awake)]
    published = begin + costs.start / 2
    ready = {w: published + costs.see + i * costs.line for i, w in enumerate(awake)}
    for i, w in enumerate(asleep):
        by, nth = published, i
        if i >= WOKEN_WORKERS:
            earlier, nth = divmod(i - WOKEN_WORKERS, WOKEN_WORKERS)
            by = ready[asleep[earlier]]
        ready[w] = by + (nth + 1) * costs.wake + costs.awake
    return ready, published + min(len(asleep), WOKEN_WORKERS) * costs.wake
