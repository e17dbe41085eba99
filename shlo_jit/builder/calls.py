"""Calls of functions of the module, of composites, and of code outside of the program."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shlo_jit.builder.arguments import flag, integer, listed, text
from shlo_jit.builder.control import values_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.modules import FunctionBuilder, PrivateFunction
from shlo_jit.builder.regions import callable_of
from shlo_jit.builder.scope import emit, frame
from shlo_jit.builder.shapes import ShapeLike, element_of, shape_text, type_of
from shlo_jit.builder.trees import Tree, unflatten
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.attributes import Dense, DictAttr, FloatAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import function_type
from shlo_jit.ir.types import tensor
from shlo_jit.text.parser import attribute_of_text

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Callee = Any
"""A function built in this module, or a Python function, which becomes a private function of the module."""


def call(computation: Callee, *operands: Any) -> Any:
    """Calls a function with values and returns its results.

    A Python function takes and returns trees of values, and is traced once for each list of argument types. A function
    that was built takes values, and returns one or a tuple (document: Call).
    """
    callee, values, tree = _callee(computation, operands, "computation")
    found = _call("func.call", callee, values, {"callee": SymbolRef((callee.name,))})
    return _shaped(found, tree, callee)


def composite_call(
    computation: Callee,
    operands: Sequence[Any],
    name: str,
    attributes: Mapping[str, Any] | str | None = None,
    version: int = 0,
) -> Any:
    """A named operation, such as "foo.bar", that is defined by other operations.

    `computation` defines its meaning for compilers that do not know the name. `attributes`: a dictionary, or its text
    as StableHLO writes it. Python's integers and floats in it become i64 and f32, NumPy's keep their types (document:
    CompositeCall).
    """
    callee, values, tree = _callee(computation, listed(operands, "operands"), "computation")
    said = {
        "name": text(name, "name"),
        "decomposition": SymbolRef((callee.name,)),
        "composite_attributes": _attributes(attributes, "attributes"),
        "version": integer(version, "version"),
    }
    return _shaped(_call("stablehlo.composite", callee, values, said), tree, callee)


def fusion(operands: Sequence[Any], computation: Callee, kind: str = "Loop") -> Any:
    """Same as `call`: the compiler decides about fusion, whatever `kind` is (document: Fusion)."""
    return call(computation, *listed(operands, "operands"))


def custom_call(
    call_target_name: str,
    operands: Sequence[Any],
    shape: ShapeLike | Sequence[ShapeLike],
    backend_config: str | Mapping[str, Any] | DictAttr = "",
    has_side_effect: bool = False,
    api_version: int | None = None,
) -> Any:
    """A call of code outside of the program, by name.

    See `shlo_jit.register_custom_call`, and `custom_calls=` of `compile`.

    shape: the result's shape; a list for several results, which are returned as a tuple. backend_config: a string, or a
    dictionary of attributes for handlers of XLA's FFI (api_version 4). Raises BuilderError if `shape` is not a shape
    (document: CustomCall).
    """
    if not text(call_target_name, "call_target_name"):
        raise wrong("call_target_name", "the name is empty")
    values = [values_of(x, f"operands[{i}]")[0] for i, x in enumerate(listed(operands, "operands"))]
    several = isinstance(shape, list | tuple)
    shapes: Sequence[Any] = shape if isinstance(shape, list | tuple) else [shape]
    is_dictionary = isinstance(backend_config, Mapping)
    attributes = {
        "call_target_name": call_target_name,
        "has_side_effect": flag(has_side_effect, "has_side_effect"),
        "backend_config": _attributes(backend_config, "backend_config")
        if is_dictionary
        else text(backend_config, "backend_config"),
        "api_version": integer(api_version, "api_version") if api_version is not None else 4 if is_dictionary else None,
    }
    types = [type_of(s) for s in shapes]
    names = {"inputs": "operands"}
    found = emit("stablehlo.custom_call", [v for part in values for v in part], attributes, results=types, names=names)
    return found if several else found[0]


# ---------------------------------------------------------------------------- functions
class Traced(NamedTuple):
    """A Python function that was traced to a function of the module."""

    given: Callee
    """The Python function, kept alive because its identity is the key."""
    callee: FunctionBuilder
    results: Tree


def _callee(given: Callee, operands: Sequence[Any], argument: str) -> tuple[FunctionBuilder, list[Value], Tree]:
    """Returns the function, its operands, and the structure of its results (empty for a function that was built)."""
    opened = frame()
    if isinstance(given, FunctionBuilder):
        if given.symbols is not opened.symbols:
            raise wrong(argument, f"function {given.name} belongs to another module")
        expected = given.argument_types
        if len(operands) != len(expected):
            raise wrong("operands", f"function {given.name} takes {len(expected)} arguments, got {len(operands)}")
        values, _ = values_of(tuple(operands), "operands", expected)
        for i, (v, t) in enumerate(zip(values, expected, strict=True)):
            if v.type != t:
                raise wrong(f"operands[{i}]", f"{given.name} takes {shape_text(t)}, got {shape_text(v.type)}")
        return given, values, ()
    computation = callable_of(given, argument, len(operands))
    values, tree = values_of(tuple(operands), "operands")
    key = _identity(given), tree, tuple(v.type for v in values)
    known = opened.symbols.computations
    if key in known:
        found = known[key]
        if found is None:
            raise wrong(argument, "the function calls itself; programs cannot be recursive", hint="see builder.while_")
        return found.callee, values, found.results
    results: list[Tree] = []

    def body(*arguments: Value) -> list[Value]:
        found, shape = values_of(computation(*unflatten(tree, arguments)), argument)
        results.append(shape)
        return found

    known[key] = None  # while the function is traced
    try:
        name = getattr(given, "__name__", "").strip("<>") or "computation"
        callee = PrivateFunction(name, [v.type for v in values], body)
    except BaseException:
        del known[key]
        raise
    known[key] = Traced(given, callee, results[0])
    return callee, values, results[0]


def _identity(function: Any) -> Hashable:
    """Returns a key of the function while it is alive. A bound method is a new object at each access."""
    if isinstance(function, MethodType):
        return id(function.__self__), function.__func__
    return id(function)


def _call(name: str, callee: FunctionBuilder, values: list[Value], attributes: dict[str, Any]) -> tuple[Value, ...]:
    return emit(name, values, attributes, results=function_type(callee.op).results)


def _shaped(found: tuple[Value, ...], tree: Tree, callee: FunctionBuilder) -> Any:
    if tree != ():
        return unflatten(tree, found)
    return found[0] if len(found) == 1 else found


# ---------------------------------------------------------------------------- attributes
def _attributes(given: Mapping[str, Any] | str | None, argument: str) -> DictAttr | None:
    """Converts a dictionary of attributes, given as Python values or as text."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            found = attribute_of_text(given)
        except StableHLOError as error:
            raise wrong(argument, f"expected a dictionary of attributes: {error.diagnostics[0].message}") from None
        if not isinstance(found, DictAttr):
            raise wrong(argument, f"expected a dictionary of attributes, got {given!r}")
        return found
    if not isinstance(given, Mapping):
        raise wrong(argument, f"expected a dictionary, got {type(given).__name__}")
    return DictAttr(tuple((str(key), attribute(value, f"{argument}[{key!r}]")) for key, value in given.items()))


def attribute(x: Any, argument: str) -> Any:
    """Converts a Python value to an attribute. Attributes are returned as they are."""
    if isinstance(x, bool | str | Dense | DictAttr | IntegerAttr | FloatAttr):
        return x
    if type(x) is int:
        return IntegerAttr(x)
    if type(x) is float:
        return FloatAttr(x, "f32")
    if isinstance(x, np.bool_):
        return bool(x)
    if isinstance(x, np.generic):
        name = element_of(x.dtype, argument).name
        return IntegerAttr(int(x), name) if x.dtype.kind in "iu" else FloatAttr(float(x), name)
    if isinstance(x, np.ndarray):
        return Dense(tensor(x.shape, element_of(x.dtype, argument)), x)
    if isinstance(x, list | tuple):
        return tuple(attribute(part, argument) for part in x)
    if isinstance(x, Mapping):
        return _attributes(x, argument)
    raise wrong(argument, f"expected numbers, strings, arrays, lists or dictionaries, got {type(x).__name__}")
