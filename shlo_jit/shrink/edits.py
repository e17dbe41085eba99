"""Edits that make a module smaller.

An edit changes a copy in place. The result need not be a valid program, nor smaller: the search checks that. Ops and
values are identified by numbers, their positions in `ops_of(module)`, so that an edit is the same for every copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.ir.attributes import Dense, DenseArray, IntegerAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops import OPS
from shlo_jit.passes.frontend.inline import CALLS
from shlo_jit.shrink.copies import copied, entry_of, has_zeros, ops_of, replace, splat, zeros


class Edit(NamedTuple):
    """One candidate change."""

    what: str
    """Description for messages."""
    apply: Callable[[Module], None]
    grain: int = 1
    """Number of things that are removed together."""


class NotApplicable(Exception):
    """Raised for an edit that does not apply to the program."""


Edits = Callable[[Module, str], Iterator[Edit]]
"""Function from a module and its entry to candidate edits, those that gain most first."""


def chunks(numbers: Sequence[int]) -> Iterator[list[int]]:
    """All of the numbers, then halves, quarters, ... and each alone."""
    size = len(numbers)
    while size:
        yield from (list(numbers[i : i + size]) for i in range(0, len(numbers), size))
        size = 0 if size == 1 else (size + 1) // 2


# ---------------------------------------------------------------------- attributes without effect
def without_extras(module: Module, entry: str) -> Iterator[Edit]:
    """Removes attributes that ops do not define: shardings, names of layers, locations."""

    def apply(module: Module) -> None:
        for op in walk(module.body):
            record = OPS.get(op.name)
            op.location = None
            if record is not None and op.name != "func.func":
                op.attributes = {k: v for k, v in op.attributes.items() if k in record.attributes}
            for name in ("arg_attrs", "res_attrs") if op.name == "func.func" else ():
                op.attributes.pop(name, None)
        module.op.attributes = {k: v for k, v in module.op.attributes.items() if k == "sym_name"}

    yield Edit("attributes without effect", apply)


# ---------------------------------------------------------------------- results
def earlier_ends(module: Module, entry: str) -> Iterator[Edit]:
    """Returns the results of an op in the middle, and nothing else."""
    ops = entry_of(module, entry).block().ops[:-1]
    numbers = [i for i, op in enumerate(ops) if op.results and all(isinstance(r.type, TensorType) for r in op.results)]
    for number in _bisected(numbers):

        def apply(module: Module, number: int = number) -> None:
            block = entry_of(module, entry).block()
            block.terminator.operands = [*block.ops[number].results]

        yield Edit("ops after one", apply)


def _bisected(numbers: Sequence[int], most: int = 31) -> list[int]:
    """The middle, the middles of the halves, and so on."""
    found, todo = [], [(0, len(numbers))]
    while todo and len(found) < most:
        low, high = todo.pop(0)
        if low < high:
            middle = (low + high) // 2
            found.append(numbers[middle])
            todo += [(low, middle), (middle + 1, high)]
    return found


def fewer_results(module: Module, entry: str) -> Iterator[Edit]:
    """Removes some results of the entry."""
    count = len(entry_of(module, entry).block().terminator.operands)
    for chunk in chunks(range(count)):
        if len(chunk) < count:

            def apply(module: Module, gone: frozenset[int] = frozenset(chunk)) -> None:
                terminator = entry_of(module, entry).block().terminator
                terminator.operands = [v for i, v in enumerate(terminator.operands) if i not in gone]

            yield Edit("results", apply, len(chunk))


# ---------------------------------------------------------------------- ops
def fewer_ops(module: Module, entry: str) -> Iterator[Edit]:
    """Removes some ops. Their results are replaced by new arguments, by operands of the ops, or by zeros."""
    for chunk in chunks(range(len(ops_of(module)))):
        for instead in (_arguments, _operands, _zeros):

            def apply(module: Module, chunk: Sequence[int] = chunk, instead: Any = instead) -> None:
                ops = ops_of(module)
                values: dict[Value, Value] = {}
                gone: set[Op] = set()
                for op in [ops[i] for i in chunk]:
                    found = instead(op, entry_of(module, entry).block())
                    values |= found
                    gone |= {op} if len(found) == len(op.results) else set()
                if not gone:
                    raise NotApplicable
                replace(module, values)
                for block in _all_blocks(module):
                    block.ops = [op for op in block.ops if op not in gone]

            yield Edit("ops", apply, len(chunk))


def _arguments(op: Op, block: Block) -> dict[Value, Value]:
    """New arguments of the entry, if the op is in no region."""
    if op not in block.ops or not all(isinstance(r.type, TensorType) for r in op.results):
        return {}
    made = [Value(r.type, block, len(block.arguments) + i) for i, r in enumerate(op.results)]
    block.arguments += made
    return dict(zip(op.results, made, strict=True))


def _operands(op: Op, block: Block) -> dict[Value, Value]:
    """Operands of the same types."""
    found = {}
    for i, result in enumerate(op.results):
        near = [*op.operands[i : i + 1], *op.operands]
        same = next((v for v in near if v.type == result.type), None)
        if same is None:
            return {}
        found[result] = same
    return found


def _zeros(op: Op, block: Block) -> dict[Value, Value]:
    """Constants in place of the op's results."""
    if op.name == "stablehlo.constant" or not op.results or not all(has_zeros(r.type) for r in op.results):
        return {}
    owner = next((b for b in (block, *_blocks(block)) if op in b.ops), None)
    if owner is None:  # in another function
        return {}
    made = [zeros(r.tensor) for r in op.results]
    at = owner.ops.index(op)
    owner.ops[at:at] = made
    return {r: new.result for r, new in zip(op.results, made, strict=True)}


