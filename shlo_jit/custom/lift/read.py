"""Reads a function in LLVM's language, simplified by LLVM, into plain records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.value import ValueKind

from shlo_jit.codegen import optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.custom.llvm_text import SCALAR, Refused, parse

Operand = Any
"""Name of a value, a `Literal`, or None for an operand that is not used (a function, a block, metadata)."""


@dataclass(frozen=True)
class Literal:
    """A constant. That of an aggregate is a tuple of literals."""

    type: str
    value: Any


@dataclass
class Instruction:
    """An instruction; `name` is empty if it has no result."""

    opcode: str
    name: str
    type: str
    operands: list[Operand]
    text: str
    callee: str = ""
    sources: list[str] = field(default_factory=list)
    """Predecessor block of each operand of a phi."""


@dataclass
class Block:
    """A basic block: phis, other instructions, and targets. Of two targets, the first is taken if `condition` holds."""

    name: str
    phis: list[Instruction]
    body: list[Instruction]
    condition: Operand
    targets: list[str]
    returned: Operand = None


@dataclass
class Function:
    arguments: list[str]
    blocks: dict[str, Block]
    """Blocks by name. The first is the entry."""


def read(text: str) -> Function:
    """Reads the function SCALAR of a text without undefined cases (`defined.py`). Raises Refused if it is not a
    function of scalars alone."""
    module = prepared(text)
    function = module.get_function(SCALAR)
    if any(not f.is_declaration for f in module.functions if f.name != SCALAR):
        raise Refused("recursive-function", "it has a function that calls itself")
    blocks = {b.name: _block(b) for b in function.blocks}
    return Function([a.name for a in function.arguments], blocks)


def prepared(text: str) -> llvm.ModuleRef:
    """Returns the module with SCALAR as one function of registers, with its loops in LLVM's simplified form."""
    module = parse(text)
    for function in module.functions:
        if not function.is_declaration and function.name != SCALAR:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    for i in range(2):  # the first round exposes more dead code
        passes.add_sroa_pass()
        passes.add_ipsccp_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_aggressive_dce_pass()
        if not i:
            passes.add_loop_unroll_pass()
    passes.add_simplify_cfg_pass()
    passes.add_lower_switch_pass()
    passes.add_unify_function_exit_nodes_pass()
    passes.add_loop_simplify_pass()
    passes.add_lcssa_pass()
    passes.add_instruction_namer_pass()
    passes.add_global_dead_code_eliminate_pass()
    with optimize.tools(resolve("x86-64")) as tools:
        passes.run(module, tools.builder)
    return module


_CALLEE = re.compile(r"\bcall\b[^@]*@([\w.$-]+)\(")


def _block(block: llvm.ValueRef) -> Block:
    found = Block(block.name, [], [], None, [])
    for instruction in block.instructions:
        opcode = instruction.opcode
        if opcode == "phi":
            found.phis.append(_instruction(instruction))
        elif opcode == "br":
            *condition, last = instruction.operands
            found.targets = [last.name]
            if condition:
                found.condition = _operand(condition[0])
                found.targets.append(condition[1].name)
        elif opcode == "ret":
            found.returned = next(map(_operand, instruction.operands), None)
        elif opcode == "unreachable":
            pass
        else:
            found.body.append(_instruction(instruction))
    return found


def _instruction(instruction: llvm.ValueRef) -> Instruction:
    text = str(instruction).strip()
    found = Instruction(
        instruction.opcode or "",
        instruction.name,
        str(instruction.type),
        [_operand(o) for o in instruction.operands],
        text,
    )
    if found.opcode == "phi":
        found.sources = [b.name for b in instruction.incoming_blocks]
    elif found.opcode == "call":
        callee = _CALLEE.search(text)
        found.callee = callee[1] if callee else ""
        found.operands = found.operands[:-1]
    return found


def path_of(i: Instruction) -> list[int]:
    """Returns the indices at the end of an instruction on structures."""
    path: list[int] = []
    for word in reversed(i.text.split(",")):
        if not word.strip().isdigit():
            break
        path.insert(0, int(word))
    return path


_AGGREGATE = (ValueKind.constant_struct, ValueKind.constant_array, ValueKind.constant_aggregate_zero)
_NOTHING = (ValueKind.undef_value, ValueKind.poison_value)


def _operand(value: llvm.ValueRef) -> Operand:
    if not value.is_constant:
        return value.name or None
    type, kind = str(value.type), value.value_kind
    if kind == ValueKind.constant_int:
        return Literal(type, value.get_constant_value())
    if kind == ValueKind.constant_fp:
        return Literal(type, value.get_constant_value())
    if kind in (*_NOTHING, *_AGGREGATE):
        return _constant(type, str(value))
    return Literal("other", str(value))


def _constant(type: str, text: str) -> Literal:
    """Returns a constant of a structure from its text. An undefined constant is zero."""
    fields = fields_of(type)
    if fields is None:
        return Literal(type, 0)
    parts = [] if " {" not in text.removeprefix(type) else list(split(text.removeprefix(type).strip()[1:-1]))
    if len(parts) != len(fields):
        return Literal(type, tuple(_constant(f, "") for f in fields))
    return Literal(type, tuple(_part(f, p.removeprefix(f).strip()) for f, p in zip(fields, parts, strict=True)))


def _part(type: str, text: str) -> Literal:
    if fields_of(type) is not None:
        return _constant(type, f"{type} {text}")
    if text in ("undef", "poison", "zeroinitializer", "false"):
        return Literal(type, 0)
    if text == "true":
        return Literal(type, 1)
    if text.startswith("0x"):
        import struct

        return Literal(type, struct.unpack(">d", bytes.fromhex(text[2:].rjust(16, "0")))[0])
    try:
        return Literal(type, float(text) if type in ("float", "double") else int(text) % (1 << int(type[1:])))
    except ValueError:
        raise Refused("unsupported-constant", f"it has a constant {type} {text}") from None


def fields_of(type: str) -> list[str] | None:
    """Returns the types of a structure's fields; None if the type is not a structure."""
    if not type.startswith("{"):
        return None
    return [f.strip() for f in split(type[1:-1])]


def split(text: str) -> Iterator[str]:
    """Splits a text at the commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(<") - (c in "}])>")
        if c == "," and not depth:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()
