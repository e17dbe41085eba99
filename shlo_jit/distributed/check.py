"""Shardings of a valid module that make no sense, found by making the program that each process runs."""

from __future__ import annotations

from shlo_jit.distributed.manual import is_manual
from shlo_jit.errors import Diagnostic, ParseError, UnsupportedError, VerifyError
from shlo_jit.ir.core import Module, walk


def sharding_errors(module: Module) -> list[Diagnostic]:
    """What compiling would refuse as invalid about the computations on parts of a valid module: the first such error.
    What is valid and not supported is no error here."""
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
