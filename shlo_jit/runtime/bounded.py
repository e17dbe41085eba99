"""Programs with bounded tensors: the code returns results as large as their bounds, and their valid sizes."""

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
    """Runs code whose last result has a fault (the number of the failed check, or 0, and two sizes) and the sizes of
    the other results, and cuts those to them. Threads may share it. A call raises VerifyError if a size that the
    program computes is invalid."""

    __slots__ = ("_code", "_faults", "_unknown")

    def __init__(
        self,
        code: Executable,
        outputs: Sequence[DynamicSignature],
        unknown: Sequence[Sequence[int]],
        faults: Sequence[Diagnostic],
    ) -> None:
        """`unknown` has, for each result, the dimensions whose sizes are computed. `faults` has the diagnostic of each
        check, with `{0}` and `{1}` for two sizes."""
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
        """Maximum number of threads of a call."""
        return self._code.threads

    @property
    def memory(self) -> Memory:
        """Memory of a call, with results as large as their bounds."""
        return self._code.memory

    def memory_analysis(self) -> MemoryAnalysis:
        """Returns the memory analysis, with results as large as their bounds; see `Executable.memory_analysis`."""
        return self._code.memory_analysis()

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """Returns the plan of the code, whose results are as large as their bounds."""
        return self._code.planned()

    def text(self, stage: str) -> str:
        """Returns a stage of the code, whose results are as large as their bounds; see `Executable.text`."""
        return self._code.text(stage)

    def profile(self) -> Profile:
        """Returns a profile; see `Executable`."""
        from shlo_jit.runtime.profile import Profile

        return Profile(self.parts())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Returns a trace; see `Executable`."""
        from shlo_jit.runtime.trace import Trace

        return Trace(self.parts(), path)

    def parts(self) -> list[tuple[str, Executable, Executable]]:
        """Returns the parts that profiles and traces consist of."""
        return self._code.parts()


def _cut(array: np.ndarray, sizes: dict[int, int]) -> np.ndarray:
    """Returns the valid part: a view if that is contiguous memory."""
    if not sizes:
        return array
    found = array[tuple(slice(sizes.get(d)) for d in range(array.ndim))]
    return found if found.flags.c_contiguous else found.copy()
