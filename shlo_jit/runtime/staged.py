"""Programs with shapes that follow from data: a first program computes sizes, and the rest is compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit.runtime.code_table import CodeTable
from shlo_jit.runtime.executable import Executable


class StagedExecutable:
    """Runs the prelude, and then what was compiled for the sizes that it gave; at most `tuning.SPECIALISATIONS` of
    those are kept, those that were used last. Threads may share it."""

    __slots__ = ("_prelude", "_rest", "_table")

    def __init__(self, prelude: Executable, rest: Callable[[Sequence[np.ndarray]], Runnable]) -> None:
        self._prelude = prelude
        self._rest = rest
        self._table: CodeTable[tuple[bytes, ...], Runnable] = CodeTable()

    def __call__(self, *args: Any) -> Any:
        given = self._prelude(*args)
        sizes = given if isinstance(given, tuple) else (given,)
        return self._table.find(tuple(size.tobytes() for size in sizes), lambda: self._rest(sizes))(*args)


Runnable = Executable | StagedExecutable
