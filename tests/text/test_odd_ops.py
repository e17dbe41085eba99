"""Any module that parses, valid or not, is printed as text that parses to an equal one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import corpus
import pytest

from shlo_jit.errors import StableHLOError
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk
from shlo_jit.text.parser import parse_module
from shlo_jit.text.printer import Printer

ODD = [
    '"stablehlo.add"(%x) : (tensor<3xf32>) -> tensor<3xf32>',
    '"stablehlo.add"(%x, %x, %x) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>',
    '"stablehlo.add"() : () -> tensor<3xf32>',
    '%0:2 = "stablehlo.negate"(%x) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)',
    '"stablehlo.negate"(%x) : (tensor<3xf32>) -> ()',
    '"stablehlo.compare"(%x, %x) {comparison_direction = #stablehlo<precision HIGH>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>',
    '"stablehlo.dot_general"(%x, %x) {dot_dimension_numbers = #stablehlo.scatter<>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>',
    '"stablehlo.dot_general"(%x, %x) {dot_dimension_numbers = #stablehlo.dot<>, algorithm = #stablehlo.gather<>} '
    ": (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>",
    '"stablehlo.transpose"(%x) {permutation = array<i64: 18446744073709551615>} : (tensor<3xf32>) -> tensor<3xf32>',
    '"stablehlo.iota"() {iota_dimension = 9223372036854775808 : i64} : () -> tensor<3xf32>',
    '"stablehlo.tuple"(%x) : (tensor<3xf32>) -> ()',
    '"stablehlo.complex"(%x, %x) : (tensor<3xf32>, tensor<3xf32>) -> ()',
    '"chlo.constant"() {value = dense<1.0> : tensor<f32>} : () -> ()',
    '"stablehlo.while"(%x) : (tensor<3xf32>) -> tensor<3xf32>',
    '"func.func"() <{sym_name = "g", function_type = () -> ()}> : () -> ()',
    '"func.func"() <{sym_name = "g", function_type = () -> (), arg_attrs = "x"}> ({\n"func.return"() : () -> ()\n}) : () -> ()',
]  # fmt: skip


def round_trips(module: Module) -> None:
    text = str(module)
    again = parse_module(text)
    assert again == module, text
    assert str(again) == text


@pytest.mark.parametrize("line", ODD)
def test_odd_counts_and_attributes(line: str) -> None:
    round_trips(parse_module(f"func.func @f(%x: tensor<3xf32>) {{\n{line}\nfunc.return\n}}"))


def test_numbers_are_kept_in_their_bits() -> None:
    """As in MLIR, a signless type has one number per bit pattern."""

    def values(name: str, *numbers: int) -> list[Module]:
        head = f'func.func @f() {{\n"a.b"() {{x = %d : {name}, y = array<{name}: %d>}} : () -> ()\nfunc.return\n}}'
        return [parse_module(head % (n, n)) for n in numbers]

    assert len({str(m) for m in values("i8", 255, -1)}) == 1
    assert len({str(m) for m in values("ui8", 255, 127)}) == 2


def test_an_index_that_does_not_fit() -> None:
    with pytest.raises(StableHLOError, match="32 bits"):
        parse_module(
            "func.func @f(%x: tuple<tensor<f32>>) {\n%0 = stablehlo.get_tuple_element %x[4294967296] : (tuple<tensor<f32>>) -> tensor<f32>\nreturn\n}"
        )


class Generic(Printer):
    """Prints every op in its generic form."""

    def _pretty(self, op: Op, name: str) -> str | None:
        return None


def changed(op: Op, rng: random.Random, others: list[Op]) -> None:
    """Changes one property of an op in place."""
    other = rng.choice(others)
    types = [v.type for o in others for v in o.results]
    kind = rng.randrange(8)
    if kind == 0:
        op.operands = op.operands[:-1]
    elif kind == 1:
        op.operands = op.operands + op.operands[:1]
    elif kind == 2:
        op.results = [*op.results, Value(rng.choice(types), op, len(op.results))]
    elif kind == 3 and op.attributes:
        op.attributes.pop(rng.choice(list(op.attributes)))
    elif kind == 4 and op.attributes and other.attributes:
        op.attributes[rng.choice(list(op.attributes))] = rng.choice(list(other.attributes.values()))
    elif kind == 5:
        op.regions = op.regions[:-1]
    elif kind == 6:
        op.regions = [*op.regions, Region([Block()] if rng.random() < 0.5 else [])]
    elif op.results:
        rng.choice(op.results).type = rng.choice(types)


def modules() -> Iterator[Module]:
    """Yields snippets with one or two changes that still parse."""
    for number, snippet in enumerate(corpus.SNIPPETS):
        for turn in range(8):
            rng = random.Random(1000 * turn + number)
            module = parse_module(corpus.HEADER + snippet + corpus.FOOTER)
            ops = [op for op in walk(module.body) if op.name != "func.func"]
            others = [*ops, *walk(parse_module(corpus.HEADER + rng.choice(corpus.SNIPPETS) + corpus.FOOTER).body)]
            for _ in range(rng.choice([1, 1, 2])):
                changed(rng.choice(ops), rng, others)
            try:
                yield parse_module(Generic().op(module.op))
            except StableHLOError:  # removed values, numbers out of range: these have no text
                continue


def test_changed_ops() -> None:
    found = 0
    for module in modules():
        round_trips(module)
        found += 1
    assert found > 300
