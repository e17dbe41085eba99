"""The reference interpreter: runs a Module in numpy, slowly but simply, with the `reference` of each record.

It is the oracle of tests and the constant folder, and never part of running a compiled program. A reference is called
as `reference(op, *arrays)`. The reference of an op with regions also gets `run=`, a `RegionRunner` (see
`ops/reducer.py`); that of an op that calls functions gets `call=`. Tokens are None, tuples are tuples, futures are
tuples of their values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shlo_jit.deep import deeply
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Block, Module, Op, Value
from shlo_jit.ir.types import TensorType, TupleType
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.grouped import GROUPED
from shlo_jit.ops.quantized import computes_on_quantized, dequantize, quantization, quantize
from shlo_jit.ops.ranged import RANGED, product_in_range
from shlo_jit.reference.grouped import grouped_product

Array = Any
CustomCall = Callable[..., Any]


@deeply
def evaluate(
    source: Module | Op,
    *arrays: Array,
    entry: str = "main",
    module: Module | None = None,
    custom_calls: Mapping[str, CustomCall] | None = None,
) -> tuple[Array, ...]:
    """Runs a function of a module, or a `func.func` op whose callees are in `module`, on arrays."""
    func = source.function(entry) if isinstance(source, Module) else source
    if func is None:
        raise ValueError(f"the module has no function '{entry}'")
    whole = source if isinstance(source, Module) else module
    interpreter = Interpreter(whole, custom_calls)
    values = [as_array(a, p.type) for a, p in zip(arrays, func.block().arguments, strict=True)]
    with np.errstate(all="ignore"):
        return interpreter.function(func, values)


def evaluate_op(op: Op, *arrays: Array, module: Module | None = None) -> tuple[Array, ...]:
    """Returns the results of one op on arrays, for constant folding."""
    with np.errstate(all="ignore"):
        return Interpreter(module).op(op, list(arrays))


def as_array(x: Any, t: Any) -> Any:
    """Converts an argument to an array of its type's dtype."""
    if not isinstance(t, TensorType) or x is None:
        return x
    return np.asarray(x, t.storage.numpy)


