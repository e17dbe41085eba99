"""Code that is given in LLVM's language. A separate process reads it; it is checked against the target and called by a
wrapper in the form that `llvm_text.py` describes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from shlo_jit.codegen.elf import read_object
from shlo_jit.codegen.target import machine_of_triple, target_machine
from shlo_jit.custom.code_routine import llvm_type
from shlo_jit.custom.functions import LLVMFunction
from shlo_jit.custom.lift.read import fields_of, split
from shlo_jit.custom.llvm_text import KERNEL, SCALAR, Refused, check_calls, parse
from shlo_jit.ir.dtypes import DType
from shlo_jit.kernels.compiler_helpers import HELPERS
from shlo_jit.kernels.target import Target

SECONDS = 60
"""Time limit for reading the code."""
_READER = Path(__file__).with_name("reader_process.py")
_TRIPLE = re.compile(r'^target triple = "([^"]*)"', re.MULTILINE)
_LAYOUT = re.compile(r'^target datalayout = "([^"]*)"', re.MULTILINE)
_LIBRARY_HELPERS = frozenset(("__truncsfbf2", "__truncdfbf2"))
"""Helpers that exported libraries contain and that processes may lack."""
_STRING = re.compile(r'\bc"[^"]*"')
_REFUSED = {
    "module asm": re.compile(r"^module asm ", re.MULTILINE),
    "thread-local variables": re.compile(r"^@[^\n]* thread_local", re.MULTILINE),
    "aliases": re.compile(r"^@[^\n]* (?:alias|ifunc) ", re.MULTILINE),
    "constructors": re.compile(r"^@llvm\.global_(?:c|d)tors ", re.MULTILINE),
    "scalable vectors": re.compile(r"<vscale x "),
}
"""Features that programs do not support, by description."""


def scalar_text(code: LLVMFunction, operands: Sequence[DType], results: Sequence[DType], target: Target) -> str:
    """Returns the text of elementwise code, with SCALAR. Raises Refused."""
    text = _checked(code.source, target)
    returned, params = _signature(text, code.symbol)
    wanted = [llvm_type(d) for d in operands]
    made = [llvm_type(d) for d in results]
    whole = made[0] if len(made) == 1 else f"{{ {', '.join(made)} }}"
    if params != wanted or returned != whole:
        expected = f"{whole} ({', '.join(wanted)})"
        raise Refused("signature-mismatch", f"it is {returned} ({', '.join(params)}), and the call needs {expected}")
    convention = _convention(text, code.symbol)
    lines = [f'%r = call {convention}{whole} @"{code.symbol}"({", ".join(f"{t} %a{i}" for i, t in enumerate(wanted))})']
    struct = "{ " + ", ".join(["i64", *made]) + " }"
    last = f"{{ {', '.join(['i64 0', *(f'{t} undef' for t in made)])} }}"
    for i, type in enumerate(made):
        value = "%r"
        if len(made) > 1:
            lines.append(f"%v{i} = extractvalue {whole} %r, {i}")
            value = f"%v{i}"
        lines.append(f"%s{i} = insertvalue {struct} {last}, {type} {value}, {i + 1}")
        last = f"%s{i}"
    lines.append(f"ret {struct} {last}")
    params_text = ", ".join(f"{t} %a{i}" for i, t in enumerate(wanted))
    body = "\n  ".join(lines)
    return f"{text}\ndefine {struct} @{SCALAR}({params_text}) {{\n  {body}\n}}\n"


def kernel_text(code: LLVMFunction, target: Target) -> str:
    """Returns the text of code that has the signature of C custom calls, with KERNEL. Raises Refused."""
    text = _checked(code.source, target)
    returned, params = _signature(text, code.symbol)
    if params != ["ptr", "ptr"] or returned not in ("void", "i32"):
        raise Refused(
            "signature-mismatch", f"it is {returned} ({', '.join(params)}), and not void (ptr, ptr) or i32 (ptr, ptr)"
        )
    call = f'call {_convention(text, code.symbol)}{returned} @"{code.symbol}"(ptr %operands, ptr %results)'
    if returned == "void":
        body = f"{call}\n  ret i64 0"
    else:
        body = f"%s = {call}\n  %w = sext i32 %s to i64\n  ret i64 %w"
    return f"{text}\ndefine i64 @{KERNEL}(ptr %operands, ptr %results) {{\n  {body}\n}}\n"


@lru_cache(maxsize=64)
def _checked(source: str | bytes, target: Target) -> str:
    """Returns the code as text, after a separate process has compiled it. Raises Refused."""
    form = "text" if isinstance(source, str) else "bitcode"
    data = source.encode(errors="surrogatepass") if isinstance(source, str) else source
    command = [sys.executable, "-P", str(_READER), form, target.triple, target.cpu, target.features]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Refused("llvm-timeout", f"LLVM did not finish within {SECONDS} s") from None
    read, _, made = done.stdout.partition(b"\0")
    text = read.decode()
    if text:
        _check(text, target)
    if done.returncode == 1:
        raise Refused("llvm-rejects", f"LLVM rejects it: {done.stderr.decode(errors='replace').strip()}")
    if done.returncode:
        raise Refused("llvm-fails", f"LLVM crashed on it: {_last_line(done.stderr) or f'status {done.returncode}'}")
    _check_helpers(made)
    return text


def _check_helpers(made: bytes) -> None:
    """Raises Refused for calls in the object that LLVM inserted and that programs do not have."""
    try:
        read = read_object(made)
    except ValueError:  # an object format that we do not read
        return
    undefined = [
        n for n, section in zip(read.names, read.symbols["section"].tolist(), strict=True) if n and not section
    ]
    check_calls(name for name in undefined if name.startswith("__") and name not in HELPERS - _LIBRARY_HELPERS)


def _last_line(errors: bytes) -> str:
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.startswith("LLVM ERROR")]
    return lines[-1] if lines else ""


def _check(text: str, target: Target) -> None:
    """Raises Refused for features that programs do not support, and for code of another machine."""
    plain = _STRING.sub('c""', text)
    for what, pattern in _REFUSED.items():
        if pattern.search(plain):
            raise Refused("unusable-definition", f"it has {what}")
    triple = _TRIPLE.search(text)
    if triple is not None and machine_of_triple(triple[1])[0] != target.arch:
        raise Refused("other-target", f"it is for {triple[1]}, and the program for {target.triple}")
    layout = _LAYOUT.search(text)
    if layout is not None:
        own = {"p": f":{target.pointer_bits}:{target.pointer_bits}"} | _parts(str(target_machine(target).target_data))
        other = [f"{key}{value}" for key, value in _parts(layout[1]).items() if own.get(key, value) != value]
        if other:
            raise Refused(
                "other-data-layout", f"its data layout has {', '.join(other)}, which {target.triple} does not have"
            )
    module = parse(text)
    missing = [v.name for v in module.global_variables if v.is_declaration]
    if missing:
        raise Refused("undefined-variable", f"it has no definition of the variable {missing[0]}")


def _parts(layout: str) -> dict[str, str]:
    """Returns the settings of a data layout, by what they describe."""
    found = {}
    for part in layout.split("-"):
        if part in ("e", "E"):
            found["endianness "] = part
        elif part:
            key, _, value = part.partition(":")
            found[key] = f":{value}" if value else ""
    return found


def _convention(text: str, symbol: str) -> str:
    """Returns the calling convention of the function, empty for that of C: a call with another one is undefined
    behavior."""
    name = re.escape(symbol)
    found = re.search(rf'^define [^@\n]*?\b(\w*cc|cc ?\d+|\w+_kernel) [^@\n]*@"?{name}"?\(', text, re.MULTILINE)
    return "" if found is None or found[1] == "ccc" else f"{found[1]} "


def _signature(text: str, symbol: str) -> tuple[str, list[str]]:
    """Returns the result type and parameter types of a function that the text defines. Raises Refused."""
    module = parse(text)
    try:
        function = module.get_function(symbol)
    except NameError:
        raise Refused("no-such-function", "there is no function of that name in it") from None
    if function.is_declaration:
        raise Refused("function-without-body", "that function has no body")
    type = str(function.global_value_type)
    returned, _, params = type.removesuffix(")").rpartition(" (")
    assert fields_of(returned) is None or returned.endswith("}")
    return returned, list(split(params))
