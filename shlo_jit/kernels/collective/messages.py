"""Messages between ranks that share memory: the basis of collective ops.

    i64 @shlo_post(ptr communicator, ptr what, ptr place, ptr addresses)

publishes `addresses` (of operands, and of other data that peers may access) for the targets of `place`, and reserves
the numbers of the messages from its sources. Returns the message's number, or a negative status.

    i32 @shlo_meet(ptr communicator, ptr what, i64 message, ptr found)

waits until all sources have posted their messages, and fills `found`: the addresses of each, in the order of `place`.
If a source posted something else, that is a mismatch, which stops all ranks.

    i32 @shlo_leave(ptr communicator, i64 message)

announces that the rank has finished reading from the sources, and waits until the targets have announced the same: from
then on the rank may change what it has posted. It does not wait for inline messages, since they were copied. If the
message has been left already, it does nothing.

`what` and `place` are tables as described in `board.py`. The functions are fields of the communicator, so that others
may replace them where ranks share no memory; a program calls no others.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic_load, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.collective.waiting import (
    beat,
    come_to,
    fence,
    field,
    note_fault,
    stop_all,
)
from shlo_jit.kernels.llvm_values import V, i32, i64

POST = [("ptr", "communicator"), ("ptr", "what"), ("ptr", "place"), ("ptr", "addresses")]
MEET = [("ptr", "communicator"), ("ptr", "what"), ("i64", "message"), ("ptr", "found")]
LEAVE = [("ptr", "communicator"), ("i64", "message")]
PAYLOAD_ALIGN = 64


def write_messages(module: ModuleText) -> None:
    _write_drain(module)
    _write_post(module)
    _write_meet(module)
    _write_leave(module)


class Table:
    """A table of i64 values at an address."""

    def __init__(self, b: Builder, address: V) -> None:
        self.b = b
        self.address = address

    def __getitem__(self, offset: int) -> V:
        return self.b.load("i64", self.b.offset(self.address, offset))

    def at(self, offset: int, index: V) -> V:
        return self.b.load("i64", self.b.element(self.b.offset(self.address, offset), "i64", index))


def slot_of(b: Builder, message: V) -> V:
    return b.and_(message, i64(board.RING - 1))


def entry_of(b: Builder, communicator: V, message: V) -> V:
    """Returns the rank's own entry for a message."""
    nbytes = b.add(b.mul(field(b, communicator, "ranks"), 16), board.NUMBERS)
    index = b.add(b.mul(b.lshr(message, board.LANE_SHIFT), board.RING), slot_of(b, message))
    return b.offset(field(b, communicator, "ring", "ptr"), b.mul(index, nbytes))


def lane_of(b: Builder, communicator: V, message: V) -> V:
    """Returns the lane of a message, times the number of ranks."""
    return b.mul(b.lshr(message, board.LANE_SHIFT), field(b, communicator, "ranks"))


def ring_of(b: Builder, communicator: V, lane: V, rank: V) -> V:
    """Returns the address of a rank's headers and payloads; `lane` is times the number of ranks."""
    return b.offset(field(b, communicator, "rings", "ptr"), b.mul(b.add(lane, rank), board.RING_BYTES))


def header_of(b: Builder, ring: V, slot: V) -> V:
    return b.offset(ring, b.add(b.mul(slot, board.HEADER_BYTES), board.HEADERS))


def word_at(b: Builder, communicator: V, table: str, lane: V, sender: V, receiver: V, number: V) -> V:
    """Returns the address of a message's word in `mail` or `read`; `lane` is times the number of ranks."""
    row = b.add(lane, sender)
    line = b.add(b.mul(row, field(b, communicator, "ranks")), receiver)
    index = b.add(b.mul(line, board.RING), slot_of(b, number))
    return b.element(field(b, communicator, table, "ptr"), "i64", index)


def word_of(b: Builder, communicator: V, number: V) -> V:
    """Returns the value of the word of a message with that number, without the slot."""
    number = b.urem(number, board.NUMBERS_OF_MESSAGES)
    return b.or_(field(b, communicator, "tag"), b.shl(number, board.NUMBER_SHIFT))


def each_target(b: Builder, place: Table) -> tuple[V, V]:
    """Returns the indices in the place of the first target, and of the one after the last."""
    first = place[board.PLACE_SOURCES]
    return first, b.add(first, place[board.PLACE_TARGETS])


def next_number(b: Builder, counters: V, lane: V, rank: V) -> V:
    """Returns the number of the next message to or from a rank, and counts it."""
    counter = b.element(counters, "i64", b.add(lane, rank))
    number = b.load("i64", counter)
    b.store(b.add(number, 1), counter)
    return number


def leave_unless_ok(b: Builder, status: V) -> None:
    with b.if_(b.icmp("ne", status, i32(board.OK)), "failed"):
        b.ret_early(status)


