"""The program that a framework shows to people. A framework can print StableHLO, but not Shardy's ops."""

from __future__ import annotations

from shlo_jit.distributed.global_arrays import local_program
from shlo_jit.ir.core import Block, Module, Op, Region, is_declaration, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.without_shardings import without_shardings


def shown(module: Module, num_partitions: int) -> bytes | None:
    """Returns the program of each device, as an artifact; None if that is the program as it was given."""
    if not any(op.dialect == "sdy" and op.name != "sdy.mesh" for op in walk(module.body)):
        return None
    local = local_program(module, "main", num_partitions)
    module = module if local is None else local.module
    plain = Block([], [_plain(op, module) for op in module.body.ops])
    old = module.op
    made = Op(old.name, [], [], old.attributes, [Region([plain])], old.source, old.start, old.end)
    return Module(made, module.source, module.locations).serialize()


def _plain(op: Op, module: Module) -> Op:
    is_function = op.name == "func.func" and not is_declaration(op)
    return without_shardings(op, Context(module)) if is_function else op