def _blocks(block: Block) -> Iterator[Block]:
    """All blocks within a block."""
    for op in walk(block):
        for region in op.regions:
            yield from region.blocks


# ---------------------------------------------------------------------- control flow and functions
def without_control_flow(module: Module, entry: str) -> Iterator[Edit]:
    """Replaces an op with regions or a call by a branch, one iteration of a loop, or the body of the function."""
    for number, op in enumerate(ops_of(module)):
        for region in _spliceable(op, module):

            def apply(module: Module, number: int = number, region: int = region) -> None:
                _splice(module, ops_of(module)[number], region)

            yield Edit(f"{op.name.partition('.')[2]} ops", apply)


def _spliceable(op: Op, module: Module) -> list[int]:
    if op.name == "stablehlo.while":
        return [1]
    if op.name in ("stablehlo.if", "stablehlo.case"):
        return [*range(len(op.regions))]
    callee = _callee(op, module)
    return [0] if callee is not None else []


def _callee(op: Op, module: Module) -> Op | None:
    name = op.attributes.get(CALLS.get(op.name, ""))
    found = module.function(name.name) if name is not None and hasattr(name, "name") else None
    return None if found is None or is_declaration(found) else found


def _splice(module: Module, op: Op, region: int) -> None:
    callee = _callee(op, module)
    if callee is None:
        body = op.block(region)
    else:
        alone = copied(Module(Op("builtin.module", [], [], {}, [Region([Block([], [callee])])])))
        body = next(alone.functions()).block()
    owner = next(b for b in _all_blocks(module) if op in b.ops)
    at = owner.ops.index(op)
    owner.ops[at : at + 1] = body.ops[:-1]
    values = dict(zip(body.arguments, op.operands, strict=True)) if body.arguments else {}
    replace(module, values | dict(zip(op.results, body.terminator.operands, strict=True)))


def _all_blocks(module: Module) -> Iterator[Block]:
    for op in walk(module.body):
        for region in op.regions:
            yield from region.blocks


def fewer_states(module: Module, entry: str) -> Iterator[Edit]:
    """Removes states of a loop, which are replaced by their initial values."""
    for number, op in enumerate(ops_of(module)):
        for chunk in chunks(range(len(op.operands))) if op.name == "stablehlo.while" else ():

            def apply(module: Module, number: int = number, gone: Sequence[int] = chunk) -> None:
                _drop_states(module, ops_of(module)[number], gone)

            yield Edit("states of loops", apply, len(chunk))


def _drop_states(module: Module, loop: Op, gone: Sequence[int]) -> None:
    blocks = [loop.block(0), loop.block(1)]
    values = {}
    for i in gone:
        values |= {block.arguments[i]: loop.operands[i] for block in blocks} | {loop.results[i]: loop.operands[i]}
    replace(module, values)
    stay = [i for i in range(len(loop.operands)) if i not in gone]
    loop.operands = [loop.operands[i] for i in stay]
    loop.results = [loop.results[i] for i in stay]
    returned = blocks[1].terminator
    returned.operands = [returned.operands[i] for i in stay]
    for block in blocks:
        block.arguments = [block.arguments[i] for i in stay]
        for k, argument in enumerate(block.arguments):
            argument.index = k
    for k, result in enumerate(loop.results):
        result.index = k


