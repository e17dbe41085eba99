"""Data caches of the machine we run on, as its operating system describes them.

Linux has files in `/sys`, macOS has `sysctl`, Windows has `GetLogicalProcessorInformation`. Containers and virtual
machines may hide some or all of them. A level that is not described has the size in the table of CPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from shlo_jit.caches import Caches
from shlo_jit.codegen.cpu_caches import caches_of

CPUS = Path("/sys/devices/system/cpu")
PLAUSIBLE = {1: (4 << 10, 1 << 20), 2: (64 << 10, 64 << 20), 3: (256 << 10, 4 << 30)}
"""Level -> minimum and maximum bytes. A description out of these bounds is not used."""


class Level(NamedTuple):
    """A cache as an operating system describes it."""

    level: int
    nbytes: int
    cores: int
    """Number of cores that share it."""
    line: int


def host_caches(cpu: str) -> Caches:
    """Returns the caches of this machine, whose CPU has this LLVM name."""
    found: list[Level] = []
    with contextlib.suppress(OSError, AttributeError):
        if sys.platform == "linux":
            found = read_sysfs(CPUS)
        elif sys.platform == "darwin":
            found = read_sysctl(_sysctl)
        elif sys.platform == "win32":
            found = read_windows(_logical_processors())
    return combine(found, caches_of(cpu))


def combine(found: Sequence[Level], known: Caches) -> Caches:
    """Returns the described caches; those that are not described, or not plausibly, are the known ones."""
    levels = {c.level: c for c in found if c.level in PLAUSIBLE and _is_plausible(c)}
    l1, l2 = levels.get(1), levels.get(2)
    last = levels.get(3)
    if last is None and l2 is not None and l2.cores > 1:  # the second level is the last one
        last = l2
    of_core = l2.nbytes // l2.cores if l2 is not None else known.l2
    nbytes, cores = (last.nbytes, last.cores) if last is not None else (known.last_level, known.cores)
    return Caches(
        l1=l1.nbytes if l1 is not None else known.l1,
        l2=of_core,
        last_level=max(nbytes, of_core),
        cores=cores,
        line=next((c.line for c in levels.values()), known.line),
    )


def _is_plausible(c: Level) -> bool:
    least, most = PLAUSIBLE[c.level]
    return least <= c.nbytes <= most and 1 <= c.cores <= 4096 and 16 <= c.line <= 1024


# ---------------------------------------------------------------------- Linux
def read_sysfs(cpus: Path) -> list[Level]:
    """Reads the data caches of the first CPU: all processes on a machine get the same answer, wherever they run."""
    numbered = sorted(int(p.name[3:]) for p in cpus.glob("cpu[0-9]*") if (p / "cache").is_dir())
    if not numbered:
        return []
    first = cpus / f"cpu{numbered[0]}"
    threads = max(1, _count(_text(first / "topology" / "thread_siblings_list")))
    found = []
    for cache in sorted((first / "cache").glob("index*")):
        level, nbytes, line = (_number(_text(cache / name)) for name in ("level", "size", "coherency_line_size"))
        if _text(cache / "type") in ("Data", "Unified"):
            cores = max(1, _count(_text(cache / "shared_cpu_list")) // threads)
            found.append(Level(level, nbytes, cores, line))
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(text: str) -> int:
    """Parses `64`, `32K` or `12M`; 0 for anything else."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0


def _count(cpus: str) -> int:
    """Counts the CPUs of a list such as `0-3,8`; 0 if it is not a list."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", cpus):
        return 0
    ends = [part.partition("-") for part in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


# ---------------------------------------------------------------------- macOS
def read_sysctl(ask: Callable[[str], int]) -> list[Level]:
    """Reads the caches of a performance core. `ask` returns 0 for a name that the system does not have."""
    line = ask("hw.cachelinesize")
    l1 = ask("hw.perflevel0.l1dcachesize") or ask("hw.l1dcachesize")
    l2, sharing = ask("hw.perflevel0.l2cachesize") or ask("hw.l2cachesize"), ask("hw.perflevel0.cpusperl2")
    l3 = ask("hw.perflevel0.l3cachesize") or ask("hw.l3cachesize")
    return [
        Level(1, l1, 1, line),
        Level(2, l2, max(1, sharing), line),
        Level(3, l3, max(1, ask("hw.physicalcpu")), line),
    ]


def _sysctl(name: str) -> int:
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value


# ---------------------------------------------------------------------- Windows
_RECORD = struct.Struct("<QIxxxxBBHII4x")
"""SYSTEM_LOGICAL_PROCESSOR_INFORMATION of a cache on 64-bit Windows: the mask of its processors, the relationship, and
the descriptor: level, associativity, line, size, type."""
_CORE, _CACHE = 0, 2
_UNIFIED, _DATA = 0, 2


def read_windows(records: bytes) -> list[Level]:
    """Reads the caches of the first processor from an answer of GetLogicalProcessorInformation."""
    rows = list(_RECORD.iter_unpack(records))
    cores = [mask for mask, relation, *_ in rows if relation == _CORE]
    found = []
    for mask, relation, level, _, line, nbytes, kind in rows:
        if relation == _CACHE and mask & 1 and kind in (_UNIFIED, _DATA):
            found.append(Level(level, nbytes, max(1, sum(1 for core in cores if core & mask)), line))
    return found


def _logical_processors() -> bytes:
    """Returns the answer of Windows, without an incomplete record at its end."""
    ask, size = ctypes.CDLL("kernel32").GetLogicalProcessorInformation, ctypes.c_uint32(0)
    ask(None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not ask(buffer, ctypes.byref(size)):
        return b""
    return buffer.raw[: size.value // _RECORD.size * _RECORD.size]
