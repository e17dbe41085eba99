"""Object cache on disk: a compiled program starts in milliseconds in every later process.

One entry is one file, named by its key:

    8 bytes   magic
    8 bytes   length of the header
    4 bytes   CRC-32 of the header
    header    JSON: `key`; `blobs` is a list of [offset, size], `checks` the CRC-32 of each CHUNK of them; the rest is
              the caller's
    blobs     object code and raw constants, each at a multiple of 64

An entry is written to a temporary file and renamed, so readers see all of it or nothing and writers in several
processes need no lock. Temporary files of processes that died (`unfinished.py`) count until they are deleted. An entry
that fails a check (damaged, truncated, foreign) is deleted and counts as absent. Nothing is ever unpickled. A folder
that cannot be used means no cache, with one warning.

Object code runs, so it is read only from regular files and folders that belong to this user (or root) and that no one
else may write to. Entries are copied into memory: later changes of a file do not reach the program.

`SHLO_JIT_CACHE_DIR` moves the folder, `SHLO_JIT_CACHE_BYTES` sets its size (default 1 GiB). The least recently used
entries are evicted first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from shlo_jit import environment
from shlo_jit.codegen.abi import ABI_VERSION
from shlo_jit.codegen.objects import Blob
from shlo_jit.forking import thread_pool
from shlo_jit.ir.digests import is_derived
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions
from shlo_jit.runtime import pool, unfinished
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.text.normal_form import normal

T = TypeVar("T")

MAGIC = b"shlojit2"
PREFIX = struct.Struct("<8sQI")
ALIGNMENT = 64
DEFAULT_BYTES = 1 << 30
SUFFIX = ".shlo"
SCHEDULE = "schedule-"
"""Start of the keys of tuned schedules."""
CHUNK = 1 << 20
"""Size of the chunks that are read and checked together, while they are in a core's cache."""
THREADED_CHUNKS = 8
"""Number of chunks from which on several threads read: most of the time goes into the first touch of memory."""
_DAMAGED = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, struct.error)
"""Exceptions from reading an entry that is foreign or damaged."""
EVICT_TO = 0.8
"""Part of the limit down to which eviction goes, so that it does not run at every store."""


class CacheInfo(NamedTuple):
    """Contents of a cache's folder."""

    folder: str
    entries: int
    nbytes: int
    """Bytes of all files: of entries and of unfinished ones."""
    limit: int
    unfinished: int = 0
    """Number of temporary files of processes that are writing, or died while they were."""
    schedules: int = 0
    """Number of the entries that are schedules which were found by measuring."""


