"""Load balance where tasks are few: how to cut the work so that threads finish at the same time.

The number of threads is not known, since tasks depend only on shapes. So the cost of a cut is the time that two and
four threads take. Of these, the caller takes tasks from the front, and the others take them from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from shlo_jit import tuning

THREADS = ((2, 1.0), (4, 0.5))
"""Thread counts considered, with weights."""


@cache
def even_tasks(lines: int, chunk: int, columns: int, each: int, vector: int, work: int) -> tuple[int, int]:
    """Returns the lines and columns of a task: `chunk` and `each`, or fewer columns and other lines if tasks are few
    and threads would wait for each other. The columns are a multiple of `vector` and at most `each`. `work`:
    multiply-adds of all tasks."""
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
    """Returns the number of parts along the lines and along the vectors of channels.

    There are `wanted` to twice as many parts. Preferred are equal parts whose number is a multiple of four: the fewest,
    and among these the ones with the longest lines. If there are none, about `wanted` parts of the longer extent."""
    for tasks in range(wanted, 2 * wanted + 1, 4):
        for columns in range(1, min(tasks, vectors) + 1):
            if tasks % columns == 0 == vectors % columns and lines % (tasks // columns) == 0:
                return tasks // columns, columns
    return (min(lines, wanted), 1) if lines >= vectors else (1, min(vectors, wanted))


def _time(lines: int, chunk: int, columns: int, each: int, work: int) -> float:
    """Returns the time of the slowest thread, relative to a perfect balance, plus the overhead of all tasks."""
    heights = [min(chunk, lines - i) for i in range(0, lines, chunk)]
    tasks = [height * min(each, columns - j) for j in range(0, columns, each) for height in heights]
    shares = sum(weight * _longest(tasks, threads) * threads for threads, weight in THREADS) / (lines * columns)
    return shares + len(tasks) * tuning.CONV_EACH_TASK / work


def _longest(tasks: Sequence[int], threads: int) -> int:
    """Returns the work of the slowest thread. A thread takes a task when it has finished one; the first thread takes
    them from the front, the others from the end."""
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
