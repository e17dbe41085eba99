"""Decoding of long hexadecimal literals, as fast as memory is read.

    i64 @shlo_hexadecimal(ptr digits, ptr bytes, i64 blocks)

decodes `blocks` times DIGITS digits, of either case, and returns 1 if all of them are digits.
"""

from __future__ import annotations

from shlo_jit.kernels.attributes import attributes
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

DIGITS = 64
_CHARACTERS = f"<{DIGITS} x i8>"


def build(module: ModuleText, target: Target) -> None:
    parameters = [("ptr", "digits"), ("ptr", "bytes"), ("i64", "blocks")]
    b = module.function("shlo_hexadecimal", parameters, "i64", linkage="", attributes=attributes(target))
    digits, to, blocks = b.params
    with b.loop_carry(0, blocks, [const(_CHARACTERS, -1), digits, to]) as carry:
        good, at, place = carry.values
        values, these = _values(b, b.load(_CHARACTERS, at, align=1))
        high, low = (b.shuffle(values, None, range(first, DIGITS, 2)) for first in (0, 1))
        b.store(b.or_(b.shl(high, 4), low), place, align=1)
        carry.next(b.and_(good, these), b.offset(at, DIGITS), b.offset(place, DIGITS // 2))
    all_good = b.icmp("eq", carry.values[0], const(_CHARACTERS, -1))
    word = b.emit(f"i{DIGITS}", f"bitcast {all_good.type} {all_good.text} to i{DIGITS}")
    b.ret(b.cast("zext", b.icmp("eq", word, -1), "i64"))


def _values(b: Builder, x: V) -> tuple[V, V]:
    """Returns the values of characters as digits, and ones where they are digits."""
    decimal = b.sub(x, const(x.type, ord("0")))
    letter = b.sub(b.or_(x, const(x.type, 0x20)), const(x.type, ord("a")))
    is_decimal = b.icmp("ult", decimal, const(x.type, 10))
    is_letter = b.icmp("ult", letter, const(x.type, 6))
    value = b.select(is_decimal, decimal, b.add(letter, const(x.type, 10)))
    return value, b.cast("sext", b.or_(is_decimal, is_letter), "i8")


HEXADECIMAL = Routine("hexadecimal", ("shlo_hexadecimal",), build)
