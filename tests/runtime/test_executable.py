"""An executable as a Python object: copies, pickles, signatures and keywords."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import pickle
import pydoc
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest
from programs import TARGET, binary, callback, copies

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.runtime import front
from shlo_jit.runtime.build import build
from shlo_jit.runtime.executable import Executable

X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def add() -> Executable:
    return build(binary(4), TARGET, cache=False)


def test_copies_are_the_executable(add: Executable) -> None:
    assert copy.copy(add) is add
    assert copy.deepcopy({"f": [add]})["f"][0] is add


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_says_what_to_do(add: Executable, protocol: int) -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps([add], protocol)


def test_arguments_by_name(add: Executable) -> None:
    y = 2 * X
    for args, named in (((X,), {"y": y}), ((), {"x": X, "y": y}), ((), {"y": y, "x": X}), ((X, y), {})):
        np.testing.assert_array_equal(add(*args, **named), X + y)
    for args, named, message in (
        ((), {"x": X}, "argument 1 (y) is missing"),
        ((), {"y": X}, "argument 0 (x) is missing"),
        ((X,), {"x": X}, "argument 0 (x) is given twice"),
        ((X, X), {"out": X, "z": 1}, "there is no argument 'out': expected x, y"),
        ((X, X, X), {"y": X}, "expected 2 arguments (float32[4], float32[4]), got 4"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            add(*args, **named)


def test_names_where_there_is_no_fast_call() -> None:
    exe = build(callback(), TARGET, cache=False, custom_calls={"f": lambda *x: x[0]})
    with pytest.raises(TypeError, match="argument 'zzz'"):
        exe(zzz=X)


def test_signature(add: Executable) -> None:
    signature = inspect.signature(add)
    assert str(signature) == "(x: 'float32[4]', y: 'float32[4]') -> 'float32[4]'"
    assert signature.bind(X, X).args == (X, X)
    with pytest.raises(TypeError):
        signature.bind(X)
    several = inspect.signature(build(copies((2, 3), "i8", 2), TARGET, cache=False))
    assert several.return_annotation == "(int8[2,3], int8[2,3])"
    assert list(inspect.signature(Executable).parameters) == ["instance", "target", "cache", "remake"]


@pytest.mark.parametrize("first", ["0", "lambda", "a.b", "y$"])
def test_names_that_are_none_in_python(first: str) -> None:
    exe = shlo_jit.compile(
        f"func.func @main(%{first}: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {{ return %y : tensor<f32> }}"
    )
    assert list(inspect.signature(exe).parameters) == ["arg0", "arg1"]


def test_other_uses_of_a_callable(add: Executable) -> None:
    assert callable(add)
    assert len({add, copy.copy(add), build(binary(4), TARGET, cache=False)}) == 2
    np.testing.assert_array_equal(functools.partial(add, X)(X), X + X)
    (mapped,) = map(add, [X], [X])
    np.testing.assert_array_equal(mapped, X + X)
    assert weakref.ref(add)() is add

    @functools.wraps(add)
    def wrapper(*args):
        return add(*args)

    np.testing.assert_array_equal(wrapper(X, X), X + X)
    assert inspect.signature(wrapper) == inspect.signature(add)
    assert "A compiled program. Call it with arrays" in pydoc.render_doc(add)
    assert "A compiled program" in (add.__doc__ or "")


def test_version() -> None:
    assert shlo_jit.__version__.count(".") >= 2


# ---------------------------------------------------------------------- the logger
TEXT = "func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{ return %x : tensor<{n}xf32> }}"


def test_the_log_tells_of_the_cache_and_stages(caplog: pytest.LogCaptureFixture) -> None:
    text = TEXT.format(n=1234)
    with caplog.at_level(logging.DEBUG, "shlo_jit"):
        shlo_jit.compile(text)
        first = [r.getMessage() for r in caplog.records]
        caplog.clear()
        shlo_jit.compile(text)
        second = [r.getMessage() for r in caplog.records]
    assert first[0].startswith("<text>: not in the object cache (")
    stages = [line.partition(":")[0] for line in first[1:]]
    assert [s for s in stages if s != "load"] == [
        "parse",
        "verify",
        "passes",
        "fuse",
        "schedule",
        "memory",
        "lower",
        "optimize and emit",
        "routines",
    ]
    assert all(line.endswith(" ms") for line in first[1:])
    assert [line.partition(":")[0] for line in second] == ["load", "<text>"]
    assert second[1].startswith("<text>: in the object cache (")


def test_the_log_is_silent_unless_asked() -> None:
    code = f"import logging, shlo_jit; shlo_jit.compile({TEXT.format(n=77)!r}); assert logging.getLogger('shlo_jit').handlers"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("", "")


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8", "ui64", "i1", "complex<f32>", "bf16"])
def test_pickled_arrays_are_called_with_as_fast(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their dtype is another object."""
    exe = build(copies((4,), dtype), TARGET, cache=False)
    x = np.arange(4).astype(DTYPES[dtype].numpy)
    pickled = pickle.loads(pickle.dumps(x))
    assert (pickled.dtype is x.dtype) == (dtype == "bf16")
    slow = []
    monkeypatch.setattr(front, "check_count", lambda *_: slow.append(1))
    np.testing.assert_array_equal(exe(pickled), x)
    assert not slow
    if x.dtype.itemsize > 1 and dtype != "bf16":
        np.testing.assert_array_equal(exe(x.astype(x.dtype.newbyteorder("S"))), x)
        assert slow


def test_an_exported_library_has_no_text(tmp_path) -> None:
    shlo_jit.export(TEXT.format(n=4), tmp_path / "model.o")
    loaded = shlo_jit.load(tmp_path / "model.o")
    with pytest.raises(ValueError, match="texts"):
        loaded.text("plan")
    with pytest.raises(ValueError, match="profiled"):
        loaded.profile()
