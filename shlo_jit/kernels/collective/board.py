"""The board: memory that all ranks of a grid share. Its layout, and that of the records each rank keeps for itself.

All data that another rank reads is on the board, in cache lines with one writer each. A rank *posts* a message: the
addresses of its operands (or small operands themselves), in one of RING slots. It notifies each rank that shall read
the message through a separate word, which holds the number of the message between the two. A rank has read the message
when it has written the same number into the corresponding word of `read`. Words are never reset: a number begins with
that of the call.

    board     | call | stop | ended |                     what starts and ends a call
    rank r    | bell | heart | state | fault |            written by r, except the bell
    rings     [lane][r] | RING headers | RING payloads |  written by r
    mail      [lane][sender][receiver] | RING words |     written by the sender
    read      [lane][sender][receiver] | RING words |     written by the receiver

A lane is an independent order of messages, with slots of its own: lane 0 is that of collective ops, and every channel
of send and recv has one. So a message that is sent and not yet received blocks no rank elsewhere.
"""

from __future__ import annotations

from shlo_jit import tuning

RING = 8
"""Maximum number of a rank's pending messages on a lane; a power of two, and that many words are a line."""
LINE = 64
POINTERS = 64
"""Maximum number of addresses of a message."""

# Byte offsets on the board; data written by different ranks is in different lines.
CALL, COMMAND, CALL_NUMBER = 0, 4, 8
"""A word on which ranks sleep between calls, the lower half of the number of the call; the command of the call; and the
number itself, an i64."""
RUN, LEAVE = 0, 1
"""Commands: run the program; leave the loop that waits for calls, and stop running programs."""
IDLE = 64
"""Number of ranks that sleep on CALL."""
STOP = 128
"""Not 0 if the ranks shall stop."""
ENDED, CALLER_ASLEEP = 192, 196
"""Number of ranks that have ended the call; whether the caller sleeps until all have."""
RANKS = 256

# Byte offsets in the area of a rank.
BELL, ASLEEP = 0, 4
"""A word that others change to wake the rank, and whether that is needed."""
HEART, THIS_CALL, SITE, WAITS_FOR = 64, 72, 76, 80
"""A number that changes as long as the rank makes progress; the CALL that it has begun last; the last site of its
program that it reached in this call; and the rank that it sleeps for, or NONE."""
LAST_CALL, STATUS = 128, 132
"""The CALL that the rank has ended last, and its status."""
FAULT_PEER, FAULT_PEER_SITE = 136, 140
"""The rank that caused the stop, if the status names one, and the site of that rank."""
NONE = -1
RANK_BYTES = 192

# Byte offsets in a ring.
HEADERS = 0
SIGNATURE, POSTED_AT, INLINE, ADDRESSES = 0, 8, 16, 64
"""Offsets in a header. POSTED_AT: the site; INLINE: whether the operands are in the payload. ADDRESSES are relative to
the start of the board, or to the base of the memory that the ranks share."""
HEADER_BYTES = ADDRESSES + 8 * POINTERS
PAYLOADS = HEADERS + RING * HEADER_BYTES
PAYLOAD_BYTES = tuning.INLINE_MESSAGE_BYTES
RING_BYTES = PAYLOADS + RING * PAYLOAD_BYTES
assert RANK_BYTES % LINE == 0 == HEADER_BYTES % LINE == PAYLOAD_BYTES % LINE

CALL_SHIFT, NUMBER_SHIFT = 16, 8
"""A word of mail consists of the call's number, the message's number between the two ranks, and the slot. An old value
of a word is from a message RING messages ago or from another call. So few bits of the message's number are enough, and
those of the call's number must not repeat: at one call per microsecond they do after eight years."""
NUMBERS_OF_MESSAGES = 1 << (CALL_SHIFT - NUMBER_SHIFT)
LANE_SHIFT = 32
"""A program identifies a message by its lane, and its number among those of the lane."""


def rings_offset(ranks: int) -> int:
    return RANKS + ranks * RANK_BYTES


def mail_offset(ranks: int, lanes: int) -> int:
    """Returns the offset of the words of mail; those of what was read follow them."""
    return rings_offset(ranks) + lanes * ranks * RING_BYTES


def mail_bytes(ranks: int, lanes: int) -> int:
    return lanes * ranks * ranks * RING * 8


def board_bytes(ranks: int, lanes: int) -> int:
    return mail_offset(ranks, lanes) + 2 * mail_bytes(ranks, lanes)


# ---------------------------------------------------------------------- records that a rank keeps for itself
COMMUNICATOR = {
    name: 8 * i
    for i, name in enumerate(
        (
            *("post", "meet", "leave", "fetch"),  # functions, see messages.py and fetching.py
            *("board", "rings", "mail", "read"),  # addresses
            *("base", "rank", "ranks", "lanes"),  # base: of the shared memory; lanes: by number of the channel
            *("reach", "caller", "caller_base", "unread"),  # see fetching.py: process, base in it; address of a status
            "tag",  # bits of this call in the words of mail
            *("time_out", "spins", "yields"),  # nanoseconds without progress; the others: see `spin_until`
            *("sent", "received"),  # i64[lanes][ranks]: number of messages to and from each rank
            *("posted", "ring"),  # for each lane: number of messages (i64), and RING entries
            "tickets",  # for each site that keeps one, its message
        )
    )
}
"""Byte offset of each field of the record that `communicator` in a program's instance points to; 64 bits each."""

# Byte offsets in an entry of the ring: the state of a pending message.
ACTIVE, MESSAGE, PLACE, NUMBERS = 0, 8, 16, 24
"""Whether the message is pending; its number; the place it was posted at; the numbers of the messages, first those to
the targets, then those from the sources."""


def entry_bytes(ranks: int) -> int:
    return NUMBERS + 16 * ranks


# Byte offsets in the tables of i64 with which a program describes an exchange.
WHAT_SITE, WHAT_SIGNATURE, WHAT_COUNT, WHAT_INLINE, WHAT_CHANNEL, WHAT_BYTES = (8 * i for i in range(6))
"""The number of the op in the program; a number that identifies its kind; the number of addresses; whether the operands
are inline; the channel's number plus 1, or 0; then the bytes of each operand. Then for each the bytes of a part, if
ranks of the group read only the part at their own place in it, or (negative) at the place of the posting rank; else
0."""
PLACE_SOURCES, PLACE_TARGETS, PLACE_SIGNATURE, PLACE_RANKS = (8 * i for i in range(4))
"""Number of ranks that it receives from, and of those that read what it posts; a number for the group; then those
ranks, the sources in the group's order (possibly with the rank itself), then the targets (without it)."""

# Statuses that these functions return to programs.
OK, STOPPED, TIMED_OUT, MISMATCHED, ENDED_EARLY, UNREADABLE = 0, 3, 4, 5, 6, 7
