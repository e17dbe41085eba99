"""Single passes on single functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shlo_jit
from shlo_jit.ir.core import Block, Module, Op, Region
from shlo_jit.passes import PASSES, check, core_functions
from shlo_jit.passes.context import NO_CHANNELS, Channels, Context
from shlo_jit.passes.frontend.inline import inline_all

Run = Callable[[Op, Context], Op]


def context_of(module: Module) -> Context:
    """Returns the context of a standalone module: no custom calls are registered, and nothing contradicts itself."""
    return Context(module)


def main_of(text: str | Module) -> tuple[Op, Context]:
    """Returns the function @main with its calls inlined, and its context."""
    module = text if isinstance(text, Module) else shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    return inline_all(module, main), context_of(module)


def after(text: str | Module, *passes: Run) -> Op:
    """Returns the function @main of a text after some passes."""
    function, context = main_of(text)
    for run in passes:
        function = run(function, context)
    return function


def on_grid(text: str, last: Run, replicas: int, partitions: int, channels: Channels = NO_CHANNELS) -> Op:
    """Returns the function @main of a valid text after all passes up to `last`, for a grid of processes."""
    assert shlo_jit.verify(text) == []
    function, context = main_of(text)
    context = context._replace(num_replicas=replicas, num_partitions=partitions, channels=channels)
    rules = []
    for step in PASSES[: 1 + max(i for i, step in enumerate(PASSES) if step.run is last)]:
        function = step.run(function, context)
        rules += step.establishes
    check(function, rules, last.__name__, context.is_registered)
    return function


def canonical(text: str, **options: Any) -> Op:
    """Returns the function @main of a text after all passes; the options are those of `core_functions`."""
    module = shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    return core_functions(module, main, **options)[-1]


def module_of(function: Op) -> Module:
    """Returns a module of one function."""
    return Module(Op("builtin.module", [], [], {}, [Region([Block([], [function])])]))
