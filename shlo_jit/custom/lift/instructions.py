"""One op or a few ops for each LLVM instruction. Cases that LLVM leaves undefined (shifts past the width, conversions
of numbers that are too large) have StableHLO's results here."""

from __future__ import annotations

import re
from collections.abc import Callable

from shlo_jit.custom.lift.calls import call
from shlo_jit.custom.lift.ops import Ops, dtype_of
from shlo_jit.custom.lift.read import Instruction
from shlo_jit.custom.llvm_text import Refused
from shlo_jit.ir.core import Value

_PLAIN = {
    "fadd": "add", "fsub": "subtract", "fmul": "multiply", "fdiv": "divide", "frem": "remainder", "fneg": "negate",
    "add": "add", "sub": "subtract", "mul": "multiply", "sdiv": "divide", "srem": "remainder", "and": "and",
    "or": "or", "xor": "xor", "shl": "shift_left", "lshr": "shift_right_logical", "ashr": "shift_right_arithmetic",
}  # fmt: skip
_UNSIGNED = {"udiv": "divide", "urem": "remainder"}
_I1_ARITHMETIC = {"add": "xor", "sub": "xor", "mul": "and"}
"""Arithmetic modulo 2."""
_SIGNED_COMPARE = {"slt": "LT", "sle": "LE", "sgt": "GT", "sge": "GE"}
_COMPARE = {"eq": "EQ", "ne": "NE", "ult": "LT", "ule": "LE", "ugt": "GT", "uge": "GE", **_SIGNED_COMPARE}
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
_ORDERED = {"oeq": "EQ", "olt": "LT", "ole": "LE", "ogt": "GT", "oge": "GE", "une": "NE"}
"""Comparisons that StableHLO has: with a NaN, all are false except NE."""
_NOT_OF = {"ult": "GE", "ule": "GT", "ugt": "LE", "uge": "LT"}
_PREDICATE = re.compile(r"= [fi]cmp (?:(?:samesign|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast) )*(\w+) ")


def lifted(ops: Ops, instruction: Instruction, operands: list[Value]) -> Value:
    """Returns the value of an instruction. Raises Refused."""
    rule = RULES.get(instruction.opcode)
    if rule is None:
        what = {"load": "reads memory", "store": "writes memory", "alloca": "keeps values in memory"}
        if instruction.opcode in what:
            raise Refused("accesses-memory", f"it {what[instruction.opcode]}")
        raise Refused("unsupported-instruction", f"it has the instruction {instruction.opcode}")
    return rule(ops, instruction, operands)


def _arithmetic(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    if i.opcode in _UNSIGNED:
        return ops.as_unsigned(_UNSIGNED[i.opcode], *operands)
    name = _PLAIN[i.opcode]
    if dtype_of(i.type).kind == "b" and name not in ("and", "or", "xor"):
        if i.opcode not in _I1_ARITHMETIC:
            raise Refused("unsupported-instruction", f"it has the instruction {i.opcode} i1")
        name = _I1_ARITHMETIC[i.opcode]
    if name in ("add", "multiply", "and", "or", "xor"):  # JAX's and our own forms have constants on the right
        operands = sorted(operands, key=lambda v: v.op is not None and v.op.name == "stablehlo.constant")
    return ops.apply(name, *operands)


def _icmp(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    found = _PREDICATE.search(i.text)
    if found is None or found[1] not in _COMPARE or operands[0].tensor.storage.kind not in "bi":
        raise Refused("unsupported-instruction", f"it has the instruction {i.text}")
    predicate = found[1]
    direction = _COMPARE[predicate]
    if operands[0].tensor.storage.kind == "b":
        if predicate in _SIGNED_COMPARE:  # true is -1
            direction = _MIRRORED[direction]
    elif predicate.startswith("u"):
        operands = [*map(ops.unsigned, operands)]
    return ops.compare(direction, *operands)


def _fcmp(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    found = _PREDICATE.search(i.text)
    if found is None:
        raise Refused("unsupported-instruction", f"it has the instruction {i.text}")
    predicate = found[1]
    x, y = operands
    if predicate in _ORDERED:
        return ops.compare(_ORDERED[predicate], x, y)
    if predicate in _NOT_OF:
        return ops.negation(ops.compare(_NOT_OF[predicate], x, y))
    if predicate in ("true", "false"):
        return ops.constant(dtype_of("i1"), predicate == "true")
    differs = ops.apply("or", ops.compare("LT", x, y), ops.compare("GT", x, y))
    if predicate == "one":
        return differs
    if predicate == "ueq":
        return ops.negation(differs)
    if predicate not in ("ord", "uno"):
        raise Refused("unsupported-instruction", f"it has the instruction {i.text}")
    sides = [v for v in (x, y) if v.op is None or v.op.name != "stablehlo.constant"] or [x]
    unordered = ops.is_nan(sides[0]) if len(sides) == 1 else ops.apply("or", *map(ops.is_nan, sides))
    return unordered if predicate == "uno" else ops.negation(unordered)


def _select(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.select(*operands)


def _same(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return operands[0]


def _trunc(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    (x,) = operands
    if i.type == "i1":
        return ops.compare("NE", ops.apply("and", x, ops.like(x, 1)), ops.like(x, 0))
    return ops.convert(x, dtype_of(i.type))


def _zext(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    (x,) = operands
    wanted = dtype_of(i.type)
    if x.tensor.storage.kind == "b":
        return ops.convert(x, wanted)
    return ops.apply("and", ops.convert(x, wanted), ops.constant(wanted, (1 << x.tensor.storage.bits) - 1))


def _sext(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    (x,) = operands
    wider = ops.convert(x, dtype_of(i.type))
    return ops.apply("negate", wider) if x.tensor.storage.kind == "b" else wider


def _convert(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.convert(operands[0], dtype_of(i.type))


def _sitofp(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    (x,) = operands
    if x.tensor.storage.kind == "b":  # true is -1, and false 0 without a sign
        return ops.select(x, ops.constant(dtype_of(i.type), -1.0), ops.constant(dtype_of(i.type), 0.0))
    return ops.convert(x, dtype_of(i.type))


def _uitofp(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.convert(ops.unsigned(operands[0]), dtype_of(i.type))


def _fptoui(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    if i.type == "i1":
        raise Refused("unsupported-instruction", "it has the instruction fptoui i1")
    unsigned = ops.unsigned(ops.constant(dtype_of(i.type), 0)).tensor.storage
    return ops.signed(ops.convert(operands[0], unsigned))


def _bitcast(ops: Ops, i: Instruction, operands: list[Value]) -> Value:
    return ops.bits(operands[0], dtype_of(i.type))


Rule = Callable[[Ops, Instruction, list[Value]], Value]
RULES: dict[str, Rule] = {
    **dict.fromkeys((*_PLAIN, *_UNSIGNED), _arithmetic),
    "icmp": _icmp, "fcmp": _fcmp, "select": _select, "freeze": _same, "call": call,
    "trunc": _trunc, "zext": _zext, "sext": _sext, "fptrunc": _convert, "fpext": _convert, "fptosi": _convert,
    "sitofp": _sitofp, "uitofp": _uitofp, "fptoui": _fptoui, "bitcast": _bitcast,
}  # fmt: skip
