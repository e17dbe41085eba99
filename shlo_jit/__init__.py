"""shlo_jit: StableHLO text to CPU machine code.

    exe = shlo_jit.compile(text)
    y = exe(x, w)
"""

from shlo_jit.api import compile, parse, verify
from shlo_jit.errors import Diagnostic, ExecutionError, ParseError, StableHLOError, UnsupportedError, VerifyError

__all__ = [
    "Diagnostic",
    "ExecutionError",
    "ParseError",
    "StableHLOError",
    "UnsupportedError",
    "VerifyError",
    "compile",
    "parse",
    "verify",
]
