"""The command `shlo-jit`: run, check, profile, show, verify and export programs, look into exported libraries, look
after the object cache.

Exit status: 0 all is well, 1 the program is refused or failed, 2 the command was given something it cannot use (a
missing file, a wrong shape). Mistakes of either kind are a line on stderr, never a traceback.

What the commands need is imported inside them, so that `--help` and mistakes are quick.
"""

from shlo_jit.cli.command import app, main

__all__ = ["app", "main"]
