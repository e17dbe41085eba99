"""Programs with shapes that follow from data: a first program computes sizes, and the rest is compiled for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.runtime.executable import Executable


class StagedExecutable:
    """Runs the prelude, and then what was compiled for the sizes that it gave; at most `tuning.SPECIALISATIONS` of
    those are kept, those that were used last. Threads may share it."""

    __slots__ = ("_lock", "_prelude", "_rest", "_table")

    def __init__(self, prelude: Executable, rest: Callable[[Sequence[np.ndarray]], Runnable]) -> None:
        self._prelude = prelude
        self._rest = rest
        self._lock = threading.Lock()
        self._table: OrderedDict[tuple[bytes, ...], Runnable] = OrderedDict()

    def __call__(self, *args: Any) -> Any:
        given = self._prelude(*args)
        sizes = given if isinstance(given, tuple) else (given,)
        key = tuple(size.tobytes() for size in sizes)
        with self._lock:  # also while code is made: whoever wants the same sizes waits for it
            found = self._table.get(key)
            if found is None:
                found = self._table[key] = self._rest(sizes)
                while len(self._table) > tuning.SPECIALISATIONS:
                    self._table.popitem(last=False)
            self._table.move_to_end(key)
        return found(*args)


Runnable = Executable | StagedExecutable
