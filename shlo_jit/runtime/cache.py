"""The object cache on disk: what was compiled once starts in milliseconds in every later process.

One entry is one file, named by its key:

    8 bytes   magic
    8 bytes   length of the header
    4 bytes   CRC-32 of the header
    header    JSON: `key`; `blobs` is a list of [offset, size], `checks` the CRC-32 of each CHUNK of them; the rest is
              the caller's
    blobs     object code and raw constants, each at a multiple of 64

An entry is written to a temporary file and renamed, so readers see all of it or nothing and writers in several
processes need no lock. Temporary files of processes that died (`unfinished.py`) count until they are deleted. What does
not check out (damaged, truncated, foreign) is deleted and counts as absent. Nothing is ever unpickled. A folder that
cannot be used means no cache, with one warning.

Object code runs, so it is read only from regular files, and folders, that belong to this user (or root) and that nobody
else may write. Entries are copied into memory: whatever happens to a file afterwards does not reach the program.

`SHLO_JIT_CACHE_DIR` moves the folder, `SHLO_JIT_CACHE_BYTES` sets its size (default 1 GiB). The entries that were not
used for the longest time go first.
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
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from shlo_jit import environment
from shlo_jit.codegen.abi import ABI_VERSION
from shlo_jit.codegen.objects import Blob
from shlo_jit.forking import thread_pool
from shlo_jit.ir.digests import is_made
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions
from shlo_jit.runtime import pool, unfinished
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.text.normal import normal

T = TypeVar("T")

MAGIC = b"shlojit2"
PREFIX = struct.Struct("<8sQI")
ALIGNMENT = 64
DEFAULT_BYTES = 1 << 30
SUFFIX = ".shlo"
CHUNK = 1 << 20
"""What is read and checked in one go, while it is in a core's cache."""
THREADED_CHUNKS = 8
"""From this many on, several threads read: most of the time goes into the first touch of memory."""
_DAMAGED = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, struct.error)
"""What reading an entry raises that is none of ours, or damaged."""
EVICT_TO = 0.8
"""Eviction goes down to this part of the limit, so that it does not run at every store."""


class CacheInfo(NamedTuple):
    """What a cache's folder holds."""

    folder: str
    entries: int
    nbytes: int
    """Bytes of all files: of entries and of unfinished ones."""
    limit: int
    unfinished: int = 0
    """Temporary files: those of processes that are writing, or died while they were."""


class ObjectCache:
    """Entries in a folder. Safe to share between threads and processes."""

    def __init__(self, folder: str | os.PathLike[str], limit: int = DEFAULT_BYTES) -> None:
        self.folder = Path(folder)
        self.limit = limit
        """Bytes all entries may take together."""
        self._warned = False
        self._written = 0
        """Bytes stored since the folder's size was last looked at."""
        self._checked = False

    # ------------------------------------------------------------------ reading
    def read(self, key: str, decode: Callable[[Mapping[str, Any], Sequence[memoryview]], T]) -> T | None:
        """The decoded entry of a key; None when there is none. An entry that `decode` cannot read is deleted."""
        entry = self.lookup(key)
        if entry is None:
            return None
        try:
            return decode(*entry)
        except _DAMAGED:
            self._delete(self._path(key))
            return None

    def lookup(self, key: str) -> tuple[dict[str, Any], list[memoryview]] | None:
        """Header and blobs of a key, checksums verified; None when there is none. The blobs are a copy."""
        path = self._path(key)
        try:
            if not self._is_trusted(os.stat(self.folder), str(self.folder)):
                return None
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:  # there is none, or something else has its name
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
        """Whether nobody else can have put code there."""
        if status.st_uid not in (os.geteuid(), 0):
            self._warn(f"{what} belongs to another user")
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self._warn(f"others may write to {what} (chmod go-w would help)")
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
        """Of the key's file; 0 where there is none."""
        try:
            return os.lstat(self._path(key)).st_size
        except OSError:
            return 0

    def touch(self, key: str) -> None:
        """Note that an entry is used."""
        with contextlib.suppress(OSError):
            os.utime(self._path(key))  # the time of use is what eviction goes by

    # ------------------------------------------------------------------ writing
    def make_folder(self) -> None:
        """See to it that the folder exists. Raises OSError."""
        if not self.folder.is_dir():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)

    def claim_path(self, key: str) -> str:
        """Of the file that says who is writing an entry (`claims.py`)."""
        return f"{self.folder}/.{key}{SUFFIX}.claim"

    def store(self, key: str, header: Mapping[str, Any], blobs: Sequence[Blob]) -> bool:
        """Write an entry. False when it could not be written; a cache that fails is no error."""
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
        """Entries, and what is unfinished: temporary files, and notes of who is writing an entry."""
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
        """Bring the folder under its limit. One process at a time; the others leave it to that one."""
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
                for file in sorted(entries):
                    if excess <= 0:
                        break
                    self._delete(Path(file.path))
                    excess -= file.nbytes
        except (Timeout, OSError):
            return

    def clear(self) -> None:
        """Delete every entry, and what processes that died have left unfinished."""
        entries, others = self._files()
        for file in entries:
            self._delete(Path(file.path))
        for file in others:
            unfinished.delete_abandoned(file.path)

    def info(self) -> CacheInfo:
        entries, others = self._files()
        return CacheInfo(str(self.folder), len(entries), _total(entries, others), self.limit, len(others))


