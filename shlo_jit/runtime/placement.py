"""Where threads run and where weights lie, on machines with several NUMA nodes. Both are off by default.

`SHLO_JIT_PIN_THREADS=1` binds each worker of the thread pool to one CPU: worker i to the i-th CPU of the process after
the first, which is left to the caller. So a worker stays near the memory that it touched first.

`SHLO_JIT_INTERLEAVE=1` distributes the pages of constants over the NUMA nodes, so that all of them give their
bandwidth. Otherwise pages are on the node of the thread that compiled or loaded the program.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from shlo_jit import environment
from shlo_jit.errors import UsageValueError
from shlo_jit.kernels.threads.pool import PINS
from shlo_jit.kernels.threads.workers import MOST_CPUS

PIN_VARIABLE = "SHLO_JIT_PIN_THREADS"
INTERLEAVE_VARIABLE = "SHLO_JIT_INTERLEAVE"
INTERLEAVED_BYTES = 1 << 20
"""Minimum size of constants that are interleaved: smaller ones stay in caches."""
MPOL_INTERLEAVE, MPOL_MF_MOVE = 3, 2
MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235}
"""Number of the system call."""
_tables: list[ctypes.Array[ctypes.c_int64]] = []
"""The tables that pools point to."""


def pin_workers(addresses: Mapping[str, int]) -> None:
    """Makes a pool, given by the addresses of its symbols, bind the workers that it starts, if the user asks for it.
    Raises ValueError if the system cannot."""
    if not environment.flag(PIN_VARIABLE):
        return
    if not hasattr(os, "sched_getaffinity"):
        _refuse(PIN_VARIABLE, f"{sys.platform} does not bind threads to CPUs")
    table = table_of(sorted(os.sched_getaffinity(0)))
    _tables.append(table)
    ctypes.c_uint64.from_address(addresses[PINS.text[1:]]).value = ctypes.addressof(table)


def table_of(cpus: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Returns the table that the pool reads: the number of CPUs, then their numbers, the caller's last."""
    known = [cpu for cpu in (*cpus[1:], *cpus[:1]) if cpu < MOST_CPUS]
    return (ctypes.c_int64 * (1 + len(known)))(len(known), *known)


def interleave(address: int, nbytes: int) -> None:
    """Distributes the whole pages of memory over the NUMA nodes, if the user asks for it and the memory is large.
    Raises ValueError if the system refuses."""
    if nbytes < INTERLEAVED_BYTES or not environment.flag(INTERLEAVE_VARIABLE):
        return
    number = MBIND.get(platform.machine())
    if number is None or sys.platform != "linux":
        _refuse(INTERLEAVE_VARIABLE, f"{sys.platform} on {platform.machine()} is not supported")
    first, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    words = allowed_nodes()
    mask = (ctypes.c_ulong * len(words))(*words)
    call = ctypes.CDLL(None, use_errno=True).syscall
    where = ctypes.c_void_p(first), ctypes.c_ulong(end - first)
    nodes = mask, ctypes.c_ulong(64 * len(words) + 1)
    if call(ctypes.c_long(number), *where, ctypes.c_long(MPOL_INTERLEAVE), *nodes, ctypes.c_long(MPOL_MF_MOVE)):
        _refuse(INTERLEAVE_VARIABLE, f"the system refuses it ({errno.errorcode[ctypes.get_errno()]})")


def allowed_nodes(path: str = "/proc/self/status") -> list[int]:
    """Returns the NUMA nodes that the process may use, as bits of words of 64 bits, the lowest first. The first node if
    the system does not report them."""
    try:
        with open(path) as file:
            found = next((line for line in file if line.startswith("Mems_allowed:")), "")
    except OSError:
        found = ""
    nodes = int(found.partition(":")[2].strip().replace(",", "") or "1", 16)
    return [nodes >> at & (1 << 64) - 1 for at in range(0, nodes.bit_length(), 64)]


def _refuse(variable: str, why: str) -> NoReturn:
    raise UsageValueError(f"{variable}: {why}", code="option.value", hint=f"unset {variable}")
