"""Helper functions that LLVM calls if a machine lacks an instruction, for systems without a library that has them.

A compiler's run-time library (libgcc, compiler-rt) has conversions of narrow floats and arithmetic on 128 bits, libc
has copies of memory, libm has rounding. A bare linker, a freestanding system and WebAssembly have none of these, and
not every version of libgcc has all of them. Here they are emitted by the builder, with internal linkage: a module that
contains them needs none of those libraries and exports none of these names.

They are correct for all bits of their arguments and use no operation that LLVM would compile into a call to them. They
replace libraries, so they are short rather than fast; kernels are written to need few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.compiler_helpers import halves, integers, memory, multiply_add, rounding
from shlo_jit.kernels.target import Target

_WRITERS: dict[str, Callable[[ModuleText, str, Target], None]] = {
    **halves.WRITERS,
    **integers.WRITERS,
    **memory.WRITERS,
    **multiply_add.WRITERS,
    **rounding.WRITERS,
}
HELPERS = frozenset(_WRITERS)
"""Names of the functions that can be emitted, as LLVM calls them."""
_NEEDS = {
    "__divti3": ("__udivti3",),
    "__modti3": ("__umodti3",),
}
_NEEDS_OF_32_BITS = {"fma": ("__multi3", "__ashlti3", "__lshrti3")}


def write_helpers(module: ModuleText, names: Iterable[str], target: Target) -> None:
    """Adds the functions with these names, and those that they need, with internal linkage. `llvm.compiler.used` keeps
    them, since only code generation inserts calls to them. Raises KeyError for a name not in HELPERS."""
    wanted: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted[name] = None
            todo += _NEEDS.get(name, ())
            if target.pointer_bits == 32:
                todo += _NEEDS_OF_32_BITS.get(name, ())
    if not wanted:
        return
    for name in sorted(wanted):
        _WRITERS[name](module, name, target)
    kept = ", ".join(f"ptr @{name}" for name in sorted(wanted))
    text = f'appending global [{len(wanted)} x ptr] [{kept}], section "llvm.metadata"'
    module.define_global("llvm.compiler.used", text)


__all__ = ["HELPERS", "write_helpers"]
