"""Errors: one exception, which names the argument and the caller's line, also for errors of later stages, and
profiles."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b

THIS = __file__


def refused(f: Callable[..., Any], *shapes: str) -> b.BuilderError:
    with pytest.raises(b.BuilderError) as caught, b.function("main", *shapes) as g:
        g.returns(*f(*g))
    return caught.value


def line_of(f: Callable[..., Any], offset: int = 0) -> int:
    return inspect.getsourcelines(f)[1] + offset


CASES: list[tuple[Callable[..., Any], tuple[str, ...], str, str]] = [
    (lambda x: b.clamp(0, x, 1.5), ("s32[3]",), "clamp", "max"),
    (lambda x: b.transpose(x, (0, 2)), ("f32[2,3]",), "transpose", "permutation"),
    (lambda x: b.transpose(x, (0,)), ("f32[2,3]",), "transpose", "permutation"),
    (lambda x: b.rev(x, (1, 1)), ("f32[2,3]",), "rev", "dimensions"),
    (lambda x: b.slice(x, (0, 0), (2, 4)), ("f32[2,3]",), "slice", "start_indices, limit_indices"),
    (lambda x: b.dynamic_slice(x, (0, 0), (1, 4)), ("f32[2,3]",), "dynamic_slice", "slice_sizes"),
    (lambda x: b.concatenate([x, x], 2), ("f32[2,3]",), "concatenate", "dimension"),
    (lambda x: b.concatenate([], 2), ("f32[2,3]",), "concatenate", "operands"),
    (lambda x: b.reduce(x, 0.0, b.add, (2,)), ("f32[2,3]",), "reduce", "dimensions_to_reduce"),
    (lambda x: b.reduce(x, 0.0, 3, (0,)), ("f32[2,3]",), "reduce", "computation"),  # type: ignore[arg-type]
    (lambda x: b.reduce(x, 0.0, lambda a, c: a > c, (0,)), ("f32[2,3]",), "reduce", "computation"),
    (lambda x: b.reduce(x, [0.0, 1.0], b.add, (0,)), ("f32[2,3]",), "reduce", "init_values"),
    (lambda x: b.dot(x, x), ("f32[2,3]",), "dot", "lhs, rhs"),
    (lambda x: b.dot_general(x, x, {"lhs_dims": (1,)}), ("f32[2,3]",), "dot_general", "dimension_numbers"),
    (lambda x: b.dot_general(x, x, b.DotDimensionNumbers((5,), (0,))), ("f32[2,3]",), "dot_general", "dimension_numbers"),
    (lambda x: b.conv(x, x, padding="FULL"), ("f32[1,2,3]",), "conv", "padding"),  # type: ignore[arg-type]
    (lambda x: b.fft(x, "DFT", (3,)), ("f32[3]",), "fft", "fft_type"),  # type: ignore[arg-type]
    (lambda x: b.cholesky(x, lower=1), ("f32[3,3]",), "cholesky", "lower"),  # type: ignore[arg-type]
    (lambda x: b.cholesky(x + 0.0), ("f32[3,2]",), "cholesky", "a"),
    (lambda x: b.iota("f32[3", 0), ("f32[3]",), "iota", "shape"),
    (lambda x: b.iota("f32[3]", 1), ("f32[3]",), "iota", "iota_dimension"),
    (lambda x: b.convert_element_type(x, "float33"), ("f32[3]",), "convert_element_type", "new_element_type"),
    (lambda x: b.exp(x, b.ResultAccuracy("TOLERANCE")), ("f32[3]",), "exp", "result_accuracy"),
    (lambda x: b.exp(-x), ("s32[3]",), "exp", "operand"),
    (lambda x: b.population_count(-x), ("f32[3]",), "population_count", "operand"),
    (lambda x: b.top_k(x, 4), ("f32[3]",), "top_k", "k"),
    (lambda x: b.sort(x, dimension=1), ("f32[3]",), "sort", "dimension"),
    (lambda x: b.all_gather(x, 0, 2, "all"), ("f32[3]",), "all_gather", "replica_groups"),  # type: ignore[arg-type]
    (lambda x: b.all_gather(x, 0, 2, layout=[0]), ("f32[3]",), "all_gather", "layout"),  # type: ignore[arg-type]
    (lambda x: b.reduce_scatter(x, b.add, 0, 2), ("f32[3]",), "reduce_scatter", "shard_count"),
    (lambda x: b.while_(lambda s: s, lambda s: s, x), ("f32[3]",), "while_", "condition"),
    (lambda x: b.while_(lambda s: s > 0, lambda s: (s, s), x), ("s32[]",), "while_", "body"),
    (lambda x: b.conditional(x, x, b.not_, x, lambda v: v.astype("s32")), ("pred[]",), "conditional", "false_computation"),
    (lambda x: b.conditional(x, (), lambda: 1, (), lambda: 1), ("pred[]",), "conditional", "true_computation"),
    (lambda x: b.conditional(x, [b.neg], [x, x]), ("s32[]",), "conditional", "branch_operands"),
    (lambda x: b.get_tuple_element(x, 0), ("s32[]",), "get_tuple_element", "tuple_data"),
    (lambda x: b.get_tuple_element(x, 2), ("(s32[], f32[2])",), "get_tuple_element", "index"),
    (lambda x: b.after_all([x]), ("s32[]",), "after_all", "tokens[0]"),
    (lambda x: b.constant(2), ("s32[]",), "constant", "dtype"),
    (lambda x: b.constant([1, 300], "u8"), ("s32[]",), "constant", "literal"),
    (lambda x: b.custom_call("", [x], "s32[]"), ("s32[]",), "custom_call", "call_target_name"),
    (lambda x: b.composite_call(b.abs, [x], "a.b", "{n = }"), ("s32[]",), "composite_call", "attributes"),
    (lambda x: b.select(1, 2, 3), ("s32[]",), "select", "on_true"),
    (lambda x: b.select(x, x, x), ("s32[3]",), "select", "pred"),
    (lambda x: b.parameter(3, "f32[]"), ("s32[3]",), "parameter", "parameter_number"),
    (lambda x: b.reshape_explicit("f32[3]", x), ("s32[3]",), "reshape_explicit", "shape"),
    (lambda x: b.batch_norm_training(x, x, x, 0.1, 1), ("f32[3]",), "batch_norm_training", "feature_index"),
    (lambda x: b.rng_uniform(x, 1, "s32[2]"), ("f32[]",), "rng_uniform", "a"),
    (lambda x: b.dynamic_reshape(x, [2, 2], (2,), (False,)), ("f32[4]",), "dynamic_reshape", "new_size_bounds"),
    (lambda x: b.scaled_dot(x, x[:1], x, x[:, :2], b.DotDimensionNumbers((1,), (0,))), ("f32[3,3]",), "scaled_dot", "rhs_scale"),
    (lambda x: b.bitcast(x, "s32[5]"), ("f32[4]",), "bitcast", "shape"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "shapes", "function", "argument"), CASES, ids=[f"{c[2]}-{c[3]}" for c in CASES])
def test_an_error_names_the_argument_and_the_line(f: Any, shapes: Any, function: str, argument: str) -> None:
    error = refused(lambda *xs: [f(*xs)], *shapes)
    assert isinstance(error, shlo_jit.StableHLOError)
    assert error.argument == argument, (error.argument, str(error))
    assert error.diagnostics[0].file == THIS and error.line == line_of(f)
    assert error.function == function
    assert "^" in str(error)


def test_what_a_region_does_is_refused_at_its_own_line() -> None:
    def body(a: Any, x: Any) -> Any:
        return a + x * np.int32(2)

    error = refused(lambda x: [b.reduce(x, 0.0, body, (0,))], "f32[3]")
    assert error.line == line_of(body, 1) and error.function == "*"


def test_rules_of_the_specification_are_named() -> None:
    error = refused(lambda x: [b.dot_general(x, x, b.DotDimensionNumbers((1,), (1,), (1,), (1,)))], "f32[2,3]")
    diagnostic = error.diagnostics[0]
    assert diagnostic.label == "C5" or diagnostic.label.startswith("C")
    assert diagnostic.rule and diagnostic.op == "stablehlo.dot_general"


def test_nothing_is_open() -> None:
    with pytest.raises(b.BuilderError, match="open function") as caught:
        b.iota("f32[3]")
    assert caught.value.diagnostics[0].file == THIS


def test_values_of_other_functions() -> None:
    with b.function("main", x="f32[2]") as f:
        f.returns(f.x)
    with pytest.raises(b.BuilderError, match="function main"), b.function("main", y="f32[2]") as g:
        g.returns(g.y + f.x)


def test_values_of_regions_that_have_ended() -> None:
    kept = []
    with pytest.raises(b.BuilderError, match="computation.*ended"), b.function("main", x="f32[2]") as f:
        b.reduce(f.x, 0.0, lambda a, c: kept.append(a) or a + c, (0,))
        f.returns(kept[0] + 1.0)


def test_nothing_comes_after_the_end() -> None:
    with pytest.raises(b.BuilderError, match="after its results"), b.function("main", x="f32[2]") as f:
        f.returns(f.x)
        f.x + 1.0
    with pytest.raises(b.BuilderError, match="returns nothing"), b.function("main", x="f32[2]"):
        pass


def test_later_errors_name_the_line_too() -> None:
    """A valid program that cannot be executed."""

    def program(x: Any) -> Any:
        return b.custom_call("nobody_knows_me", [x], "f32[2]")

    with pytest.raises(shlo_jit.StableHLOError) as caught:
        shlo_jit.jit(program)(np.zeros(2, np.float32))
    assert caught.value.diagnostics[0].file == THIS and caught.value.line == line_of(program, 1)


def test_profiles_plans_and_texts_name_the_line() -> None:
    def program(x: Any) -> Any:
        return b.tanh(x).sum()

    exe = shlo_jit.jit(program).compile(np.zeros(100, np.float32))
    place = f"test_builder_places.py line {line_of(program, 1)}"
    assert place in exe.text("plan")
    with exe.profile() as p:
        exe(np.zeros(100, np.float32))
    assert any(place in step.ops for step in p.steps)
    assert f'loc("{THIS}":{line_of(program, 1)}:16)' in str(shlo_jit.jit(program).lower(np.zeros(100, np.float32)))


def test_sources_without_a_text() -> None:
    """For a function compiled from a text only the line is known."""
    space: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x + y", "<made>", "exec"), {"y": np.int32(1)}, space)
    error = refused(lambda x: [space["f"](x)], "f32[2]")
    assert (error.diagnostics[0].file, error.line) == ("<made>", 2)
