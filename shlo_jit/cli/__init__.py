"""The command `shlo-jit`: run, check, profile, show, verify and export programs, inspect libraries, manage the cache.

Exit status: 0 success, 1 the program is refused or failed, 2 the command cannot use its arguments (a missing file, a
wrong shape). Errors of either kind are a line on stderr, never a traceback.

Modules that the commands need are imported inside them, so that `--help` and errors are quick.
"""

from shlo_jit.cli.command import app, main

__all__ = ["app", "main"]
