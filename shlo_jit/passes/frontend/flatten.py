"""Flatten tuples into their elements, remove tokens, and resolve asynchronous ops. An asynchronous op runs at its
async_start; with several processes, a collective op starts there and runs at its async_done. A scalar outside a tensor
(`index`) becomes a tensor of rank 0.

Needs: inlined functions. Guarantees: every value is a tensor; no tuple, get_tuple_element, after_all, create_token,
async_start or async_done remains. `operand_tokens` and `result_tokens` record where a custom call had tokens, for
handlers that take them. A collective op that is done in the block where it starts has a number `started`, and so has
the call that starts it. Ops with side effects run in the order of the text, which is one of the orders that tokens
allow. Arguments and results of the function are flattened too, in order.

    %t = after_all; %r:2 = infeed(%t); %p = tuple %r#0, %x; return %p, %r#1     ->     %r = infeed(); return %r, %x
    %f = async_start(%x) { all_reduce }; %y = negate(%x); %r = async_done(%f)
        ->   custom_call @shlo_jit.start(%x) {started = 0}; %y = negate(%x); %r = all_reduce(%x) {started = 0}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from shlo_jit.ir.attributes import DenseArray, IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import DTYPES, FutureType, ScalarType, TensorType, TokenType, TupleType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.known_calls import START
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import rebuilt

ALIAS = "stablehlo.output_operand_alias"


def flatten(function: Op, context: Context) -> Op:
    """The function with only tensors as values."""
    types = [a.type for a in function.block().arguments]
    types += [v.type for op in walk(function.block()) for v in op.results]
    if not any(isinstance(t, TupleType | FutureType | TokenType | ScalarType) for t in types):
        return function
    several = context.num_replicas * context.num_partitions > 1
    return rebuilt(function, _Flatten(_started(function.block()) if several else {}).block(function.block()))


def leaves(t: Type) -> list[Type]:
    """Returns the types that a value of a type is flattened to."""
    if isinstance(t, TupleType | FutureType):
        return [leaf for part in t.types for leaf in leaves(part)]
    if isinstance(t, ScalarType) and t.name in DTYPES:
        return [tensor((), DTYPES[t.name])]
    return [] if isinstance(t, TokenType) else [t]


def _started(block: Block) -> dict[Op, Op]:
    """Returns async_done -> async_start for the collective ops that may run at their async_done: it is in the same
    block, and is the only reader of the future."""
    ops = list(walk(block))
    readers = Counter(v for op in ops for v in op.operands)
    found = {}
    for each in [block, *(b for op in ops for r in op.regions for b in r.blocks)]:
        here = set(each.ops)
        for done in each.ops:
            start = done.operands[0].op if done.name == "stablehlo.async_done" else None
            if start in here and readers[start.result] == 1 and _is_one_collective(start.block()):
                found[done] = start
    return found


def _is_one_collective(body: Block) -> bool:
    """Whether a region is a single collective op on its arguments whose results it returns."""
    op = body.ops[0]
    own = set(body.arguments).issuperset(op.operands) and body.terminator.operands == op.results
    return own and OPS[op.name].has("collective")


class _Flatten:
    def __init__(self, started: dict[Op, Op]) -> None:
        self.started = started
        """async_done -> async_start, for collective ops that run at their async_done."""
        self.numbers = {start: IntegerAttr(n) for n, start in enumerate(started.values())}
        self.parts: dict[Value, list[Value]] = {}
        """Old value -> the new values it consists of."""
        self.blocks: list[Block] = []

    def block(self, old: Block) -> Block:
        """Returns a new block built from an old one."""
        for a in old.arguments:
            self.parts[a] = [Value(t, name=a.name) for t in leaves(a.type)]
        new = Block(self.flat(old.arguments))
        self.blocks.append(new)
        for op in old.ops:
            self.op(op)
        self.blocks.pop()
        return new

    def flat(self, values: Iterable[Value]) -> list[Value]:
        return [part for v in values for part in self.parts[v]]

    def divide(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Assigns the new values, in order, to the old ones as their parts."""
        rest = iter(new)
        for v in old:
            self.parts[v] = [next(rest) for _ in leaves(v.type)]

    def op(self, op: Op) -> None:
        operands = self.flat(op.operands)
        if op.name in ("stablehlo.after_all", "stablehlo.create_token"):
            self.parts[op.result] = []
        elif op in self.started:
            self.finish(op, self.started[op])
        elif op.name in ("stablehlo.tuple", "stablehlo.async_done"):
            self.divide(op.results, operands)
        elif op.name == "stablehlo.get_tuple_element":
            self.element(op, operands)
        elif op.name == "stablehlo.async_start":
            body = op.block()
            self.divide(body.arguments, operands)
            if op in self.numbers:
                self.start(op, body.ops[0])
                return
            for inner in body.ops[:-1]:
                self.op(inner)
            self.parts[op.result] = self.flat(body.terminator.operands)
        else:
            self.keep(op, operands)

    def start(self, op: Op, inner: Op) -> None:
        """Emits the call that starts a collective op."""
        attributes = {"call_target_name": START, "has_side_effect": True, "started": self.numbers[op]}
        start = Op("stablehlo.custom_call", self.flat(inner.operands), [], attributes)
        start.source, start.start, start.end = op.source, op.start, op.end
        self.blocks[-1].ops.append(start)
        self.parts[op.result] = []

    def finish(self, op: Op, start: Op) -> None:
        """Emits the collective op at its async_done."""
        inner = start.block().ops[0]
        self.keep(inner, self.flat(inner.operands))
        self.blocks[-1].ops[-1].attributes = {**inner.attributes, "started": self.numbers[start]}
        self.divide(op.results, self.flat(inner.results))

    def element(self, op: Op, parts: list[Value]) -> None:
        t, index = op.operands[0].type, op.int("index")
        assert isinstance(t, TupleType)
        start = sum(len(leaves(part)) for part in t.types[:index])
        self.parts[op.result] = parts[start : start + len(leaves(t.types[index]))]

    def keep(self, op: Op, operands: list[Value]) -> None:
        """Emits the op on the parts of its operands."""
        regions = [Region([self.block(b) for b in r.blocks]) for r in op.regions]
        types = [leaf for r in op.results for leaf in leaves(r.type)]
        attributes = _flat_attributes(op) if op.name == "stablehlo.custom_call" else op.attributes
        new = Op(op.name, operands, types, attributes, regions, op.source, op.start, op.end)
        self.blocks[-1].ops.append(new)
        self.divide(op.results, new.results)
        for old in op.results:
            for part in self.parts[old]:
                part.name = part.name or old.name


