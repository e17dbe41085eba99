"""Registers of sizes that are known only at the call: `%"4*n + 3"` holds the value of its name.

Emitters use such a register without defining it. When a function is finished, the registers that it uses are computed
at its entry, from the array of sizes that is passed to the program.
"""

from __future__ import annotations

import ast
import re

_REGISTER = re.compile(r'%"([^"]*)"')
_INSTRUCTIONS = {ast.Add: "add", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem"}


def used(lines: list[str]) -> list[str]:
    """Returns the sizes whose registers the lines of a function use."""
    return list(dict.fromkeys(name for line in lines if '%"' in line for name in _REGISTER.findall(line)))


def definitions(sizes: list[str], dims: str) -> list[str]:
    """Returns lines that define the registers of sizes; `dims`: the register with the address of the symbol's value."""
    writer = _Writer()
    writer.lines.append(f"  %size.n = load i64, ptr {dims}, align 8, !invariant.load !{{}}")
    for size in sizes:
        value = writer.value(ast.parse(size, mode="eval").body)
        writer.lines.append(f'  %"{size}" = add i64 {value}, 0')
    return writer.lines


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, str] = {}

    def value(self, node: ast.expr) -> str:
        """Returns the register or literal with an expression's value."""
        text = ast.unparse(node)
        if isinstance(node, ast.Name):
            return "%size.n"
        if text not in self._known:
            if isinstance(node, ast.BinOp):
                left, right = self.value(node.left), self.value(node.right)
                self._known[text] = name = f"%size.{len(self._known)}"
                self.lines.append(f"  {name} = {_INSTRUCTIONS[type(node.op)]} i64 {left}, {right}")
            else:
                self._known[text] = str(ast.literal_eval(node))
        return self._known[text]
