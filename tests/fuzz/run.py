"""Damaged programs in bulk, in processes of limited memory.

python tests/fuzz/run.py [count] [first]        prints what went wrong with which number
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "text")]

import corpus
from mutate import check, damaged

GIGABYTE = 1 << 30
CHUNK = 500
HANGS_AFTER = 60
"""Seconds after which a text is given up; one that took more than `mutate.SECONDS` is a finding in any case."""


def texts() -> list[str]:
    """What is damaged: our own texts, and those of the folder `shared` where there is one."""
    found = [text for text in corpus.own_texts() if text]
    for folder in corpus.FOLDERS:
        found += [text for _, text in corpus.shared_texts(folder) if len(text) < 500_000]
    return found


def _hangs(*_: Any) -> None:
    raise AssertionError(f"took more than {HANGS_AFTER} s")


def _limit_memory() -> None:
    """One gigabyte more than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GIGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def chunk(first: int) -> tuple[Counter[str], list[str]]:
    """Numbers `first` to `first + CHUNK`: how often each answer came, and what went wrong."""
    signal.signal(signal.SIGALRM, _hangs)
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(first, first + CHUNK):
        data = damaged(_TEXTS, number)
        signal.alarm(HANGS_AFTER)
        try:
            answers[check(data)] += 1
        except BaseException as error:
            wrong.append(f"{number}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}")
        finally:
            signal.alarm(0)
    return answers, wrong


_TEXTS: list[str] = []


def _start() -> None:
    _TEXTS[:] = texts()
    _limit_memory()


def run(count: int, first: int = 0, processes: int = 2) -> tuple[Counter[str], list[str]]:
    """`count` texts from number `first` on."""
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    with multiprocessing.get_context("spawn").Pool(processes, _start) as pool:
        for some, bad in pool.imap_unordered(chunk, range(first, first + count, CHUNK)):
            answers += some
            wrong += bad
            for line in bad:
                print(line, flush=True)
    return answers, wrong


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]] or [200_000]
    found, errors = run(*numbers)
    print(dict(found), f"{len(errors)} wrong")
