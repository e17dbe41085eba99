"""Number of threads that a call may use."""

from __future__ import annotations

import functools
import math
import operator
import os

from shlo_jit import environment
from shlo_jit.errors import UsageValueError
from shlo_jit.kernels.threads.state import MAX_WORKERS

VARIABLE = "SHLO_JIT_NUM_THREADS"
MOST_THREADS = MAX_WORKERS + 1
"""The caller and the pool's workers."""


def thread_count(threads: int | None = None) -> int:
    """Returns `threads` if given, else `SHLO_JIT_NUM_THREADS`, else the number of CPUs this process may use. Raises
    ValueError for an invalid count, and for more threads than the thread pool can have."""
    if threads is None:
        name, count = VARIABLE, environment.count(VARIABLE)
        if count is None:
            return min(usable_cpus(), MOST_THREADS)
    else:
        name, count = "threads", _integer(threads)
    if count < 1:
        hint = f"write threads={threads}" if isinstance(threads, str) and threads.isdecimal() and int(threads) else ""
        message = f"threads must be a positive integer, got {threads!r}"
        raise UsageValueError(message, code="option.value", hint=hint)
    if count > MOST_THREADS:
        raise UsageValueError(f"{name} must be at most {MOST_THREADS}, got {count}", code="option.value")
    return count


def _integer(value: object) -> int:
    """Returns the value as an integer; 0 if it is not one."""
    if isinstance(value, bool):
        return 0
    try:
        return operator.index(value)  # type: ignore[arg-type]  that is the question
    except TypeError:
        return 0


@functools.cache
def usable_cpus() -> int:
    """Returns the number of CPUs in this process's affinity mask, or fewer if a cgroup's quota is smaller."""
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        count = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _cgroup_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """Returns the smallest CPU quota of this process's cgroup and those above it, in CPUs; None if there is none."""
    quotas = []
    for line in _read(own).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = f"{root}/{controllers}" if controllers else root
        parts = [p for p in path.split("/") if p and p != ".."]
        for depth in range(len(parts) + 1):
            quotas.append(_quota_of("/".join([base, *parts[:depth]])))
    found = [q for q in quotas if q is not None]
    return min(found, default=None)


def _quota_of(folder: str) -> float | None:
    v2 = _read(f"{folder}/cpu.max").split()
    v1 = [_read(f"{folder}/cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    for quota, period in (v2[:2], v1) if len(v2) >= 2 else (v1,):
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            return int(quota) / int(period)
    return None


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
