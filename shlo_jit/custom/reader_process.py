"""Reads a user's LLVM code and compiles it once for a target, in a separate process. LLVM aborts the process on damaged
code and on code that a target has no instructions for; the user's process must survive that.

    python reader_process.py text|bitcode TRIPLE CPU FEATURES  < code  > text, a zero, object

Imports nothing from the package.
"""

from __future__ import annotations

import re
import sys

import llvmlite.binding as llvm

_TARGET_ATTRIBUTES = re.compile(r' ?"(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_GROUP = re.compile(r"^attributes #\d+ = \{[^\n]*", re.MULTILINE)
_GUARDS = re.compile(r" (?:ssp|sspstrong|sspreq)\b(?!\")")
"""Attributes of stack protectors. They call a function of libc that libraries do not have."""
_EMPTY_GROUP = re.compile(r"^(attributes #\d+ = \{) *\}", re.MULTILINE)


def without_target(text: str) -> str:
    """Returns the text without the target attributes of functions; the program's target applies."""
    text = _GROUP.sub(lambda found: _GUARDS.sub("", found[0]), _TARGET_ATTRIBUTES.sub("", text))
    return _EMPTY_GROUP.sub(r'\1 "empty" }', text)


def main() -> int:
    form, triple, cpu, features = sys.argv[1:]
    data = sys.stdin.buffer.read()
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        context = llvm.create_context()
        if form == "text":
            module = llvm.parse_assembly(data.decode(), context)
        else:
            module = llvm.parse_bitcode(data, context)
        module.verify()
        text = without_target(str(module))
        module = llvm.parse_assembly(text, context)
        out = sys.stdout.buffer
        out.write(text.encode() + b"\0")
        out.flush()
        target = llvm.Target.from_triple(triple)
        if not module.triple or llvm.Target.from_triple(module.triple).name == target.name:  # else it is refused
            machine = target.create_target_machine(cpu=cpu, features=features, reloc="pic")
            module.triple = triple
            module.data_layout = str(machine.target_data)
            out.write(machine.emit_object(module))
    except (RuntimeError, UnicodeDecodeError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        print(" ".join(lines[:2]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
