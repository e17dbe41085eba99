"""Code being compiled: which threads wait, which code is kept, and what happens if compilation fails."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from shlo_jit import tuning
from shlo_jit.runtime.code_table import CodeTable

SECONDS = 20


def in_thread(work) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def test_one_compilation_for_all_callers() -> None:
    table: CodeTable[int, object] = CodeTable()
    started, go = threading.Event(), threading.Event()

    def make() -> object:
        started.set()
        assert go.wait(SECONDS)
        return object()

    first, one = in_thread(lambda: table.find(1, make))
    assert started.wait(SECONDS)
    others = [in_thread(lambda: table.find(1, lambda: pytest.fail("made twice"))) for _ in range(4)]
    go.set()
    for thread in (first, *(thread for thread, _ in others)):
        thread.join(SECONDS)
    assert all(found == one for _, found in others)
    assert len(table) == 1


def test_different_code_is_compiled_simultaneously() -> None:
    """Each compilation waits for the other one to have started, too."""
    table: CodeTable[int, int] = CodeTable()
    both = threading.Barrier(2)
    made = [in_thread(lambda n=n: table.find(n, lambda: both.wait(SECONDS) * 0 + n)) for n in (1, 2)]
    for thread, _ in made:
        thread.join(SECONDS)
    assert [found for _, found in made] == [[1], [2]]


def test_the_most_recently_used_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SPECIALIZATIONS", 2)
    table: CodeTable[int, int] = CodeTable()
    made: list[int] = []
    for n in (1, 2, 1, 3, 1, 2):
        assert table.find(n, lambda n=n: made.append(n) or n) == n
    assert made == [1, 2, 3, 2]
    assert len(table) == 2


def test_failures_are_not_kept() -> None:
    table: CodeTable[int, int] = CodeTable()
    started, go = threading.Event(), threading.Event()

    def fail() -> int:
        started.set()
        assert go.wait(SECONDS)
        raise ValueError("no")

    first, one = in_thread(lambda: table.find(1, fail))
    assert started.wait(SECONDS)
    second, two = in_thread(lambda: table.find(1, fail))
    go.set()
    first.join(SECONDS)
    second.join(SECONDS)
    assert [str(error) for error in (*one, *two)] == ["no", "no"]
    assert len(table) == 0
    assert table.find(1, lambda: 7) == 7


def test_an_interrupt_affects_only_its_thread() -> None:
    table: CodeTable[int, int] = CodeTable()
    started, go = threading.Event(), threading.Event()

    def interrupted() -> int:
        started.set()
        assert go.wait(SECONDS)
        raise KeyboardInterrupt

    first, one = in_thread(lambda: table.find(1, interrupted))
    assert started.wait(SECONDS)
    second, two = in_thread(lambda: table.find(1, lambda: 5))
    go.set()
    first.join(SECONDS)
    second.join(SECONDS)
    assert isinstance(one[0], KeyboardInterrupt)
    assert two == [5]


def test_a_signal_handler_during_compilation() -> None:
    """It runs in the thread that compiles the code, and so cannot wait for it."""
    table: CodeTable[int, str] = CodeTable()
    found: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(table.find(1, lambda: "handler")))
    try:
        assert table.find(1, lambda: signal.raise_signal(signal.SIGUSR1) or "maker") == "maker"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == ["handler"]


def test_a_child_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    table: CodeTable[int, int] = CodeTable()
    started, go = threading.Event(), threading.Event()
    thread, _ = in_thread(lambda: table.find(1, lambda: started.set() or go.wait(SECONDS) or 1))
    table.find(2, lambda: 2)
    assert started.wait(SECONDS)
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        kept = table.find(2, lambda: 0) == 2
        os._exit(0 if table.find(1, lambda: 3) == 3 and kept else 1)
    go.set()
    thread.join(SECONDS)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_waiting_thread_can_be_interrupted() -> None:
    table: CodeTable[str, int] = CodeTable()
    go_on = threading.Event()

    def slowly() -> int:
        go_on.wait(60)
        return 3

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    worker = threading.Thread(target=table.find, args=("a", slowly))
    worker.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            table.find("a", slowly)
        assert not go_on.is_set()
    finally:
        signal.signal(signal.SIGALRM, before)
        go_on.set()
        worker.join()
    assert table.find("a", slowly) == 3
