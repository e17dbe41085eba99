"""Refinement: make a program with unknown dimensions static, for given argument types.

One forward sweep over the entry function, and over every function that it calls, once for each list of argument types.
Types are inferred again from those of the operands. Values computed from known sizes (`get_dimension_size` of a known
dimension, and arithmetic on that) become constants, so ops that take their shape from an operand become static.
Assertions that hold are removed; one that fails is refused with its own message.

    func @main(%x: tensor<?x4xf32>) {                           func @main(%x: tensor<3x4xf32>) {
      %n = get_dimension_size %x, dim = 0                 ->
      %s = concatenate %n, 4                                      %s = constant dense<[3, 4]>
      %y = dynamic_broadcast_in_dim %c, %s                        %y = broadcast_in_dim %c : tensor<3x4xf32>
      add %x, %y : tensor<?x4xf32>                                add %x, %y : tensor<3x4xf32>

The result is a separate module that verifies and prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.attributes import Dense, IntegerAttr, SymbolRef, TypeAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import INDEX, FunctionType, ScalarType, TensorType, Type, tensor
from shlo_jit.ops import OPS, Violation
from shlo_jit.ops.call_record import items_of_target_operands, own_attributes, shape_operands_of
from shlo_jit.ops.effects import acts
from shlo_jit.ops.known_calls import SHAPE_ASSERTION, results_of
from shlo_jit.ops.type_algebra import bounds_of, constant_value, is_quantized, with_bounds
from shlo_jit.passes import build as mk
from shlo_jit.passes.expand.dynamic import RULES
from shlo_jit.passes.refine.foreign import DIALECTS, evaluate_foreign
from shlo_jit.passes.refine.known_sizes import decided, evaluate_sizes, frozen, has_sizes
from shlo_jit.passes.refine.loop_sizes import after_iteration, with_open_sizes
from shlo_jit.passes.refine.meet import Contradiction, meet
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.reference.interpreter import evaluate_op
from shlo_jit.sizes import whole
from shlo_jit.verify.verifier import diagnostic_of

WRAPPER = "stablehlo.shape_refinement_operand_wrapper"
Key = tuple[str, tuple[Type, ...], tuple[object, ...]]
"""A function, the argument types of a call, and the contents of the known arguments."""


def refine_module(
    module: Module, entry: str, types: Sequence[Type], values: Mapping[int, np.ndarray] | None = None
) -> Module:
    """Returns the module for arguments of these types, with `entry` and the functions that it calls; the arguments in
    `values` are known. Raises VerifyError if the types contradict the program's, or if an assertion fails."""
    function = module.function(entry)
    assert function is not None and not is_declaration(function)
    refiner = _Refiner(module)
    refiner.entry(function, types, values or {})
    old, others = module.op, [op for op in module.body.ops if op.name != "func.func"]
    block = Block(ops=[*others, *refiner.named(), *refiner.made])
    op = Op(old.name, [], [], old.attributes, [Region([block])], old.source, old.start, old.end, old.location)
    return Module(op, module.source, module.locations)


