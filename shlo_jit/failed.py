"""Defects of ours: whatever goes wrong with a program that is no refusal becomes an InternalError, and the program is
kept in the temporary folder for whoever looks into that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shlo_jit.errors import ExecutionError, InternalError, StableHLOError
from shlo_jit.options import OptionError
from shlo_jit.sizes import NotSymbolic

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module

REFUSALS = (StableHLOError, OptionError, NotSymbolic, ExecutionError, MemoryError)
"""What stages raise of programs, options and machines that they cannot do with."""


@contextlib.contextmanager
def defects(program: Callable[[], Module], entry: str) -> Iterator[None]:
    """What is raised inside and is no refusal is an InternalError, which says where the program is. One that says so
    already, from a stage inside, is let through."""
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
    return f"shlo_jit failed on this program ({type(error).__name__}: {error}); please report it"
