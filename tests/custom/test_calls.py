"""Code as custom calls: its registration, its compilation, and programs that contain it."""

from __future__ import annotations

import logging
import math
import re

import numpy as np
import pytest
from one_call import call, chain
from printed_codes import codes
from refusing import refused

import shlo_jit
from shlo_jit.custom.identity import identity_of
from shlo_jit.errors import ExecutionError, UnsupportedError

numba = pytest.importorskip("numba")

X, Y = np.linspace(-2, 2, 1000, dtype=np.float32), np.linspace(3, 4, 1000, dtype=np.float32)
FACTOR = 2.0


def wave(a, b):
    if a > b:
        return math.sin(a) * b
    return a - b


def checked(a, b):
    if a > 100:
        raise ValueError("a is too large")
    return a + b


@numba.njit
def helper(x):
    return x * FACTOR


def with_helper(a, b):
    return helper(a) + b


def expected(function, x=X, y=Y):
    return numba.vectorize(function)(x + y, y).astype(np.float32) * x


def test_the_whole_chain_is_one_loop():
    exe = shlo_jit.compile(chain(), custom_calls={"f": shlo_jit.elementwise(wave)})
    plan = exe.text("plan")
    assert plan.startswith("1 step: 1 loop") and re.search(r"\(lines 2-4, wave \(test_calls.py:\d+\)\)", plan)
    np.testing.assert_allclose(exe(X, Y), expected(wave), rtol=1e-6)


def test_decorators_and_what_numba_makes():
    @shlo_jit.elementwise
    def plain(a, b):
        return a - b

    compiled = shlo_jit.elementwise(numba.njit(lambda a, b: a - b))
    by_itself = numba.vectorize(lambda a, b: a - b)
    for target in (plain, compiled, by_itself):
        exe = shlo_jit.compile(chain(), custom_calls={"f": target})
        assert exe.text("plan").startswith("1 step")
        np.testing.assert_array_equal(exe(X, Y), (X + Y - Y) * X)


def test_registered_for_all_programs():
    shlo_jit.register_custom_call("f", shlo_jit.elementwise(with_helper))
    try:
        exe = shlo_jit.compile(chain())
        np.testing.assert_array_equal(exe(X, Y), ((X + Y) * 2 + Y) * X)
        other = shlo_jit.compile(chain(), custom_calls={"f": lambda a, b: a})
        np.testing.assert_array_equal(other(X, Y), (X + Y) * X)
    finally:
        shlo_jit.register_custom_call("f", None)
    with refused(UnsupportedError, "unregistered-call", (3, 8)):
        shlo_jit.compile(chain())


def test_other_threads_same_bits():
    n = 200_000
    x = np.linspace(-3, 3, n, dtype=np.float32)
    for function in (wave, checked):
        code = {"f": shlo_jit.elementwise(function)}
        one, two = (shlo_jit.compile(chain(n), custom_calls=code, threads=k)(x, x) for k in (1, 2))
        np.testing.assert_array_equal(one, two)


def test_exceptions_of_elements():
    n = 200_000
    exe = shlo_jit.compile(chain(n), custom_calls={"f": shlo_jit.elementwise(checked)})
    assert "may-raise" in codes(exe.text("schedule"))
    x = np.ones(n, np.float32)
    np.testing.assert_array_equal(exe(x, x), np.full(n, 3, np.float32))
    x[n - 1] = 100
    wanted = r"'f' \(line 3, checked \(test_calls.py:\d+\).*ValueError: a is too large.*in checked"
    with pytest.raises(ExecutionError, match=wanted):
        exe(x, x)


def test_attributes_are_constants():
    def power(a, n, offset=1):
        for _ in range(n):
            a = a * a
        return a + offset

    text = call(["3xf64"], ["3xf64"], "{backend_config = {n = 3 : i64}, api_version = 4 : i32}")
    exe = shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(power)})
    np.testing.assert_array_equal(exe(np.array([1.0, 2.0, 0.5])), [2, 257, 1 + 0.5**8])
    assert "while" not in exe.text("plan")


