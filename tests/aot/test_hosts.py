"""Libraries in their hosts: threads, forks, nested calls, and repeated loading."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from building import CUSTOM, SQUARE, build, chain, exported, inputs, needs_cc, run, same

import shlo_jit
from shlo_jit.runtime.library import OpenLibrary
from shlo_jit.runtime.library_file import read_library


def test_a_call_within_a_call(tmp_path: Path) -> None:
    """One instance cannot run twice in one thread; another thread waits for it."""
    text = CUSTOM.replace("my.op", "other").replace(" {mhlo.backend_config = {factor = 3.0 : f32}}", "")
    path = exported(text, tmp_path, custom_calls=["other"])
    x = np.ones(4, np.float32)
    seen = []

    def again(x):
        if not seen:
            seen.append("")
            with pytest.raises(shlo_jit.ExecutionError, match="in a call"):
                loaded(x)
        return x + 1

    loaded = shlo_jit.load(path, custom_calls={"other": again})
    assert loaded(x).tolist() == [3, 3, 3, 3]


def test_threads_share_an_instance(tmp_path: Path) -> None:
    loaded = shlo_jit.load(exported(chain(160), tmp_path))
    compiled = shlo_jit.compile(chain(160))
    wrong = []

    def work(seed: int) -> None:
        arguments = inputs(compiled, seed)
        want = compiled(*arguments)
        wrong.extend(seed for _ in range(20) if not same(loaded(*arguments), want))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_fork(tmp_path: Path) -> None:
    """A child has the instance, and starts its own workers."""
    loaded = shlo_jit.load(exported(chain(320), tmp_path), threads=3)
    want = loaded(*inputs(loaded))
    child = os.fork()
    if child == 0:
        os._exit(0 if same(loaded(*inputs(loaded)), want) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert same(loaded(*inputs(loaded)), want)


FORKING_HOST = """
#define _GNU_SOURCE
#include "model.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;
static const shlo_options options = {.bytes = sizeof options, .threads = 6};

static int once(void) {
  model_instance *instance;
  int32_t status = model_create(&instance, &options);
  model_destroy(instance);
  return status;
}

static void *busy(void *unused) {
  while (!stop && !once()) {}
  return unused;
}

int main(void) {
  pthread_t thread;
  int status = 0;
  if (pthread_create(&thread, 0, busy, 0)) return 2;
  for (int i = 0; i < 40 && !status; i++) {
    pid_t child = fork();
    if (!child) return alarm(20), once();
    waitpid(child, &status, 0);
  }
  stop = 1;
  pthread_join(thread, 0);
  return status != 0;
}
"""


@needs_cc
def test_fork_while_another_thread_makes_an_instance(tmp_path: Path) -> None:
    """The child does not wait for a thread that it does not have."""
    library = exported(chain(320), tmp_path, ".a")
    (tmp_path / "main.c").write_text(FORKING_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", library, "-lm", "-lpthread")])


@pytest.mark.parametrize("ending", [".so", ".o"])
def test_exported_again_over_a_loaded_library(ending: str, tmp_path: Path) -> None:
    """Each executable has the code that was at the path when it was loaded."""
    x = np.arange(4, dtype=np.float32)
    texts = [SQUARE.replace("multiply", op) for op in ("add", "multiply", "subtract")]
    loaded = [shlo_jit.load(exported(text, tmp_path, ending)) for text in texts]
    assert [exe(x).tolist() for exe in loaded] == [[0, 2, 4, 6], [0, 1, 4, 9], [0, 0, 0, 0]]


def test_replaced_while_it_is_loaded(tmp_path: Path) -> None:
    """Code is never called with the interface of another file."""
    file = read_library(exported(SQUARE, tmp_path))
    exported(SQUARE.replace("4xf32", "400xf32"), tmp_path)
    with pytest.raises(shlo_jit.LibraryError, match="metadata"):
        OpenLibrary(file, None)


def test_loading_one_library_a_thousand_times(tmp_path: Path) -> None:
    """Mappings, open files and threads are released."""
    path = exported(SQUARE, tmp_path)
    x = np.arange(4, dtype=np.float32)

    def held() -> tuple[int, int, int]:
        maps = Path("/proc/self/maps").read_text().count("model.so")
        return maps, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    before = held()
    for _ in range(1000):
        assert shlo_jit.load(path, threads=2)(x)[3] == 9
    gc.collect()
    assert held() == before


@pytest.mark.parametrize("ending", [".so", ".o"])
@pytest.mark.sampled(4)
def test_collected_with_a_cycle(ending: str, tmp_path: Path) -> None:
    """An instance ends before its library is closed, independent of the order of garbage collection."""
    path = exported(SQUARE, tmp_path, ending)
    for _ in range(20):
        cycle: list[object] = [shlo_jit.load(path)]
        cycle.append(cycle)
        del cycle
        gc.collect()
    assert shlo_jit.load(path)(np.ones(4, np.float32)).tolist() == [1] * 4
