"""Threads of an OpenMP library that another part of the process uses; see `kernels/threads/openmp.py`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from shlo_jit import environment
from shlo_jit.kernels.threads.openmp import TEAM
from shlo_jit.runtime.placement import PIN_VARIABLE

FUNCTIONS = ("omp_get_max_threads", "GOMP_parallel", "omp_get_thread_num")
"""The entries of the table, in order."""
_words: set[int] = set()
"""Addresses of the pools' words."""
_tables: list[ctypes.Array[ctypes.c_uint64]] = []
"""The table in use, if there is one."""
_process = os.getpid()
"""The process in which this module was loaded: children of a fork have no team."""


def offer(addresses: Mapping[str, int]) -> None:
    """Makes a pool, given by the addresses of its symbols, use the team, now or as soon as there is one. Other pools,
    such as one that records times, have no word for it."""
    word = addresses.get(TEAM.text[1:])
    if word is not None:
        _words.add(word)
        _write()


def use_team(path: str) -> bool:
    """Makes jobs run on the threads of the OpenMP library that a loaded library uses. Returns whether there is one.
    It does nothing if the user binds workers to CPUs, and in children of a fork, where OpenMP libraries can hang."""
    if _tables or os.getpid() != _process or environment.flag(PIN_VARIABLE):
        return bool(_tables)
    library = ctypes.CDLL(path)
    if not all(hasattr(library, name) for name in FUNCTIONS):
        return False
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS]
    _tables.append((ctypes.c_uint64 * len(found))(*found))
    _write()
    return True


def _write() -> None:
    table = ctypes.addressof(_tables[0]) if _tables else 0
    for word in _words:
        ctypes.c_uint64.from_address(word).value = table


def _after_fork() -> None:
    """Leaves the team, whose threads do not exist in the child."""
    _tables.clear()
    _write()


os.register_at_fork(after_in_child=_after_fork)
