"""Values that relocations write: functions of S (the symbol's address), A (the addend), P (the place's address) and G
(the address of a slot that holds the symbol's address). All are arrays over the relocations of one type.

The types and formulas are those of the processors' ABI supplements for ELF ("System V ABI, AMD64", "ELF for the Arm
64-bit Architecture").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shlo_jit.codegen.elf import AARCH64, X86_64

Formula = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Computes the word to write from S + A, P, G + A and the existing word. Raises OverflowError if the value does not
fit."""


class Relocation(NamedTuple):
    word: str
    """The numpy type of the word."""
    formula: Formula
    slot: bool = False
    """Whether it needs G."""
    is_call: bool = False
    """Whether the target may be a stub that jumps there."""


def _in_range(value: np.ndarray, bits: int) -> np.ndarray:
    if ((value < -(1 << (bits - 1))) | (value >= 1 << (bits - 1))).any():
        raise OverflowError(f"a relocation's value has more than {bits} bits")
    return value


def _absolute(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
    return s


def _relative(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
    return s - p


def _relative_32(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
    return _in_range(s - p, 32)


def _slot_32(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
    return _in_range(g - p, 32)


# ---------------------------------------------------------------------- AArch64: fields of instructions
def _field(word: np.ndarray, value: np.ndarray, bits: int, at: int) -> np.ndarray:
    mask = ((1 << bits) - 1) << at
    return (word & ~mask) | ((value << at) & mask)


def _branch(bits: int, at: int) -> Formula:
    """A distance in instructions."""

    def formula(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
        return _field(word, _in_range(s - p, bits + 2) >> 2, bits, at)

    return formula


def _split_21(word: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The 21 bits of an ADR or ADRP; the low two are in a separate field."""
    value = _in_range(value, 21)
    return _field(_field(word, value, 2, 29), value >> 2, 19, 5)


def _pages(target: np.ndarray, p: np.ndarray) -> np.ndarray:
    return (target >> 12) - (p >> 12)


def _low_12(shift: int) -> Formula:
    """The offset in a page, in units of the loaded size."""

    def formula(s: np.ndarray, p: np.ndarray, g: np.ndarray, word: np.ndarray) -> np.ndarray:
        return _field(word, (s & 0xFFF) >> shift, 12, 10)

    return formula


RELOCATIONS: dict[int, dict[int, Relocation]] = {
    X86_64: {
        1: Relocation("<i8", _absolute),  # R_X86_64_64
        2: Relocation("<i4", _relative_32),  # PC32
        4: Relocation("<i4", _relative_32, is_call=True),  # PLT32
        9: Relocation("<i4", _slot_32, slot=True),  # GOTPCREL
        24: Relocation("<i8", _relative),  # PC64
        41: Relocation("<i4", _slot_32, slot=True),  # GOTPCRELX
        42: Relocation("<i4", _slot_32, slot=True),  # REX_GOTPCRELX
    },
    AARCH64: {
        257: Relocation("<i8", _absolute),  # R_AARCH64_ABS64
        260: Relocation("<i8", _relative),  # PREL64
        261: Relocation("<i4", _relative_32),  # PREL32
        274: Relocation("<u4", lambda s, p, g, word: _split_21(word, s - p)),  # ADR_PREL_LO21
        275: Relocation("<u4", lambda s, p, g, word: _split_21(word, _pages(s, p))),  # ADR_PREL_PG_HI21
        277: Relocation("<u4", _low_12(0)),  # ADD_ABS_LO12_NC
        278: Relocation("<u4", _low_12(0)),  # LDST8_ABS_LO12_NC
        279: Relocation("<u4", _branch(14, 5)),  # TSTBR14
        280: Relocation("<u4", _branch(19, 5)),  # CONDBR19
        282: Relocation("<u4", _branch(26, 0), is_call=True),  # JUMP26
        283: Relocation("<u4", _branch(26, 0), is_call=True),  # CALL26
        284: Relocation("<u4", _low_12(1)),  # LDST16_ABS_LO12_NC
        285: Relocation("<u4", _low_12(2)),  # LDST32_ABS_LO12_NC
        286: Relocation("<u4", _low_12(3)),  # LDST64_ABS_LO12_NC
        299: Relocation("<u4", _low_12(4)),  # LDST128_ABS_LO12_NC
        311: Relocation("<u4", lambda s, p, g, word: _split_21(word, _pages(g, p)), slot=True),  # ADR_GOT_PAGE
        312: Relocation("<u4", lambda s, p, g, word: _low_12(3)(g, p, g, word), slot=True),  # LD64_GOT_LO12_NC
    },
}
"""Machine -> type -> relocation."""

STUBS = {
    X86_64: bytes.fromhex("ff2502000000 0f0b"),  # jmp *2(%rip); ud2
    AARCH64: bytes.fromhex("50000058 00021fd6"),  # ldr x16, .+8; br x16
}
"""A jump to the address in the 8 bytes after it."""
CALL_REACH = {X86_64: 1 << 31, AARCH64: 1 << 27}
"""Maximum distance of a call, in bytes."""
