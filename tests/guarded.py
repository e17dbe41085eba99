"""Guarded memory: everything a call touches is next to inaccessible pages, so that accesses out of bounds are detected.

`guarded(array, at_end)` is a copy of an array right before or right after such a page. `call(exe, arguments, at_end)`
runs a program with its arguments, results, arena and constants in such memory; arguments that were not donated and
constants are also write-protected. Touching a byte outside ends the process.

`compile` compiles a program such that every call is repeated twice in guarded memory, and must give the same bits. With
`apart`, the values in the arena do not share memory, and each of them has separate pages.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.codegen.abi import ALIGNED_RESULT_BYTES, ALIGNMENT
from shlo_jit.memory import planner as memory
from shlo_jit.memory.storage import Storage
from shlo_jit.runtime.arguments import check_count, convert
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.front import size_of_call

PAGE = mmap.PAGESIZE
UNWRITTEN = 0xA5
NONE, READ = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
plain_compile = shlo_jit.compile


def protect(address: int, nbytes: int, protection: int) -> None:
    if nbytes and _libc.mprotect(address, nbytes, protection):
        raise OSError(ctypes.get_errno(), "mprotect")


class Pages:
    """Pages of memory between two inaccessible ones; they live as long as the views that `at` returns."""

    def __init__(self, nbytes: int):
        self.nbytes = -(-max(1, nbytes) // PAGE) * PAGE
        self.block = mmap.mmap(-1, self.nbytes + 2 * PAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.block)) + PAGE
        protect(self.address - PAGE, PAGE, NONE)
        protect(self.address + self.nbytes, PAGE, NONE)

    def view(self, start: int, nbytes: int) -> np.ndarray:
        return np.frombuffer(self.block, np.uint8, nbytes, PAGE + start)

    def read_only(self) -> None:
        protect(self.address, self.nbytes, READ)


def placed(nbytes: int, at_end: bool) -> tuple[Pages, np.ndarray]:
    """Bytes next to the guard page after them or before them."""
    pages = Pages(nbytes)
    start = pages.nbytes - nbytes if at_end else 0
    if nbytes >= ALIGNED_RESULT_BYTES:
        start = start // ALIGNMENT * ALIGNMENT
    return pages, pages.view(start, nbytes)


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that ends right before a guard page, or begins right after one."""
    array = np.asarray(array)
    _, raw = placed(array.nbytes, at_end)
    copy = raw.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_only(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy like `guarded` whose pages are write-protected."""
    pages, raw = placed(array.nbytes, at_end)
    copy = raw.view(array.dtype).reshape(array.shape)
    copy[...] = array
    pages.read_only()
    return copy


def relaid(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy like `guarded` with the array's strides, if its memory has no gaps: transposed, reversed.

    Arrays with gaps are returned unchanged.
    """
    forward = tuple(slice(None, None, -1 if s < 0 else None) for s in array.strides)
    order = np.argsort([-abs(s) for s in array.strides], kind="stable")
    ordered = array[forward].transpose(order)
    if not ordered.flags.c_contiguous:
        return array
    return guarded(ordered, at_end).transpose(np.argsort(order))[forward]


def scratch(nbytes: int) -> np.ndarray:
    """Uninitialized memory at a cache line; fewer bytes than a line follow, then an inaccessible page."""
    _, raw = placed(-(-nbytes // ALIGNMENT) * ALIGNMENT, at_end=True)
    raw[...] = UNWRITTEN
    return raw


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class Arena:
    """An arena. With a layout from `spread`, only the storages in it can be touched."""

    def __init__(self, nbytes: int, at_end: bool, layout: Sequence[tuple[int, int]]):
        self.pages, raw = placed(-(-nbytes // PAGE) * PAGE if layout else nbytes, at_end)
        raw[...] = UNWRITTEN
        self.address = address(raw)
        free = 0
        for offset, extent in sorted(layout):
            first, last = offset // PAGE * PAGE, -(-(offset + extent) // PAGE) * PAGE
            protect(self.address + free, first - free, NONE)
            free = last


def call(
    exe: Executable,
    arguments: Sequence[Any],
    at_end: bool = True,
    layout: Sequence[tuple[int, int]] = (),
    threads: int | None = None,
) -> list[np.ndarray]:
    """Computes the program's results in guarded memory.

    `layout`: of an arena made by `spread`. `threads`: maximum threads of the call, if it is not the executable's
    number.
    """
    instance = exe._front.instance
    loaded, compiled = instance.loaded, instance.loaded.program
    check_count(len(arguments), compiled.inputs)
    inputs, outputs, sizes = compiled.inputs, compiled.outputs, None
    if compiled.symbol is not None:
        size = size_of_call(arguments, inputs, compiled.symbol)
        sizes = instance.sizes_for(size)
        inputs = [port.at(size) for port in inputs]
        outputs = [port._replace(shape=shape) for port, shape in zip(outputs, sizes.shapes, strict=True)]
    assert threads is None or sizes is None
    threads = instance.threads if threads is None else threads
    arena_bytes = loaded.arena_bytes(threads) if sizes is None else sizes.arena_bytes
    aliases = compiled.output_aliases
    donated = {*aliases.values(), *compiled.overwritten}
    passed = []
    for i, (value, port) in enumerate(zip(arguments, inputs, strict=True)):
        array = convert(value, i, port)
        passed.append(guarded(array, at_end) if i in donated else read_only(array, at_end))
    results = []
    for index, port in enumerate(outputs):
        if index in aliases:
            results.append(passed[aliases[index]].reshape(-1).view(port.dtype.numpy).reshape(port.shape))
        else:
            _, raw = placed(port.nbytes, at_end)
            raw[...] = UNWRITTEN
            results.append(raw.view(port.dtype.numpy).reshape(port.shape))
    constants = [read_only(c.data, at_end) for c in loaded.constants]
    record = type(instance.record).from_buffer_copy(instance.record)
    record.threads = threads
    record.constants[:] = [address(c) for c in constants]
    if layout:  # the part that grows with the threads comes after it
        layout = [*layout, (compiled.arena_bytes, arena_bytes - compiled.arena_bytes)]
    arena = Arena(arena_bytes, at_end, layout) if arena_bytes else None
    pointers = [(ctypes.c_void_p * max(1, len(arrays)))(*map(address, arrays)) for arrays in (passed, results)]
    status = instance.run_in(arena.address if arena else None, *pointers, ctypes.addressof(record), sizes)
    if status:
        raise instance.failure(status)
    return results


@contextmanager
def spread(layout: list[tuple[int, int]], at_end: bool) -> Iterator[None]:
    """Lowers programs without sharing of memory in the arena.

    Each value is at the end (or beginning) of separate pages, with an inaccessible page between. Offsets and sizes are
    appended to `layout`.
    """

    def place(storages: list[Storage]) -> int:
        total = 0
        for s in storages:
            if s.kind == "arena" and s.nbytes:
                pages = -(-s.nbytes // PAGE) * PAGE
                start = pages - s.nbytes if at_end else 0
                s.number = total + (start // ALIGNMENT * ALIGNMENT if s.nbytes >= ALIGNED_RESULT_BYTES else start)
                layout.append((s.number, s.nbytes))
                total += pages + PAGE
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "place", place)
        yield


def outputs(got: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (got if isinstance(got, tuple) else (got,))]


class GuardedExecutable:
    """An executable whose calls are repeated in guarded memory; all other attributes are the executable's."""

    def __init__(self, exe: Executable, layout: Sequence[tuple[int, int]] = (), ends: Sequence[bool] = (True, False)):
        self._exe, self._layout, self._ends = exe, layout, ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exe, name)

    def __call__(self, *arguments: Any) -> Any:
        found = [call(self._exe, arguments, at_end, self._layout) for at_end in self._ends]
        got = self._exe(*arguments)
        for repeated in found:
            for i, (x, y) in enumerate(zip(outputs(got), repeated, strict=True)):
                assert x.tobytes() == y.tobytes(), f"result {i} differs in guarded memory"
        return got


def compile(source: Any, *args: Any, apart: bool | None = None, **options: Any) -> GuardedExecutable:
    """Compiles like `shlo_jit.compile`.

    `apart`: whether values in the arena are at the end (True) or the beginning (False) of separate pages; by default
    they share memory as planned.
    """
    if apart is None:
        return GuardedExecutable(plain_compile(source, *args, **options))
    layout: list[tuple[int, int]] = []
    with spread(layout, apart):
        exe = plain_compile(source, *args, **{**options, "cache": False})
    return GuardedExecutable(exe, layout, (apart,))


@contextmanager
def everywhere() -> Iterator[None]:
    """Replaces `shlo_jit.compile` by the guarded version meanwhile."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(shlo_jit, "compile", compile)
        yield
