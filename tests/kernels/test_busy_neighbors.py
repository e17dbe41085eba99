"""A worker that lost its core in a job: jobs of two threads run on the caller for a while."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from test_thread_pool import TARGET, TASK, Pool

from shlo_jit import tuning
from shlo_jit.kernels.atomics import atomic_load, atomic_store
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.threads.neighbors import is_known
from shlo_jit.kernels.threads.state import ALONE_UNTIL, SLEPT_AT, get_state

pytestmark = pytest.mark.skipif(not is_known(TARGET), reason="only Linux says when a thread has lost its core")
MILLISECOND = 1_000_000
TASKS = 16


def write_more(m: ModuleText) -> None:
    """Emits `late`: the caller has slept for a worker since so many nanoseconds; `left`: the nanoseconds for which jobs
    run on the caller; and the task `worker`, which slowly stores the number of its worker."""
    b = m.function("late", [("ptr", "seen"), ("i64", "slept")], linkage="external")
    state = get_state(b)
    now = b.call("i64", "shlo_pool_clock", [], declare=False)
    atomic_store(b, b.sub(now, b.params[1]), b.offset(state, SLEPT_AT), "monotonic")
    b.call("void", "shlo_pool_note", [state, b.params[0]], declare=False)
    b.ret()

    b = m.function("left", [], "i64", linkage="external")
    until = atomic_load(b, "i64", b.offset(get_state(b), ALONE_UNTIL), "monotonic")
    now = b.call("i64", "shlo_pool_clock", [], declare=False)
    b.ret(b.select(b.icmp("eq", until, 0), until, b.sub(until, now)))

    b = m.function("worker", TASK, linkage="external")
    frame, index, worker = b.params
    spun = b.alloca("i64")
    with b.loop(0, 20_000) as i:
        b.line(f"store volatile i64 {i.text}, ptr {spun.text}")
    b.store(worker, b.element(frame, "i64", index))
    b.ret()


class Late(Pool):
    def __init__(self) -> None:
        super().__init__("futex", write_more, ("late", "left", "worker"))
        at = self.library.addresses
        self.late = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(at["late"])
        self.left = ctypes.CFUNCTYPE(ctypes.c_int64)(at["left"])
        self.seen = np.full(1, -1)

    def workers_of(self, threads: int) -> set[int]:
        frame = np.full(TASKS, -1)
        self.run("worker", frame, 1, TASKS, threads)
        return {*frame.tolist()}

    def come_back(self, threads: int) -> bool:
        """Whether other workers take part in a job soon."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if self.workers_of(threads) != {0}:
                return True
        return False

    def note(self, slept: int) -> None:
        self.late(self.seen.ctypes.data, slept)


@pytest.fixture
def late():
    made = Late()
    made.check()
    yield made
    made.end()


def test_jobs_of_two_threads_run_alone_for_a_while(late: Late) -> None:
    late.note(30 * MILLISECOND)  # longer than the limit's share
    late.seen[0] = -1
    late.note(30 * MILLISECOND)
    assert 0 < late.left() <= tuning.LONGEST_ALONE
    assert late.workers_of(2) == {0}
    assert late.come_back(3)
    time.sleep(tuning.LONGEST_ALONE / 1e9)
    assert late.come_back(2)
    assert late.left() == 0


def test_a_rare_wait_has_no_consequence(late: Late) -> None:
    late.note(30 * MILLISECOND)
    assert late.left() == 0
    time.sleep(0.5)
    late.seen[0] = -1
    late.note(30 * MILLISECOND)
    assert late.left() == 0


def test_a_short_wait_has_a_short_consequence(late: Late) -> None:
    late.note(MILLISECOND // 10)
    late.seen[0] = -1
    late.note(MILLISECOND // 10)
    assert late.left() <= MILLISECOND // 10 * tuning.LATE_SHARE * 2


def test_a_worker_that_kept_its_core_is_not_late(late: Late) -> None:
    for _ in range(100):
        late.note(0)  # looks how often this thread was taken off its core so far
        time.sleep(0.001)  # until the consequence of that has ended
        assert late.workers_of(2) and late.left() == 0
        before = int(late.seen[0])
        late.note(100 * MILLISECOND)
        if late.seen[0] == before:
            assert late.left() == 0
            return
        time.sleep(tuning.LONGEST_ALONE / 1e9)
    pytest.skip("this thread always loses its core")
