"""How work is cut where tasks are few: so that threads are done at the same time.

Which threads there will be is not known, as tasks go by shapes alone: what counts is how long two and four take, of
which the caller takes tasks from the first on and the others from the last on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from shlo_jit import tuning

THREADS = ((2, 1.0), (4, 0.5))
"""That are thought of, and how much each counts."""


@cache
def even_tasks(lines: int, chunk: int, columns: int, each: int, vector: int, work: int) -> tuple[int, int]:
    """Lines and columns of a task: `chunk` and `each`, or fewer columns and other lines where tasks are few and threads
    would wait for each other. Of columns, a multiple of `vector` that is at most `each`. `work`: multiply-adds of all
    tasks."""
    tasks = -(-lines // chunk) * -(-columns // each)
    if tasks >= tuning.CONV_FEW_TASKS:
        return chunk, each
    most = max(4 * tasks, tuning.CONV_FEW_TASKS)
    vectors, found = -(-columns // vector), [(chunk, each)]
    for height in {-(-lines // n) for n in range(1, min(lines, most) + 1)}:
        for width in {-(-columns // (n * vector)) * vector for n in range(1, min(vectors, most) + 1)}:
            count = -(-lines // height) * -(-columns // width)
            if width <= each and tasks - 1 <= count <= most:
                found.append((height, width))
    return min(found, key=lambda cut: (_time(lines, cut[0], columns, cut[1], work), -cut[0]))


def even_cut(lines: int, vectors: int, wanted: int) -> tuple[int, int]:
    """Parts along the lines and along vectors of channels, `wanted` or up to twice as many in all: the fewest that are
    equal and a multiple of four, and of those the ones with the longest lines; else about `wanted` of the longer."""
    for tasks in range(wanted, 2 * wanted + 1, 4):
        for columns in range(1, min(tasks, vectors) + 1):
            if tasks % columns == 0 == vectors % columns and lines % (tasks // columns) == 0:
                return tasks // columns, columns
    return (min(lines, wanted), 1) if lines >= vectors else (1, min(vectors, wanted))


def _time(lines: int, chunk: int, columns: int, each: int, work: int) -> float:
    """What the slowest thread does, in shares of what each would do at best, and what tasks take by themselves."""
    heights = [min(chunk, lines - i) for i in range(0, lines, chunk)]
    tasks = [height * min(each, columns - j) for j in range(0, columns, each) for height in heights]
    shares = sum(weight * _longest(tasks, threads) * threads for threads, weight in THREADS) / (lines * columns)
    return shares + len(tasks) * tuning.CONV_EACH_TASK / work


def _longest(tasks: Sequence[int], threads: int) -> int:
    """What the slowest thread does: each takes a task when it is done with one, the first thread from the front."""
    done, front, end = [0] * threads, 0, len(tasks)
    while front < end:
        thread = done.index(min(done))
        if thread == 0:
            done[0] += tasks[front]
            front += 1
        else:
            end -= 1
            done[thread] += tasks[end]
    return max(done)
