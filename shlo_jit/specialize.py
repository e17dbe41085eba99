"""Specialization of programs with unknown dimensions: made static for the shapes of a call, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np

from shlo_jit import pipeline, tuning
from shlo_jit.codegen.abi import AT_CALL
from shlo_jit.codegen.target import resolve
from shlo_jit.deep import deeply
from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.failed import defects
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region, Value, function_type
from shlo_jit.ir.dynamic_values import has_dynamic_shapes, is_dynamic
from shlo_jit.ir.types import TensorType, Type, tensor
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.options import CompileOptions
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.inline import inline_all
from shlo_jit.passes.refine.bounded import bounded
from shlo_jit.passes.refine.elementwise_calls import elementwise_calls
from shlo_jit.passes.refine.origins import with_origins
from shlo_jit.passes.refine.prelude import (
    arguments_of_shapes,
    prelude,
    sizes_to_compute,
    with_sizes,
)
from shlo_jit.passes.refine.refine import refine_module
from shlo_jit.runtime.bounded import BoundedExecutable
from shlo_jit.runtime.dynamic import DynamicExecutable, NeedsValues, Shape
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.ports import DynamicPort
from shlo_jit.runtime.shape_arguments import type_given
from shlo_jit.runtime.staged import Runnable, StagedExecutable
from shlo_jit.runtime.symbolic import SymbolicCode
from shlo_jit.sizes import NotSymbolic, Symbol, size_of
from shlo_jit.sources import Derived, ProgramSource
from shlo_jit.text.argument_names import argument_names, result_names

T = TypeVar("T")


def compile_unknown(source: ProgramSource, options: CompileOptions) -> Executable | DynamicExecutable:
    """Compiles a program, which may have unknown dimensions, to an Executable or a DynamicExecutable."""
    found = dynamic_executable(source, options)
    return pipeline.compile_static(source, options) if found is None else found


@deeply
def dynamic_executable(source: ProgramSource, options: CompileOptions) -> DynamicExecutable | None:
    """Returns a DynamicExecutable; None if the arguments' shapes are all known, and the others depend on these.

    Raises VerifyError, StableHLOError and UnsupportedError, as compiling does.
    """
    with defects(lambda: pipeline.parsed(source), options.entry):
        module = elementwise_calls(pipeline.parsed(source), options.elementwise_code)
        function = first_platform(pipeline.verified(module, options), Context(module))
    arguments = function.block().arguments
    names, results = argument_names(function), function_type(function).results
    inputs = [_port(n, a.type, f"argument {i} (%{a.name})", function) for i, (n, a) in _both(names, arguments)]
    outputs = [_port(n, t, f"result {i}", function) for i, (n, t) in _both(result_names(function), results)]
    whole = with_function(module, function)
    host = Host()
    options = replace(options, host=host)
    digest, check = cache(lambda: pipeline.identity_of(source)), pipeline.check_of(source)

    def types_for(shapes: Sequence[Shape]) -> list[Type]:
        return [tensor(shape, a.tensor.dtype) for shape, a in zip(shapes, arguments, strict=True)]

    def refined(shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Module:
        found = refined_module(whole, options.entry, types_for(shapes), values)
        wanted = values_wanted(found, options).difference(values)
        if wanted:
            raise NeedsValues(wanted.union(values))
        return found

    def make(shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Runnable:
        known = [repr(list(shapes)), *(f"{i}={value.tobytes().hex()}" for i, value in values.items())]
        how = " ".join(known).encode()
        source = Derived(module.source.name, lambda: digest() + how, lambda: refined(shapes, values), (), check)
        with _telling_origins(whole, options.entry, types_for(shapes), values):
            return _compiled(source, options)

    def make_symbolic(shapes: Sequence[Shape], symbol: Symbol) -> Executable:
        size = size_of(symbol)
        marked = [tuple(size if n == AT_CALL else n for n in shape) for shape in shapes]

        def module_of() -> Module:
            try:
                found = refined(marked, {})
            except NeedsValues:
                raise NotSymbolic("shape-from-arguments", "shapes depend on the values of arguments") from None
            if has_dynamic_shapes(found):
                raise NotSymbolic("shape-from-data", "shapes depend on data")
            return found

        how = f"any {tuple(symbol)} {shapes}".encode()
        made = Derived(module.source.name, lambda: digest() + how, module_of, (), check)
        return pipeline.compile_static(made, options)

    known = _values_needed(arguments, refined)
    if known is None:
        return None
    symbolic = SymbolicCode(inputs, make_symbolic) if options.dynamic == "symbolic" else None
    if symbolic is not None:
        symbolic.prepare()
    return DynamicExecutable(inputs, outputs, known, make, options.threads, host, symbolic)


def _values_needed(
    arguments: Sequence[Value], refined: Callable[[Sequence[Shape], Mapping[int, np.ndarray]], Module]
) -> frozenset[int] | None:
    """The arguments whose values shapes depend on, as far as that is known before a call; None if no shape depends on
    a call."""
    if any(map(is_dynamic, arguments)):
        return frozenset()
    try:
        is_unknown = has_dynamic_shapes(refined([a.tensor.extents for a in arguments], {}))
    except NeedsValues as needs:
        return needs.arguments
    return frozenset() if is_unknown else None


@contextmanager
def _telling_origins(
    module: Module, entry: str, types: Sequence[Type], values: Mapping[int, np.ndarray]
) -> Iterator[None]:
    """Adds to refusals which sizes of the arguments they depend on."""
    try:
        yield
    except (VerifyError, UnsupportedError) as error:
        raise with_origins(error, module, entry, types, values) from None


def values_wanted(module: Module, options: CompileOptions) -> set[int]:
    """Indices of the entry function's arguments whose values determine unknown shapes.

    Code can be specialized for these values. The result is empty if all shapes are known.
    """
    function = module.function(options.entry)
    if function is None or not has_dynamic_shapes(module):
        return set()
    found = arguments_of_shapes(inline_all(module, function, options.calls.__contains__))
    return {i for i, a in enumerate(function.block().arguments) if i in found and _may_be_shape(a)}


@deeply
@paused_collector()
def refined_module(module: Module, entry: str, types: Sequence[Type], values: Mapping[int, np.ndarray]) -> Module:
    """Refines the module for argument types, and values of some arguments. Raises StableHLOError, and InternalError."""
    with defects(lambda: module, entry):
        return refine_module(module, entry, types, values)


@deeply
def _compiled(source: Derived, options: CompileOptions) -> Runnable:
    """Compiles a refined program: static, bounded, or with shapes that depend on data, which a prelude computes.

    A program that the object cache has is not even refined.
    """
    return pipeline.with_schedule(source, options, lambda with_moves: _compiled_with(source, options, with_moves))


def _compiled_with(source: Derived, given: CompileOptions, options: CompileOptions) -> Runnable:
    """Compiles a refined program with the schedule of `options`; `given` are the options for the programs that it may
    consist of."""
    key = pipeline.key_of(source, options)
    found = pipeline.cached(source, options, key)
    if found is not None:
        return found
    module = source.make()
    function = module.function(options.entry)
    assert function is not None
    if not has_dynamic_shapes(module):
        return pipeline.compile_new(source, options, key, module)
    whole = inline_all(module, function, options.calls.__contains__)
    sizes = sizes_to_compute(whole)
    outputs = [
        _port(name, v.type, f"result {i}", whole).signature
        for i, (name, v) in _both(result_names(whole), whole.block().terminator.operands)
    ]
    if not sizes:
        with defects(lambda: module, options.entry):
            found = bounded(whole)
        padded = _derived(source, "padded", lambda: with_function(module, found.function))
        code = pipeline.compile_static(padded, given)
        return BoundedExecutable(code, outputs, found.unknown, found.faults)
    types = [a.type for a in whole.block().arguments]

    def rest(arrays: Sequence[np.ndarray]) -> Runnable:
        def known() -> Module:
            return refined_module(with_function(module, with_sizes(whole, sizes, arrays)), options.entry, types, {})

        sizes_given = " ".join(a.tobytes().hex() for a in arrays)
        with _telling_origins(module, options.entry, types, {}):
            return _compiled(_derived(source, f"sizes {sizes_given}", known), given)

    before = _derived(source, "prelude", lambda: with_function(module, prelude(whole, sizes)))
    return StagedExecutable(pipeline.compile_static(before, replace(given, donate=())), rest, outputs)


def _derived(source: Derived, how: str, make: Callable[[], Module]) -> Derived:
    return Derived(source.name, lambda: source.identity() + b"|" + how.encode(), make, (), source.check)


def refined_for(module: Module, entry: str, shapes: Sequence[object]) -> Module:
    """Makes a program static for shapes as `api.refine` takes them. Raises the same errors."""
    function = first_platform(pipeline.verified(module, CompileOptions(resolve(), entry)), Context(module))
    types, values = read_shapes(function.block().arguments, shapes)
    whole = with_function(module, function)
    with _telling_origins(whole, entry, types, values):
        return refined_module(whole, entry, types, values)


def read_shapes(arguments: Sequence[Value], shapes: object) -> tuple[list[Type], dict[int, np.ndarray]]:
    """Types of arguments for shapes as `api.refine` takes them, and the values of arrays that may hold sizes.

    Raises TypeError and ValueError.
    """
    if isinstance(shapes, str) or not isinstance(shapes, Sequence):
        raise TypeError(f"shapes: expected one for each argument, got {shapes!r}")
    if len(shapes) != len(arguments):
        raise ValueError(f"shapes: the program takes {len(arguments)} arguments, got {len(shapes)}")
    types = [_type_of(i, a, given) for i, (a, given) in enumerate(zip(arguments, shapes, strict=True))]
    values = {
        i: np.asarray(given)
        for i, (a, given) in enumerate(zip(arguments, shapes, strict=True))
        if isinstance(given, np.ndarray | np.generic) and _may_be_shape(a)
    }
    return types, values


def _type_of(index: int, argument: Value, given: object) -> Type:
    """Type of an argument from a shape, a type's text or an array."""
    if not isinstance(argument.type, TensorType):
        return argument.type
    what = f"shape of argument {index} (%{argument.name})"
    return type_given(what, argument.type.dtype, argument.type.storage, given)


