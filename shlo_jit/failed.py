"""Defects of the compiler: unexpected exceptions become an InternalError.

The program is kept in the temporary folder for the analysis.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shlo_jit.errors import ExecutionError, InternalError, StableHLOError, UsageError
from shlo_jit.options import OptionError
from shlo_jit.sizes import NotSymbolic

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module

REFUSALS = (StableHLOError, OptionError, UsageError, NotSymbolic, ExecutionError, MemoryError, OSError)
"""Exceptions by which stages refuse programs, options and machines, and files that have changed."""


@contextlib.contextmanager
def defects(program: Callable[[], Module], entry: str) -> Iterator[None]:
    """Converts exceptions other than refusals to an InternalError that names the file of the program.

    InternalErrors that already name a file, from a stage inside, are raised unchanged.
    """
    try:
        yield
    except REFUSALS:
        raise
    except Exception as error:
        if isinstance(error, InternalError) and error.program is not None:
            raise
        what = str(error) if isinstance(error, InternalError) else _defect(error)
        from shlo_jit.failed_programs import keep

        kept, said = keep(program, entry)
        raise InternalError("\n".join([what, *said]), program=kept) from error


def _defect(error: Exception) -> str:
    """Message for a defect: its location, which for a user's own record is the file to inspect."""
    frames = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if not frames:
        return f"shlo_jit failed on this program ({what}); please report it"
    last = frames[-1]
    path = Path(last.filename)
    place = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{last.lineno}, in {last.name}"
    if path.is_relative_to(PACKAGE):
        advice = "please report it, unless you have changed shlo_jit: then look there first"
    else:
        advice = "look there if the file is yours, else please report it"
    return f"shlo_jit failed on this program ({what}) at {place}; {advice}"


PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent
