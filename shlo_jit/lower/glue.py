"""Functions that only call kernels one after the other: LLVM need not make the best of them.

They run once a call, and of a large program they are a third of the time that LLVM takes:

    define i32 @shlo_main(...) nounwind {             define i32 @shlo_main(...) nounwind noinline optnone {
      call void @shlo_gemm_f32_f32_f32(...)      ->      call void @shlo_gemm_f32_f32_f32(...)
      ...                                                ...
"""

from __future__ import annotations

import re
from collections.abc import Set

from shlo_jit import tuning

_LABEL = re.compile(r"^([\w.$-]+):|label %([\w.$-]+)", re.MULTILINE)
_CALL = re.compile(r"\bcall [^\n@]*@([\w.$-]+)\(")


def plain(text: str, inlined: Set[str]) -> str:
    """A function of steps; with attributes that keep LLVM's optimizations off it where it is long, has no loop, and no
    call of a function that is `inlined`."""
    if text.count("\n") < tuning.GLUE_LINES or _has_loop(text):
        return text
    if not inlined.isdisjoint(_CALL.findall(text)):
        return text
    return text.replace(" nounwind {", " nounwind noinline optnone {", 1)


def _has_loop(text: str) -> bool:
    """Whether anything leads back to a block that is written before."""
    seen: set[str] = set()
    for label, target in _LABEL.findall(text):
        if label:
            seen.add(label)
        elif target in seen:
            return True
    return False
