"""The board: memory that all ranks of a grid see, and by which they meet. Its layout, and that of what each rank keeps.

Everything that another rank reads is on the board, in lines of which each has one writer. A rank *posts* a message:
where its operands are (or, of small ones, the operands themselves), in one of RING slots, and tells each rank that
shall read it by a word of its own, which has the number of the message between the two. Those have read it when they
have written the same number into the word beside. Nothing is ever reset: a number begins with that of the call.

    board     | call | stop | ended |                     what starts and ends a call
    rank r    | bell | heart | state | fault |            written by r, but for the bell
    rings     [lane][r] | RING headers | RING payloads |  written by r
    mail      [lane][sender][receiver] | RING words |     written by the sender
    read      [lane][sender][receiver] | RING words |     written by the receiver

A lane is an order of its own, with slots of its own: 0 is that of collective ops, and every channel of send and recv
has one. So what is sent and not yet received keeps nobody from going on elsewhere.
"""

from __future__ import annotations

from shlo_jit import tuning

RING = 8
"""Messages of a rank that may be under way on a lane; a power of two, and so many words are a line."""
LINE = 64
POINTERS = 64
"""Addresses that a message may have."""

# Byte offsets on the board, a line for each thing that different ranks write.
CALL, COMMAND, CALL_NUMBER = 0, 4, 8
"""A word on which ranks sleep between calls, the lower half of the number of the call; what it is about; and the number
itself, an i64."""
RUN, LEAVE = 0, 1
"""Commands: run the program; leave the loop that waits for calls, and stop what is still running."""
IDLE = 64
"""Ranks that sleep on CALL."""
STOP = 128
"""Not 0 when the ranks shall stop what they do."""
ENDED, CALLER_ASLEEP = 192, 196
"""Ranks that have ended the call; whether who called sleeps until all have."""
RANKS = 256

# Of a rank.
BELL, ASLEEP = 0, 4
"""A word that others change to wake it, and whether that is needed."""
HEART, THIS_CALL, SITE, WAITS_FOR = 64, 72, 76, 80
"""A number that changes as long as the rank gets on; the CALL that it has begun last, and the last of its program's
sites that it came to in it; and the rank that it sleeps for, or NONE."""
LAST_CALL, STATUS = 128, 132
"""The CALL that it has ended last, and the status."""
FAULT_PEER, FAULT_PEER_SITE = 136, 140
"""Of a status that says so: because of which rank it stopped, and what that did."""
NONE = -1
RANK_BYTES = 192

# Of a ring.
HEADERS = 0
SIGNATURE, POSTED_AT, INLINE, ADDRESSES = 0, 8, 16, 64
"""Of a header. POSTED_AT: the site; INLINE: whether the operands are in the payload; ADDRESSES are those from the start
of the board, or from the base of the memory that the ranks share."""
HEADER_BYTES = ADDRESSES + 8 * POINTERS
PAYLOADS = HEADERS + RING * HEADER_BYTES
PAYLOAD_BYTES = tuning.INLINE_MESSAGE_BYTES
RING_BYTES = PAYLOADS + RING * PAYLOAD_BYTES
assert RANK_BYTES % LINE == 0 == HEADER_BYTES % LINE == PAYLOAD_BYTES % LINE

CALL_SHIFT, NUMBER_SHIFT = 16, 8
"""A word of mail: the call's number, the message's between the two ranks, and the slot. What is left in a word from an
earlier message is RING messages older or of another call, so few bits of the message's number are enough, and those of
the call's must not come again: at one call a microsecond they do after eight years."""
NUMBERS_OF_MESSAGES = 1 << (CALL_SHIFT - NUMBER_SHIFT)
LANE_SHIFT = 32
"""What a program knows a message by: its lane, and its number among those of the lane."""


def rings_offset(ranks: int) -> int:
    return RANKS + ranks * RANK_BYTES


def mail_offset(ranks: int, lanes: int) -> int:
    """Of the words of mail; those of what was read lie behind them."""
    return rings_offset(ranks) + lanes * ranks * RING_BYTES


def mail_bytes(ranks: int, lanes: int) -> int:
    return lanes * ranks * ranks * RING * 8


def board_bytes(ranks: int, lanes: int) -> int:
    return mail_offset(ranks, lanes) + 2 * mail_bytes(ranks, lanes)


# ---------------------------------------------------------------------- what a rank keeps for itself
COMMUNICATOR = {
    name: 8 * i
    for i, name in enumerate(
        (
            *("post", "meet", "leave", "fetch"),  # functions, see messages.py and fetching.py
            *("board", "rings", "mail", "read"),  # addresses
            *("base", "rank", "ranks", "lanes"),  # base: of the shared memory; lanes: by number of the channel
            *("reach", "caller", "caller_base", "unread"),  # see fetching.py: process, base in it; address of a status
            "tag",  # of this call: its part of the words of mail
            *("time_out", "spins", "yields"),  # nanoseconds without progress; the others: see `spin_until`
            *("sent", "received"),  # i64[lanes][ranks]: messages so far to and from each
            *("posted", "ring"),  # of each lane: how many messages so far (i64), and RING entries
            "tickets",  # for each site that keeps one, its message
        )
    )
}
"""Byte offset of each field of the record that `communicator` in a program's instance refers to; 64 bits each."""

# Of an entry of the ring: what is known of a message while it is under way.
ACTIVE, MESSAGE, PLACE, NUMBERS = 0, 8, 16, 24
"""Whether it is; which it is; the place it was posted at; the numbers of the messages, first those to the targets, then
those from the sources."""


def entry_bytes(ranks: int) -> int:
    return NUMBERS + 16 * ranks


# Of what a program says about an exchange: tables of i64.
WHAT_SITE, WHAT_SIGNATURE, WHAT_COUNT, WHAT_INLINE, WHAT_CHANNEL, WHAT_BYTES = (8 * i for i in range(6))
"""The number of the op in the program; what it is, as a number; of how many addresses; whether they go inline; the
channel's number plus 1, or 0; then the bytes of each; and then for each the bytes of a part, where ranks of the group
read only the part at their own place in it, or (then it is negative) at the place of the rank that posts; else 0."""
PLACE_SOURCES, PLACE_TARGETS, PLACE_SIGNATURE, PLACE_RANKS = (8 * i for i in range(4))
"""How many ranks it hears from, and how many read what it posts; a number for the group; then those ranks, the sources
in the group's order (maybe with the rank itself), then the targets (without it)."""

# Statuses of programs that these functions return.
OK, STOPPED, TIMED_OUT, MISMATCHED, ENDED_EARLY, UNREADABLE = 0, 3, 4, 5, 6, 7
