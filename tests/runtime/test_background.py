"""Background work: its results, its errors, and routines started while a program is lowered."""

import threading

import pytest
from programs import TARGET, binary

from shlo_jit import InternalError
from shlo_jit.codegen.background import Background
from shlo_jit.kernels.routine import Routine
from shlo_jit.runtime import routines
from shlo_jit.runtime.build import build


def test_a_job_that_has_not_begun_runs_where_its_result_is_wanted():
    hold, begun = threading.Event(), threading.Event()

    def occupy() -> None:
        begun.set()
        hold.wait()

    with Background(1) as background:
        background.start(occupy)
        begun.wait()
        assert background.start(threading.get_ident).result() == threading.get_ident()
        hold.set()


def test_a_job_that_has_begun_is_waited_for():
    hold, begun = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        hold.wait()
        return threading.get_ident()

    with Background(1) as background:
        job = background.start(work)
        begun.wait()
        threading.Timer(0.05, hold.set).start()
        assert job.result() != threading.get_ident()


def test_where_no_thread_can_start_the_caller_works(monkeypatch):
    def fails(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with Background(2) as background:
        assert background.start(threading.get_ident).result() == threading.get_ident()


def test_leaving_drops_what_has_not_begun():
    ran = []
    hold = threading.Event()
    with Background(1) as background:
        background.start(hold.wait)
        background.start(lambda: ran.append(1))
        threading.Timer(0.05, hold.set).start()
    assert not ran


def test_a_routine_that_llvm_refuses_is_an_error_of_the_compilation():
    def write(module, target):
        module.functions["bad"] = "define void @bad() {\n  ret i32 0\n}"

    bad = Routine("bad_for_the_test", ("bad",), write)
    with Background(1) as background:
        starting = routines.Starting(TARGET, None, background, 2)
        starting.start(bad)
        with pytest.raises(InternalError, match="LLVM refuses"):
            build(binary(4), TARGET, cache=None, starting=starting)


def test_routines_are_compiled_once(monkeypatch):
    compiled = []

    def counted(begin):
        return lambda routine, *rest: compiled.append(routine.name) or begin(routine, *rest)

    for name in ("begin_routine", "compile_routine"):
        monkeypatch.setattr(routines, name, counted(getattr(routines, name)))
    inner = Routine("inner_for_the_test", (), lambda module, target: None)
    outer = Routine("outer_for_the_test", (), lambda module, target: None, (inner,))
    with Background(1) as background:
        starting = routines.Starting(TARGET, None, background, 2)
        starting.start(outer)
        starting.start(outer)
        starting.finish()
    routines.prepare([outer], TARGET, None)
    assert sorted(compiled) == ["inner_for_the_test", "outer_for_the_test"]
