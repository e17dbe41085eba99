"""Jobs on the threads of a team, which stands for that of an OpenMP library: full teams, larger and smaller ones."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from kernels.test_thread_pool import Pool, threads_of_the_process

FORMS = ("futex", "pthread")


class Team:
    """The three functions of an OpenMP library: regions of `members` threads, or of those asked for."""

    def __init__(self, size: int, members: int | None = None) -> None:
        self.own, self.regions = threading.local(), 0
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def parallel(function: int, data: int, asked: int, flags: int) -> None:
            self.regions += 1
            run = region(function)

            def member(number: int) -> None:
                self.own.number = number
                run(data)

            others = [threading.Thread(target=member, args=(i,)) for i in range(1, members or asked)]
            for thread in others:
                thread.start()
            member(0)
            for thread in others:
                thread.join()

        number = ctypes.CFUNCTYPE(ctypes.c_int32)
        of_region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
        self.functions = number(lambda: size), of_region(parallel), number(lambda: self.own.number)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self.functions]
        self.table = (ctypes.c_uint64 * 3)(*addresses)

    def lead(self, pool: Pool) -> None:
        """Makes the pool use this team."""
        word = ctypes.c_uint64.from_address(pool.library.addresses["shlo_team"])
        word.value = ctypes.addressof(self.table)


@pytest.fixture(params=FORMS)
def a_pool(request: pytest.FixtureRequest):
    made = Pool(request.param, more=("shlo_team",))
    yield made
    made.end()


@pytest.mark.parametrize(("size", "members"), [(3, None), (8, None), (3, 1), (8, 2), (3, 7)])
def test_every_index_once(a_pool: Pool, size: int, members: int | None) -> None:
    team = Team(size, members)
    team.lead(a_pool)
    for tasks in (2, 3, 7, 64):
        frame = np.zeros(tasks, np.int64)
        a_pool.run("count", frame, 20, tasks, 3)
        assert (frame == 20).all()
    assert team.regions == 80


@pytest.mark.parametrize(("size", "members"), [(4, None), (9, None), (4, 2)])
def test_worker_numbers_are_unique(a_pool: Pool, size: int, members: int | None) -> None:
    Team(size, members).lead(a_pool)
    frame = np.zeros(5, np.int64)
    a_pool.run("who", frame, 20, 16, 4)
    assert not frame.any()


def test_small_teams_are_not_used(a_pool: Pool) -> None:
    team = Team(3)
    team.lead(a_pool)
    a_pool.check(20, threads=4)
    assert team.regions == 0
    a_pool.check(20, threads=3)
    assert team.regions == 20


def test_workers_take_no_place_of_the_team(a_pool: Pool) -> None:
    """Workers that wait for jobs stay out of those of the team."""
    a_pool.check(20)
    before = threads_of_the_process()
    team = Team(4)
    team.lead(a_pool)
    frame = np.zeros(5, np.int64)
    for _ in range(20):
        a_pool.run("who", frame, 1, 16, 4)
        assert not frame.any()
    assert team.regions == 20
    assert threads_of_the_process() == before


def test_nested(a_pool: Pool) -> None:
    Team(3).lead(a_pool)
    frame = np.zeros(64, np.int64)
    a_pool.run("nest", frame, 20, 8, 3)
    assert (frame == 20).all()