class ObjectCache:
    """Entries in a folder. Safe to share between threads and processes."""

    def __init__(self, folder: str | os.PathLike[str], limit: int = DEFAULT_BYTES) -> None:
        self.folder = Path(folder)
        self.limit = limit
        """Maximum total size of the entries, in bytes."""
        self._warned = False
        self._written = 0
        """Bytes stored since the folder's size was last computed."""
        self._checked = False

    # ------------------------------------------------------------------ reading
    def read(self, key: str, decode: Callable[[Mapping[str, Any], Sequence[memoryview]], T]) -> T | None:
        """Returns the decoded entry of a key; None if there is none. An entry that `decode` cannot read is deleted."""
        entry = self.lookup(key)
        if entry is None:
            return None
        try:
            return decode(*entry)
        except _DAMAGED:
            self._delete(self._path(key))
            return None

    def lookup(self, key: str) -> tuple[dict[str, Any], list[memoryview]] | None:
        """Returns header and blobs of a key, checksums verified; None if there is none. The blobs are a copy."""
        path = self._path(key)
        try:
            if not self._is_trusted(os.stat(self.folder), str(self.folder)):
                return None
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:  # there is none, or a file of another kind has its name
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or not self._is_trusted(status, str(path)):
                return None
            entry = _read_entry(file, status.st_size, key)
        except (OSError, MemoryError):
            return None
        except _DAMAGED:
            self._delete(path)
            return None
        finally:
            os.close(file)
        self.touch(key)
        return entry

    def _is_trusted(self, status: os.stat_result, what: str) -> bool:
        """Whether no one else can have put code there."""
        if status.st_uid not in (os.geteuid(), 0):
            self._warn(f"{what} belongs to another user")
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self._warn(f"others may write to {what}; run chmod go-w on it")
        else:
            return True
        return False

    def has(self, key: str) -> bool:
        """Whether there is a file for the key; it may still be damaged."""
        try:
            return stat.S_ISREG(os.lstat(self._path(key)).st_mode)
        except OSError:
            return False

    def nbytes(self, key: str) -> int:
        """Returns the size of the key's file; 0 if there is none."""
        try:
            return os.lstat(self._path(key)).st_size
        except OSError:
            return 0

    def touch(self, key: str) -> None:
        """Records the use of an entry."""
        with contextlib.suppress(OSError):
            os.utime(self._path(key))  # eviction goes by the time of use

    # ------------------------------------------------------------------ writing
    def make_folder(self) -> None:
        """Ensures that the folder exists. Raises OSError."""
        if not self.folder.is_dir():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)

    def claim_path(self, key: str) -> str:
        """Returns the path of the file that marks an entry as being written (`claims.py`)."""
        return f"{self.folder}/.{key}{SUFFIX}.claim"

    def store(self, key: str, header: Mapping[str, Any], blobs: Sequence[Blob]) -> bool:
        """Writes an entry. Returns False if that failed; a failing cache is not an error."""
        path = self._path(key)
        temporary: Path | None = None
        try:
            parts = _encode(key, header, blobs)
            size = sum(len(part) for part in parts)
            if size > self.limit:
                return False
            self.make_folder()
            if not self._is_trusted(os.stat(self.folder), str(self.folder)):
                return False
            file, temporary = unfinished.create(path)
            with file:
                file.writelines(parts)
                file.flush()
                os.replace(temporary, path)
        except OSError as error:
            if temporary is not None:
                self._delete(temporary)
            self._warn(str(error))
            return False
        self._written += size
        if not self._checked or self._written > self.limit // 16:
            self._evict()
        return True

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"shlo_jit: no object cache in {self.folder}: {why}", RuntimeWarning, stacklevel=4)

    # ------------------------------------------------------------------ housekeeping
    def _path(self, key: str) -> Path:
        return self.folder / (key + SUFFIX)

    @staticmethod
    def _delete(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def _files(self) -> tuple[list[_File], list[_File]]:
        """Returns entries and unfinished files: temporary files, and claims of processes that write an entry."""
        entries: list[_File] = []
        others: list[_File] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as found:
            for entry in found:
                is_entry = entry.name.endswith(SUFFIX)
                is_unfinished = entry.name.startswith(".") and SUFFIX + "." in entry.name
                if (is_entry or is_unfinished) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        row = _File(status.st_mtime, status.st_size, entry.path)
                        (entries if is_entry else others).append(row)
        return entries, others

    def _evict(self) -> None:
        """Brings the folder under its limit. One process at a time does this; the others skip it."""
        self._checked, self._written = True, 0
        if _total(*self._files()) <= self.limit:
            return
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.folder / "evict.lock", timeout=0):
                entries, others = self._files()
                excess = _total(entries, others) - self.limit * EVICT_TO
                for file in others:
                    excess -= unfinished.delete_abandoned(file.path)
                for file in sorted(entries, key=lambda file: (file.is_schedule, file)):
                    if excess <= 0:
                        break
                    self._delete(Path(file.path))
                    excess -= file.nbytes
        except (Timeout, OSError):
            return

    def forget(self, key: str) -> None:
        """Deletes the entry of a key, if there is one."""
        self._delete(self._path(key))

    def clear(self) -> None:
        """Deletes every entry, and files that dead processes have left unfinished."""
        entries, others = self._files()
        for file in entries:
            self._delete(Path(file.path))
        for file in others:
            unfinished.delete_abandoned(file.path)

    def info(self) -> CacheInfo:
        entries, others = self._files()
        schedules = sum(file.is_schedule for file in entries)
        return CacheInfo(str(self.folder), len(entries), _total(entries, others), self.limit, len(others), schedules)


