"""Defines the cases that LLVM leaves undefined in integer and float arithmetic, as the documentation describes.

LLVM assumes that undefined cases never happen, and a division without a result ends the process. Rewrites:

    add nsw i64 %x, %y              add i64 %x, %y                                     integers wrap
    fptosi double %x to i64         call i64 @llvm.fptosi.sat.i64.f64(double %x)       saturates; 0 of NaN
    shl i64 %x, %n                  call i64 @shlo_defined_shl.i64(i64 %x, i64 %n)     0, or the sign, past the width
    sdiv i64 %x, %y                 call i64 @shlo_defined_sdiv.i64(i64 %x, i64 %y)    x / 0 = -1; least / -1 = least

An instruction whose second operand is a constant for which it is defined stays as it is.
"""

from __future__ import annotations

import re

PREFIX = "shlo_defined_"
_FLAGS = re.compile(r"^( +%[^\n=]* = \w+)(?: (?:nsw|nuw|exact|disjoint|nneg|samesign))+ ", re.MULTILINE)
"""Flags of integer arithmetic that promise no overflow and the like."""
_TO_INTEGER = re.compile(r"^( +%[^\n=]* = )fpto([su])i (half|bfloat|float|double) (\S+) to (i\d+)", re.MULTILINE)
_OPEN = re.compile(r"^( +%[^\n=]* = )(shl|lshr|ashr|sdiv|srem|udiv|urem) (i\d+) ([^\s,]+), ([^\s,]+)", re.MULTILINE)
_DIVISIONS = re.compile(_OPEN.pattern.replace("shl|lshr|ashr|", ""), re.MULTILINE)
_FLOATS = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}

_SHIFT = """  %wide = icmp uge {t} %y, {bits}
  %n = select i1 %wide, {t} {last}, {t} %y
  %made = {op} {t} %x, %n"""
_SHIFT_OUT = f"{_SHIFT}\n  %r = select i1 %wide, {{t}} 0, {{t}} %made"
_SIGNED = """  %zero = icmp eq {t} %y, 0
  %minus = icmp eq {t} %y, -1
  %no = or i1 %zero, %minus
  %by = select i1 %no, {t} 1, {t} %y
  %made = {op} {t} %x, %by
  %same = select i1 %zero, {t} {of_zero}, {t} %made
  %negative = sub {t} 0, %x
  %r = select i1 %minus, {t} {of_minus}, {t} %same"""
_UNSIGNED = """  %zero = icmp eq {t} %y, 0
  %by = select i1 %zero, {t} 1, {t} %y
  %made = {op} {t} %x, %by
  %r = select i1 %zero, {t} {of_zero}, {t} %made"""
_BODIES = {
    "shl": _SHIFT_OUT,
    "lshr": _SHIFT_OUT,
    "ashr": _SHIFT.replace("%made", "%r"),
    "sdiv": _SIGNED.replace("{of_zero}", "-1").replace("{of_minus}", "%negative"),
    "srem": _SIGNED.replace("{of_zero}", "%x").replace("{of_minus}", "0"),
    "udiv": _UNSIGNED.replace("{of_zero}", "-1"),
    "urem": _UNSIGNED.replace("{of_zero}", "%x"),
}
"""Bodies of the functions: %r is computed from %x and %y."""


def defined(text: str) -> str:
    """Returns the module with all of its undefined cases defined."""
    declared: dict[str, None] = {}

    def converted(found: re.Match[str]) -> str:
        start, sign, given, value, wanted = found.groups()
        name = f"llvm.fpto{sign}i.sat.{wanted}.{_FLOATS[given]}"
        declared[f"declare {wanted} @{name}({given})"] = None
        return f"{start}call {wanted} @{name}({given} {value})"

    text = _TO_INTEGER.sub(converted, _FLAGS.sub(r"\1 ", text))
    missing = [line for line in declared if f"{line.partition('@')[2].partition('(')[0]}(" not in _declarations(text)]
    return _with_functions(_OPEN, "\n".join([text, *missing, ""]))


def divisions_defined(text: str) -> str:
    """Returns the module with divisions that cannot end the process."""
    return _with_functions(_DIVISIONS, text)


def _declarations(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("declare "))


def _with_functions(pattern: re.Pattern[str], text: str) -> str:
    """Returns the text with calls in place of the undefined instructions, and with the functions that they call."""
    wanted: dict[tuple[str, str], None] = {}

    def called(found: re.Match[str]) -> str:
        start, op, type, x, y = found.groups()
        if _is_closed(op, int(type[1:]), y):
            return found[0]
        wanted[op, type] = None
        return f"{start}call {type} @{PREFIX}{op}.{type}({type} {x}, {type} {y})"

    return "\n".join([pattern.sub(called, text), *(_function(op, type) for op, type in wanted), ""])


def _is_closed(op: str, bits: int, y: str) -> bool:
    """Whether the second operand is a constant for which the instruction is defined."""
    if not re.fullmatch(r"-?\d+", y):
        return False
    return 0 <= int(y) < bits if op in ("shl", "lshr", "ashr") else int(y) not in (0, -1)


def _function(op: str, type: str) -> str:
    bits = int(type[1:])
    body = _BODIES[op].format(op=op, t=type, bits=bits, last=bits - 1)
    head = f"define internal {type} @{PREFIX}{op}.{type}({type} %x, {type} %y) alwaysinline"
    return f"{head} {{\n{body}\n  ret {type} %r\n}}"
