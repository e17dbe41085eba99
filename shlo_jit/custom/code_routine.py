"""Custom code as a routine: a separate object file that programs call and exported libraries contain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial

from shlo_jit.custom.llvm_text import KERNEL, SCALAR, machine_text
from shlo_jit.ir.dtypes import DType
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def routine_of(text: str, target: Target) -> Routine:
    """Returns the routine of a text that defines KERNEL. Raises Refused if the target does not support the text."""
    name = f"shlo_custom_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    _optimized(text, name, target)
    return Routine(name, (name,), partial(_build, text, name))


_optimized = lru_cache(maxsize=256)(machine_text)
"""`machine_text`, with its most recent results cached."""


def _build(text: str, symbol: str, module: ModuleText, target: Target) -> None:
    module.globals[symbol] = _optimized(text, symbol, target)


def llvm_type(dtype: DType) -> str:
    """Returns the LLVM type of an element as a scalar. A complex number is a structure of its two parts."""
    if dtype.is_complex:
        return f"{{ {_LLVM[dtype.part.name]}, {_LLVM[dtype.part.name]} }}"
    return _LLVM.get(dtype.name) or f"i{dtype.bits}"


def scalar_loop(operands: Sequence[tuple[DType, bool]], results: Sequence[DType]) -> str:
    """Returns the text of KERNEL as a loop over elements that calls SCALAR. The flag of an operand says whether it is
    one scalar for all elements."""
    params = [f"ptr noalias %{side}{i}" for side, n in (("a", len(operands)), ("r", len(results))) for i in range(n)]
    names = [p.rpartition(" ")[2] for p in params]
    made = "{ " + ", ".join(["i64", *map(llvm_type, results)]) + " }"
    once, each, values = [], [], []
    for i, (dtype, is_number) in enumerate(operands):
        lines, value = _load(dtype, f"a{i}", "" if is_number else "%i")
        (once if is_number else each).extend(lines)
        values.append(f"{llvm_type(dtype)} {value}")
    stores = [line for i, dtype in enumerate(results) for line in _store(dtype, i, made)]
    tables = [f"%p{n} = getelementptr ptr, ptr %{t}, i64 {i}\n  {name} = load ptr, ptr %p{n}"
              for n, (name, t, i) in enumerate(_places(names, len(operands)))]  # fmt: skip
    newline = "\n  "
    return f"""
define internal i64 @shlo_custom_loop({", ".join([*params, "i64 %first", "i64 %last"])}) alwaysinline {{
entry:
  {newline.join(once)}
  %any = icmp slt i64 %first, %last
  br i1 %any, label %body, label %done
body:
  %i = phi i64 [ %first, %entry ], [ %next, %on ]
  {newline.join(each)}
  %made = call {made} @{SCALAR}({", ".join(values)})
  %status = extractvalue {made} %made, 0
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %stop, label %on
on:
  {newline.join(stores)}
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %body, label %done
stop:
  ret i64 %status
done:
  ret i64 0
}}
define i64 @{KERNEL}(ptr %operands, ptr %results, i64 %first, i64 %last) {{
  {newline.join(tables)}
  %status = call i64 @shlo_custom_loop({", ".join([f"ptr {n}" for n in names])}, i64 %first, i64 %last)
  ret i64 %status
}}
"""


def _places(names: Sequence[str], operands: int) -> list[tuple[str, str, int]]:
    """Returns the name of each pointer, the table that holds it and its index in that table."""
    before = [(name, "operands", i) for i, name in enumerate(names[:operands])]
    return before + [(name, "results", i) for i, name in enumerate(names[operands:])]


def _load(dtype: DType, name: str, index: str) -> tuple[list[str], str]:
    """Returns the lines that load an element, and the name of its value."""
    memory = "i8" if dtype.bits < 8 else llvm_type(dtype)
    at = f"%{name}"
    lines = []
    if index:
        lines.append(f"%{name}.at = getelementptr {memory}, ptr %{name}, i64 {index}")
        at = f"%{name}.at"
    lines.append(f"%{name}.v = load {memory}, ptr {at}, align {max(1, dtype.part.itemsize)}")
    if dtype.bits < 8:
        lines.append(f"%{name}.n = trunc i8 %{name}.v to i{dtype.bits}")
        return lines, f"%{name}.n"
    return lines, f"%{name}.v"


def _store(dtype: DType, i: int, made: str) -> list[str]:
    memory = "i8" if dtype.bits < 8 else llvm_type(dtype)
    lines = [
        f"%r{i}.v = extractvalue {made} %made, {i + 1}",
        f"%r{i}.at = getelementptr {memory}, ptr %r{i}, i64 %i",
    ]
    value = f"%r{i}.v"
    if dtype.bits < 8:
        extend = "zext" if dtype.kind in "bu" else "sext"
        lines.append(f"%r{i}.w = {extend} i{dtype.bits} %r{i}.v to i8")
        value = f"%r{i}.w"
    return [*lines, f"store {memory} {value}, ptr %r{i}.at, align {max(1, dtype.part.itemsize)}"]
