"""When each step of a program ran, as a file for trace viewers (https://ui.perfetto.dev, chrome://tracing).

    with exe.trace("t.json"):
        exe(x, w)          # all calls are in the file, one after the other

It is written at the end of the `with`, where an exception leaves it too. As in a profile, calls inside run a variant of
the code; see `measured.py`. What the file has is said in `trace_events.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shlo_jit import tuning
from shlo_jit.runtime.measured import Measured, Part
from shlo_jit.runtime.replacing import check_replaceable, replacing
from shlo_jit.runtime.trace_events import ProcessEvents, Recording, write_trace

if TYPE_CHECKING:
    from shlo_jit.runtime.executable import Executable


class Trace(Measured):
    """Writes when each step ran, from `Executable.trace`. Threads that call at once have a track each. Of very many
    events the first are kept (`tuning.TRACE_EVENTS`). Entering it raises OSError where the file cannot be written;
    leaving it raises ValueError where no call was made."""

    def __init__(self, parts: Sequence[tuple[str, Executable, Executable]], path: str | os.PathLike[str]) -> None:
        """`parts` as of `Measured`."""
        self.path = Path(path).absolute()
        super().__init__(parts, room=tuning.TRACE_EVENTS)

    def __enter__(self) -> Self:
        check_replaceable(self.path)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        process = self._process()
        if process.noted:
            with replacing(self.path) as made:
                write_trace(made, [process])
        elif kind is None:
            raise ValueError(f"nothing to write to {self.path}: no call of the program ended inside the `with`")

    @property
    def noted(self) -> int:
        """How many runs of steps were noted so far."""
        return self._process().noted

    @property
    def missed(self) -> int:
        """How many more there was no place for."""
        return self._process().missed

    def _process(self) -> ProcessEvents:
        threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
        return ProcessEvents(0, "shlo_jit", [_recording(part) for part in self._parts], threads)


def _recording(part: Part) -> Recording:
    """What was noted of a part so far."""
    return Recording(part.label, part.timed, part.memory.events, part.memory.missed)
