"""Programs some of whose arguments are given as arrays: these arguments become constants.

    @main(%x, %w), {"w": array}   ->   @main(%x), in which %w is a constant

From there on they are constants like those of the text: they are folded, packed and shared. Their bytes never pass
through a text; the key of the program in the object cache has their digests.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal, NamedTuple

import numpy as np

from shlo_jit import pipeline
from shlo_jit.codegen.program import Port
from shlo_jit.errors import UsageError, UsageTypeError, UsageValueError, at_place
from shlo_jit.ir.attributes import Dense, DictAttr, StructAttr, SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk
from shlo_jit.ir.digests import sealed
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.constant_arguments import with_constant_arguments
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.flatten import leaves
from shlo_jit.runtime import build
from shlo_jit.runtime.argument_hints import shape_hint
from shlo_jit.runtime.arguments import describe, describe_array, name_of, take
from shlo_jit.runtime.given_arrays import GivenArray, check_remembered, is_raw
from shlo_jit.runtime.mapped_files import file_status
from shlo_jit.runtime.ports import DynamicPort
from shlo_jit.sources import Artifact, Derived, Given, Text
from shlo_jit.suggest import did_you_mean
from shlo_jit.text.argument_names import argument_names, known_names

MOST_NAMES = 20
"""Maximum number of arguments that a message lists."""


class Argument(NamedTuple):
    """An argument of the entry function as callers count them: without tokens, and with all elements of tuples."""

    value: Value
    name: str
    """The name that executables show for it."""
    names: set[str]
    """All its names."""


def bind_constants(
    source: Given, options: CompileOptions, given: Sequence[GivenArray]
) -> tuple[Derived, CompileOptions]:
    """Returns the program with constants in place of arguments, and the options for it, whose donated arguments are
    those that are left.

    The program is parsed only if that is necessary. Raises as `bound`, now or when the program is made.
    """

    @cache
    def read() -> None:
        check_remembered(given, build.resolve_cache(options.cache))

    def make() -> Module:
        read()
        return bound(pipeline.parsed(source), options, given)

    has_names = any(isinstance(array.key, str) for array in given)
    if has_names and options.donate not in ((), "program"):
        indices = set(by_index(_arguments(_entry(pipeline.parsed(source), options)), given))
    else:
        indices = {array.key for array in given if isinstance(array.key, int)}

    def identity() -> bytes:
        digest = hashlib.sha256(pipeline.identity_of(source) + repr(options.donate).encode())
        for array in given:
            digest.update(hashlib.sha256(array.identity.encode(errors="surrogatepass")).digest())
        return digest.digest()

    name = source.name if isinstance(source, Text | Artifact) else source.source.name
    literals = [cut.literal for cut in source.cuts] if isinstance(source, Text) else []
    made = Derived(name, identity, make, literals, partial(_check_files, given))
    return made, replace(options, donate=_donated_left(options, indices))


def bound(module: Module, options: CompileOptions, given: Sequence[GivenArray]) -> Module:
    """Returns the module whose entry function has constants in place of the arguments that are given. Functions that
    call the entry function are left out.

    Raises UsageTypeError and UsageValueError for unknown or ambiguous names and for arrays that do not fit, OptionError
    for arguments that are donated, too, and StableHLOError if the module is not valid.
    """
    function = _entry(module, options)
    arguments = _arguments(function)
    constants = {}
    for index, array in by_index(arguments, given).items():
        argument = arguments[index]
        if isinstance(options.donate, tuple) and index in options.donate:
            message = f"donate: argument {index} ({argument.name}) is a constant, whose memory results cannot reuse"
            raise OptionError(message)
        try:
            constants[argument.value] = _constant(argument, index, array.value)
        except UsageError as error:
            raise at_place(error, "constants") from error.__cause__
    made = with_constant_arguments(function, constants)
    return Module(_replaced(module.op, made, _callers(module, options.entry)), module.source, module.locations)


def donated_left(module: Module, options: CompileOptions, given: Sequence[GivenArray]) -> CompileOptions:
    """Returns the options for the bound module: its donated arguments by their indices there."""
    indices = by_index(_arguments(_entry(module, options)), given)
    return replace(options, donate=_donated_left(options, indices))


def _donated_left(options: CompileOptions, constants: Collection[int]) -> tuple[int, ...] | Literal["program"]:
    donate = options.donate
    if isinstance(donate, str):
        return donate
    return tuple(i - sum(c < i for c in constants) for i in donate)


def _check_files(given: Iterable[GivenArray]) -> None:
    """Raises OSError if the bytes of a mapped file may have changed since they were hashed. A file that replaces it
    does not change them."""
    for array in given:
        now = None if array.file is None else file_status(array.value)
        if array.file is not None and now is not None and now.inode == array.file.inode and now != array.file:
            raise OSError(errno.ESTALE, "the file of a constant has changed while it was compiled", array.file.path)


# ---------------------------------------------------------------------- arguments
def _entry(module: Module, options: CompileOptions) -> Op:
    """Returns the entry function without the index of the platform, which callers do not pass."""
    return first_platform(pipeline.verified(module, options), Context(module))


def _arguments(function: Op) -> list[Argument]:
    rows = zip(function.block().arguments, argument_names(function), known_names(function), strict=True)
    return [Argument(*row) for row in rows for _ in leaves(row[0].type)]


def by_index(arguments: Sequence[Argument], given: Sequence[GivenArray]) -> dict[int, GivenArray]:
    """Returns the given arrays by the index of their argument, in ascending order."""
    found: dict[int, GivenArray] = {}
    for array in given:
        index = _index(arguments, array.key)
        if index in found:
            keys = f"{found[index].key!r} and {array.key!r}"
            message = f"constants: argument {index} ({arguments[index].name}) is given twice, as {keys}"
            raise UsageValueError(message, code="argument.name")
        found[index] = array
    return dict(sorted(found.items()))


def _index(arguments: Sequence[Argument], key: int | str) -> int:
    """Returns the index of the argument that a key names."""
    if isinstance(key, int):
        if 0 <= key < len(arguments):
            return key
        message = f"constants: there is no argument {key}: {_listed(arguments)}"
        raise UsageValueError(message, code="argument.name")
    found = [i for i, argument in enumerate(arguments) if key in argument.names]
    if len({arguments[i].value for i in found}) == 1:
        return found[0]
    if not found:
        message = f"constants: there is no argument {key!r}: {_listed(arguments)}"
        hint = did_you_mean(key, [argument.name for argument in arguments])
        raise UsageValueError(message, code="argument.name", hint=hint)
    which = ", ".join(f"{i} (%{arguments[i].value.name})" for i in found)
    message = f"constants: {key!r} is the name of several arguments: {which}"
    raise UsageValueError(message, code="argument.name", hint=f"use the index, such as {found[0]}")


def _listed(arguments: Sequence[Argument]) -> str:
    """Lists the arguments of a program, for messages."""
    if not arguments:
        return "the program has none"
    shown = ", ".join(f"{i} ({argument.name})" for i, argument in enumerate(arguments[:MOST_NAMES]))
    return f"the program has {shown}{', ...' if len(arguments) > MOST_NAMES else ''}"


def _constant(argument: Argument, index: int, value: object) -> Dense:
    """Returns the value of a constant. Raises as `take`, and UsageValueError for another shape."""
    type = argument.value.type
    if not isinstance(type, TensorType):
        message = f"argument {index} ({argument.name}) is of type {type_text(type)}: expected a tensor for a constant"
        raise UsageTypeError(message, code="argument.kind")
    port = DynamicPort(argument.name, type.shape, type.storage, type.bounds)
    if type.is_static:
        port = Port(argument.name, type.extents, type.storage)
    if isinstance(value, np.ndarray) and is_raw(value.dtype) and value.dtype.itemsize == type.storage.itemsize:
        value = value.view(type.storage.numpy)
    array = take(value, index, port)
    if not _fits(array.shape, type):
        message = f"{name_of(index, port)}: expected {describe(port)}, got {describe_array(array)}"
        raise UsageValueError(message, code="argument.shape", hint=shape_hint(array, port))
    return Dense(type if type.is_static else tensor(array.shape, type.dtype), sealed(array))


def _fits(shape: tuple[int, ...], type: TensorType) -> bool:
    if type.shape is None:
        return True
    if len(shape) != len(type.shape):
        return False
    bounds = type.bounds or (None,) * len(shape)
    dimensions = zip(shape, type.shape, bounds, strict=True)
    return all(n == wanted if wanted is not None else most is None or n <= most for n, wanted, most in dimensions)


# ---------------------------------------------------------------------- modules
def _replaced(module: Op, function: Op, dropped: Collection[str]) -> Op:
    """Returns the module op with a function of that name replaced, and without others; also in nested modules."""
    name = function.attributes["sym_name"]
    ops = []
    for op in module.block().ops:
        symbol = op.attributes.get("sym_name")
        if op.name == "builtin.module":
            ops.append(_replaced(op, function, dropped))
        elif op.name != "func.func" or symbol not in (name, *dropped):
            ops.append(op)
        elif symbol == name:
            ops.append(function)
    block = Block(ops=ops, label=module.block().label)
    attributes, source = module.attributes, module.source
    return Op(module.name, [], [], attributes, [Region([block])], source, module.start, module.end, module.location)


def _callers(module: Module, name: str) -> set[str]:
    """Returns the functions that refer to a function, directly or through others."""
    users: dict[str, set[str]] = {}
    for function in module.functions():
        for op in walk(function.block()) if function.regions else ():
            for attribute in op.attributes.values():
                for symbol in _symbols(attribute):
                    users.setdefault(symbol, set()).add(function.attributes["sym_name"])
    found: set[str] = set()
    todo = [name]
    while todo:
        new = users.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def _symbols(attribute: object) -> list[str]:
    """Returns the names of symbols in an attribute."""
    if isinstance(attribute, SymbolRef):
        return [*attribute.path]
    if isinstance(attribute, tuple):
        return [name for item in attribute for name in _symbols(item)]
    if isinstance(attribute, DictAttr):
        return [name for _, item in attribute.items for name in _symbols(item)]
    if isinstance(attribute, StructAttr):
        return [name for _, item in attribute.fields for name in _symbols(item)]
    return []
