"""Parser and verifier give a documented answer for any damaged text, quickly and in little memory.

A sample always runs; `pytest -m slow tests/fuzz` runs 200,000, as does `python tests/fuzz/run.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from mutate import BRACKETS, check, damaged
from mutate_ops import damaged_op, programs

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))

import corpus

SEEDS = Path(__file__).parent / "seeds"
TEXTS = [text for text in corpus.own_texts() if text]
DEEP = 100_000


def inside(text: str) -> str:
    """Returns a program with a line inside a function."""
    return corpus.HEADER + text + corpus.FOOTER


@pytest.mark.parametrize("part", range(8))
def test_a_sample_of_damaged_texts(part: int) -> None:
    answers = Counter(check(damaged(TEXTS, number)) for number in range(part * 250, part * 250 + 250))
    assert {"valid", "refused"} <= set(answers) <= {"valid", "invalid", "refused"}


@pytest.mark.parametrize("part", range(4))
def test_a_sample_of_damaged_ops(part: int) -> None:
    answers = Counter(check(damaged_op(programs(), number)) for number in range(part * 500, part * 500 + 500))
    assert set(answers) == {"valid", "refused", "invalid"}


@pytest.mark.parametrize("path", sorted(SEEDS.iterdir()), ids=lambda path: path.name)
def test_what_was_found_before(path: Path) -> None:
    check(path.read_bytes())


@pytest.mark.parametrize("bracket", BRACKETS)
@pytest.mark.parametrize("place", ["{}", "%0 = stablehlo.add %x, %y : {}", "%0 = stablehlo.constant dense<{}> : tensor<3xf32>",
                                   '"a.b"(%x) [{}'])  # fmt: skip
@pytest.mark.sampled(5)
def test_deep_nesting(bracket: str, place: str) -> None:
    nested = bracket * DEEP
    assert check(nested if place == "{}" else inside(place.replace("{}", nested))) == "refused"


HUGE = "1000000000000000000"
LARGE = {
    "a constant": f"%0 = stablehlo.constant dense<1> : tensor<{HUGE}xi8>",
    "reshape": f"%0 = stablehlo.constant dense<1> : tensor<1000000x1000000x1000000xi8>\n"
    f"%1 = stablehlo.reshape %0 : (tensor<1000000x1000000x1000000xi8>) -> tensor<{HUGE}xi8>",
    "a shape": f"%0 = stablehlo.constant dense<1> : tensor<{HUGE}xi64>\n"
    f"%1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<{HUGE}xi64>) -> tensor<?xi64>",
    "padding": '%0 = "stablehlo.pad"(%x, %s) {edge_padding_low = dense<1> : tensor<1000000000000xi64>, edge_padding_high = '
    "array<i64: 0>, interior_padding = array<i64: 0>} : (tensor<3xf32>, tensor<f32>) -> tensor<4xf32>",
    "groups": '%0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<0> : '
    "tensor<1000000x1000000xi64>} : (tensor<3xf32>) -> tensor<3xf32>",
    "pairs": '%0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<0> : tensor<1000000000000x2xi64>} : '
    "(tensor<3xf32>) -> tensor<3xf32>",
    "a layout": '%0 = "stablehlo.custom_call"(%x) {call_target_name = "f", operand_layouts = [dense<0> : '
    "tensor<1000000000000xindex>], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<3xf32>) -> tensor<3xf32>",
    "results": '%0:1000000000 = "a.b"(%x) : (tensor<3xf32>) -> ()',
    "rank": f"%0 = stablehlo.constant dense<1> : tensor<{'1x' * DEEP}i8>",
    "digits": f"%0 = stablehlo.constant dense<{'9' * DEEP}> : tensor<i64>",
    "scales": f'%0 = "a.b"() : () -> tensor<2x!quant.uniform<i8:f32:0, {{{"0.5," * DEEP}0.5}}>>',
    "dimensions": f"%0 = stablehlo.transpose %x, dims = [{'0, ' * DEEP}0] : (tensor<3xf32>) -> tensor<3xf32>",
    "a bit width": '"a.b"() {a = 1 : i999999999999} : () -> ()',
}


@pytest.mark.parametrize("name", LARGE)
def test_astronomic_numbers(name: str) -> None:
    check(inside(LARGE[name]))


MANY = {
    "functions": "".join(f"func.func @f{i}() {{ func.call @f{i + 1}() : () -> () return }}\n" for i in range(5000)),
    "symbols": "func.func @f() { return }\n" * 5000,
    "unknown callees": "func.func @f() {\n" + "".join(f"func.call @g{i}() : () -> ()\n" for i in range(5000)) + "return }",
    "unknown ops": "func.func @f() {\n" + "".join(f'"stablehlo.a{i}"() : () -> ()\n' for i in range(5000)) + "return }",
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_many_errors(name: str) -> None:
    assert check(MANY[name]) == "invalid"


@pytest.mark.parametrize("data", [b"\xff", b"module {}\n\xc3(", b"module { // \x80\n}", b'"\xed\xa0\x80"'])
def test_bytes_that_are_no_text(data: bytes) -> None:
    assert check(data) == "refused"


@pytest.mark.slow
def test_200000_damaged_texts() -> None:
    from run import run

    answers, wrong = run(200_000)
    assert not wrong
    assert answers.total() == 200_000
