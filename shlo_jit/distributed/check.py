"""Finds inconsistent shardings of a valid module by deriving the program that each process runs."""

from __future__ import annotations

from shlo_jit.distributed.manual import is_manual
from shlo_jit.errors import Diagnostic, ParseError, UnsupportedError, VerifyError
from shlo_jit.ir.core import Module, walk


def sharding_errors(module: Module) -> list[Diagnostic]:
    """Returns the first error that compiling a valid module would report about its computations on parts. Valid but
    unsupported programs have no errors here."""
    if not any(is_manual(op) for op in walk(module.body)):
        return []
    from shlo_jit.distributed.global_arrays import grid_of, local_program

    try:
        _, partitions = grid_of(module)
        local_program(module, "main", partitions)
    except (ParseError, VerifyError) as error:
        return error.diagnostics
    except UnsupportedError:
        pass
    return []