class _File(NamedTuple):
    """A file of the folder; files sort by time of use, oldest first."""

    used: float
    nbytes: int
    path: str

    @property
    def is_schedule(self) -> bool:
        """Whether it has a tuned schedule: a few bytes that took minutes to find, and so are evicted last."""
        return os.path.basename(self.path).startswith(SCHEDULE)


def _total(*groups: Sequence[_File]) -> int:
    return sum(file.nbytes for group in groups for file in group)


# ---------------------------------------------------------------------- the format
def _encode(key: str, header: Mapping[str, Any], blobs: Sequence[Blob]) -> list[bytes | memoryview]:
    views = [memoryview(cast(bytes, blob)).cast("B") if _size(blob) else memoryview(b"") for blob in blobs]
    # The table has the blobs' offsets from the end of the header, since the header's length is not known yet.
    table, checks, offset = [], [], 0
    for view in views:
        table.append([offset, len(view)])
        checks.append([zlib.crc32(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)])
        offset += len(view) + -len(view) % ALIGNMENT
    text = json.dumps({**header, "key": key, "blobs": table, "checks": checks}, separators=(",", ":")).encode()
    text += b" " * (-(PREFIX.size + len(text)) % ALIGNMENT)
    parts: list[bytes | memoryview] = [PREFIX.pack(MAGIC, len(text), zlib.crc32(text)), text]
    for view in views:
        parts += [view, bytes(-len(view) % ALIGNMENT)]
    return parts


def _size(blob: Blob) -> int:
    return blob.nbytes if isinstance(blob, np.ndarray | memoryview) else len(blob)


def _read_entry(file: int, size: int, key: str) -> tuple[dict[str, Any], list[memoryview]]:
    """Reads an entry. Raises an exception of `_DAMAGED` for a file that is not the undamaged entry of that key."""
    prefix = os.pread(file, PREFIX.size, 0)
    magic, length, checksum = PREFIX.unpack(prefix)
    start = PREFIX.size + length
    if magic != MAGIC or start > size:
        raise ValueError("not an entry")
    text = os.pread(file, length, PREFIX.size)
    if len(text) != length or zlib.crc32(text) != checksum:
        raise ValueError("damaged header")
    header = json.loads(text)
    if header.pop("key") != key:
        raise ValueError("another entry's name")
    table, checks = header.pop("blobs"), header.pop("checks")
    end = 0
    for offset, nbytes in table:
        if offset != end or nbytes < 0:
            raise ValueError("blobs that do not follow each other")
        end += nbytes + -nbytes % ALIGNMENT
    if start + end != size:
        raise ValueError("wrong length")
    data = _memory(end)
    chunks = [
        (offset + at, min(CHUNK, nbytes - at), check)
        for (offset, nbytes), found in zip(table, checks, strict=True)
        for at, check in zip(range(0, nbytes, CHUNK), found, strict=True)
    ]

    def read(chunk: tuple[int, int, int]) -> None:
        at, nbytes, check = chunk
        place = data[at : at + nbytes]
        done = 0
        while done < nbytes:
            got = os.preadv(file, [place[done:]], start + at + done)
            if not got:
                raise ValueError("truncated")
            done += got
        if zlib.crc32(place) != check:
            raise ValueError("damaged blob")

    _for_each(read, chunks)
    return header, [data[offset : offset + nbytes].toreadonly() for offset, nbytes in table]


def _memory(nbytes: int) -> memoryview:
    """Returns memory for blobs. If it is large, it is aligned as they are."""
    if nbytes < pool.POOLED_BYTES:
        return memoryview(bytearray(nbytes))
    return memoryview(pool.lease(nbytes)).cast("B")[:nbytes]


def _for_each(work: Callable[[tuple[int, int, int]], None], chunks: Sequence[tuple[int, int, int]]) -> None:
    """Does the work for all chunks; if there are many, in several threads. Raises the errors of `work`."""
    if len(chunks) < THREADED_CHUNKS:
        for chunk in chunks:
            work(chunk)
        return
    with thread_pool(usable_cpus(), "shlo_jit cache") as executor:
        for _ in executor.map(work, chunks):
            pass


