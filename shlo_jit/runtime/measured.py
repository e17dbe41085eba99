"""Measures executables during a `with`: calls run the same programs, compiled again with clock reads around each step.
Ordinary code has no overhead from this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from shlo_jit.codegen.abi import EVENT, EVENT_BYTES, PROFILE, PROFILE_BYTES, PROFILE_HEAD_BYTES
from shlo_jit.codegen.program import TimedStep

if TYPE_CHECKING:
    from shlo_jit.runtime.executable import Executable

EVENT_TYPE = np.dtype([(name, np.int64) for name in EVENT])
assert EVENT_TYPE.itemsize == EVENT_BYTES


def profile_bytes(steps: int, room: int) -> int:
    """Returns the size of a ProfileMemory."""
    return PROFILE_HEAD_BYTES + steps * PROFILE_BYTES + room * EVENT_BYTES


class ProfileMemory:
    """Memory that the field `profile` of an instance refers to; see `codegen/abi.py`."""

    def __init__(self, steps: int, room: int, memory: np.ndarray | None = None, *, is_own: bool = True) -> None:
        """Creates memory for the records of `steps` steps, and at most `room` events. `memory` is
        u8[profile_bytes(steps, room)] to place it in, initially zero. `is_own`: it is for a program of this process."""
        memory = np.zeros(profile_bytes(steps, room), np.uint8) if memory is None else memory
        words = PROFILE_HEAD_BYTES + steps * PROFILE_BYTES
        self._words = memory[:words].view(np.int64)
        self.records = self._words[len(PROFILE) :].reshape(steps, PROFILE_BYTES // 8)
        self._events = memory[words:].view(EVENT_TYPE)
        self._room = room
        if is_own:
            self._words[: len(PROFILE)] = (self._events.ctypes.data if room else 0, room, 0)

    @property
    def address(self) -> int:
        return self._words.ctypes.data

    @property
    def _begun(self) -> int:
        return int(self._words[list(PROFILE).index("begun")])

    @property
    def events(self) -> np.ndarray:
        """Copy of the events that have ended, EVENT_TYPE[n], in the order in which they began."""
        events = self._events[: self._begun]
        return events[(events["begin"] > 0) & (events["end"] > 0)]

    @property
    def missed(self) -> int:
        """Number of events that did not fit."""
        return max(0, self._begun - self._room)

    def clear(self) -> None:
        self._events[: self._begun] = 0
        self.records[...] = 0
        self._words[list(PROFILE).index("begun")] = 0


class Part:
    """An executable, and the same program compiled with clock reads."""

    def __init__(self, label: str, executable: Executable, variant: Executable, room: int) -> None:
        """`label` is the prefix of its steps' labels; `room` is the maximum number of events."""
        self.label = label
        self.executable = executable
        self.variant = variant
        instance = variant._front.instance
        self.timed: tuple[TimedStep, ...] = instance.loaded.program.timed
        self.memory = ProfileMemory(len(self.timed), room)
        instance.note_times(self.memory)


class Measured:
    """A context in which calls of an executable are measured. Entering it raises RuntimeError if another one measures
    them."""

    def __init__(self, parts: Sequence[tuple[str, Executable, Executable]], room: int = 0) -> None:
        """`parts` run one after the other in a call: the prefix of the labels of its steps, an executable, and the same
        program compiled with clock reads. `room` is the maximum number of events of each."""
        self._parts = [Part(*part, room) for part in parts]
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """Another context that the `with` enters, so that calls reach the executable."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.around())
            for part in self._parts:
                part.executable.run_variant(part.variant)
                stack.callback(part.executable.run_original)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def reset(self) -> None:
        """Discards the measurements, for example those of a warm-up. No call may be running."""
        for part in self._parts:
            part.memory.clear()
