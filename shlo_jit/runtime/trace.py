"""Traces when each step of a program ran, to a file for trace viewers (https://ui.perfetto.dev, chrome://tracing).

    with exe.trace("t.json"):
        exe(x, w)          # all calls are in the file, one after the other

The file is written at the end of the `with`, also after an exception. As in a profile, calls inside run a variant of
the code; see `measured.py`. `trace_events.py` describes the contents of the file.
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
    """Writes when each step ran, from `Executable.trace`. Threads that call at the same time have a track each. If
    there are very many events, the first ones are kept (`tuning.TRACE_EVENTS`). Entering it raises OSError if the file
    cannot be written; leaving it raises ValueError if no call was made."""

    def __init__(self, parts: Sequence[tuple[str, Executable, Executable]], path: str | os.PathLike[str]) -> None:
        """`parts` as in `Measured`."""
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
        """Number of runs of steps that have been recorded so far."""
        return self._process().noted

    @property
    def missed(self) -> int:
        """Number of events that did not fit."""
        return self._process().missed

    def _process(self) -> ProcessEvents:
        threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
        return ProcessEvents(0, "shlo_jit", [_recording(part) for part in self._parts], threads)


def _recording(part: Part) -> Recording:
    """Returns the events of a part that have been recorded so far."""
    return Recording(part.label, part.timed, part.memory.events, part.memory.missed)