def _port(name: str, type: Type, what: str, function: Op) -> DynamicPort:
    if not isinstance(type, TensorType):
        raise UnsupportedError(
            diagnose(f"{what} is of type {type_text(type)}, not a tensor", function.span, label="not-a-tensor")
        )
    return DynamicPort(name, type.shape, type.storage, type.bounds)


def _both(names: Sequence[str], of: Sequence[T]) -> Iterator[tuple[int, tuple[str, T]]]:
    """Items with their names, numbered."""
    return enumerate(zip(names, of, strict=True))


def _may_be_shape(argument: Value) -> bool:
    """Whether an argument may be a size or a shape: it has a known, small number of integers."""
    t = argument.type
    if not isinstance(t, TensorType) or not t.is_static or t.rank > 1 or t.size > tuning.SHAPE_ELEMENTS:
        return False
    return t.storage.kind in ("i", "u", "x")


def with_function(module: Module, function: Op) -> Module:
    """The module with its function of that name replaced."""
    name = function.attributes["sym_name"]
    if module.function(name) is function:
        return module
    ops = [function if op.attributes.get("sym_name") == name else op for op in module.body.ops]
    old = module.op
    block = Block(ops=ops)
    new = Op(old.name, [], [], old.attributes, [Region([block])], old.source, old.start, old.end, old.location)
    return Module(new, module.source, module.locations)
