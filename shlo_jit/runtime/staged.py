"""Programs with shapes that depend on data: a first program computes sizes, and the rest is compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.runtime.bounded import BoundedExecutable
from shlo_jit.runtime.code_table import CodeTable
from shlo_jit.runtime.executable import Executable, InProcess, Memory, MemoryAnalysis
from shlo_jit.runtime.ports import DynamicSignature

if TYPE_CHECKING:
    import os

    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.trace import Trace

PRELUDE = "sizes "
"""Prefix of the labels of the prelude's steps in a profile or trace."""
COMMENTS = {"module": "//", "core": "//", "asm": "#"}
"""Start of a comment in the text of a stage, if it is not `;`."""


class StagedExecutable(InProcess):
    """Runs the prelude, and then the code that was compiled for the resulting sizes. At most `tuning.SPECIALIZATIONS`
    of those are kept, the most recently used ones. Threads may share it."""

    __slots__ = ("_last", "_prelude", "_rest", "_table")

    def __init__(
        self, prelude: Executable, rest: Callable[[Sequence[np.ndarray]], Runnable], outputs: Sequence[DynamicSignature]
    ) -> None:
        self._prelude = prelude
        self._rest = rest
        self._table: CodeTable[tuple[bytes, ...], Runnable] = CodeTable()
        self._last: Runnable | None = None
        self.inputs = prelude.inputs
        self.outputs = tuple(outputs)

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = self._prelude(*args, **named)
        sizes = given if isinstance(given, tuple) else (given,)
        found = self._table.find(tuple(size.tobytes() for size in sizes), lambda: self._rest(sizes))
        self._last = found
        return found(*args, **named)

    @property
    def threads(self) -> int:
        """Maximum number of threads of a call."""
        return self._prelude.threads

    @property
    def memory(self) -> Memory:
        """Memory with the code for the sizes of the last call. Raises ValueError before a call."""
        first, rest = self._prelude.memory, self._latest().memory
        return Memory(max(first.arena, rest.arena), first.constants + rest.constants, rest.outputs)

    def memory_analysis(self) -> MemoryAnalysis:
        """Returns the memory analysis of the same code as `memory`; see `Executable.memory_analysis`."""
        first, rest = self._prelude.memory_analysis(), self._latest().memory_analysis()
        return rest._replace(
            generated_code_size_in_bytes=first.generated_code_size_in_bytes + rest.generated_code_size_in_bytes,
            constant_size_in_bytes=first.constant_size_in_bytes + rest.constant_size_in_bytes,
            temp_size_in_bytes=max(first.temp_size_in_bytes, rest.temp_size_in_bytes),
        )

    def text(self, stage: str) -> str:
        """Returns the code for the sizes of the last call, and the code that computes the sizes; before a call, only
        the latter."""
        first = self._prelude.text(stage)
        if self._last is None:
            return first
        comment = COMMENTS.get(stage, ";")
        return f"{self._last.text(stage).rstrip()}\n\n{comment} computation of sizes\n{first}"

    def profile(self) -> Profile:
        """Profiles calls with the sizes of the last one. Raises ValueError before a call."""
        from shlo_jit.runtime.profile import Profile

        return Profile(self.parts())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Traces calls as `profile` does; see `Executable.trace`."""
        from shlo_jit.runtime.trace import Trace

        return Trace(self.parts(), path)

    def parts(self) -> list[tuple[str, Executable, Executable]]:
        """Returns the parts that profiles and traces consist of."""
        rest = self._latest().parts()
        return [(PRELUDE, *part[1:]) for part in self._prelude.parts()] + rest

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """Returns the plans, with the code for the sizes of the last call."""
        return [(PRELUDE, functions) for _, functions in self._prelude.planned()] + self._latest().planned()

    def _latest(self) -> Runnable:
        if self._last is None:
            raise ValueError("this depends on sizes that the program computes: call it first")
        return self._last


Runnable = Executable | StagedExecutable | BoundedExecutable