# ---------------------------------------------------------------------- the user's cache
def default_cache() -> ObjectCache:
    """Returns the user's cache, in the folder that the environment names at this moment."""
    return _cache_in(os.environ.get("SHLO_JIT_CACHE_DIR", ""), os.environ.get("SHLO_JIT_CACHE_BYTES", ""))


@functools.cache
def _cache_in(folder: str, limit: str) -> ObjectCache:
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("shlo_jit")
        if not os.path.isabs(folder):  # a user without a home directory
            import tempfile

            folder = os.path.join(tempfile.gettempdir(), f"shlo_jit-{os.geteuid()}")
    return ObjectCache(folder, environment.size(limit, "SHLO_JIT_CACHE_BYTES", DEFAULT_BYTES))


def clear() -> None:
    """Deletes every entry of the user's cache."""
    default_cache().clear()


def info() -> CacheInfo:
    """Returns information on the user's cache."""
    return default_cache().info()


# ---------------------------------------------------------------------- keys
def program_key(text: str | bytes, options: CompileOptions) -> str:
    """Returns the key of a program. It covers its artifact or normalized text (see `text/normal_form.py`), the options
    that change its code, and the versions of everything involved."""
    return _key("program", options.identity().encode(), _normal_bytes(text))


def text_digest(text: str | bytes) -> bytes:
    """Returns the digest of a program's artifact or normalized text."""
    return hashlib.sha256(_normal_bytes(text)).digest()


def derived_key(identity: bytes, options: CompileOptions) -> str:
    """Returns the key of a program that is derived from another one. `identity` says how."""
    return _key("derived", options.identity().encode(), identity)


def _normal_bytes(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    return normal(text).encode(errors="surrogatepass")


def routine_key(name: str, target: Target) -> str:
    """Returns the key of a routine."""
    return _key("routine", repr(target.identity).encode(), name.encode())


def host_key(processor: bytes) -> str:
    """Returns the key of LLVM's description of a processor."""
    return _key("host", processor)


def limits_key(processor: bytes, threads: int) -> str:
    """Returns the key of the measured speed of a processor with a number of threads."""
    return _key("limits", b"%d " % threads + processor)


def schedule_key(program: bytes, options: CompileOptions, processor: bytes, kind: str) -> str:
    """Returns the key of a tuned schedule. `program` identifies the program. The options count without a schedule, and
    with the number of threads. `kind`: which of the program's schedules it is."""
    others = replace(options, schedule=(), profile=False)
    machine = b"%d %s %s" % (options.threads, kind.encode(), processor)
    return SCHEDULE + _key("schedule", machine, others.identity().encode(), program)


def file_key(identity: bytes) -> str:
    """Returns the key of the facts known about a file."""
    return _key("file", identity)


def constant_key(digest: str) -> str:
    """Returns the key of a constant. It covers programs and versions only if the content does not determine the
    constant."""
    if is_derived(digest):
        digest = _key("constant", digest.encode())
    return f"constant-{digest}"


def _key(kind: str, *parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in (kind.encode(), str(ABI_VERSION).encode(), fingerprint(), *parts):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.hexdigest()


@functools.cache
def fingerprint() -> bytes:
    """Identifies the compiler: versions of llvmlite and numpy, and size and modification time of LLVM and of each of
    our source files, so that a changed compiler never uses code of an older one."""
    import llvmlite  # This does not load LLVM, which is slow: its library is identified by size and time.

    rows = [llvmlite.__version__, np.__version__]
    rows += sorted(_files(str(Path(llvmlite.__path__[0]) / "binding"), (".so", ".dylib", ".dll")))
    rows += sorted(_files(str(Path(__file__).parents[1]), (".py", ".lark")))
    return "\n".join(rows).encode()


def _files(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Returns path, size and time of the files in a folder and below it."""
    rows = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir() and entry.name != "__pycache__":
                rows += _files(entry.path, suffixes)
            elif entry.name.endswith(suffixes):
                status = entry.stat()
                rows.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return rows
