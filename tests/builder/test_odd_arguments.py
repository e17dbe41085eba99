"""Arguments of wrong kinds: functions build a valid program or raise BuilderError.

The calls of all examples are tested, with each argument replaced by things of other kinds.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import jax
import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.builder import operations
from shlo_jit.builder.operation_table import OPERATIONS, SAMPLES, Operation

RECORDS = (
    b.ChannelHandle, b.ConvolutionDimensionNumbers, b.DotDimensionNumbers, b.GatherDimensionNumbers,
    b.PaddingConfigDimension, b.RaggedDotDimensionNumbers, b.ResultAccuracy, b.ScatterDimensionNumbers,
)  # fmt: skip
CALLS_ARGUMENTS = {"while_", "sort", "composite_call"}
"""Functions whose examples use an argument, or call one that is a function, which then raises its own errors.

Python's types do so, too.
"""
MEANS_SOMETHING = {"custom_call"}
"""Functions whose arguments are only checked when the program is compiled."""


def odd(tensor: Any, token: Any, pair: Any) -> list[Any]:
    return [
        None, "abc", 3, -1, 1.5, True, 1j, float("nan"), 2**70, 2**40, [], (), {}, object(), iter([1]), b"x", int,
        tensor, token, pair, (tensor, tensor), [tensor], lambda: 0, lambda *a: a, [None], [-1], [[1]], [["a"]], [1.5],
        [True], {"a": 1}, range(2), [1, 2, 3, 4, 5, 6, 7], np.array(0), np.array(["a"]), np.zeros(0, np.float32),
        np.float32(1), "f32[2]", "f32[?]", "f32[-1]", "(f32[2],token[])", "token[]", ("NHWC", "x", "y"), ("", "", ""),
        *(kind(*[None] * len(inspect.signature(kind).parameters)) for kind in RECORDS),
    ]  # fmt: skip


class Spy:
    """The builder, with another argument in the example's call of one function."""

    def __init__(self, name: str, replace: Any) -> None:
        self._name, self._replace = name, replace

    def __getattr__(self, name: str) -> Any:
        return getattr(b, name) if name != self._name or self._replace is None else self._call

    def _call(self, *args: Any, **named: Any) -> Any:
        replace, self._replace = self._replace, None
        args, named = replace(list(args), named)
        return getattr(b, self._name)(*args, **named)


def arguments(operation: Operation) -> list[int | str]:
    """Arguments of the example's call by position, and others by name."""
    found: list[int | str] = []

    def look(args: list[Any], named: dict[str, Any]) -> Any:
        found.extend(range(len(args)))
        rest = list(inspect.signature(getattr(b, operation.function)).parameters.values())[len(args) :]
        found.extend(p.name for p in rest if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        return args, named

    with contextlib.suppress(b.BuilderError):  # of Parameter, whose position depends on the others
        build(operation, lambda *_: look)
    return found


def build(operation: Operation, replacing: Any) -> None:
    spy = Spy(operation.function, None)
    example = operations.example(operation, spy)
    samples = {name: SAMPLES[name] for name in example.names}
    with b.function("main", **samples, tensor="f32[2,3]", token="token", pair="(f32[2,3], s32[])") as f:
        spy._replace = replacing(f["tensor"], f["token"], f["pair"])
        results = example.function(*[f[name] for name in example.names])
        leaves = jax.tree.leaves(results, is_leaf=lambda x: isinstance(x, b.Value))
        f.returns(*[x for x in leaves if isinstance(x, b.Value)])
    assert shlo_jit.parse(str(f.module)) == f.module
    if operation.function not in MEANS_SOMETHING:
        assert shlo_jit.verify(f.module) == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
@pytest.mark.sampled(5)
def test_odd_arguments(operation: Operation) -> None:
    refused = 0
    for which in arguments(operation):
        for i in range(len(odd(None, None, None))):

            def replacing(*values: Any, which: Any = which, i: int = i) -> Any:
                def replace(args: list[Any], named: dict[str, Any]) -> Any:
                    x = odd(*values)[i]
                    if isinstance(which, int):
                        args[which] = x
                        return args, named
                    return args, {**named, which: x}

                return replace

            try:
                build(operation, replacing)
            except b.BuilderError as error:
                assert error.diagnostics[0].line > 0
                refused += 1
            except Exception:
                if operation.function not in CALLS_ARGUMENTS:
                    raise
    assert refused or not inspect.signature(getattr(b, operation.function)).parameters
