"""Mutants of programs at the level of ops and attributes: a deterministic function from a number to a program.

    text = mutant(bases(), number)

A base is parsed, changed and printed again. Changes concern types, extents, attributes, operands, results, regions,
constants and targets of custom calls, in one place or wherever the same item occurs. Most mutants are invalid; the
others are ordinary programs, which `run_programs.py` compiles and runs.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / folder) for folder in ("", "text", "verify", "lower")]

import corpus
from call_programs import CALLS
from element_cases import cases, program
from random_programs import random_program

import shlo_jit
from shlo_jit.ir.attributes import (
    ConvDims,
    Dense,
    DenseArray,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    StructAttr,
    TypeAttr,
)
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk
from shlo_jit.ir.types import DTYPES, FunctionType, QuantizedType, TensorType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.attribute_kinds import ENUMS
from shlo_jit.ops.numeric import convert

NUMBERS = [0, -1, 1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100, 65536, 2**31 - 1, 2**31, 2**62, -(2**63)]
SMALL = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]
ELEMENTS = [d for name, d in DTYPES.items() if name != "index"]
Change = Callable[["Mutator"], None]


# Bases


@functools.cache
def bases() -> tuple[str, ...]:
    """Returns programs of every op and known custom call that return the results of their ops."""
    from mutate_ops import programs

    texts = [call.text() for call in CALLS.values()]
    for name in ("f32", "i32", "i8", "bf16", "complex<f32>", "i1", "f64", "ui16", "f8E4M3FN", "i4"):
        texts += [program([case], DTYPES[name]) for case in cases(DTYPES[name])]
    texts += [text for text in programs() if text.count("\n") < 60]
    texts += [corpus.HEADER + snippet + corpus.FOOTER for snippet in corpus.SNIPPETS]
    texts += [random_program(seed, 6)[0] for seed in range(200)]
    found = []
    for text in texts:
        try:
            module = shlo_jit.parse(text)
            _return_everything(module)
            found.append(str(module))
        except (shlo_jit.StableHLOError, AssertionError, IndexError):
            continue  # a text that is useful only for the parser
    return tuple(dict.fromkeys(found))


def _entry(module: Module) -> Op:
    """Returns the function that is run, renamed to the entry point."""
    function = next(iter(module.functions()))
    main = module.function("main")
    if main is None:
        function.attributes["sym_name"] = "main"
    return main or function


def _return_everything(module: Module) -> None:
    """Makes a function without results return the results of all its ops."""
    function = _entry(module)
    block = function.block()
    if not block.terminator.operands:
        results = [v for op in block.ops[:-1] for v in op.results]
        block.ops[-1] = Op("func.return", results, [])
        function.attributes.pop("res_attrs", None)
    _update(function)


def _update(function: Op) -> None:
    """Updates the type of a function from its block."""
    block = function.block()
    inputs = tuple(a.type for a in block.arguments)
    results = tuple(v.type for v in block.terminator.operands)
    function.attributes["function_type"] = TypeAttr(FunctionType(inputs, results))


# Mutants


MANY_OPS = 10_000
"""Number of ops that no finite mutant exceeds."""


def mutant(texts: tuple[str, ...], number: int) -> str:
    """Returns the mutant with this number; for a program that cannot be printed, an invalid text of one line."""
    rng = random.Random(number)
    module = shlo_jit.parse(rng.choice(texts))
    Mutator(module, rng).run()
    if sum(1 for _ in islice(walk(module.body), MANY_OPS)) == MANY_OPS:
        return "cannot be printed"  # a region contains itself
    try:
        return str(module)
    except (AttributeError, AssertionError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        return "cannot be printed"


class Mutator:
    """Changes a module in place."""

    def __init__(self, module: Module, rng: random.Random):
        self.module = module
        self.rng = rng
        self.ops = [op for op in walk(module.body) if op.name != "func.func"]
        self.functions = list(module.functions())
        blocks = [b for op in [*self.functions, *self.ops] for r in op.regions for b in r.blocks]
        self.values = [v for b in blocks for v in b.arguments] + [v for op in self.ops for v in op.results]

    def run(self) -> None:
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            self.rng.choice(CHANGES)(self)
        if self.rng.random() < 0.95:  # otherwise it is wrong
            for function in self.functions:
                if function.regions and function.regions[0].blocks:
                    _update(function)

    # ------------------------------------------------------------------ types
    def type(self) -> None:
        """Changes the type of one value, or of all values that have it."""
        if not self.values:
            return
        value = self.rng.choice(self.values)
        old = value.type
        new = self.other_type(old)
        alike = [v for v in self.values if v.type == old] if self.rng.random() < 0.6 else [value]
        for v in alike:
            v.type = new
        if new is not old:
            self.constants()

    def element(self) -> None:
        """Replaces an element type everywhere."""
        used = [v.type.dtype for v in self.values if isinstance(v.type, TensorType)]
        if not used:
            return
        old, new = self.rng.choice(used), self.rng.choice(ELEMENTS)
        self.each_type(lambda t: dataclasses.replace(t, dtype=new) if t.dtype == old else t)

    def extent(self) -> None:
        """Replaces a number in all shapes and attributes."""
        used = [n for v in self.values if isinstance(v.type, TensorType) for n in v.type.shape or () if n is not None]
        if not used:
            return
        old, new = self.rng.choice(used), self.rng.choice(SMALL)
        self.each_type(
            lambda t: dataclasses.replace(t, shape=t.shape and tuple(new if n == old else n for n in t.shape))
        )
        everywhere = self.rng.random() < 0.7
        for op in self.ops:
            for name, attr in op.attributes.items():
                if everywhere and name != "value":
                    op.attributes[name] = _replaced(attr, old, new)

    def each_type(self, change: Callable[[TensorType], TensorType]) -> None:
        for v in self.values:
            if isinstance(v.type, TensorType):
                v.type = change(v.type)
        self.constants()

    def constants(self) -> None:
        """Adapts the values of constants to their types."""
        for op in self.ops:
            value = op.attributes.get("value")
            t = op.results[0].type if len(op.results) == 1 else None
            if not isinstance(value, Dense) or not isinstance(t, TensorType) or not t.is_static or t.size > 1 << 20:
                continue
            if value.type != t and not isinstance(t.dtype, QuantizedType):
                flat = convert(value.array.reshape(-1), t.storage.numpy)
                new = np.resize(flat, t.extents) if flat.size else np.zeros(t.extents, t.storage.numpy)
                op.attributes["value"] = Dense(tensor(t.shape, t.dtype), new)

    def other_type(self, t: Type) -> Type:
        rng = self.rng
        if not isinstance(t, TensorType) or t.shape is None or rng.random() < 0.05:
            return rng.choice(self.values).type
        shape = list(t.shape)
        kind = rng.choice("element element extent extent extent rank any".split())
        if kind == "element":
            return TensorType(t.shape, rng.choice(ELEMENTS), t.bounds)
        if kind == "extent" and shape:
            shape[rng.randrange(len(shape))] = rng.choice([*SMALL, *SMALL, *SMALL, None, 1000, 2**31, 2**62])
        elif kind == "rank":
            at = rng.randrange(len(shape) + 1)
            if rng.random() < 0.5:
                shape.insert(at, rng.choice(SMALL))
            else:
                del shape[at : at + 1]
        else:
            rng.shuffle(shape)
        return TensorType(tuple(shape), t.dtype)

    # ------------------------------------------------------------------ attributes
    def attribute(self) -> None:
        ops = [op for op in self.ops if any(name != "value" for name in op.attributes)]
        if ops:
            op = self.rng.choice(ops)
            name = self.rng.choice([name for name in op.attributes if name != "value"])
            op.attributes[name] = self.other_attribute(op.attributes[name])

    def drop_attribute(self) -> None:
        ops = [op for op in self.ops if op.attributes]
        if ops:
            op = self.rng.choice(ops)
            del op.attributes[self.rng.choice(list(op.attributes))]

    def other_number(self, n: int) -> int:
        return self.rng.choice([n + 1, n - 1, -n, 2 * n, self.rng.choice(SMALL), self.rng.choice(NUMBERS)])

    def other_attribute(self, attr: Any) -> Any:
        rng = self.rng
        match attr:
            case bool() | int():
                return not attr if isinstance(attr, bool) else self.other_number(attr)
            case str():
                return rng.choice([attr + "x", "", *[call.target for call in CALLS.values()]])
            case IntegerAttr():
                if rng.random() < 0.1:
                    return IntegerAttr(attr.value, rng.choice(["i1", "i8", "i32", "i64", "ui8"]))
                return IntegerAttr(self.other_number(attr.value), attr.type)
            case FloatAttr():
                return FloatAttr(rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")]), attr.type)
            case DenseArray() if attr.dtype == "i1":
                return DenseArray("i1", tuple(self.other_list([*attr.values], lambda v: not v)))
            case DenseArray():
                return DenseArray(attr.dtype, tuple(self.other_list([*attr.values], self.other_number)))
            case Dense():
                return self.other_dense(attr)
            case EnumAttr():
                return EnumAttr(attr.dialect, attr.mnemonic, rng.choice(ENUMS.get(attr.mnemonic, (attr.value,))))
            case StructAttr() if attr.fields:
                i = rng.randrange(len(attr.fields))
                name, value = attr.fields[i]
                return StructAttr(
                    attr.name, (*attr.fields[:i], (name, self.other_attribute(value)), *attr.fields[i + 1 :])
                )
            case DictAttr() if attr.items:
                i = rng.randrange(len(attr.items))
                if rng.random() < 0.1:
                    return DictAttr((*attr.items[:i], *attr.items[i + 1 :]))
                name, value = attr.items[i]
                return DictAttr((*attr.items[:i], (name, self.other_attribute(value)), *attr.items[i + 1 :]))
            case ConvDims():
                name = rng.choice([f.name for f in dataclasses.fields(attr)])
                return dataclasses.replace(attr, **{name: self.other_attribute(getattr(attr, name))})
            case tuple():
                return tuple(self.other_list(list(attr), self.other_attribute))
        return attr

    def other_list(self, items: list[Any], change: Callable[[Any], Any]) -> list[Any]:
        if not items:
            return [0]
        i = self.rng.randrange(len(items))
        kind = self.rng.choice("change change change change drop double swap".split())
        if kind == "change":
            items[i] = change(items[i])
        elif kind == "drop":
            del items[i]
        elif kind == "double":
            items.insert(i, items[i])
        else:
            self.rng.shuffle(items)
        return items

    def other_dense(self, attr: Dense) -> Dense:
        if attr.type.shape is None or attr.type.size > 4096 or isinstance(attr.type.dtype, QuantizedType):
            return attr
        array = np.array(attr.array)
        if not array.size or self.rng.random() < 0.1:
            shape = tuple(self.rng.choice(SMALL[:6]) for _ in range(array.ndim))
            return Dense(tensor(shape, attr.type.dtype), np.zeros(shape, array.dtype))
        at = self.rng.randrange(array.size)
        old = array.reshape(-1)[at]
        if array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            array.reshape(-1)[at] = min(max(self.other_number(int(old)), info.min), info.max)
        elif array.dtype.kind == "b":
            array.reshape(-1)[at] = not old
        return Dense(attr.type, array)

    # ------------------------------------------------------------------ ops
    def constant(self) -> None:
        ops = [op for op in self.ops if isinstance(op.attributes.get("value"), Dense)]
        if ops:
            op = self.rng.choice(ops)
            op.attributes["value"] = self.other_dense(op.attributes["value"])

    def operands(self) -> None:
        ops = [op for op in self.ops if op.operands]
        if not ops:
            return
        op, rng = self.rng.choice(ops), self.rng
        i = rng.randrange(len(op.operands))
        kind = rng.choice("swap swap drop double other other alike alike".split())
        if kind == "swap":
            j = rng.randrange(len(op.operands))
            op.operands[i], op.operands[j] = op.operands[j], op.operands[i]
        elif kind == "drop":
            del op.operands[i]
        elif kind == "double":
            op.operands.insert(i, op.operands[i])
        else:
            alike = [v for v in self.values if kind == "other" or v.type == op.operands[i].type]
            op.operands[i] = rng.choice(alike)

    def results(self) -> None:
        ops = [op for op in self.ops if op.results]
        if ops:
            op = self.rng.choice(ops)
            op.results.append(Value(op.results[-1].type, op, len(op.results)))

    def regions(self) -> None:
        ops = [op for op in self.ops if op.regions]
        if not ops:
            return
        op, rng = self.rng.choice(ops), self.rng
        kind = rng.choice("shuffle drop other return".split())
        if kind == "shuffle":
            rng.shuffle(op.regions)
        elif kind == "drop":
            op.regions.pop()
        elif kind == "other":
            op.regions = rng.choice(ops).regions
        else:
            self.returned(op.regions)

    def returned(self, regions: list[Region]) -> None:
        """Returns another of its values from a region."""
        blocks: list[Block] = [b for r in regions for b in r.blocks if b.ops and b.ops[-1].operands]
        if blocks:
            block = self.rng.choice(blocks)
            inside = [*block.arguments, *[v for op in block.ops for v in op.results]]
            last = block.ops[-1].operands
            last[self.rng.randrange(len(last))] = self.rng.choice(inside or last)

    def name(self) -> None:
        """Changes an op to another one with the same number of operands."""
        if self.ops:
            op = self.rng.choice(self.ops)
            alike = [
                n for n in OPS if len(OPS[n].operands) == len(op.operands) and "." in n and n[:4] in ("stab", "chlo")
            ]
            op.name = self.rng.choice(alike or [op.name])

    def target(self) -> None:
        calls = [op for op in self.ops if "call_target_name" in op.attributes]
        if calls:
            self.rng.choice(calls).attributes["call_target_name"] = self.rng.choice(list(CALLS.values())).target

    def drop(self) -> None:
        """Swaps an op with the previous one, so that a value may be used before its definition."""
        blocks = [b for op in [*self.functions, *self.ops] for r in op.regions for b in r.blocks if len(b.ops) > 1]
        if blocks:
            block = self.rng.choice(blocks)
            i = self.rng.randrange(len(block.ops) - 1)
            block.ops[i], block.ops[i - 1] = block.ops[i - 1], block.ops[i]


CHANGES: list[Change] = [
    *[Mutator.type] * 6, *[Mutator.element] * 4, *[Mutator.extent] * 6, *[Mutator.attribute] * 8, Mutator.drop_attribute,
    *[Mutator.constant] * 2, *[Mutator.operands] * 4, Mutator.results, *[Mutator.regions] * 2, *[Mutator.name] * 2,
    Mutator.target, Mutator.drop,
]  # fmt: skip
"""Changes, repeated by frequency."""


def _replaced(attr: Any, old: int, new: int) -> Any:
    """Returns an attribute with a number replaced in its lists."""
    match attr:
        case DenseArray() if attr.dtype == "i64":
            return DenseArray("i64", tuple(new if v == old else v for v in attr.values))
        case Dense() if attr.type.dtype == DTYPES["i64"] and attr.type.size <= 4096:
            return Dense(attr.type, np.where(attr.array == old, new, attr.array))
    return attr
