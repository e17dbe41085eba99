"""Functions that do little but call kernels one after the other: LLVM need not make the best of them.

They run once a call, and of a large program they are a third of the time that LLVM takes:

    define i32 @shlo_main(...) nounwind {             define i32 @shlo_main(...) nounwind "shlo-glue" {
      call void @shlo_gemm_f32_f32_f32(...)      ->      call void @shlo_gemm_f32_f32_f32(...)
      call void @small(ptr %p0)                          call void @small(ptr %p0) noinline
      ...                                                ...

What is to be inlined elsewhere is called here: inlined, its loops would not be optimized either.
"""

from __future__ import annotations

import re
from collections.abc import Set

from shlo_jit import tuning
from shlo_jit.kernels.routine import GLUE

_LABEL = re.compile(r"^([\w.$-]+):|label %([\w.$-]+)", re.MULTILINE)
_CALL = re.compile(r"^  (?:%[\w.]+ = )?call [^\n@]*@([\w.$-]+)\([^\n]*\)$", re.MULTILINE)


def plain(text: str, inlined: Set[str]) -> str:
    """A function of steps; where it is long, has no loop, and calls few of the functions that are `inlined`, marked
    with GLUE."""
    lines = text.count("\n")
    if lines < tuning.GLUE_LINES or _has_loop(text):
        return text
    calls = [call for call in _CALL.finditer(text) if call[1] in inlined]
    if len(calls) * tuning.GLUE_LINES > 2 * lines:
        return text
    text = _CALL.sub(lambda call: call[0] + " noinline" if call[1] in inlined else call[0], text)
    return text.replace(" nounwind {", f" nounwind {GLUE} {{", 1)


def _has_loop(text: str) -> bool:
    """Whether anything leads back to a block that is written before."""
    seen: set[str] = set()
    for label, target in _LABEL.findall(text):
        if label:
            seen.add(label)
        elif target in seen:
            return True
    return False
