"""Modules and functions: names, calls between them, arguments, results; uses of the builder's Module."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.ir.core import Module
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.ir.types import tensor

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def small() -> Module:
    with b.function("main", x="f32[2,3]", n="s32[]") as f:
        x, n = f
        f.returns(x * 2.0, count=n + 1)
    return f.module


def test_a_module_is_one_like_any_other(tmp_path: Path) -> None:
    module = small()
    assert isinstance(module, Module) and shlo_jit.verify(module) == []
    assert shlo_jit.parse(str(module)) == module
    assert shlo_jit.parse(module.serialize()) == module
    exe = shlo_jit.compile(module)
    assert [p.name for p in exe.inputs] == ["x", "n"] and [p.name for p in exe.outputs] == ["", "count"]
    doubled, count = exe(n=np.int32(4), x=X)
    np.testing.assert_array_equal(doubled, 2 * X)
    assert count == 5
    shlo_jit.export(module, tmp_path / "small.o")
    assert (tmp_path / "small.o").stat().st_size


def test_places_do_not_change_what_the_cache_knows() -> None:
    """The same program on another line has the same key."""
    from shlo_jit.text.normal_form import normal

    def one(x: Any) -> Any:
        return x + 1.0

    def other(x: Any) -> Any:
        return x + 1.0

    other.__name__ = "one"
    first, second = (shlo_jit.jit(f).lower(X) for f in (one, other))
    assert str(first) != str(second) and normal(str(first)) == normal(str(second))
    assert first == second


def test_functions_of_a_module_call_each_other() -> None:
    with b.module("model") as m:
        with b.function("square", x="f32[2,3]") as square:
            square.returns(square.x * square.x)
        with b.function("both", "f32[2,3]", "f32[2,3]") as both:
            both.returns(b.call(square, both.arg0), both.arg0 - both.arg1)
        with b.function("main", x="f32[2,3]") as f:
            squared, rest = b.call(both, f.x, np.ones((2, 3), np.float32))
            f.returns(squared + rest)
    text = str(m.module)
    assert "module @model" in text and "call @square" in text and str(m) == text
    np.testing.assert_array_equal(shlo_jit.compile(m.module)(X), X * X + X - 1)
    np.testing.assert_array_equal(shlo_jit.compile(m.module, "square")(X), X * X)


def test_functions_of_python_are_called_once_for_each_types() -> None:
    traced = []

    def scale(tree: dict[str, Any], by: Any) -> dict[str, Any]:
        traced.append(by)
        return {"scaled": tree["x"] * by, "by": by}

    with b.function("main", x="f32[2]", y="f32[3]", s="f32[]") as f:
        x, y, s = f
        found = [b.call(scale, {"x": v}, s)["scaled"] for v in (x, x + 1.0, y)]
        f.returns(*found)
    assert len(traced) == 2
    text = str(f.module)
    assert "func.func private @scale(" in text and "func.func private @scale_1(" in text
    got = shlo_jit.compile(f.module)(X[0, :2], X[1], np.float32(3))
    for a, c in zip(got, (3 * X[0, :2], 3 * (X[0, :2] + 1), 3 * X[1]), strict=True):
        np.testing.assert_array_equal(a, c)


def test_a_function_within_a_function_is_part_of_its_module() -> None:
    with b.function("main", x="f32[2]") as f:
        with b.function("inner", y="f32[2]") as g:
            g.returns(-g.y)
        f.returns(b.call(g, f.x))
    assert [op.attributes["sym_name"] for op in f.module.functions()] == ["inner", "main"]
    with pytest.raises(b.BuilderError, match="module"):
        g.module  # noqa: B018


def test_call_of_a_function_with_other_types() -> None:
    with b.module() as m:
        with b.function("f", x="f32[2]") as f:
            f.returns(f.x)
        for arguments, says in (
            ((np.ones(3, np.float32),), "f32.2..*f32.3."),
            ((), "1 arguments.*got 0"),
        ):
            with pytest.raises(b.BuilderError, match=says), b.function("main") as g:
                g.returns(b.call(f, *arguments))
        with b.function("main", y="f32[2]") as g:
            g.returns(b.call(f, g.y))
    with pytest.raises(b.BuilderError, match="another module"), b.function("main", z="f32[2]") as h:
        h.returns(b.call(f, h.z))
    assert len(list(m.module.functions())) == 2


def test_names() -> None:
    with b.module():
        with b.function("f") as f:
            f.returns()
        with pytest.raises(b.BuilderError, match="function f"):
            b.function("f")
    with pytest.raises(b.BuilderError, match="expected a name"):
        b.function("")
    with b.function("main", x="f32[]") as g:
        with pytest.raises(AttributeError, match="'y'.*: x"):
            g.y  # noqa: B018
        g.returns(g.x)
    assert repr(g) == "<function main(f32[])>"
    with pytest.raises(b.BuilderError, match="built"), g:
        pass


def test_a_module_is_there_at_its_end() -> None:
    with b.module() as m:
        with pytest.raises(b.BuilderError, match="`with`"):
            m.module  # noqa: B018
        with b.function("main") as f:
            f.returns()
    assert m.module is m.module
    with pytest.raises(b.BuilderError, match="use that module"):
        f.module  # noqa: B018


def test_a_function_that_failed_is_no_part_of_the_module() -> None:
    with b.module() as m:
        with pytest.raises(b.BuilderError), b.function("bad", x="f32[2]") as f:
            f.returns(f.x + np.int32(1))
        with b.function("main", x="f32[2]") as g:
            g.returns(g.x)
    assert len(list(m.module.functions())) == 1


def test_parameters_are_added_in_order() -> None:
    with b.function("main") as f:
        y = b.parameter(0, "f32[2,3]", "y") + b.parameter(1, "f32[]")
        f.returns(y)
    exe = shlo_jit.compile(f.module)
    assert [p.name for p in exe.inputs] == ["y", "arg1"]
    np.testing.assert_array_equal(exe(X, np.float32(1)), X + 1)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("f32[2,3]", "tensor<2x3xf32>"), ("f32[]", "tensor<f32>"), (" s32 [ 4 , 8 ] ", "tensor<4x8xi32>"),
        ("pred[3]{0}", "tensor<3xi1>"), ("u8[0]", "tensor<0xui8>"), ("c64[1]", "tensor<1xcomplex<f32>>"),
        ("bf16[?,3]", "tensor<?x3xbf16>"), ("f32[<=8,2]", "tensor<?x2xf32, #stablehlo.bounds<8, ?>>"),
        ("f8e4m3fn[2]", "tensor<2xf8E4M3FN>"), ("i4[2]", "tensor<2xi4>"), ("tensor<5xf64>", "tensor<5xf64>"),
        ("token[]", "!stablehlo.token"), ("(f32[2], (s32[], token[]))", "tuple<tensor<2xf32>, tuple<tensor<i32>, !stablehlo.token>>"),
        (X, "tensor<2x3xf32>"), (np.float64(1), "tensor<f64>"), (tensor((1,), DTYPES["i8"]), "tensor<1xi8>"),
    ],
)  # fmt: skip
def test_shapes(shape: Any, text: str) -> None:
    with b.function("main", shape) as f:
        f.returns(*f)
    assert f"%arg0: {text}" in str(f.module)


@pytest.mark.parametrize("shape", ["f33[2]", "f32[2", "f32[-1]", "f32[x]", "f32[<=]", 3, None, "float"])
def test_no_shapes(shape: Any) -> None:
    with pytest.raises(b.BuilderError):
        b.function("main", shape)


@pytest.mark.parametrize(
    ("literal", "dtype", "wanted"),
    [
        (2.5, "f32", np.float32(2.5)), ([1, 2], "s8", np.array([1, 2], np.int8)), ([[True], [False]], "pred", np.array([[True], [False]])),
        (np.arange(3), None, np.arange(3)), ([1, 2], "f32", np.array([1, 2], np.float32)), (1j, "c64", np.complex64(1j)), ([], "f32", np.zeros(0, np.float32)),
    ],
)  # fmt: skip
def test_constants(literal: Any, dtype: Any, wanted: Any) -> None:
    got = shlo_jit.jit(lambda: b.constant(literal, dtype))()
    assert got.dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)


def test_full() -> None:
    got = shlo_jit.jit(lambda n: (b.full("f32[2]", 1), b.full((2, 1), 3, "s8"), b.full("s32[2]", n)))(np.int32(7))
    assert [a.tolist() for a in got] == [[1.0, 1.0], [[3], [3]], [7, 7]]


def test_constants_are_copies() -> None:
    array = np.ones(3, np.float32)
    with b.function("main") as f:
        f.returns(b.constant(array))
        array[:] = 2
    assert shlo_jit.compile(f.module)().tolist() == [1, 1, 1]


def test_threads_build_programs_of_their_own() -> None:
    found: dict[int, Module] = {}

    def build(n: int) -> None:
        with b.function("main", x=f"f32[{n}]") as f:
            y = f.x
            for _ in range(50):
                y = y + float(n)
            f.returns(y)
        found[n] = f.module

    threads = [threading.Thread(target=build, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == list(range(1, 9))
    assert all(len(m.functions().__next__().block().ops) == 151 for m in found.values())


def test_importing_the_package_does_not_import_the_builder() -> None:
    import subprocess
    import sys

    code = "import shlo_jit, sys; assert 'shlo_jit.builder' not in sys.modules; shlo_jit.jit; assert 'shlo_jit.builder' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        shlo_jit.no_such_name  # type: ignore[attr-defined]  # noqa: B018
