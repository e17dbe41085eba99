"""Calls of handlers in exported libraries: `load` accepts handlers, and a host in C defines functions in the library's
form."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from ffi_programs import X, call, program

import shlo_jit
from shlo_jit.errors import ExecutionError

TEXT = program(call("affine", 'scale = 2.0 : f32, shift = array<f64: 10.0, 20.0>, how = "plus"', result="%a")
               + call("fail_above", "limit = 30.0 : f32", operands="%a"))  # fmt: skip


@pytest.fixture(scope="module", params=["so", "o"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / f"model.{request.param}"
    shlo_jit.export(TEXT, path, custom_calls=["affine", "fail_above"])
    return path


def test_load_takes_handlers(library: Path, handlers: ctypes.CDLL) -> None:
    calls = {"affine": handlers.affine, "fail_above": {"execute": handlers.fail_above}}
    exe = shlo_jit.load(library, custom_calls=calls)
    np.testing.assert_array_equal(exe(X), [10, 22, 14, 26])
    expected = "'fail_above'.*execute: OUT_OF_RANGE: element 3 is too large$"
    with pytest.raises(ExecutionError, match=expected):
        exe(X * 2)
    mixed = shlo_jit.load(library, custom_calls={**calls, "affine": lambda x, scale, shift, how: x * scale})
    np.testing.assert_array_equal(mixed(X), X * 2)


def test_attributes_no_handler_is_given(tmp_path: Path, handlers: ctypes.CDLL) -> None:
    path = tmp_path / "model.o"
    shlo_jit.export(program(call("describe", "a = [1]")), path, custom_calls=["describe"])
    with pytest.raises(ExecutionError, match=r"custom call 'describe': attribute 'a' = \[1 : i64\]"):
        shlo_jit.load(path, custom_calls={"describe": handlers.describe})