# ---------------------------------------------------------------------------- custom_call
def _flat_attributes(op: Op) -> dict[str, Any]:
    """Returns a custom call's attributes with layouts and aliases for the flattened operands and results. Layouts of
    tokens are dropped, and the positions of tokens recorded."""
    types = [v.type for v in op.operands]
    whole = TupleType(tuple(v.type for v in op.results))
    if len(whole.types) == 1 and isinstance(whole.types[0], TupleType):
        whole = whole.types[0]
    attributes = dict(op.attributes)
    for name, described in (("operand_layouts", types), ("result_layouts", whole.types)):
        if attributes.get(name) is not None:
            pairs = zip(attributes[name], described, strict=True)
            attributes[name] = tuple(layout for layout, t in pairs if isinstance(t, TensorType))
    for name, described in (("operand_tokens", types), ("result_tokens", whole.types)):
        places = tuple(i for i, t in enumerate(_all_leaves(described)) if isinstance(t, TokenType))
        if places:
            attributes[name] = DenseArray("i64", places)
    aliases = attributes.get("output_operand_aliases")
    if aliases:
        attributes["output_operand_aliases"] = tuple(_flat_alias(a, types, whole) for a in aliases)
    return attributes


def _all_leaves(types: Sequence[Type]) -> list[Type]:
    """Returns the types like `leaves`, but includes tokens."""
    nested = [_all_leaves(t.types) if isinstance(t, TupleType | FutureType) else [t] for t in types]
    return [leaf for part in nested for leaf in part]


def _flat_alias(alias: StructAttr, operands: list[Type], results: TupleType) -> StructAttr:
    output = tuple(alias.get("output_tuple_indices", ()))
    path = output or (0,)
    place = (int(alias.get("operand_index", 0)), *alias.get("operand_tuple_indices", ()))
    single = len(leaves(results)) == 1
    fields = (
        ("output_tuple_indices", () if single else (_offset(results, path),)),
        ("operand_index", _offset(TupleType(tuple(operands)), place)),
        ("operand_tuple_indices", ()),
    )
    return StructAttr(ALIAS, fields)


def _offset(t: Type, path: Sequence[int]) -> int:
    """Returns how many leaves precede the part of a tuple at `path`."""
    n = 0
    for i in path:
        assert isinstance(t, TupleType)
        n += sum(len(leaves(part)) for part in t.types[:i])
        t = t.types[i]
    return n
