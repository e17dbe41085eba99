"""Glue functions, which mostly call kernels one after the other: LLVM need not optimize them.

They run once per call. In a large program they account for a third of LLVM's compile time:

    define i32 @shlo_main(...) nounwind {             define i32 @shlo_main(...) nounwind "shlo-glue" {
      call void @shlo_gemm_f32_f32_f32(...)      ->      call void @shlo_gemm_f32_f32_f32(...)
      call void @small(ptr %p0)                          call void @small(ptr %p0) noinline
      ...                                                ...

Functions that would be inlined elsewhere are called here: their loops would not be optimized after inlining, either.
"""

from __future__ import annotations

import re
from collections.abc import Set

from shlo_jit import tuning
from shlo_jit.kernels.routine import GLUE

_LABEL = re.compile(r"^([\w.$-]+):|label %([\w.$-]+)", re.MULTILINE)
_CALL = re.compile(r"^  (?:%[\w.]+ = )?call [^\n@]*@([\w.$-]+)\([^\n]*\)$", re.MULTILINE)


def mark_glue(text: str, inlined: Set[str]) -> str:
    """Marks the text of a function of steps with GLUE. Only long functions are marked that have no loop and call few of
    the functions that are `inlined`; others are returned unchanged."""
    lines = text.count("\n")
    if lines < tuning.GLUE_LINES or _has_loop(text):
        return text
    calls = [call for call in _CALL.finditer(text) if call[1] in inlined]
    if len(calls) * tuning.GLUE_LINES > 2 * lines:
        return text
    text = _CALL.sub(lambda call: call[0] + " noinline" if call[1] in inlined else call[0], text)
    return text.replace(" nounwind {", f" nounwind {GLUE} {{", 1)


def _has_loop(text: str) -> bool:
    """Whether any branch leads back to a block that was emitted before."""
    seen: set[str] = set()
    for label, target in _LABEL.findall(text):
        if label:
            seen.add(label)
        elif target in seen:
            return True
    return False
