"""How the rows of attention may be cut, which several stages have to agree about."""

from __future__ import annotations

from shlo_jit import tuning


def least_rows(features: int) -> int:
    """Rows of a task, at least, that packing the other operands pays for: so many features of theirs, both together,
    meet each element of the scores, which is not written and read again instead."""
    return max(tuning.ATTENTION_TASK_ROWS, features // 2)


def parts_of_rows(batch: int, m: int, features: int) -> int:
    """Into how many parts the rows of each batch are cut for the gradient, each of which has sums of its own: as many
    as there are too few batches for all threads."""
    return max(1, min(-(-tuning.ATTENTION_LEAST_TASKS // max(1, batch)), m // least_rows(features)))


def are_few_tasks(batch: int, m: int, n: int, k: int, features: int) -> bool:
    """Whether the gradient of attention has too few tasks for its work."""
    tasks = batch * parts_of_rows(batch, m, features)
    return tasks < tuning.ATTENTION_LEAST_TASKS and batch * m * n * k > tuning.GEMM_TASK
