"""Trip counts of loops whose counters depend only on constants, found by counting."""

from __future__ import annotations

import re

from shlo_jit import tuning
from shlo_jit.custom.lift.loops import Level
from shlo_jit.custom.lift.read import Function, Instruction, Literal, Operand

_PREDICATE = re.compile(r"icmp (?:samesign )?(\w+) ")


def trip_count(function: Function, loop: Level) -> int | None:
    """Returns the trip count of a loop that ends at its header. Returns None if it depends on more than constants, or
    if counting takes more than COUNTED_ITERATIONS iterations."""
    head = function.blocks[loop.entry]
    made = {i.name: i for b in loop.blocks for i in (*function.blocks[b].phis, *function.blocks[b].body)}
    wanted = _follows(head.condition, made, {p.name for p in head.phis})
    if wanted is None:
        return None
    phis = [p for p in head.phis if p.name in wanted]
    state = {p.name: next(o for o, s in zip(p.operands, p.sources, strict=True) if s != loop.latch) for p in phis}
    if not all(isinstance(o, Literal) for o in state.values()):
        return None
    now = {name: int(o.value) for name, o in state.items()}
    stays = head.targets[0] in loop.blocks
    for iteration in range(tuning.COUNTED_ITERATIONS + 1):
        known = dict(now)
        if bool(_value(head.condition, made, known)) != stays:
            return iteration
        now = {p.name: _value(p.operands[p.sources.index(loop.latch)], made, known) for p in phis}
    return None


def needed(function: Function, loop: Level) -> set[str]:
    """Returns the names in a loop that something other than its header's condition depends on."""
    made = {i.name: i for b in loop.blocks for i in (*function.blocks[b].phis, *function.blocks[b].body)}
    head = function.blocks[loop.entry].condition
    todo: list[Operand] = [function.blocks[b].condition for b in loop.blocks if b != loop.entry]
    for edge in loop.exits:
        todo += [p.operands[p.sources.index(edge[0])] for p in function.blocks[edge[1]].phis]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if isinstance(name, str) and name in made and name not in found and name != head:
            found.add(name)
            todo += made[name].operands
    return found


def _follows(operand: Operand, made: dict[str, Instruction], phis: set[str]) -> set[str] | None:
    """Returns the names that a value depends on. Returns None unless it is computed from phis alone by integer
    arithmetic."""
    found: set[str] = set()
    todo = [operand]
    while todo:
        name = todo.pop()
        if isinstance(name, Literal) or name in found:
            continue
        i = made.get(name) if isinstance(name, str) else None
        if i is None or (i.opcode == "phi" and i.name not in phis) or i.opcode not in ("phi", *_RULES):
            return None
        found.add(i.name)
        todo += i.operands
    return found


def _value(operand: Operand, made: dict[str, Instruction], known: dict[str, int]) -> int:
    if isinstance(operand, Literal):
        return int(operand.value)
    if operand not in known:
        i = made[operand]
        known[operand] = _RULES[i.opcode](i, [_value(o, made, known) for o in i.operands])
    return known[operand]


def _bits(type: str) -> int:
    return int(type[1:])


def _wrapped(i: Instruction, value: int) -> int:
    return value % (1 << _bits(i.type))


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _icmp(i: Instruction, values: list[int]) -> int:
    found = _PREDICATE.search(i.text)
    assert found is not None
    predicate = found[1]
    words = re.search(r"icmp (?:samesign )?\w+ (i\d+)", i.text)
    if predicate.startswith("s") and words is not None:
        values = [_signed(v, _bits(words[1])) for v in values]
    x, y = values
    order = predicate[-2:]
    return int({"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[order])


def _sext(i: Instruction, values: list[int]) -> int:
    words = re.search(r"sext (?:nneg )?i(\d+)", i.text)
    return _wrapped(i, _signed(values[0], int(words[1]) if words is not None else 1))


_RULES = {
    "icmp": _icmp,
    "sext": _sext,
    "zext": lambda i, values: values[0],
    "trunc": lambda i, values: _wrapped(i, values[0]),
    "add": lambda i, values: _wrapped(i, values[0] + values[1]),
    "sub": lambda i, values: _wrapped(i, values[0] - values[1]),
    "mul": lambda i, values: _wrapped(i, values[0] * values[1]),
    "and": lambda i, values: values[0] & values[1],
    "or": lambda i, values: values[0] | values[1],
    "xor": lambda i, values: values[0] ^ values[1],
    "select": lambda i, values: values[1] if values[0] else values[2],
}
"""Rules on integers in their unsigned representation."""
