"""Reads the shapes that a library is exported for, and refines the program for each list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from shlo_jit import pipeline
from shlo_jit.aot.sized import Call, Shapes, SizedPort, Unknown
from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.core import Module, Op, Value, function_type
from shlo_jit.ir.dynamic_values import has_dynamic_shapes, is_dynamic
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.options import CompileOptions
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.inline import inline_all
from shlo_jit.passes.refine.elementwise_calls import elementwise_calls
from shlo_jit.passes.refine.prelude import shape_operands, sizes_to_compute
from shlo_jit.specialize import read_shapes, refined_module, values_wanted, with_function
from shlo_jit.text.argument_names import argument_names, result_names

Given = tuple[list[Type], dict[int, np.ndarray]]
"""Arguments of a call: types of all of them, and values of those that may hold sizes and are given as arrays."""


def read_calls(module: Module, options: CompileOptions, shapes: Shapes | None) -> Unknown | None:
    """Refines the function `options.entry` for calls; returns None if it has no unknown dimensions.

    Raises StableHLOError if the function cannot have these shapes, or if sizes depend on values that it computes.
    Raises TypeError and ValueError for invalid shapes, and UnsupportedError if shapes are required and not given.
    """
    if shapes is None and not has_dynamic_shapes(module):
        return None
    module = elementwise_calls(module, options.elementwise_code)
    function = first_platform(pipeline.verified(module, options), Context(module))
    module = with_function(module, function)
    arguments = function.block().arguments
    if not any(map(is_dynamic, arguments)):
        found = refined_module(module, options.entry, [a.type for a in arguments], {})
        if not has_dynamic_shapes(found):
            if shapes is not None:
                raise ValueError(f"shapes: @{options.entry} has no unknown dimensions")
            return None
        if shapes is None:
            _refuse_computed(found, options)
            return None  # lowering handles or refuses other unknown types
    if shapes is None:
        first = next(i for i, a in enumerate(arguments) if is_dynamic(a))
        what = f"argument {first} (%{arguments[first].name}) is of type {type_text(arguments[first].type)}"
        hint = "give the shapes to compile code for: shapes=[...] of shlo_jit.export, --shapes of shlo-jit export"
        raise UnsupportedError(
            diagnose(f"{what}: its dimensions are not all known", function.span, hint=hint, label="unknown-dimensions")
        )
    return _refined(module, function, options, shapes)


def _refined(module: Module, function: Op, options: CompileOptions, shapes: Shapes) -> Unknown:
    arguments = function.block().arguments
    inputs = tuple(
        _port(name, a.type, f"argument {i} (%{a.name})", function)
        for i, (name, a) in enumerate(zip(argument_names(function), arguments, strict=True))
    )
    outputs = tuple(
        _port(name, t, f"result {i}", function)
        for i, (name, t) in enumerate(zip(result_names(function), function_type(function).results, strict=True))
    )
    given = [_read_call(n, arguments, call) for n, call in enumerate(shapes)]
    modules, by_value = _refined_calls(module, function, options, given)
    for refined in modules:
        _refuse_computed(refined, options)
    if not by_value and not any(map(is_dynamic, arguments)):
        raise ValueError(f"shapes: @{options.entry} has no unknown dimensions")
    calls = [Call(_sizes(inputs, types), tuple(values[i].tobytes() for i in by_value)) for types, values in given]
    for n, call in enumerate(calls):
        if call in calls[:n]:
            raise ValueError(f"shapes: call {n} is call {calls.index(call)} again")
    return Unknown(inputs, outputs, by_value, tuple(calls), tuple(modules))


def _read_call(number: int, arguments: Sequence[Value], call: object) -> Given:
    try:
        return read_shapes(arguments, call)
    except (TypeError, ValueError) as error:
        raise type(error)(f"call {number} of shapes: {str(error).removeprefix('shapes: ')}") from None


def _refined_calls(
    module: Module, function: Op, options: CompileOptions, given: Sequence[Given]
) -> tuple[list[Module], tuple[int, ...]]:
    """Returns the programs for all calls, and the arguments whose values the programs are specialized for.

    These are the arguments that sizes depend on, if they are given. Raises ValueError if only some calls have such a
    value.
    """
    known: set[int] = set()
    while True:
        modules = [
            _refined_call(module, options, n, types, {i: values[i] for i in known})
            for n, (types, values) in enumerate(given)
        ]
        there = {i for _, values in given for i in values}
        wanted = there & {i for m in modules for i in values_wanted(m, options)}
        if wanted <= known:
            return modules, tuple(sorted(known))
        known |= wanted
        for number, (_, values) in enumerate(given):
            for i in sorted(known.difference(values)):
                what = f"argument {i} (%{function.block().arguments[i].name})"
                raise ValueError(
                    f"call {number} of shapes: {what}: expected an array with its value, as in other calls"
                )


def _refined_call(
    module: Module, options: CompileOptions, number: int, types: Sequence[Type], values: Mapping[int, np.ndarray]
) -> Module:
    try:
        return refined_module(module, options.entry, types, values)
    except VerifyError as error:
        notes = [replace(d, message=f"{d.message} (for call {number} of shapes)") for d in error.diagnostics]
        raise VerifyError(notes) from None


def _sizes(inputs: Sequence[SizedPort], types: Sequence[Type]) -> tuple[int, ...]:
    """Sizes of the dimensions that are unknown in `inputs`."""
    found: list[int] = []
    for port, type in zip(inputs, types, strict=True):
        assert isinstance(type, TensorType)
        found += (n for n, known in zip(type.extents, port.shape, strict=True) if known is None)
    return tuple(found)


def _refuse_computed(module: Module, options: CompileOptions) -> None:
    """Raises UnsupportedError if a refined program still computes sizes, at the first op whose result has such a
    size."""
    function = module.function(options.entry)
    if function is None or not has_dynamic_shapes(module):
        return
    whole = inline_all(module, function, options.calls.__contains__)
    sizes = set(sizes_to_compute(whole))
    op = next((op for op in whole.block().ops if any(op.operands[i] in sizes for i in shape_operands(op))), None)
    if op is None:
        return  # lowering reports what is unknown, and where
    message = f"{op.name}: its result's shape depends on values that are unknown when the library is compiled"
    hint = "give the value of {} in shapes" if (names := _names(module, options)) else ""
    raise UnsupportedError(diagnose(message, op.span, op=op.name, hint=hint.format(names), label="shape-from-values"))


def _names(module: Module, options: CompileOptions) -> str:
    """Names of the arguments whose values would determine the unknown sizes."""
    function = module.function(options.entry)
    assert function is not None
    arguments = function.block().arguments
    return ", ".join(f"argument {i} (%{arguments[i].name})" for i in sorted(values_wanted(module, options)))


def _port(name: str, type: Type, what: str, function: Op) -> SizedPort:
    if not isinstance(type, TensorType) or type.shape is None:
        message = f"{what} is of type {type_text(type)}; expected a tensor of known rank in a function of a library"
        raise UnsupportedError(diagnose(message, function.span, label="not-a-tensor"))
    return SizedPort(name, type.shape, type.storage, type.bounds)
