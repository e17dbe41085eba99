"""Messages between ranks that share no memory: functions that programs call in place of
`kernels/collective/messages.py`.

Every message goes directly from its sender to each of its readers, by MPI. A small one is a single packet. A large one
is a packet that announces the operands, followed by the operands, or by the parts of them that the other reads. So an
exchange takes the time of one message for each other rank of the group. With n ranks and operands of B bytes, each rank
sends B * (n - 1) for an all_gather, B * (n - 1) / n for an all_to_all and a reduce_scatter, twice that for an
all_reduce that is split into parts, and B * (n - 1) for a small one.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit.codegen.abi import ALIGNMENT, Status
from shlo_jit.kernels.collective import board
from shlo_jit.runtime import pool
from shlo_jit.runtime.transport.call_reports import Ends, Fault
from shlo_jit.runtime.transport.world import World

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_TYPES = {
    "shlo_post": ctypes.CFUNCTYPE(_I64, _P, _P, _P, _P),
    "shlo_meet": ctypes.CFUNCTYPE(_I32, _P, _P, _I64, _P),
    "shlo_leave": ctypes.CFUNCTYPE(_I32, _P, _I64),
}
_HEADER = struct.Struct("<4q")
"""Header of a packet: signature, site, call, and the number of messages that follow."""
_HEAD_BYTES = ALIGNMENT
"""Size of the header; operands in the same packet follow it."""


class _Description:
    """A program's description of an exchange: see `kernels/collective/board.py`."""

    def __init__(self, address: int) -> None:
        head = (_I64 * (board.WHAT_BYTES // 8)).from_address(address)
        self.site, self.signature, self.count, inline, self.channel = head
        numbers = [*(_I64 * (2 * self.count)).from_address(address + board.WHAT_BYTES)]
        self.nbytes, self.parts = numbers[: self.count], numbers[self.count :]
        self.is_inline = bool(inline)
        self.starts, at = [], _HEAD_BYTES
        for nbytes in self.nbytes:
            self.starts.append(at)
            at += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.packet_bytes = at if inline else _HEAD_BYTES

    def slices(self, target: int, source: int) -> list[tuple[int, int]]:
        """Returns start and size of the part of each operand that one position in the group sends to another."""
        found = []
        for nbytes, part in zip(self.nbytes, self.parts, strict=True):
            if part:
                start = min((target if part > 0 else source) * abs(part), nbytes)
                found.append((start, min(abs(part), nbytes - start)))
            else:
                found.append((0, nbytes))
        return found


class _Group:
    """Members of an exchange."""

    def __init__(self, address: int, rank: int) -> None:
        sources, targets, self.signature = (_I64 * 3).from_address(address)
        ranks = [*(_I64 * (sources + targets)).from_address(address + board.PLACE_RANKS)]
        self.sources, self.targets = ranks[:sources], [r for r in ranks[sources:] if r != rank]
        self.position = self.in_group(rank)

    def in_group(self, rank: int) -> int:
        """If operands are split into parts, returns a rank's position among the sources."""
        return self.sources.index(rank) if rank in self.sources else 0


class _Message:
    """A posted message, and the memory that it needs."""

    def __init__(self, description: _Description, place: _Group, addresses: list[int], packet: Any) -> None:
        self.description, self.place, self.addresses = description, place, addresses
        self.memory = [packet]
        """Leases, also on memory of received data."""
        self.sends: list[tuple[int, list[Any]]] = []
        """Targets, and the requests for them."""
        self.receives: list[Any] = []

    @property
    def is_sent(self) -> bool:
        return all(request.Test() for _, requests in self.sends for request in requests)


class Exchange:
    """The functions of one rank, and its pending messages."""

    def __init__(self, world: World, tags: Sequence[int], lanes: Sequence[int], ends: Ends) -> None:
        """`tags` has one per lane; `lanes` has one per channel of the program."""
        self._world, self._tags, self._lanes, self._ends = world, tags, (0, *lanes), ends
        self._descriptions: dict[int, _Description] = {}
        self._groups: dict[int, _Group] = {}
        self._reset()
        self.site = board.NONE
        self.fault: Fault | None = None
        """Reason why the program was stopped here."""
        self.caught: BaseException | None = None
        """Any other exception."""
        methods = {"shlo_post": self._post, "shlo_meet": self._meet, "shlo_leave": self._leave}
        self._functions = {name: type(self._guarded(methods[name], name)) for name, type in _TYPES.items()}
        self.addresses = {name: ctypes.cast(f, _P).value or 0 for name, f in self._functions.items()}

    def _reset(self) -> None:
        self._number = 0
        self._messages: dict[int, _Message] = {}
        self._rings: list[deque[_Message]] = [deque() for _ in self._tags]

    # ------------------------------------------------------------------ calls
    def begin(self) -> None:
        """Starts a call."""
        self.site, self.fault, self.caught = board.NONE, None, None

    def finish(self) -> int:
        """Waits until others have received all that this rank has sent. Returns the status."""

        def wait() -> int:
            for ring in self._rings:
                for message in ring:  # small ones too: pending messages need this rank for progress
                    self._drain(message)
            self._reset()
            return board.OK

        return self._guarded(wait, "finish")()

    def abandon(self) -> list[Any]:
        """Returns the objects that must stay in memory although there will be no further call."""
        left = [*self._messages.values(), *(m for ring in self._rings for m in ring)]
        return [m for m in left if not m.is_sent or not all(r.Test() for r in m.receives)]

    # ------------------------------------------------------------------ the functions
    def _guarded(self, function: Callable[..., int], name: str) -> Callable[..., int]:
        """Returns the function as a program can call it: exceptions become a status."""
        sign = -1 if name == "shlo_post" else 1

        def call(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except Fault as fault:
                self.fault = fault
                return sign * fault.status
            except BaseException as error:
                self.caught = error
                return sign * Status.INTERRUPTED

        return call

    def _post(self, _: int, what_address: int, place_address: int, given: int) -> int:
        description, place = self._tables(what_address, place_address)
        self.site = description.site
        self._ends.look()
        lane = self._lanes[description.channel]
        ring = self._rings[lane]
        if len(ring) == board.RING:
            self._drain(ring.popleft())
        addresses = [*(_I64 * description.count).from_address(given)]
        packet = pool.lease(description.packet_bytes)
        message = _Message(description, place, addresses, packet)
        base = ctypes.addressof(packet)
        if description.is_inline:
            for start, address, nbytes in zip(description.starts, addresses, description.nbytes, strict=True):
                ctypes.memmove(base + start, address, nbytes)
            message.addresses = [base + start for start in description.starts]
        for target in place.targets:
            self._send(message, base, target, lane)
        ring.append(message)
        self._number += 1
        self._messages[self._number] = message
        return self._number

    def _send(self, message: _Message, base: int, target: int, lane: int) -> None:
        description, place, world, tag = message.description, message.place, self._world, self._tags[lane]
        follow = []
        if not description.is_inline:
            slices = zip(message.addresses, description.slices(place.in_group(target), place.position), strict=True)
            follow = [(address + start, size) for address, (start, size) in slices if size]
        _HEADER.pack_into(
            message.memory[0],
            0,
            description.signature ^ place.signature,
            description.site,
            self._ends.call,
            len(follow),
        )
        # Synchronous sends end when the other has received them, so no rank gets far ahead of its readers. All are of
        # one kind, since MPICH 5.0 lets small ones of the other kind overtake these.
        packet = world.mpi.buffer.fromaddress(base, description.packet_bytes), world.mpi.BYTE
        requests = [world.comm.Issend(packet, target, tag)]
        for address, size in follow:
            requests += world.send(address, size, target, tag)
        message.sends.append((target, requests))

    def _meet(self, _: int, what_address: int, number: int, found: int) -> int:
        message = self._messages[number]
        description, place, lane = message.description, message.place, self._lanes[message.description.channel]
        self.site = description.site
        table = (_I64 * (len(place.sources) * description.count)).from_address(found)
        waiting = []
        for j, source in enumerate(place.sources):
            addresses = message.addresses
            if source != self._world.rank:
                addresses, requests = self._receive(message, source, self._tags[lane])
                waiting.append((source, requests))
            table[j * description.count : (j + 1) * description.count] = addresses
        self._wait(waiting)
        return board.OK

    def _receive(self, message: _Message, source: int, tag: int) -> tuple[list[int], list[Any]]:
        """Receives a source's packet. Returns the addresses of its operands, which are valid once the returned requests
        have ended."""
        description, place = message.description, message.place
        base = self._packet(message, source, tag)
        if description.is_inline:
            return [base + start for start in description.starts], []
        addresses, requests = [], []
        for start, size in description.slices(place.position, place.in_group(source)):
            memory = pool.lease(max(1, size))
            message.memory.append(memory)
            addresses.append(ctypes.addressof(memory) - start)
            requests += self._world.receive(ctypes.addressof(memory), size, source, tag) if size else []
        message.receives += requests
        return addresses, requests

    def _packet(self, message: _Message, source: int, tag: int) -> int:
        """Returns the address of a source's packet, of this call and about the same op."""
        mpi, comm = self._world.mpi, self._world.comm
        packet = pool.lease(_HEAD_BYTES + board.PAYLOAD_BYTES)
        message.memory.append(packet)
        base = ctypes.addressof(packet)
        room = mpi.buffer.fromaddress(base, _HEAD_BYTES + board.PAYLOAD_BYTES), mpi.BYTE
        while True:
            self._ends.until(lambda: comm.Improbe(source, tag), source).Recv(room)
            signature, site, call, follow = _HEADER.unpack_from(packet, 0)
            if call == self._ends.call:
                break
            if call > self._ends.call:
                raise Fault(board.ENDED_EARLY, source)
            self._drop(source, tag, follow)
        if signature != message.description.signature ^ message.place.signature:
            raise Fault(board.MISMATCHED, source, site)
        return base

    def _drop(self, source: int, tag: int, count: int) -> None:
        """Receives and discards messages of a call that has ended."""
        mpi = self._world.mpi
        for _ in range(count):
            status = mpi.Status()
            message = self._world.comm.Mprobe(source, tag, status)
            message.Recv((bytearray(status.Get_count(mpi.BYTE)), mpi.BYTE))

    def _leave(self, _: int, number: int) -> int:
        message = self._messages.pop(number, None)
        if message is not None:
            del message.memory[1:]
            if not message.description.is_inline:
                self._drain(message)
        return board.OK

    def _drain(self, message: _Message) -> None:
        self.site = message.description.site
        self._wait(message.sends)
        message.sends.clear()

    def _wait(self, requests: list[tuple[int, list[Any]]]) -> None:
        """Waits until all requests have ended, by rank."""
        for rank, some in requests:
            if some:
                self._ends.until_done(some, rank)

    def _tables(self, what_address: int, place_address: int) -> tuple[_Description, _Group]:
        """Returns the parsed tables, which are constants of the program."""
        description, place = self._descriptions.get(what_address), self._groups.get(place_address)
        if description is None:
            description = self._descriptions[what_address] = _Description(what_address)
        if place is None:
            place = self._groups[place_address] = _Group(place_address, self._world.rank)
        return description, place