def without_surroundings(module: Module, entry: str) -> Iterator[Edit]:
    """Keeps only one op of a region or of another function, on new arguments of the entry."""
    top = set(entry_of(module, entry).block().ops)
    for number, op in enumerate(ops_of(module)):
        tensors = all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results))
        if op not in top and op.results and tensors:

            def apply(module: Module, number: int = number) -> None:
                op, block = ops_of(module)[number], entry_of(module, entry).block()
                block.arguments = [Value(v.type, block, i) for i, v in enumerate(op.operands)]
                op.operands = [*block.arguments]
                block.terminator.operands = [*op.results]
                block.ops = [op, block.terminator]

            yield Edit("surroundings", apply)


# ---------------------------------------------------------------------- shapes
EXTENTS = {"limit_indices", "slice_sizes", "window_dimensions", "fft_length", "edge_padding_high", "broadcast_sizes"}
"""Attributes that contain extents."""


def smaller_extents(module: Module, entry: str) -> Iterator[Edit]:
    """Replaces an extent by another number wherever it occurs, and in a second try also its multiples."""
    seen = {n for t in types_of(module) for n in (t.shape or ()) if n is not None and n > 1}
    for extent in sorted(seen, reverse=True):
        wanted = dict.fromkeys((1, 2, 3, extent // 8, extent // 2, extent - 1))
        smaller = [least for least in wanted if 0 < least < extent]
        for new, multiples in product(smaller, (False, True)):

            def apply(module: Module, old: int = extent, new: int = new, multiples: bool = multiples) -> None:
                _resize(module, lambda m: m // old * new if m == old or (multiples and m % old == 0) else m)

            yield Edit("shapes", apply)


def types_of(module: Module) -> Iterator[TensorType]:
    """Types of all tensors that are results of ops or arguments of blocks."""
    for op in walk(module.body):
        values = [*op.results, *(a for r in op.regions for b in r.blocks for a in b.arguments)]
        yield from (v.type for v in values if isinstance(v.type, TensorType))


def _resize(module: Module, resized: Callable[[int], int]) -> None:
    def of_type(type: Type) -> Type:
        if not isinstance(type, TensorType) or type.shape is None:
            return type
        return TensorType(tuple(n and resized(n) for n in type.shape), type.dtype, type.bounds, type.encoding)

    for op in walk(module.body):
        for value in [*op.results, *(a for r in op.regions for b in r.blocks for a in b.arguments)]:
            value.type = of_type(value.type)
        for name, attribute in op.attributes.items():
            if name in EXTENTS:
                op.attributes[name] = _resized(attribute, resized)
        if op.name == "stablehlo.constant" and op.constant.type != op.result.type:
            op.attributes["value"] = _cut(op.constant, op.result.tensor)


def _resized(attribute: Any, resized: Callable[[int], int]) -> Any:
    if isinstance(attribute, DenseArray):
        return DenseArray(attribute.dtype, tuple(map(resized, attribute.values)))
    if isinstance(attribute, Dense):
        return Dense(attribute.type, np.vectorize(resized, otypes=[attribute.array.dtype])(attribute.array))
    if isinstance(attribute, IntegerAttr):
        return IntegerAttr(resized(attribute.value), attribute.type)
    return tuple(_resized(a, resized) for a in attribute) if isinstance(attribute, tuple) else attribute


def _cut(constant: Dense, type: TensorType) -> Dense:
    """The first elements of a constant along each dimension."""
    if constant.is_splat:
        return Dense(type, np.broadcast_to(constant.array.reshape(-1)[:1].reshape(()), type.extents))
    cut = constant.array[tuple(map(slice, type.extents))]
    if cut.shape != type.extents:
        raise NotApplicable
    return Dense(type, np.ascontiguousarray(cut))


# ---------------------------------------------------------------------- constants
def plain_constants(module: Module, entry: str) -> Iterator[Edit]:
    """Replaces all elements of a constant by the first one."""
    ops = ops_of(module)
    varied = [i for i, op in enumerate(ops) if op.name == "stablehlo.constant" and not op.constant.is_splat]
    for chunk in chunks([i for i in varied if ops[i].constant.array.size and has_zeros(ops[i].result.type)]):

        def apply(module: Module, chunk: Sequence[int] = chunk) -> None:
            ops = ops_of(module)
            for op in [ops[i] for i in chunk]:
                first = op.constant.array.reshape(-1)[:1].reshape(())
                op.attributes["value"] = splat(op.result.tensor, first).constant

        yield Edit("constants", apply, len(chunk))


EDITS: tuple[Edits, ...] = (
    without_extras,
    earlier_ends,
    fewer_results,
    fewer_ops,
    without_control_flow,
    fewer_states,
    without_surroundings,
    plain_constants,
    smaller_extents,
)
"""Edits in the order in which they are tried, repeatedly until none helps."""
