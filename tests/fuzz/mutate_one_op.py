"""Mutants of small programs with all ops equally frequent: a deterministic function from a number to a program.

    text = op_text(op_mutant(op_bases(), number))

Programs of the table of ops are changed as in `mutate_programs.py`. In addition, there are programs with shardings,
whose attributes are texts, and with generators of random bits.
"""

from __future__ import annotations

import functools
import random
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

from mutate_programs import MANY_OPS, Mutator, bases

import shlo_jit
from shlo_jit.ir.attributes import DictAttr, OpaqueAttr
from shlo_jit.ir.core import Module, walk
from shlo_jit.ops import OPS
from shlo_jit.shrink.copies import copied
from shlo_jit.verify.verifier import verify_module

MOST_LINES = 40
"""Maximum number of lines of a small program."""

MESH = '  sdy.mesh @mesh = <["x"=2, "y"=2]>\n'
PARTS = """  func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
      manual_axes={"x"} (%a: tensor<2x4xf32>) {
      %1 = stablehlo.negate %a : tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>
    } : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
"""
ANNOTATED = """  func.func @main(%x: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y", ?}]>})
      -> (tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
    %0 = stablehlo.add %x, %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {?}]>]>} : tensor<4x4xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"x", "y"}, {}]> : tensor<4x4xf32>
    return %1 : tensor<4x4xf32>
  }
"""
CUSTOM_CALLS = """  func.func @main(%x: tensor<4x4xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> tensor<4x4xf32> {
    %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2,1]<=[2]}"}
      : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"}
      : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.negate %1 : tensor<2x4xf32>
    %3 = stablehlo.custom_call @SPMDShardToFullShape(%2) {mhlo.sharding = "{devices=[2,1]<=[2]}"}
      : (tensor<2x4xf32>) -> tensor<4x4xf32>
    return %3 : tensor<4x4xf32>
  }
"""
REPLICATED = """  func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
"""


def _grid(partitions: int, body: str) -> str:
    return f"module attributes {{mhlo.num_replicas = 1 : i32, mhlo.num_partitions = {partitions} : i32}} {{\n{body}}}"


SHARDED = (
    _grid(4, MESH + PARTS), _grid(4, MESH + ANNOTATED), _grid(1, MESH + ANNOTATED), _grid(2, CUSTOM_CALLS),
    _grid(2, REPLICATED), _grid(4, MESH + PARTS.replace('"x"', '"y"')),
)  # fmt: skip


def _bits(algorithm: str, state: str, out: str) -> str:
    return f"""func.func @main(%s: tensor<{state}>) -> (tensor<{state}>, tensor<{out}>) {{
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : (tensor<{state}>) -> (tensor<{state}>, tensor<{out}>)
  return %0, %1 : tensor<{state}>, tensor<{out}>
}}"""


GENERATORS = tuple(
    _bits(algorithm, state, out)
    for algorithm in ("DEFAULT", "THREE_FRY", "PHILOX")
    for state, out in (("2xui64", "3x2xui32"), ("3xui64", "5xui64"), ("4xui32", "3xf16"))
)


@functools.cache
def op_bases() -> Mapping[str, tuple[str, ...]]:
    """Returns small programs by the name of an op they contain; those with shardings have the name `sharded`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for text in bases():
        if text.count("\n") < MOST_LINES:
            for name in {op.name for op in walk(shlo_jit.parse(text).body)} & OPS.keys():
                found[name].append(text)
    found["stablehlo.rng_bit_generator"] += GENERATORS
    found["sharded"] += SHARDED
    return {name: tuple(texts) for name, texts in sorted(found.items())}


class OpMutator(Mutator):
    """A mutator that also changes texts in attributes."""

    def texts(self) -> None:
        """Changes a number, an axis or a bracket in an attribute that is a text."""
        places = [
            (owner.attributes, name)
            for owner in [self.module.op, *self.functions, *self.ops]
            for name, value in owner.attributes.items()
            if name != "sym_name" and _has_text(value)
        ]
        if places:
            attributes, name = self.rng.choice(places)
            attributes[name] = self.other_text(attributes[name])

    def other_text(self, value: Any) -> Any:
        match value:
            case OpaqueAttr():
                return OpaqueAttr(self.damaged(value.text))
            case str():
                return self.damaged(value)
            case DictAttr():
                i = self.rng.choice([i for i, (_, inner) in enumerate(value.items) if _has_text(inner)])
                name, inner = value.items[i]
                return DictAttr((*value.items[:i], (name, self.other_text(inner)), *value.items[i + 1 :]))
        i = self.rng.choice([i for i, inner in enumerate(value) if _has_text(inner)])
        return (*value[:i], self.other_text(value[i]), *value[i + 1 :])

    def damaged(self, text: str) -> str:
        tokens = re.findall(r'"\w+"|\w+|.', text)
        if not tokens:
            return text
        i, kind = self.rng.randrange(len(tokens)), self.rng.choice("other other drop double swap".split())
        numbers = [k for k, token in enumerate(tokens) if token.isdecimal() or token[:1] == '"']
        if kind == "other" and numbers:
            i = self.rng.choice(numbers)
            tokens[i] = self.rng.choice(['"x"', '"y"', '"z"'] if tokens[i][0] == '"' else ["0", "1", "2", "3", "-1"])
        elif kind == "drop":
            del tokens[i]
        elif kind == "double":
            tokens.insert(i, tokens[i])
        else:
            k = self.rng.randrange(len(tokens))
            tokens[i], tokens[k] = tokens[k], tokens[i]
        return "".join(tokens)

    def run(self) -> None:
        if self.rng.random() < 0.1:
            self.texts()
        super().run()


def _has_text(value: Any) -> bool:
    match value:
        case OpaqueAttr() | str():
            return True
        case DictAttr():
            return any(_has_text(inner) for _, inner in value.items)
        case tuple():
            return any(map(_has_text, value))
    return False


@functools.cache
def _parsed(text: str) -> Module:
    return shlo_jit.parse(text)


def op_mutant(texts: Mapping[str, tuple[str, ...]], number: int) -> Module | None:
    """Returns the mutant with this number; None if a region contains itself."""
    rng = random.Random(number)
    name = rng.choice(list(texts))
    module = copied(_parsed(rng.choice(texts[name])))
    mutator = OpMutator(module, rng)
    if name == "sharded" and rng.random() < 0.8:
        mutator.texts()
    else:
        mutator.run()
    return module if sum(1 for _ in islice(walk(module.body), MANY_OPS)) < MANY_OPS else None


UNPRINTABLE = AttributeError, AssertionError, IndexError, KeyError, RecursionError, TypeError, ValueError
"""Errors that may be raised if attributes could not occur in any text."""


def is_refused(module: Module) -> bool:
    """Whether the verifier rejects the program in memory, which is faster than via its text."""
    try:
        return bool(verify_module(module))
    except UNPRINTABLE:
        return False


def op_text(module: Module | None) -> str:
    """Returns the program as text; for a program that cannot be printed, an invalid text of one line."""
    try:
        return "cannot be printed" if module is None else str(module)
    except UNPRINTABLE:
        return "cannot be printed"
