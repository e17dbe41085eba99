"""Damaged programs in bulk, in processes of limited memory.

python tests/fuzz/run.py [count] [first] [processes]        prints findings with their numbers
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import sys
import traceback
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "text")]

import corpus
from mutate import check, damaged
from mutate_ops import damaged_op, programs

GIGABYTE = 1 << 30
HANGS_AFTER = 60
"""Seconds of CPU time after which a text is abandoned; more than `mutate.SECONDS` is a finding in any case."""
REPORTS_EVERY = 10_000


def texts() -> list[str]:
    """Returns the texts to damage: our own, and those of the folder `shared` if it exists."""
    found = [text for text in corpus.own_texts() if text]
    for folder in corpus.FOLDERS:
        found += [text for _, text in corpus.shared_texts(folder) if len(text) < 500_000]
    return found


def _hangs(*_: Any) -> None:
    raise AssertionError(f"took more than {HANGS_AFTER} s")


def _limit_memory() -> None:
    """Limits memory to one gigabyte more than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GIGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def shard(numbers: range, to: Connection) -> None:
    """Sends the number of each answer, and the findings."""
    known = texts()
    _limit_memory()
    signal.signal(signal.SIGPROF, _hangs)
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    for number in numbers:
        data = damaged_op(programs(), number) if number % 4 == 0 else damaged(known, number)
        signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER)
        try:
            answers[check(data)] += 1
        except BaseException as error:
            wrong.append(f"{number}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}")
            print(wrong[-1], flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if (number - numbers.start) % REPORTS_EVERY < numbers.step:
            print(f"at {number}", flush=True)
    to.send((answers, wrong))


def run(count: int, first: int = 0, processes: int = 2) -> tuple[Counter[str], list[str]]:
    """Runs `count` texts from number `first` on. A process that dies is a finding, too."""
    context = multiprocessing.get_context("spawn")
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    running = []
    for i in range(processes):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=shard, args=(range(first + i, first + count, processes), send))
        process.start()
        send.close()
        running.append((process, receive))
    for process, receive in running:
        try:
            some, bad = receive.recv()
            answers += some
            wrong += bad
        except EOFError:
            process.join()
            wrong.append(f"a process ended with exit code {process.exitcode}")
        process.join()
    return answers, wrong


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]] or [200_000]
    found, errors = run(*numbers)
    print(dict(found), f"{len(errors)} wrong")
    sys.exit(bool(errors))
