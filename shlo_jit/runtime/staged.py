"""Programs with shapes that follow from data: a first program computes sizes, and the rest is compiled for them."""

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
"""What labels of the prelude's steps begin with in a profile or trace."""
COMMENTS = {"module": "//", "core": "//", "asm": "#"}
"""What begins a comment in the text of a stage, where that is not `;`."""


class StagedExecutable(InProcess):
    """Runs the prelude, and then what was compiled for the sizes that it gave; at most `tuning.SPECIALISATIONS` of
    those are kept, those that were used last. Threads may share it."""

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
        """How many threads a call may use."""
        return self._prelude.threads

    @property
    def memory(self) -> Memory:
        """With the code for the sizes of the last call. Raises ValueError before there was one."""
        first, rest = self._prelude.memory, self._latest().memory
        return Memory(max(first.arena, rest.arena), first.constants + rest.constants, rest.outputs)

    def memory_analysis(self) -> MemoryAnalysis:
        """As `memory`; see `Executable.memory_analysis`."""
        first, rest = self._prelude.memory_analysis(), self._latest().memory_analysis()
        return rest._replace(
            generated_code_size_in_bytes=first.generated_code_size_in_bytes + rest.generated_code_size_in_bytes,
            constant_size_in_bytes=first.constant_size_in_bytes + rest.constant_size_in_bytes,
            temp_size_in_bytes=max(first.temp_size_in_bytes, rest.temp_size_in_bytes),
        )

    def text(self, stage: str) -> str:
        """The code for the sizes of the last call, and what computes the sizes; before there was one, that alone."""
        first = self._prelude.text(stage)
        if self._last is None:
            return first
        comment = COMMENTS.get(stage, ";")
        return f"{self._last.text(stage).rstrip()}\n\n{comment} what computes sizes\n{first}"

    def profile(self) -> Profile:
        """Of calls that give the sizes of the last one. Raises ValueError before there was one."""
        from shlo_jit.runtime.profile import Profile

        return Profile(self.parts())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """As `profile`; see `Executable.trace`."""
        from shlo_jit.runtime.trace import Trace

        return Trace(self.parts(), path)

    def parts(self) -> list[tuple[str, Executable, Executable]]:
        """What profiles and traces are made of."""
        rest = self._latest().parts()
        return [(PRELUDE, *part[1:]) for part in self._prelude.parts()] + rest

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """With the code for the sizes of the last call."""
        return [(PRELUDE, functions) for _, functions in self._prelude.planned()] + self._latest().planned()

    def _latest(self) -> Runnable:
        if self._last is None:
            raise ValueError("this depends on sizes that the program computes: call it first")
        return self._last


Runnable = Executable | StagedExecutable | BoundedExecutable