@functools.cache
def _extras(reference: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a reference has parameters `run` and `call`."""
    names = inspect.signature(reference).parameters
    return "run" in names, "call" in names


class Interpreter:
    """Evaluates ops; holds the functions and custom calls that they may refer to."""

    def __init__(self, module: Module | None = None, custom_calls: Mapping[str, CustomCall] | None = None):
        self.module = module
        self.custom_calls = custom_calls or {}

    def function(self, func: Op, arrays: list[Array]) -> tuple[Array, ...]:
        return self.block(func.block(), arrays, {})

    def call(self, name: str, *arrays: Array) -> tuple[Array, ...]:
        func = self.module.function(name) if self.module is not None else None
        if func is None:
            raise ValueError(f"call of unknown function '{name}'")
        return self.function(func, list(arrays))

    def block(self, block: Block, arrays: list[Array], outer: dict[Value, Array]) -> tuple[Array, ...]:
        """Returns the operands of the block's terminator, given the values of its arguments."""
        values = dict(outer)
        values.update(zip(block.arguments, arrays, strict=True))
        for op in block.ops[:-1]:
            results = self.op(op, [values[v] for v in op.operands], values)
            values.update(zip(op.results, results, strict=True))
        return tuple(values[v] for v in block.terminator.operands)

    def op(self, op: Op, arrays: list[Array], values: dict[Value, Array] | None = None) -> tuple[Array, ...]:
        """Returns the results of one op. `values` are the outside values that its regions may use."""
        if op.name == "stablehlo.custom_call":
            return self.custom_call(op, arrays)
        record = OPS.get(op.name)
        if record is None or record.reference is None:
            raise UnsupportedError(diagnose(f"{op.name} has no reference", op.span, label="no-reference"))
        wants_run, wants_call = _extras(record.reference)
        extras: dict[str, Any] = {}
        if wants_run:
            extras["run"] = Regions(self, op, values or {})
        if wants_call:
            extras["call"] = self.call
        computes = computes_on_quantized(op, record)
        if computes:
            arrays = [_dequantized(x, v) for x, v in zip(arrays, op.operands, strict=True)]
        out = record.reference(op, *arrays, **extras)
        results = out if isinstance(out, tuple) else (out,)
        if computes:
            results = tuple(_quantized(x, v) for x, v in zip(results, op.results, strict=True))
        return tuple(_checked(op, x, v) for x, v in zip(results, op.results, strict=True))

    def custom_call(self, op: Op, arrays: list[Array]) -> tuple[Array, ...]:
        target = op.attributes["call_target_name"]
        function = self.custom_calls.get(target) or known_custom_call(op, target)
        if function is None:
            raise UnsupportedError(diagnose(f"custom call '{target}' has no reference", op.span, label="no-reference"))
        out = function(*arrays)
        results = () if out is None else out if isinstance(out, tuple | list) else (out,)
        return tuple(as_array(x, v.type) for x, v in zip(results, op.results, strict=True))


def known_custom_call(op: Op, target: str) -> CustomCall | None:
    """Returns the implementation of a known custom call: an annotation, or a CHLO op under an `mhlo.` name."""
    if target == "Sharding":
        return lambda x: x
    if target == "shape_assertion":
        return lambda condition, *details: None
    if target == GROUPED:
        return functools.partial(grouped_product, op)
    if target == RANGED:
        return functools.partial(product_in_range, op)
    record = OPS.get(target.replace("mhlo.", "chlo.", 1)) if target.startswith("mhlo.") else None
    if record is None or record.reference is None or not record.has("elementwise"):
        return None
    return functools.partial(record.reference, op)


class Regions:
    """Runs the regions of one op; implements `RegionRunner`."""

    def __init__(self, interpreter: Interpreter, op: Op, values: dict[Value, Array]):
        self.interpreter = interpreter
        self.op = op
        self.values = values

    def __call__(self, region: int, *arrays: Array) -> tuple[Array, ...]:
        return self.interpreter.block(self.op.block(region), list(arrays), self.values)

    def map(self, region: int, *arrays: Array) -> tuple[Array, ...]:
        """Runs the region once per element. Elementwise ops vectorize that implicitly over whole arrays."""
        block = self.op.block(region)
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        if _is_scalar_code(block):
            results = self(region, *(np.broadcast_to(a, shape) for a in arrays))
            return tuple(np.broadcast_to(r, shape) for r in results)
        arrays = tuple(np.broadcast_to(a, shape) for a in arrays)
        columns = [np.empty(shape, v.tensor.storage.numpy) for v in block.terminator.operands]
        for index in np.ndindex(shape):
            for column, value in zip(columns, self(region, *(np.asarray(a[index]) for a in arrays)), strict=True):
                column[index] = value
        return tuple(columns)


def _is_scalar_code(block: Block) -> bool:
    """Whether a block has only elementwise ops and constants on rank-0 tensors, none of them quantized per axis."""
    for v in block.arguments:
        if not isinstance(v.type, TensorType) or v.type.shape != ():
            return False
    for op in block.ops[:-1]:
        if not is_elementwise(op) and op.name != "stablehlo.constant":
            return False
        if any(not isinstance(v.type, TensorType) or v.type.shape != () for v in op.results):
            return False
    return True


# Quantized arithmetic: dequantize, compute, quantize (specification, "dequantize_op_quantize")


def _dequantized(x: Array, v: Value) -> Array:
    q = quantization(v)
    return x if q is None else dequantize(x, q)


def _quantized(x: Array, v: Value) -> Array:
    q = quantization(v)
    return x if q is None else quantize(np.asarray(x), q)


def _checked(op: Op, x: Array, v: Value) -> Array:
    """Converts a result to an array. Raises AssertionError if the reference returned a wrong dtype."""
    t = v.type
    if not isinstance(t, TensorType) or isinstance(t.dtype, TupleType):
        return x
    array = np.asarray(x)
    if array.dtype != t.storage.numpy:
        raise AssertionError(f"reference of {op.name} gives {array.dtype} where the type is {t.dtype}")
    return array
