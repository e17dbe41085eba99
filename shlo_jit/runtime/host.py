"""Queues between running programs and the host: infeed, outfeed, and the channels of send and recv.

    exe.infeed.put(x, y)             # data of the program's next infeed, here two tensors
    z = exe.outfeed.get(time_out=5)  # data of its next outfeed
    exe.channel(7).put(x)            # for a recv on channel 7
    z = exe.channel(7).get()         # from a send on channel 7

A queue is first in, first out, and unbounded. Any threads may use it before, while and after programs run. `put`
copies. A program that finds its queue empty waits for `time_out` seconds (`DEFAULT_TIME_OUT` unless the queue's
`time_out` is set), then the call of the executable raises HostTimeoutError; so does `get`. Nothing waits forever. An
item with the wrong number of tensors, or of another shape or type than the program expects, is dropped, and the call
raises TypeError or ValueError.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from shlo_jit.codegen.program import Callback
from shlo_jit.errors import ExecutionError, at_place

DEFAULT_TIME_OUT = 60.0
TAKES = frozenset({"stablehlo.infeed", "stablehlo.recv"})
GIVES = frozenset({"stablehlo.outfeed", "stablehlo.send"})
HOST_CALLS = TAKES | GIVES
"""Targets that the run time implements itself."""
Target = Callable[..., Any]
Item = tuple[Any, ...]


class HostTimeoutError(ExecutionError, TimeoutError):
    """A queue stayed empty."""


class Queue:
    """A queue; an item is a tuple of arrays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.time_out = DEFAULT_TIME_OUT
        """Seconds that a running program waits for an item."""
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Number of items in the queue."""
        return len(self._items)

    def append(self, item: Item) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def take(self, time_out: float | None = None) -> Item:
        """Removes and returns the oldest item. Raises HostTimeoutError if none arrives in time."""
        seconds = self.time_out if time_out is None else _seconds(time_out)
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._items), seconds):
                raise HostTimeoutError(f"{self.name}: nothing came for {seconds:g} s")
            return self._items.popleft()


def _seconds(time_out: float) -> float:
    """Returns the time as seconds. Raises TypeError or ValueError for an invalid one."""
    if isinstance(time_out, bool) or not isinstance(time_out, int | float):
        raise TypeError(f"time_out: expected a number of seconds, got {time_out!r}")
    if not time_out >= 0:
        raise ValueError(f"time_out: expected a number of seconds that is not negative, got {time_out!r}")
    return float(time_out) if time_out < threading.TIMEOUT_MAX else threading.TIMEOUT_MAX


class Infeed:
    """Input queue of the program's infeed (or recv)."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def put(self, *arrays: Any) -> None:
        """Appends one item, one array per tensor. The arrays are copied."""
        self.queue.append(tuple(a if isinstance(a, bool | int | float | complex) else np.array(a) for a in arrays))

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def time_out(self) -> float:
        return self.queue.time_out

    @time_out.setter
    def time_out(self, seconds: float) -> None:
        self.queue.time_out = _seconds(seconds)


class Outfeed:
    """Output queue of the program's outfeed (or send)."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def get(self, time_out: float | None = None) -> Any:
        """Returns the oldest item: an array, or a tuple of several. Raises HostTimeoutError after `time_out`
        seconds."""
        item = self.queue.take(time_out)
        return item[0] if len(item) == 1 else item

    def __len__(self) -> int:
        return len(self.queue)


class Channel(Infeed):
    """Both directions of a channel: `put` for recv, `get` for send."""

    def __init__(self, to_program: Queue, from_program: Queue) -> None:
        super().__init__(to_program)
        self.outfeed = Outfeed(from_program)

    def get(self, time_out: float | None = None) -> Any:
        """Returns the oldest item of a send. Raises HostTimeoutError after `time_out` seconds."""
        return self.outfeed.get(time_out)


class Host:
    """The queues of one executable."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], Queue] = {}
        self._lock = threading.Lock()

    def queue(self, op: str, channel: int = 0) -> Queue:
        with self._lock:
            name = op.removeprefix("stablehlo.")
            full = f"{name} on channel {channel}" if name in ("send", "recv") else name
            return self._queues.setdefault((name, channel), Queue(full))

    @property
    def infeed(self) -> Infeed:
        return Infeed(self.queue("infeed"))

    @property
    def outfeed(self) -> Outfeed:
        return Outfeed(self.queue("outfeed"))

    def channel(self, handle: int) -> Channel:
        if isinstance(handle, bool) or not isinstance(handle, int):
            raise TypeError(f"channel: expected its handle, an integer, got {handle!r}")
        return Channel(self.queue("recv", handle), self.queue("send", handle))

    def target(self, callback: Callback) -> Target:
        """Returns the callable that implements a callback of `HOST_CALLS`."""
        queue = self.queue(callback.target, int(callback.attributes.get("channel", 0)))
        if callback.target in GIVES:
            return lambda *arrays: queue.append(arrays)
        return lambda: fitting(queue.take(), callback)


def fitting(item: Item, callback: Callback) -> list[np.ndarray]:
    """Returns the arrays of an item, as the program expects them. Raises TypeError or ValueError if they do not fit."""
    from shlo_jit.runtime.arguments import convert

    name = callback.target.removeprefix("stablehlo.")
    if len(item) != len(callback.results):
        raise TypeError(f"{name}: expected {len(callback.results)} tensors, got {len(item)}")
    try:
        return [convert(value, i, port) for i, (value, port) in enumerate(zip(item, callback.results, strict=True))]
    except (TypeError, ValueError) as error:
        raise at_place(error, name) from None
