"""Partitioning of the rows of row blocks into tasks, shared by several stages that must agree on it."""

from __future__ import annotations

from shlo_jit import tuning


def min_rows_per_task(features: int) -> int:
    """Returns the minimum rows per task for which packing the other operands pays off.

    `features` are those of both other operands together: the number that each element of the scores is combined with.
    In return, the scores are not written to memory and read again.
    """
    return max(tuning.ATTENTION_TASK_ROWS, features // 2)


def row_parts(batch: int, m: int, features: int) -> int:
    """Returns the number of parts into which the rows of each batch are split for the gradient.

    Each part has its own sums. There is more than one part if there are fewer batches than tasks are needed for all
    threads.
    """
    return max(1, min(-(-tuning.ATTENTION_LEAST_TASKS // max(1, batch)), m // min_rows_per_task(features)))


def has_too_few_tasks(batch: int, m: int, n: int, k: int, features: int) -> bool:
    """Whether the gradient of attention has too few tasks for its amount of work."""
    tasks = batch * row_parts(batch, m, features)
    return tasks < tuning.ATTENTION_LEAST_TASKS and batch * m * n * k > tuning.GEMM_TASK