class _File(NamedTuple):
    """A file of the folder; the oldest come first."""

    used: float
    nbytes: int
    path: str


def _total(*groups: Sequence[_File]) -> int:
    return sum(file.nbytes for group in groups for file in group)


# ---------------------------------------------------------------------- the format
def _encode(key: str, header: Mapping[str, Any], blobs: Sequence[Blob]) -> list[bytes | memoryview]:
    views = [memoryview(cast(bytes, blob)).cast("B") if _size(blob) else memoryview(b"") for blob in blobs]
    # The table has the blobs' offsets from the end of the header, whose length is not known yet.
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
    """Raises what is in `_DAMAGED` for what is not the undamaged entry of that key."""
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
    pieces = [
        (offset + at, min(CHUNK, nbytes - at), check)
        for (offset, nbytes), found in zip(table, checks, strict=True)
        for at, check in zip(range(0, nbytes, CHUNK), found, strict=True)
    ]

    def read(piece: tuple[int, int, int]) -> None:
        at, nbytes, check = piece
        place = data[at : at + nbytes]
        done = 0
        while done < nbytes:
            got = os.preadv(file, [place[done:]], start + at + done)
            if not got:
                raise ValueError("truncated")
            done += got
        if zlib.crc32(place) != check:
            raise ValueError("damaged blob")

    _for_each(read, pieces)
    return header, [data[offset : offset + nbytes].toreadonly() for offset, nbytes in table]


def _memory(nbytes: int) -> memoryview:
    """Memory for blobs, aligned as they are when it is large."""
    if nbytes < pool.POOLED_BYTES:
        return memoryview(bytearray(nbytes))
    return memoryview(pool.lease(nbytes)).cast("B")[:nbytes]


def _for_each(work: Callable[[tuple[int, int, int]], None], pieces: Sequence[tuple[int, int, int]]) -> None:
    """Do the work for all pieces, of many in several threads. Raises what it raises."""
    if len(pieces) < THREADED_CHUNKS:
        for piece in pieces:
            work(piece)
        return
    with thread_pool(usable_cpus(), "shlo_jit cache") as executor:
        for _ in executor.map(work, pieces):
            pass


# ---------------------------------------------------------------------- the user's cache
def default_cache() -> ObjectCache:
    """The user's cache, where the environment says now."""
    return _cache_in(os.environ.get("SHLO_JIT_CACHE_DIR", ""), os.environ.get("SHLO_JIT_CACHE_BYTES", ""))


@functools.cache
def _cache_in(folder: str, limit: str) -> ObjectCache:
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("shlo_jit")
        if not os.path.isabs(folder):  # a user without a home
            import tempfile

            folder = os.path.join(tempfile.gettempdir(), f"shlo_jit-{os.geteuid()}")
    return ObjectCache(folder, environment.size(limit, "SHLO_JIT_CACHE_BYTES", DEFAULT_BYTES))


def clear() -> None:
    """Delete every entry of the user's cache."""
    default_cache().clear()


def info() -> CacheInfo:
    """Of the user's cache."""
    return default_cache().info()


# ---------------------------------------------------------------------- keys
def program_key(text: str | bytes, options: CompileOptions) -> str:
    """The key of a program: its artifact, or its text without what does not matter (see `text/normal.py`), the options
    that change its code, and the versions of everything that took part."""
    return _key("program", options.identity().encode(), _normal_bytes(text))


def text_digest(text: str | bytes) -> bytes:
    """What a program's artifact or text is known by, the latter without what does not matter in it."""
    return hashlib.sha256(_normal_bytes(text)).digest()


def derived_key(identity: bytes, options: CompileOptions) -> str:
    """The key of a program that is made of another one, by what says how."""
    return _key("derived", options.identity().encode(), identity)


def _normal_bytes(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    return normal(text).encode(errors="surrogatepass")


def routine_key(name: str, target: Target) -> str:
    """The key of a routine."""
    return _key("routine", repr(target.identity).encode(), name.encode())


def host_key(processor: bytes) -> str:
    """The key of what LLVM says of such a processor."""
    return _key("host", processor)


def limits_key(processor: bytes, threads: int) -> str:
    """The key of how fast such a processor is with so many threads."""
    return _key("limits", b"%d " % threads + processor)


def file_key(identity: bytes) -> str:
    """The key of what is known of a file."""
    return _key("file", identity)


def constant_key(digest: str) -> str:
    """The key of a constant: of whatever programs and versions, where its content says all."""
    if is_made(digest):
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
    """Identifies the compiler: versions of llvmlite and numpy, and size and time of change of LLVM and of each of our
    source files, so that work on the compiler never meets code of yesterday's."""
    import llvmlite  # that is not LLVM, which is slow to load: its library is known by size and time

    rows = [llvmlite.__version__, np.__version__]
    rows += sorted(_files(str(Path(llvmlite.__path__[0]) / "binding"), (".so", ".dylib", ".dll")))
    rows += sorted(_files(str(Path(__file__).parents[1]), (".py", ".lark")))
    return "\n".join(rows).encode()


def _files(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Path, size and time of the files in a folder and those below it."""
    rows = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir() and entry.name != "__pycache__":
                rows += _files(entry.path, suffixes)
            elif entry.name.endswith(suffixes):
                status = entry.stat()
                rows.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return rows
