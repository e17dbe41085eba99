"""Custom calls that fail in several ways, in the process whose argument says so. Worker processes import them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

import numpy as np

RANK = 1
"""Rank whose call fails: the argument of each process is its number."""


def fails_here(x: np.ndarray) -> bool:
    return int(x[0]) == RANK


def nothing(x: np.ndarray) -> np.ndarray:
    return x


def raises(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        raise ValueError("no ones")
    return x


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_unprintable(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        raise Unprintable
    return x


def raises_much(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        raise ValueError("much " * 1_000_000)
    return x


def exits(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        os._exit(3)
    return x


def kills_itself(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def kills_worker(x: np.ndarray) -> np.ndarray:
    """Kills the worker, whatever the argument is."""
    if multiprocessing.current_process().name == f"shlo_jit-{RANK}":
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def prints(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        print("before the end")
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def loops(x: np.ndarray) -> np.ndarray:
    while fails_here(x):
        pass
    return x


def sleeps(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        time.sleep(1.0)
    return x


def sleeps_and_raises(x: np.ndarray) -> np.ndarray:
    if fails_here(x):
        time.sleep(0.5)
        raise ValueError("too late to matter")
    return x


def boom() -> None:
    raise ImportError("not in this process")


class CannotLoad:
    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x

    def __reduce__(self) -> tuple[object, ...]:
        return boom, ()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class StopsWhileLoading(CannotLoad):
    def __reduce__(self) -> tuple[object, ...]:
        return stop, ()


class EndsWhileLoading(CannotLoad):
    def __reduce__(self) -> tuple[object, ...]:
        return sys.exit, (5,)
