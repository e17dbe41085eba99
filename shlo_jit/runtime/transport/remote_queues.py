"""Remote access to the queues of infeeds and the like: a program in another process sends requests, this process
answers."""

from __future__ import annotations

from multiprocessing.connection import Connection

from shlo_jit.codegen.program import Callback
from shlo_jit.runtime.host import GIVES, Host, Item, Target, fitting


class RemoteHost(Host):
    """The queues of the process at the other end of a line."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def target(self, callback: Callback) -> Target:
        channel = int(callback.attributes.get("channel", 0))

        def give(*arrays: object) -> None:
            self._ask(callback.target, channel, arrays)

        def take() -> object:
            return fitting(self._ask(callback.target, channel, None), callback)

        return give if callback.target in GIVES else take

    def _ask(self, target: str, channel: int, arrays: Item | None) -> Item:
        self._line.send((target, channel, arrays))
        answer = self._line.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def answer(line: Connection, host: Host) -> None:
    """Answers requests until the other end is closed."""
    while True:
        try:
            target, channel, arrays = line.recv()
        except (EOFError, OSError):
            return
        queue = host.queue(target, channel)
        reply: object = ()
        if arrays is not None:
            queue.append(arrays)
        else:
            try:
                reply = queue.take()
            except Exception as error:  # the requesting process raises it
                reply = error
        try:
            line.send(reply)
        except (BrokenPipeError, OSError):
            return
