"""A process of its own that reads the LLVM code of a user's and compiles it for a target once: LLVM ends the process
for some code that is damaged, or that a target has no instructions for, and that shall not be the user's.

    python reader_process.py text|bitcode TRIPLE CPU FEATURES  < code  > text, a zero, object

Nothing of the package is imported here.
"""

from __future__ import annotations

import re
import sys

import llvmlite.binding as llvm

_TARGET_ATTRIBUTES = re.compile(r' ?"(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_GROUP = re.compile(r"^attributes #\d+ = \{[^\n]*", re.MULTILINE)
_GUARDS = re.compile(r" (?:ssp|sspstrong|sspreq)\b(?!\")")
"""Of the stack, with a function of libc's that libraries do not have."""
_EMPTY_GROUP = re.compile(r"^(attributes #\d+ = \{) *\}", re.MULTILINE)


def without_target(text: str) -> str:
    """The text without what functions say of the machine that they are for, which is the program's."""
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
