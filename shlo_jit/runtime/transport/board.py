"""The board of a grid, as its host sees it: it starts calls, waits for their end, and reads their outcomes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.codegen.jit import Library
from shlo_jit.kernels.collective import board

_I64, _P = ctypes.c_int64, ctypes.c_void_p
_CALL_ALL = ctypes.CFUNCTYPE(None, _P, _I64)
_COPY_ALL = ctypes.CFUNCTYPE(None, _P, _I64, _I64, _I64)
_AWAIT_ALL = ctypes.CFUNCTYPE(_I64, _P, _I64, _I64, _I64, _I64)
_UNREAD = ctypes.CFUNCTYPE(_I64, _P, _P, _I64, _I64)


class Outcome(NamedTuple):
    """Outcome of a rank's last call."""

    status: int
    site: int
    """Last site that the rank reached in its program; the peer that made it stop, and that one's site. Each is NONE if
    unknown."""
    peer: int
    peer_site: int


class Unread(NamedTuple):
    """A message that a call has left unread."""

    sender: int
    receiver: int
    site: int
    """Site in the sender's program."""


class Board:
    """The board: memory at an address, for a number of ranks."""

    def __init__(self, address: int, ranks: int, lanes: int, library: Library, patience: tuple[int, int]) -> None:
        """`library` is that of `kernels/collective/routine.py`. `patience` is the number of polls before the host
        sleeps, and the interval of those at which it yields."""
        self.address, self.ranks, self.patience = address, ranks, patience
        self._lanes = lanes
        self._library = library
        self._call_all = _CALL_ALL(library.addresses["shlo_call_all"])
        self._await_all = _AWAIT_ALL(library.addresses["shlo_await_all"])
        self._copy_all = _COPY_ALL(library.addresses["shlo_copy_all"])
        self._unread = _UNREAD(library.addresses["shlo_unread"])
        for rank in range(ranks):
            ctypes.c_int32.from_address(self._area(rank) + board.WAITS_FOR).value = board.NONE

    def copy(self, copies: Sequence[tuple[int, int, int]], threads: int) -> None:
        """Makes copies, each given by destination address, source address and size in bytes. Runs without the GIL."""
        rows, tasks = [], 0
        for target, source, nbytes in copies:
            rows += [target, source, nbytes, tasks]
            tasks += -(-nbytes // tuning.COPY_TASK_BYTES)
        self._copy_all((_I64 * len(rows))(*rows), len(copies), tasks, threads)

    def call(self, command: int = board.RUN) -> None:
        """Begins a call on all ranks, which are all idle; or makes them leave, whatever they do."""
        self._call_all(self.address, command)

    def wait(self, seconds: float) -> bool:
        """Whether all ranks have ended the call within `seconds`. Runs without the GIL."""
        return bool(self._await_all(self.address, self.ranks, *self.patience, int(seconds * 1e9)))

    def unread(self) -> Unread | None:
        """Returns a message of the call, which all ranks have ended, that its receiver never read."""
        mail = self.address + board.mail_offset(self.ranks, self._lanes)
        index = self._unread(self.address, mail, self.ranks, board.mail_bytes(self.ranks, self._lanes) // 8)
        if index < 0:
            return None
        word = ctypes.c_int64.from_address(mail + 8 * index).value
        row, receiver = divmod(index // board.RING, self.ranks)
        ring = self.address + board.rings_offset(self.ranks) + row * board.RING_BYTES
        header = ring + board.HEADERS + (word & board.RING - 1) * board.HEADER_BYTES
        sender = row % self.ranks
        return Unread(sender, receiver, ctypes.c_int64.from_address(header + board.POSTED_AT).value)

    def has_begun(self, rank: int) -> bool:
        return self._word(rank, board.THIS_CALL) == self._call

    def has_ended(self, rank: int) -> bool:
        return self._word(rank, board.LAST_CALL) == self._call

    @property
    def _call(self) -> int:
        return ctypes.c_int32.from_address(self.address + board.CALL).value

    def site(self, rank: int) -> int:
        """Returns the last site that the rank reached in its program during the call."""
        return self._word(rank, board.SITE) if self.has_begun(rank) else board.NONE

    def heart(self, rank: int) -> int:
        return ctypes.c_int64.from_address(self._area(rank) + board.HEART).value

    def outcome(self, rank: int) -> Outcome:
        fields = (board.STATUS, board.FAULT_PEER, board.FAULT_PEER_SITE)
        status, peer, peer_site = (self._word(rank, field) for field in fields)
        if peer != board.NONE and peer_site == board.NONE:
            peer_site = self.site(peer)
        return Outcome(status, self.site(rank), peer, peer_site)

    def _area(self, rank: int) -> int:
        return self.address + board.RANKS + rank * board.RANK_BYTES

    def _word(self, rank: int, offset: int) -> int:
        return ctypes.c_int32.from_address(self._area(rank) + offset).value
