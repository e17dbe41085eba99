"""Routines of this process: each is compiled and loaded once per target and shared by all programs.

A routine is identified by name, so a program from the object cache finds its routines there (or here) without the code
that wrote them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from shlo_jit.codegen.objects import CompiledRoutine, begin_routine, compile_routine, read_routine, routine_entry
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.cache import ObjectCache, routine_key

if TYPE_CHECKING:
    from shlo_jit.codegen.background import Background
    from shlo_jit.codegen.jit import Library

_lock = threading.RLock()
_compiled: dict[tuple[str, Target], CompiledRoutine] = {}
_loaded: dict[tuple[str, Target], Library] = {}
_kept: set[tuple[str, str]] = set()
"""Keys that are known to be in a cache, with the cache's folder."""


def _after_fork() -> None:
    """Replaces the lock: another thread may have held it, and does not exist in the child."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def own_routines() -> dict[str, Routine]:
    """Returns the routines of the code generator itself, by name; programs need not list them."""
    from shlo_jit.kernels.hexadecimal import HEXADECIMAL
    from shlo_jit.kernels.threads.pool import THREADS
    from shlo_jit.runtime.fastcall_code import FASTCALL, FASTCALL_SIZED

    return {routine.name: routine for routine in (THREADS, FASTCALL, FASTCALL_SIZED, HEXADECIMAL)}


def common_routines() -> tuple[Routine, Routine]:
    """Returns those of `own_routines` that nearly every program needs."""
    from shlo_jit.kernels.threads.pool import THREADS
    from shlo_jit.runtime.fastcall_code import FASTCALL

    return THREADS, FASTCALL


class Starting:
    """Routines that are being compiled in the background of one compilation."""

    def __init__(self, target: Target, cache: ObjectCache | None, background: Background, parts: int) -> None:
        """Large routines are split into at most `parts` parts."""
        self._target = target
        self._cache = cache
        self.background = background
        self.parts = parts
        self._finish: dict[str, Callable[[], CompiledRoutine]] = {}

    def start(self, routine: Routine) -> None:
        """Starts to compile a routine and those it needs, unless they are available or started already."""
        if routine.name in self._finish:
            return
        for need in routine.needs:
            self.start(need)
        if find(routine.name, self._target, self._cache) is None:
            self._finish[routine.name] = begin_routine(routine, self._target, self.parts, self.background)

    def finish(self) -> None:
        """Waits for all. Raises InternalError if LLVM rejects one."""
        for name, finish in self._finish.items():
            compiled = finish()
            with _lock:
                _compiled.setdefault((name, self._target), compiled)


def prepare(routines: Iterable[Routine], target: Target, cache: ObjectCache | None) -> None:
    """Makes the object code of routines, and of those they need, available here and in the cache: from this process,
    from the cache, or compiled now."""
    for routine in routines:
        prepare(routine.needs, target, cache)
        compiled = find(routine.name, target, cache)
        if compiled is None:
            compiled = compile_routine(routine, target)
            with _lock:
                compiled = _compiled.setdefault((routine.name, target), compiled)
        _keep(compiled, target, cache)


def _keep(compiled: CompiledRoutine, target: Target, cache: ObjectCache | None) -> None:
    """Ensures that a cache has a routine: it may have been compiled when another cache, or none, was in use."""
    if cache is None:
        return
    key = routine_key(compiled.name, target)
    with _lock:
        if (key, str(cache.folder)) in _kept:
            return
        _kept.add((key, str(cache.folder)))
    if not cache.has(key):
        cache.store(key, *routine_entry(compiled))


def find(name: str, target: Target, cache: ObjectCache | None) -> CompiledRoutine | None:
    """Returns a routine's object code, if this process or the cache has it (or it is one of `own_routines`)."""
    with _lock:
        compiled = _compiled.get((name, target))
    if compiled is None and cache is not None:
        compiled = cache.read(routine_key(name, target), read_routine)
        if compiled is not None and compiled.name != name:
            compiled = None
        if compiled is not None:
            with _lock:
                compiled = _compiled.setdefault((name, target), compiled)
    return compiled


def all_found(names: Iterable[str], target: Target, cache: ObjectCache | None) -> bool:
    """Whether the object code of routines, and of those they need, is available."""
    for name in names:
        if find(name, target, cache) is None and name in own_routines():
            prepare([own_routines()[name]], target, cache)
        compiled = find(name, target, cache)
        if compiled is None or not all_found(compiled.needs, target, cache):
            return False
    return True


def adopt(compiled: CompiledRoutine, target: Target) -> None:
    """Registers a routine that another process has compiled."""
    with _lock:
        _compiled.setdefault((compiled.name, target), compiled)


def load(name: str, target: Target, cache: ObjectCache | None) -> Library | None:
    """Returns the loaded routine, with those it needs; None if its object code is not found."""
    from shlo_jit.codegen import jit

    with _lock:
        compiled = find(name, target, cache)
        if compiled is None and name in own_routines():
            prepare([own_routines()[name]], target, cache)
            compiled = find(name, target, cache)
        if compiled is None:
            return None
        _keep(compiled, target, cache)
        if (name, target) in _loaded:
            return _loaded[name, target]
        needs = [load(need, target, cache) for need in compiled.needs]
        if None in needs:
            return None
        library = jit.load(compiled.objects, compiled.symbols, [n for n in needs if n is not None])
        library.keep_loaded()
        return _loaded.setdefault((name, target), library)