class _Refiner:
    def __init__(self, module: Module) -> None:
        self.functions = {f.attributes["sym_name"]: f for f in module.functions()}
        self.made: list[Op] = []
        """Functions, callees first."""
        self._known: dict[Key, Op] = {}
        self._scalars: dict[Value, np.ndarray] = {}
        """Known values of MLIR's own dialects that are not tensors."""
        self._names: set[str] = set()

    # ------------------------------------------------------------------ functions
    def entry(self, function: Op, types: Sequence[Type], values: Mapping[int, np.ndarray]) -> None:
        arguments = function.block().arguments
        refined = []
        for i, (argument, given) in enumerate(zip(arguments, types, strict=True)):
            try:
                refined.append(meet(argument.type, given))
            except Contradiction as both:
                message = f"argument {i} (%{argument.name}) does not fit the program: {both}"
                raise VerifyError(diagnose(message, function.span, label="type")) from None
        self._names.add(function.attributes["sym_name"])
        known = [values.get(i) for i in range(len(arguments))]
        self.made.append(self._function(function, tuple(refined), known, function.attributes["sym_name"]))

    def callee(self, name: str, operands: Sequence[Value]) -> Op | None:
        """Returns the function for these operands, or None if there is none of that name with a body."""
        function = self.functions.get(name)
        if function is None or is_declaration(function):
            return None
        known = [_small(v) for v in operands]
        types = tuple(v.type for v in operands)
        key = name, types, tuple(map(frozen, known))
        if key not in self._known:
            made = self._function(function, types, known, self._unique(name))
            self._known[key] = made
            self.made.append(made)
        return self._known[key]

    def named(self) -> list[Op]:
        """Returns the functions that ops name without calling them, such as a custom call's reducer, unchanged."""
        found: dict[str, Op] = {}
        todo = list(self.made)
        while todo:
            for op in walk(todo.pop().block()):
                for name in map(_symbol, _named_by(op)):
                    function = self.functions.get(name)
                    if function is not None and name not in self._names and not is_declaration(function):
                        self._names.add(name)
                        found[name] = function
                        todo.append(function)
        return list(found.values())

    def _unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate

    def _function(self, function: Op, types: tuple[Type, ...], known: Sequence[np.ndarray | None], name: str) -> Op:
        rw = Rewriter(self.visit)
        old = function.block()
        arguments = [Value(t, name=a.name) for t, a in zip(types, old.arguments, strict=True)]
        rw.blocks.append(Block(arguments, locations=old.locations))
        for before, after, value in zip(old.arguments, arguments, known, strict=True):
            rw.values[before] = after if value is None else _known(rw, after, value)
        rw.run(old.ops)
        block = rw.block
        _drop_unread(block)
        results = tuple(v.type for v in block.terminator.operands)
        attributes = {**function.attributes, "sym_name": name, "function_type": TypeAttr(FunctionType(types, results))}
        place = function.source, function.start, function.end, function.location
        return Op(function.name, [], [], attributes, [Region([block])], *place)

    # ------------------------------------------------------------------ ops
    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name in ("func.call", "call"):
            return self._call(rw, op, operands)
        if op.name == "tensor.cast" and isinstance(operands[0].type, TensorType):
            self._met(op, [op.result.type], [operands[0].type])
            return operands
        if op.name == "stablehlo.custom_call":
            done = self._custom_call(rw, op, operands)
            if done is not None:
                return done
        if op.dialect in DIALECTS:
            known = self._foreign(rw, op, operands)
            if known is not None:
                return known
        if op.name == "stablehlo.get_dimension_size":
            extent = operands[0].tensor.shape[op.int("dimension")] if operands[0].tensor.shape else None
            if extent is not None:
                return [mk.size(rw, extent)]
        if op.name == "stablehlo.set_dimension_size":
            size = constant_value(operands[1])
            if size is not None and operands[0].tensor.is_static:
                return [self._cut(rw, op, operands[0], int(size))]
        new = self._retyped(rw, op, operands)
        folded = self._folded(rw, new)
        if folded is not None:
            return folded
        rule = RULES.get(op.name)
        static = rule(rw, new, operands) if rule is not None else None
        if static is not None:
            return list(static)
        rw.block.ops.append(new)
        return new.results

    def _cut(self, rw: Rewriter, op: Op, operand: Value, size: int) -> Value:
        """Slices the first `size` positions of a dimension. Raises VerifyError for a size that it does not have."""
        d, extent = op.int("dimension"), operand.tensor.extents[op.int("dimension")]
        if not 0 <= size <= extent:
            message = f"set_dimension_size: {size} is not a size of dimension {d}, which has {extent}"
            raise VerifyError(diagnose(message, op.span, op=op.name, label="dimension-size"))
        return mk.slice_dim(rw, operand, d, 0, size)

    def _retyped(self, rw: Rewriter, op: Op, operands: list[Value]) -> Op:
        """Returns the op with new operands, swept regions and inferred types. Raises VerifyError."""
        if op.name != "stablehlo.while":
            return self._swept(rw, op, operands, [])
        states, depth = [v.type for v in operands], len(rw.blocks)
        while True:
            try:
                new = self._swept(rw, op, operands, states)
                wider = after_iteration(op, states, [v.type for v in new.regions[1].block.terminator.operands])
                if wider == states:
                    new.operands[:] = [_stated(rw.block.ops, v, t, op) for v, t in zip(operands, states, strict=True)]
                    return new
            except VerifyError:  # an iteration with these sizes, which may never run
                wider = with_open_sizes(op, states)
                if wider == states:
                    raise
                del rw.blocks[depth:]
                rw.current = op
            states = wider

    def _swept(self, rw: Rewriter, op: Op, operands: list[Value], states: Sequence[Type]) -> Op:
        """Returns the op with new operands and swept regions. `states`: for a loop, the types of its states."""
        regions = [Region([self._block(rw, b, states) for b in r.blocks]) for r in op.regions]
        attributes = op.attributes
        if op.name == "stablehlo.composite":
            attributes = self._composite(op, operands)
        types = [v.type for v in op.results]
        new = Op(op.name, operands, types, attributes, regions, op.source, op.start, op.end, op.location)
        for value, type in zip(new.results, self._types(op, new, states), strict=True):
            value.type = type
        return new

    def _types(self, op: Op, new: Op, states: Sequence[Type]) -> list[Type]:
        record = OPS.get(op.name)
        stated = [v.type for v in op.results]
        if op.name == "stablehlo.composite":
            return list(self._composite_types(new) or stated)
        if op.name == "stablehlo.while":
            found: Sequence[Type] = states
        elif op.name in ("stablehlo.if", "stablehlo.case"):
            found = self._joined(new)
        else:
            infer = results_of if op.name == "stablehlo.custom_call" else None if record is None else record.infer
            try:
                found = (None if infer is None else infer(new)) or stated
            except Violation as violation:
                raise VerifyError(diagnostic_of(op, violation)) from None
        return self._met(op, stated, found)

    def _met(self, op: Op, stated: Sequence[Type], found: Sequence[Type]) -> list[Type]:
        """Combines the stated and the inferred types of an op's results. Raises VerifyError."""
        try:
            return [meet(a, b) for a, b in zip(stated, found, strict=True)]
        except Contradiction as both:
            raise VerifyError(
                diagnose(f"{op.name}: the result cannot be {both}", op.span, op=op.name, label="type")
            ) from None

    def _joined(self, op: Op) -> Sequence[Type]:
        """Returns the common types of what all branches return. Dimensions that differ become unknown, also in each
        branch."""
        ends = [r.block.terminator for r in op.regions]
        found = [_join([v.type for v in values]) for values in zip(*(end.operands for end in ends), strict=True)]
        for region, end in zip(op.regions, ends, strict=True):
            before = region.block.ops[:-1]
            end.operands[:] = [_stated(before, v, t, end) for v, t in zip(end.operands, found, strict=True)]
            region.block.ops[:] = [*before, end]
        return found

    def _block(self, rw: Rewriter, block: Block, states: Sequence[Type]) -> Block:
        """Sweeps a region's block; blocks of a loop take the types of its states."""
        types = states or [v.type for v in block.arguments]
        made = [Value(t, name=a.name) for t, a in zip(types, block.arguments, strict=True)]
        new = Block(made)
        rw.values.update(zip(block.arguments, made, strict=True))
        rw.blocks.append(new)
        rw.run(block.ops)
        rw.blocks.pop()
        return new

    def _folded(self, rw: Rewriter, op: Op) -> list[Value] | None:
        """Returns the results as constants if they are small integers computed from constants, else None."""
        record = OPS.get(op.name)
        if op.name == "stablehlo.constant" or op.regions or acts(op) or not op.results or not op.operands:
            return None
        if record is None or record.reference is None or not all(map(_is_small, op.results)):
            return None
        arrays = [constant_value(v) for v in op.operands]
        if any(a is not None and a.size > tuning.SHAPE_ELEMENTS for a in arrays):
            return None
        if any(a is None for a in arrays):
            found = decided(op, arrays)
            return None if found is None else [_known(rw, op.result, found)]
        if has_sizes(arrays):
            return self._sized(rw, op, evaluate_sizes(op, arrays))  # type: ignore[arg-type] - none is None
        results = evaluate_op(op, *arrays)
        return [mk.constant(rw, v.tensor, x) for v, x in zip(op.results, results, strict=True)]

    def _sized(self, rw: Rewriter, op: Op, results: list[np.ndarray] | None) -> list[Value] | None:
        """Returns the op's results with their known sizes. The op stays for readers that need it as data."""
        if results is None:
            return None
        rw.block.ops.append(op)
        return [_known(rw, v, x) for v, x in zip(op.results, results, strict=True)]

    # ------------------------------------------------------------------ calls
    def _call(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        callee = self.callee(_symbol(op.attributes["callee"]), operands)
        if callee is None:
            return None
        returned = callee.block().terminator.operands
        attributes = {**op.attributes, "callee": SymbolRef((callee.attributes["sym_name"],))}
        results = rw.emit(op.name, operands, [v.type for v in returned], attributes)
        known = [_small(v) for v in returned]
        return [v if k is None else _known(rw, v, k) for v, k in zip(results, known, strict=True)]

    def _composite(self, op: Op, operands: list[Value]) -> dict[str, Any]:
        callee = self.callee(_symbol(op.attributes["decomposition"]), operands)
        if callee is None:
            return op.attributes
        return {**op.attributes, "decomposition": SymbolRef((callee.attributes["sym_name"],))}

    def _composite_types(self, op: Op) -> Sequence[Type] | None:
        name = _symbol(op.attributes["decomposition"])
        made = next((f for f in self.made if f.attributes["sym_name"] == name), None)
        return None if made is None else [v.type for v in made.block().terminator.operands]

    def _custom_call(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        target = op.attributes["call_target_name"]
        if target == WRAPPER:
            return operands[:1]
        if target == SHAPE_ASSERTION:
            return self._assertion(op, operands)
        if shape_operands_of(op):
            types = self._shaped_results(op, operands)
            if types is not None:
                return rw.emit(op.name, items_of_target_operands(op, operands), types, own_attributes(op))
        return None

    def _foreign(self, rw: Rewriter, op: Op, operands: list[Value]) -> list[Value] | None:
        """Evaluates an op of MLIR's own dialects, if possible: tensors become constants, other values are recorded."""
        arrays = [self._scalars.get(v, constant_value(v)) for v in operands]
        new = Op(op.name, operands, [v.type for v in op.results], op.attributes, [], op.source, op.start, op.end)
        if op.name == "arith.constant":
            value = op.attributes.get("value")
            results: list[np.ndarray] | None = [np.asarray(value.value)] if isinstance(value, IntegerAttr) else None
            results = [np.asarray(value)] if isinstance(value, bool) else results
            results = [value.array] if isinstance(value, Dense) else results
        else:
            results = evaluate_foreign(new, arrays)
        if results is None or not all(isinstance(v.type, TensorType | ScalarType) for v in op.results):
            return None
        if len(results) != len(op.results):
            return None
        found = []
        for value, array in zip(op.results, results, strict=True):
            if array.dtype == object:
                found.append(self._foreign_size(rw, new, value, array))
            elif isinstance(value.type, TensorType):
                type = tensor(array.shape, value.type.dtype)
                value_of = {"value": Dense(type, array.astype(type.storage.numpy))}
                name = "arith.constant" if type.dtype == INDEX else "stablehlo.constant"
                found.append(rw.emit1(name, [], type, value_of))
            else:
                assert isinstance(value.type, ScalarType)
                number = bool(array) if value.type.name == "i1" else IntegerAttr(int(array), value.type.name)
                found.append(rw.emit1("arith.constant", [], value.type, {"value": number}))
                self._scalars[found[-1]] = array
        return found

    def _foreign_size(self, rw: Rewriter, op: Op, value: Value, array: np.ndarray) -> Value:
        """Returns a result that contains sizes: a tensor of numbers as data. An index, or a value that is not a tensor,
        stays the op's result, and only shapes can be computed from it."""
        if not isinstance(value.type, TensorType) or value.type.dtype == INDEX:
            if op not in rw.block.ops:
                rw.block.ops.append(op)
            return _known(rw, op.results[value.index], array)
        parts = [mk.reshape(rw, mk.size(rw, x), (1,)) for x in map(whole, array.flat)]
        together = mk.reshape(rw, mk.concatenate(rw, parts, 0), array.shape)
        return _known(rw, mk.convert(rw, together, value.tensor.storage), array)

    def _assertion(self, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """Removes an assertion that holds. Raises VerifyError if it fails."""
        holds = constant_value(operands[0])
        if holds is None:
            return None
        if not holds.all():
            message = str(op.attributes.get("error_message", "a shape assertion does not hold"))
            for i, operand in enumerate(operands[1:]):
                value = constant_value(operand)
                message = message.replace(f"{{{i}}}", "?" if value is None else str(value))
            raise VerifyError(diagnose(message, op.span, op=op.name, label="assertion"))
        return []

    def _shaped_results(self, op: Op, operands: list[Value]) -> list[Type] | None:
        shapes = [_small(operands[i]) for i in shape_operands_of(op)]
        if any(s is None for s in shapes) or len(shapes) != len(op.results):
            return None
        found = [
            tensor(tuple(map(whole, shape)), result.tensor.dtype)
            for result, shape in zip(op.results, shapes, strict=True)
            if shape is not None
        ]
        return self._met(op, [v.type for v in op.results], found)


def _drop_unread(block: Block) -> None:
    """Drops constants and shape computations that are no longer read."""
    read = {v for op in walk(block) for v in op.operands}
    kept = []
    for op in reversed(block.ops):
        is_quiet = op.name == "stablehlo.constant" or op.dialect in DIALECTS
        if is_quiet and op.results and not read.intersection(op.results):
            continue
        kept.append(op)
    block.ops[:] = kept[::-1]


def _join(types: Sequence[Type]) -> Type:
    """Returns the most specific type that covers all of these."""
    first = types[0]
    if any(t != first for t in types) and all(isinstance(t, TensorType) for t in types):
        shapes = [t.shape for t in types if isinstance(t, TensorType)]
        if all(s is not None and len(s) == len(shapes[0] or ()) for s in shapes):
            columns = zip(*(s for s in shapes if s is not None), strict=True)
            shape = tuple(c[0] if all(n == c[0] for n in c) else None for c in columns)
            assert isinstance(first, TensorType)
            limits = zip(*(_most(t) for t in types if isinstance(t, TensorType)), strict=True)
            bounds = [None if n is not None or None in c else max(c) for n, c in zip(shape, limits, strict=True)]
            return with_bounds(shape, first.dtype, bounds)
    return first


def _most(t: TensorType) -> list[int | None]:
    """Returns the maximum of each dimension, or None if it is not known."""
    return [n if n is not None else bound for n, bound in zip(t.shape or (), bounds_of(t), strict=True)]


def _stated(ops: list[Op], value: Value, type: Type, place: Op) -> Value:
    """Returns the value converted to a type with unknown sizes, by an op that is appended; otherwise the value
    itself."""
    if value.type == type or not isinstance(type, TensorType) or None not in (type.shape or ()) or is_quantized(type):
        return value
    ops.append(Op("stablehlo.convert", [value], [type], {}, [], place.source, place.start, place.end))
    return ops[-1].result


def _known(rw: Rewriter, value: Value, array: np.ndarray) -> Value:
    """Returns a value with known contents: a constant, or the value itself with its sizes recorded."""
    if array.dtype != object:
        return mk.constant(rw, value.tensor, array)
    value.sizes = array
    return value


def _named_by(op: Op) -> Iterator[SymbolRef]:
    for attribute in op.attributes.values():
        for item in attribute if isinstance(attribute, tuple | list) else (attribute,):
            if isinstance(item, SymbolRef):
                yield item


def _symbol(attribute: object) -> str:
    return attribute.name if isinstance(attribute, SymbolRef) else str(attribute)


def _is_small(value: Value) -> bool:
    """Whether the value may be a shape, or part of one."""
    t = value.type
    if not isinstance(t, TensorType) or not t.is_fixed or t.size > tuning.SHAPE_ELEMENTS:
        return False
    return getattr(t.dtype, "kind", "") in ("i", "u", "b", "x")


def _small(value: Value) -> np.ndarray | None:
    """Returns the known contents of a value that may be a shape, or None."""
    return constant_value(value) if _is_small(value) else None