def test_composites():
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.composite "my.scale" %x {composite_attributes = {factor = 2.0 : f32}, decomposition = @d}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @d(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"""
    code = shlo_jit.elementwise(lambda a, factor: a * factor + 1)
    exe = shlo_jit.compile(text, composites={"my.scale": code})
    np.testing.assert_array_equal(exe(np.arange(4, dtype=np.float32)), [1, 3, 5, 7])


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
@pytest.mark.parametrize("function", [wave, checked])
def test_unknown_dimensions(function, dynamic):
    text = chain().replace("tensor<1000xf32>", "tensor<?xf32>")
    exe = shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(function)}, dynamic=dynamic)
    for n in (1, 2, 7, 1000):
        np.testing.assert_allclose(exe(X[:n], Y[:n]), expected(function, X[:n], Y[:n]), rtol=1e-6)


REFUSED = {
    "types": (call(["4xbf16"], ["4xbf16"]), lambda a: a, "numba-type"),
    "shapes": (call(["4xf32", "3xf32"], ["4xf32"]), lambda a, b: a, "shape-mismatch"),
    "arguments": (call(["4xf32"], ["4xf32"]), lambda a, b: a, "argument-mismatch"),
    "attribute": (call(["4xf32"], ["4xf32"]), lambda a: a.real_part, "numba-rejects"),
    "aliases": (
        call(["4xf32"], ["4xf32"], "{output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], "
             "operand_index = 0, operand_tuple_indices = []>]}"), lambda a: a, "aliased-results",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    text, function, label = REFUSED[name]
    with refused(UnsupportedError, label, (2, 8), shows="test_calls.py:"):
        shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(function)})


@pytest.mark.parametrize("wrap", [shlo_jit.elementwise, shlo_jit.array_function])
def test_without_numba(wrap, monkeypatch):
    import sys

    for name in [n for n in sys.modules if n == "numba" or n.startswith("numba.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with refused(UnsupportedError, "numba-missing", (2, 8), shows="pip install numba"):
        shlo_jit.compile(call(["4xf32"], ["4xf32"]), custom_calls={"f": wrap(lambda a: a)})


def test_called_functions_keep_their_error_model():
    @numba.njit
    def divided(a, b):
        return a // b

    def calling(a, b):
        return divided(a, b)

    exe = shlo_jit.compile(call(["2xi64"] * 2, ["2xi64"]), custom_calls={"f": shlo_jit.elementwise(calling)})
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        exe(np.array([1, 2]), np.array([1, 0]))
    with pytest.raises(ZeroDivisionError):
        divided(1, 0)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="a Python function"):
        shlo_jit.elementwise(3)


# ---------------------------------------------------------------------- the object cache
def found_in_cache(caplog, function) -> bool:
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "shlo_jit"):
        shlo_jit.compile(chain(977), custom_calls={"f": shlo_jit.elementwise(function)})
    return any(": in the object cache" in record.getMessage() for record in caplog.records)


def made(text, **found):
    found["numba"] = numba
    exec(text, found)
    return found["f"]


def test_programs_are_found_by_their_code(caplog):
    text = "def f(a, b):\n    return a * 3 + b"
    assert not found_in_cache(caplog, made(text))
    assert found_in_cache(caplog, made(text))
    assert not found_in_cache(caplog, made(text.replace("3", "4")))


def test_what_code_refers_to_is_part_of_it(caplog):
    text = "@numba.njit\ndef g(a):\n    return a * k\ndef f(a, b):\n    return g(a) + table[1] - b"
    given = {"k": 2, "table": (1.0, 2.0)}
    assert not found_in_cache(caplog, made(text, **given))
    assert found_in_cache(caplog, made(text, **given))
    assert not found_in_cache(caplog, made(text, **given | {"k": 3}))
    assert not found_in_cache(caplog, made(text, **given | {"table": (1.0, 3.0)}))
    assert not found_in_cache(caplog, made(text.replace("a * k", "a + k"), **given))


def test_code_that_refers_to_what_has_no_identity_is_not_stored(caplog):
    class Own:
        value = 3

    assert identity_of(made("def f(a, b):\n    return own", own=Own())) is None
    function = made("def f(a, b):\n    return helper(a)", helper=numba.njit(made("def f(a):\n    return a", own=Own())))
    assert identity_of(function) is not None


def test_tuples_with_names_and_fields_of_arrays_are_part_of_it():
    from collections import namedtuple

    given = [(namedtuple("Own", [*names])(1, 2), np.zeros(1, [(n, "f4") for n in names])) for names in ("pq", "qp")]
    for first, second in zip(*given, strict=True):
        function = "def f(a, b):\n    return own.p"
        assert identity_of(made(function, own=first)) != identity_of(made(function, own=second))


# ---------------------------------------------------------------------- exported libraries
@pytest.mark.parametrize("function", [wave, checked])
def test_exported(tmp_path, function):
    code = {"f": shlo_jit.elementwise(function)}
    exe = shlo_jit.compile(chain(), custom_calls=code)
    exported = shlo_jit.export(chain(), tmp_path / "m.so", custom_calls=code)
    loaded = shlo_jit.load(exported.library)
    np.testing.assert_array_equal(loaded(X, Y), exe(X, Y))
    if function is checked:
        with pytest.raises(ExecutionError, match="custom call failed"):
            loaded(X + 100, Y)


def test_exported_arrays_for_several_targets(tmp_path):
    def rows(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i].sum()

    code = {"f": shlo_jit.array_function(rows)}
    text = call(["5x7xf64"], ["5xf64"])
    library = shlo_jit.export(text, tmp_path / "m.so", custom_calls=code, target="native,x86-64").library
    x = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_array_equal(shlo_jit.load(library)(x), shlo_jit.compile(text, custom_calls=code)(x))
    shlo_jit.export(text, tmp_path / "m.o", custom_calls=code, target="aarch64")
    with refused(UnsupportedError, "pointer-width", (2, 8), shows="wasm32"):
        shlo_jit.export(text, tmp_path / "w.o", custom_calls=code, target="wasm32")
    shlo_jit.export(chain(), tmp_path / "w.o", custom_calls={"f": shlo_jit.elementwise(wave)}, target="wasm32")


def test_exports_take_code_and_names_only(tmp_path):
    with pytest.raises(TypeError, match="library"):
        shlo_jit.export(chain(), tmp_path / "m.so", custom_calls={"f": lambda a, b: a})


def test_processes():
    exe = shlo_jit.compile(
        chain(), custom_calls={"f": shlo_jit.elementwise(checked)}, num_replicas=2, transport="threads"
    )
    for got, x in zip(exe([(X, Y), (X + 1, Y)]), (X, X + 1), strict=True):
        np.testing.assert_array_equal(got, (x + Y + Y) * x)
