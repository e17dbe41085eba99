"""PyTorch's threads run the tasks of programs: the same bits, from several threads, and in children of a fork."""

from __future__ import annotations

import os
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from shlo_jit.runtime import openmp

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and the OpenMP library of PyTorch for Linux")


def product(a, b):
    return torch.relu(a @ b).sum(0) + 1


def compiled(threads):
    torch._dynamo.reset()
    return torch.compile(product, backend="shlo_jit", options={"threads": threads, "fallback": False})


@pytest.fixture(autouse=True)
def threads_of_pytorch():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def matrices():
    torch.manual_seed(0)
    return torch.randn(300, 200), torch.randn(200, 260)


def test_the_same_bits_with_teams_of_any_size(matrices):
    wanted = compiled(1)(*matrices)
    for threads in (2, 3, 8):
        run = compiled(threads)
        for size in (1, 2, 3, 8):
            torch.set_num_threads(size)
            assert torch.equal(run(*matrices), wanted)


@linux
def test_no_threads_but_those_of_pytorch(matrices):
    torch.set_num_threads(3)
    compiled(3)(*matrices)
    assert openmp.use_team(torch._C.__file__)
    torch.mm(*matrices)
    before = len(os.listdir("/proc/self/task"))
    run = compiled(3)
    for _ in range(5):
        run(*matrices)
    assert len(os.listdir("/proc/self/task")) <= before


def test_several_callers(matrices):
    torch.set_num_threads(2)
    run = compiled(2)
    wanted, equal = run(*matrices), []

    def call():
        equal.extend(torch.equal(run(*matrices), wanted) for _ in range(50))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(timeout=60)
    assert equal == [True] * 200


@linux
@pytest.mark.filterwarnings("ignore:.*fork")
def test_children_use_workers_of_their_own(matrices):
    torch.set_num_threads(2)
    run = compiled(2)
    wanted = run(*matrices)
    child = os.fork()
    if child == 0:
        done = torch.equal(run(*matrices), wanted) and not openmp.use_team(torch._C.__file__)
        os._exit(0 if done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(run(*matrices), wanted)