def _write_drain(module: ModuleText) -> None:
    """Emits i32 @shlo_drain(ptr communicator, ptr message), which waits until all targets have read a message."""
    b = module.function("shlo_drain", [("ptr", "communicator"), ("ptr", "message")], "i32", attributes="nounwind")
    communicator, entry = b.params
    place = Table(b, b.load("ptr", b.offset(entry, board.PLACE)))
    lane = lane_of(b, communicator, b.load("i64", b.offset(entry, board.MESSAGE)))
    rank, numbers = field(b, communicator, "rank"), Table(b, b.offset(entry, board.NUMBERS))
    first, last = each_target(b, place)
    with b.loop(first, last) as j:
        target, number = place.at(board.PLACE_RANKS, j), numbers.at(0, b.sub(j, first))
        word = word_at(b, communicator, "read", lane, rank, target, number)
        arguments = [communicator, word, word_of(b, communicator, number), target]
        leave_unless_ok(b, b.call("i32", "shlo_await", arguments, declare=False))
    b.store(i64(0), b.offset(entry, board.ACTIVE))
    b.ret(i32(board.OK))


def _write_post(module: ModuleText) -> None:
    b = module.function("shlo_post", POST, "i64", linkage="external", attributes="nounwind")
    communicator, what_address, place_address, addresses = b.params
    what, place = Table(b, what_address), Table(b, place_address)
    come_to(b, communicator, what[board.WHAT_SITE])
    lanes, posted = (field(b, communicator, name, "ptr") for name in ("lanes", "posted"))
    lane = b.load("i64", b.element(lanes, "i64", what[board.WHAT_CHANNEL]))
    counter = b.element(posted, "i64", lane)
    number = b.load("i64", counter)
    message = b.or_(b.shl(lane, board.LANE_SHIFT), number)
    entry = entry_of(b, communicator, message)
    with b.if_(b.icmp("ne", b.load("i64", b.offset(entry, board.ACTIVE)), 0), "busy"):
        status = b.call("i32", "shlo_drain", [communicator, entry], declare=False)
        with b.if_(b.icmp("ne", status, i32(board.OK)), "failed"):
            b.ret_early(b.sub(i64(0), b.cast("sext", status, "i64")))
    b.store(i64(1), b.offset(entry, board.ACTIVE))
    b.store(message, b.offset(entry, board.MESSAGE))
    b.store(place_address, b.offset(entry, board.PLACE))
    _write_header(b, communicator, what, place, addresses, message)
    _number_all(b, communicator, place, entry, message)
    b.store(b.add(number, 1), counter)
    beat(b, communicator)
    b.ret(message)


def _write_header(b: Builder, communicator: V, what: Table, place: Table, addresses: V, message: V) -> None:
    slot = slot_of(b, message)
    ring = ring_of(b, communicator, lane_of(b, communicator, message), field(b, communicator, "rank"))
    header = header_of(b, ring, slot)
    signature = b.xor(what[board.WHAT_SIGNATURE], place[board.PLACE_SIGNATURE])
    inline = what[board.WHAT_INLINE]
    b.store(signature, b.offset(header, board.SIGNATURE))
    b.store(what[board.WHAT_SITE], b.offset(header, board.POSTED_AT))
    b.store(inline, b.offset(header, board.INLINE))
    payload = b.offset(ring, b.add(b.mul(slot, board.PAYLOAD_BYTES), board.PAYLOADS))
    shared, base = (b.cast("ptrtoint", field(b, communicator, n, "ptr"), "i64") for n in ("board", "base"))
    is_inline = b.icmp("ne", inline, 0)
    at = b.variable(i64(0))
    b.store(i64(0), at)
    with b.loop(0, what[board.WHAT_COUNT]) as i:
        address = b.load("ptr", b.element(addresses, "ptr", i))
        home = b.element(b.offset(header, board.ADDRESSES), "i64", i)

        def copied(address: V = address, i: V = i) -> list[V]:
            start, nbytes = b.load("i64", at), what.at(board.WHAT_BYTES, i)
            to = b.offset(payload, start)
            b.memcpy(to, address, nbytes)
            b.store(b.and_(b.add(b.add(start, nbytes), PAYLOAD_ALIGN - 1), i64(-PAYLOAD_ALIGN)), at)
            return [b.sub(b.cast("ptrtoint", to, "i64"), shared)]

        def in_place(address: V = address) -> list[V]:
            return [b.sub(b.cast("ptrtoint", address, "i64"), base)]

        (offset,) = b.if_else(is_inline, copied, in_place)
        b.store(offset, home)


def _number_all(b: Builder, communicator: V, place: Table, entry: V, message: V) -> None:
    """Numbers the messages to the targets and from the sources, and notifies and wakes the targets."""
    lane, slot = lane_of(b, communicator, message), slot_of(b, message)
    rank, numbers = field(b, communicator, "rank"), b.offset(entry, board.NUMBERS)
    sent, received = (field(b, communicator, name, "ptr") for name in ("sent", "received"))
    targets, sources = place[board.PLACE_TARGETS], place[board.PLACE_SOURCES]
    first, last = each_target(b, place)
    with b.loop(0, sources) as j:
        source = place.at(board.PLACE_RANKS, j)
        with b.if_(b.icmp("ne", source, rank)):
            number = next_number(b, received, lane, source)
            b.store(number, b.element(numbers, "i64", b.add(targets, j)))
    with b.loop(first, last) as j:
        target = place.at(board.PLACE_RANKS, j)
        number = next_number(b, sent, lane, target)
        b.store(number, b.element(numbers, "i64", b.sub(j, first)))
        word = word_at(b, communicator, "mail", lane, rank, target, number)
        atomic_store(b, b.or_(word_of(b, communicator, number), slot), word, "release")
    _ring_all(b, communicator, place, first, last)


