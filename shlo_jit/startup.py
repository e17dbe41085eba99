"""Handling of Ctrl-C while the command `shlo-jit` imports modules: it exits immediately, without a traceback.

The package is imported before any code of the command can run, so this is the first module that the package imports. It
has no effect in other programs.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""Exit status of shells for a program that Ctrl-C ended."""


def _is_command() -> bool:
    """Whether this process is `shlo-jit` or `python -m shlo_jit`."""
    arguments = sys.orig_argv
    module = "-m" in arguments and arguments[arguments.index("-m") + 1 :][:1] == ["shlo_jit"]
    return module or os.path.basename(sys.argv[0] if sys.argv else "") == "shlo-jit"


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def started() -> None:
    """Restores KeyboardInterrupt for Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
