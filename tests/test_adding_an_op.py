"""The page on adding ops, done: its code makes ops that parse, verify, fuse and compute what they mean."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import sys
import types
from pathlib import Path

import numpy as np

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.lower.elements.reducers import reducer_of
from shlo_jit.reference.interpreter import evaluate

PAGE = Path(__file__).parents[1] / "docs" / "adding_an_op.md"
FLOATS = ("f8E5M2", "f8E4M3FN", "bf16", "f16", "f32", "f64")
INTEGERS = ("i1", "i4", "i8", "ui8", "i32", "ui64")


def add_the_ops() -> list[str]:
    """Runs the page's code where it says it belongs; its programs."""
    text = PAGE.read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        name = re.match(r"# (shlo_jit/\S+)\.py\n", code)
        assert name is not None, code
        place = name[1].replace("/", ".").removesuffix(".__init__")
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError:  # one that the page adds
            module = sys.modules[place] = types.ModuleType(place)
        exec(code, vars(module))
    return re.findall(r"```mlir\n(.*?)```", text, re.S)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Of a small range, every special number of a small type among them."""
    d, rng = DTYPES[dtype], np.random.default_rng(5)
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if d.is_integer:
        return rng.integers(0, 256, shape, np.uint8).astype(np.int8).astype(d.numpy)
    return (rng.standard_normal(shape) * 4).astype(d.numpy)


def same(program: str, dtype: str) -> list[str]:
    """Asserts that the compiled program has the bits of the reference; the titles of its steps."""
    text = program.replace("E>", f"{dtype}>")
    exe = shlo_jit.compile(text, cache=False)
    arguments = [numbers(i.shape, dtype) for i in exe.inputs]
    (want,) = evaluate(shlo_jit.parse(text), *arguments)
    np.testing.assert_array_equal(np.asarray(exe(*arguments)).view(np.uint8), np.asarray(want).view(np.uint8), text)
    return re.findall(r"^ +\d+ (\w+)", exe.text("plan"), re.M)


def elementwise() -> None:
    softsign = add_the_ops()[0]
    for dtype in FLOATS:
        assert same(softsign, dtype) == ["loop"], dtype
    wrong = '%0 = "chlo.softsign"(%x) : (tensor<4xf32>) -> tensor<5xf32>\nreturn'
    (found,) = shlo_jit.verify(f"func.func @main(%x: tensor<4xf32>) {{\n{wrong}\n}}")
    assert (found.op, found.label) == ("chlo.softsign", "C1") and found.rule


def reducer() -> None:
    xnor = add_the_ops()[1]
    for dtype in INTEGERS:
        assert same(xnor, dtype) == ["reduce"], dtype
        function = shlo_jit.parse(xnor.replace("E>", f"{dtype}>")).function("main")
        assert function is not None
        simple = reducer_of(function.block().ops[0]).simple
        assert simple is not None and simple.name == "stablehlo.xnor"
    assert "xor <" in shlo_jit.compile(xnor.replace("E>", "i32>"), cache=False).text("llvm")


def index_map() -> None:
    diagonal = add_the_ops()[2]
    for dtype in (*FLOATS, *INTEGERS):
        assert same(diagonal, dtype) == ["loop"], dtype


def kernel() -> None:
    trace = add_the_ops()[3]
    x = np.arange(-4, 5, dtype=np.float32).reshape(3, 3)
    assert shlo_jit.compile(trace, cache=False)(x) == 0


def in_a_process_of_its_own(check) -> None:
    """New ops stay in the process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(check)


def test_an_elementwise_op() -> None:
    in_a_process_of_its_own(elementwise)


def test_a_reducer() -> None:
    in_a_process_of_its_own(reducer)


def test_an_index_map() -> None:
    in_a_process_of_its_own(index_map)


def test_a_kernel() -> None:
    in_a_process_of_its_own(kernel)