def _ring_all(b: Builder, communicator: V, place: Table, first: V | int, last: V) -> None:
    rank = field(b, communicator, "rank")
    fence(b)
    with b.loop(first, last) as j:
        other = place.at(board.PLACE_RANKS, j)
        with b.if_(b.icmp("ne", other, rank)):
            b.call("void", "shlo_ring", [communicator, other], declare=False)


def _write_meet(module: ModuleText) -> None:
    b = module.function("shlo_meet", MEET, "i32", linkage="external", attributes="nounwind")
    communicator, what_address, message, found = b.params
    what = Table(b, what_address)
    come_to(b, communicator, what[board.WHAT_SITE])
    entry = entry_of(b, communicator, message)
    place = Table(b, b.load("ptr", b.offset(entry, board.PLACE)))
    lane, rank = lane_of(b, communicator, message), field(b, communicator, "rank")
    signature = b.xor(what[board.WHAT_SIGNATURE], place[board.PLACE_SIGNATURE])
    targets, count = place[board.PLACE_TARGETS], what[board.WHAT_COUNT]
    numbers = Table(b, b.offset(entry, board.NUMBERS))
    shared = field(b, communicator, "board", "ptr")
    with b.loop(0, place[board.PLACE_SOURCES]) as j:
        source = place.at(board.PLACE_RANKS, j)

        def posted(j: V = j, source: V = source) -> list[V]:
            number = numbers.at(0, b.add(targets, j))
            word = word_at(b, communicator, "mail", lane, source, rank, number)
            arguments = [communicator, word, word_of(b, communicator, number), source]
            leave_unless_ok(b, b.call("i32", "shlo_await", arguments, declare=False))
            return [b.and_(atomic_load(b, "i64", word, "acquire"), i64((1 << board.NUMBER_SHIFT) - 1))]

        (slot,) = b.if_else(b.icmp("eq", source, rank), lambda: [slot_of(b, message)], posted)
        header = header_of(b, ring_of(b, communicator, lane, source), slot)
        with b.if_(b.icmp("ne", b.load("i64", b.offset(header, board.SIGNATURE)), signature), "mismatch"):
            peer_site = b.cast("trunc", b.load("i64", b.offset(header, board.POSTED_AT)), "i32")
            note_fault(b, communicator, source, peer_site)
            stop_all(b, communicator, i32(board.MISMATCHED))
            b.ret_early(i32(board.MISMATCHED))
        is_inline = b.icmp("ne", b.load("i64", b.offset(header, board.INLINE)), 0)
        home = b.select(is_inline, shared, field(b, communicator, "base", "ptr"))
        row = b.element(found, "ptr", b.mul(j, count))
        with b.loop(0, count) as i:
            offset = b.load("i64", b.element(b.offset(header, board.ADDRESSES), "i64", i))
            b.store(b.offset(home, offset), b.element(row, "ptr", i))
    b.ret(i32(board.OK))


def _write_leave(module: ModuleText) -> None:
    b = module.function("shlo_leave", LEAVE, "i32", linkage="external", attributes="nounwind")
    communicator, message = b.params
    entry = entry_of(b, communicator, message)
    is_active = b.icmp("ne", b.load("i64", b.offset(entry, board.ACTIVE)), 0)
    is_there = b.icmp("eq", b.load("i64", b.offset(entry, board.MESSAGE)), message)
    with b.if_(b.xor(b.and_(is_active, is_there), V("i1", "true")), "left"):
        b.ret_early(i32(board.OK))
    place = Table(b, b.load("ptr", b.offset(entry, board.PLACE)))
    lane, rank = lane_of(b, communicator, message), field(b, communicator, "rank")
    numbers, targets = Table(b, b.offset(entry, board.NUMBERS)), place[board.PLACE_TARGETS]
    sources = place[board.PLACE_SOURCES]
    with b.loop(0, sources) as j:
        source = place.at(board.PLACE_RANKS, j)
        with b.if_(b.icmp("ne", source, rank)):
            number = numbers.at(0, b.add(targets, j))
            word = word_at(b, communicator, "read", lane, source, rank, number)
            atomic_store(b, word_of(b, communicator, number), word, "release")
    _ring_all(b, communicator, place, 0, sources)
    beat(b, communicator)
    unread = b.load("i64", field(b, communicator, "unread", "ptr"))
    leave_unless_ok(b, b.cast("trunc", unread, "i32"))
    header = header_of(b, ring_of(b, communicator, lane, rank), slot_of(b, message))
    with b.if_(b.icmp("eq", b.load("i64", b.offset(header, board.INLINE)), 0), "in_place"):
        b.ret_early(b.call("i32", "shlo_drain", [communicator, entry], declare=False))
    b.ret(i32(board.OK))
