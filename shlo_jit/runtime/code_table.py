"""Least recently used cache of generated code: made on first request, evicted by use."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from shlo_jit import tuning
from shlo_jit.forking import GATE

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class CodeTable(Generic[K, T]):
    """Cache of at most `tuning.SPECIALIZATIONS` entries, the most recently used ones. Threads may share it: those that
    request the same key wait for a single one to make it, and others do not wait. A failed attempt is not kept."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: OrderedDict[K, tuple[Future[T], int]] = OrderedDict()
        _TABLES.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: K, make: Callable[[], T]) -> T:
        """Returns the entry of the key, or the result of `make`. Raises the errors of `make`, here and in the threads
        that wait for it. If another thread was interrupted, this one makes the entry."""
        while True:
            future, maker = self._entry(key)
            if maker is None:
                return self._made(key, future, make)
            if maker == threading.get_ident() and not future.done():  # a signal handler, during `make`
                return make()
            try:
                with GATE.outside():
                    return future.result()
            except Exception:
                raise
            except BaseException as error:
                if not future.done() or future.exception() is not error:
                    raise  # this thread was interrupted, not the one that makes it

    def _entry(self, key: K) -> tuple[Future[T], int | None]:
        """Returns the entry of a key, now the most recently used one, and the thread that makes it; None if this one
        has to."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
            future: Future[T] = Future()
            self._entries[key] = future, threading.get_ident()
            while len(self._entries) > tuning.SPECIALIZATIONS:
                self._entries.popitem(last=False)
            return future, None

    def _made(self, key: K, future: Future[T], make: Callable[[], T]) -> T:
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                if self._entries.get(key, (None,))[0] is future:
                    del self._entries[key]
            future.set_exception(error)
            raise
        future.set_result(made)
        return made

    def after_fork(self) -> None:
        """Repairs the table in a new process, in which no other thread continues its work."""
        self._lock = threading.RLock()
        self._entries = OrderedDict((key, entry) for key, entry in self._entries.items() if entry[0].done())


_TABLES: WeakSet[CodeTable[Any, Any]] = WeakSet()


def _after_fork() -> None:
    for table in list(_TABLES):
        table.after_fork()


os.register_at_fork(after_in_child=_after_fork)
