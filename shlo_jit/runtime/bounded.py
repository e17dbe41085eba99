"""Programs with bounded tensors: the code gives results as large as their bounds, and how much of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.errors import Diagnostic, VerifyError
from shlo_jit.runtime.executable import Executable, InProcess, Memory, MemoryAnalysis
from shlo_jit.runtime.ports import DynamicSignature

if TYPE_CHECKING:
    import os

    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.trace import Trace


class BoundedExecutable(InProcess):
    """Runs code whose last result has a fault (which check failed, or 0, and two sizes) and the sizes of the others,
    and cuts those to them. Threads may share it. A call raises VerifyError where a size that the program computes
    cannot be."""

    __slots__ = ("_code", "_faults", "_unknown")

    def __init__(
        self,
        code: Executable,
        outputs: Sequence[DynamicSignature],
        unknown: Sequence[Sequence[int]],
        faults: Sequence[Diagnostic],
    ) -> None:
        """`unknown`: of each result the dimensions whose sizes are computed; `faults`: what is wrong when a check
        fails, with `{0}` and `{1}` for two sizes."""
        self._code = code
        self._unknown = tuple(map(tuple, unknown))
        self._faults = tuple(faults)
        self.inputs = code.inputs
        self.outputs = tuple(outputs)

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = self._code(*args, **named)
        *arrays, numbers = given if isinstance(given, tuple) else (given,)
        fault, got, other, *sizes = numbers.tolist()
        if fault:
            raise self._error(fault, got, other)
        rest = iter(sizes)
        results = [_cut(x, {d: next(rest) for d in ds}) for x, ds in zip(arrays, self._unknown, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    def _error(self, number: int, got: int, other: int) -> VerifyError:
        found = self._faults[number - 1]
        return VerifyError(replace(found, message=found.message.format(got, other)))

    @property
    def threads(self) -> int:
        """How many threads a call may use."""
        return self._code.threads

    @property
    def memory(self) -> Memory:
        """Results as large as their bounds."""
        return self._code.memory

    def memory_analysis(self) -> MemoryAnalysis:
        """Results as large as their bounds; see `Executable.memory_analysis`."""
        return self._code.memory_analysis()

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """Of the code, whose results are as large as their bounds."""
        return self._code.planned()

    def text(self, stage: str) -> str:
        """Of the code, whose results are as large as their bounds; see `Executable.text`."""
        return self._code.text(stage)

    def profile(self) -> Profile:
        """As of an `Executable`."""
        from shlo_jit.runtime.profile import Profile

        return Profile(self.parts())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """As of an `Executable`."""
        from shlo_jit.runtime.trace import Trace

        return Trace(self.parts(), path)

    def parts(self) -> list[tuple[str, Executable, Executable]]:
        """What profiles and traces are made of."""
        return self._code.parts()


def _cut(array: np.ndarray, sizes: dict[int, int]) -> np.ndarray:
    """The part that counts: a view where that is one run of memory."""
    if not sizes:
        return array
    found = array[tuple(slice(sizes.get(d)) for d in range(array.ndim))]
    return found if found.flags.c_contiguous else found.copy()
