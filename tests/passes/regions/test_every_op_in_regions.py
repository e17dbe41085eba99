"""Every op that returns a tensor may be in the region of every other op."""

from __future__ import annotations

import numpy as np
import pytest
from region_bodies import BODIES, FUNCTIONS, body

import shlo_jit
from shlo_jit.ops import OPS
from shlo_jit.reference.interpreter import evaluate

T, COLUMN = "tensor<3x4xf32>", "tensor<3xf32>"
SCATTER = "#stablehlo.scatter<inserted_window_dims = [0], update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
ARGUMENTS = f"%a: {T}, %b: {T}, %s: tensor<f32>, %i: tensor<2x1xi32>, %u: tensor<2x4xf32>, %v: tensor<2x2xf32>"


def reducer(name: str, prefix: str = "p") -> str:
    """A region of two scalars."""
    lines = body(name, f"%{prefix}_x", f"%{prefix}_y", prefix)
    head = f"^bb0(%{prefix}_x: tensor<f32>, %{prefix}_y: tensor<f32>):"
    return f"{{\n{head}\n{lines}\nstablehlo.return %{prefix}_o : tensor<f32>\n}}"


def comparison(name: str, prefix: str = "c") -> str:
    """A region that applies an op to two scalars and %s each, and compares the results."""
    left, right = (body(name, f"%{prefix}_{x}", "%s", prefix + x) for x in "xy")
    return f"""{{
^bb0(%{prefix}_x: tensor<f32>, %{prefix}_y: tensor<f32>):
{left}
{right}
%{prefix}_q = stablehlo.compare LT, %{prefix}x_o, %{prefix}y_o : (tensor<f32>, tensor<f32>) -> tensor<i1>
stablehlo.return %{prefix}_q : tensor<i1>
}}"""


def loop(name: str) -> str:
    """A while whose condition and body contain the op."""
    return f"""%one = stablehlo.constant dense<1> : tensor<i32>
%five = stablehlo.constant dense<5> : tensor<i32>
%none = stablehlo.constant dense<0> : tensor<i32>
%limit = stablehlo.constant dense<3.0> : tensor<f32>
%0:2 = stablehlo.while(%n = %none, %x = %s) : tensor<i32>, tensor<f32>
cond {{
{body(name, "%x", "%s", "c")}
  %few = stablehlo.compare LT, %n, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %small = stablehlo.compare LT, %c_o, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %both = stablehlo.and %few, %small : tensor<i1>
  stablehlo.return %both : tensor<i1>
}} do {{
{body(name, "%x", "%s", "d")}
  %m = stablehlo.add %n, %one : tensor<i32>
  stablehlo.return %m, %d_o : tensor<i32>, tensor<f32>
}}"""


def branches(name: str, op: str, index: str) -> str:
    kind = "tensor<i1>" if op == "if" else "tensor<i32>"
    bodies = ", ".join(f"{{\n{body(name, '%s', f'%{x}', x)}\nstablehlo.return %{x}_o : tensor<f32>\n}}" for x in "fg")
    return f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
%f = stablehlo.constant dense<0.5> : tensor<f32>
%g = stablehlo.constant dense<-1.5> : tensor<f32>
%which = stablehlo.compare {index}, %s, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
%number = stablehlo.convert %which : (tensor<i1>) -> {kind}
%0 = "stablehlo.{op}"(%number) ({bodies}) : ({kind}) -> tensor<f32>"""


def text_of(kind: str, name: str) -> tuple[str, str]:
    """Returns the line of an op whose region contains the op, and the type of its result."""
    if kind == "while":
        return loop(name), "tensor<f32>"
    if kind in ("if", "case"):
        return branches(name, kind, "LT"), "tensor<f32>"
    line, result = KINDS[kind]
    line = line.replace("COMPARISON", comparison(name)) if "COMPARISON" in line else line
    return f"%0 = {line.replace('BODY', reducer(name))}", result


KINDS = {
    "map": (f'"stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> (BODY) : ({T}, {T}) -> {T}', T),
    "reduce": (f'"stablehlo.reduce"(%a, %s) <{{dimensions = array<i64: 1>}}> (BODY) : ({T}, tensor<f32>) -> {COLUMN}', COLUMN),
    "reduce_window": (
        f'"stablehlo.reduce_window"(%a, %s) <{{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}}> (BODY) : ({T}, tensor<f32>) -> tensor<3x2xf32>',
        "tensor<3x2xf32>",
    ),
    "scatter": (f'"stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = {SCATTER}}}> (BODY) : ({T}, tensor<2x1xi32>, tensor<2x4xf32>) -> {T}', T),
    "select_and_scatter": (
        f'"stablehlo.select_and_scatter"(%a, %v, %s) <{{window_dimensions = array<i64: 2, 3>}}> (COMPARISON, BODY) : ({T}, tensor<2x2xf32>, tensor<f32>) -> {T}', T,
    ),
    "sort": (f'"stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> (COMPARISON) : ({T}) -> {T}', T),
}  # fmt: skip
EVERY_KIND = [*KINDS, "while", "if", "case"]


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    a, b, s, u, v = (rng.uniform(-2, 2, shape).astype(np.float32) for shape in ((3, 4), (3, 4), (), (2, 4), (2, 2)))
    return [a, b, np.asarray(s), np.array([[2], [0]], np.int32), u, v]


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sampled(8)
def test_op_in_region(name: str, kind: str) -> None:
    lines, result = text_of(kind, name)
    value = "%0#1" if kind == "while" else "%0"
    text = f"{FUNCTIONS}\nfunc.func @main({ARGUMENTS}) -> {result} {{\n{lines}\nreturn {value} : {result}\n}}"
    given = arguments()
    want = evaluate(shlo_jit.parse(text), *given)[0]
    got = shlo_jit.compile(text, cache=False, threads=1)(*given)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


AMONG_PROCESSES = "other processes would have to run the region as often"
NO_TENSOR = "gives no tensor"
STRUCTURE = "is no computation"
LEFT_OUT = {
    **dict.fromkeys(("builtin.module", "func.func", "func.return", "stablehlo.return", "func.constant"), STRUCTURE),
    **dict.fromkeys(
        (f"stablehlo.{n}" for n in "after_all create_token infeed outfeed send recv async_start async_done".split()), NO_TENSOR
    ),
    **dict.fromkeys(
        (
            f"stablehlo.{n}"
            for n in "all_gather all_reduce all_to_all collective_broadcast collective_permute collective_reduce "
            "cross-replica-sum reduce_scatter".split()
        ),
        AMONG_PROCESSES,
    ),
    "func.call_indirect": "is `func.call` once the function is known",
    "stablehlo.constant": "stands in every body", "stablehlo.reshape": "stands in every body",
    "stablehlo.slice": "stands in every body", "stablehlo.get_tuple_element": "stands with `tuple`",
    **dict.fromkeys(("stablehlo.replica_id", "stablehlo.partition_id"), "has no value in the reference interpreter"),
    "stablehlo.rng": "has no result that a reference could give",
    "stablehlo.custom_call": "runs the user's code: see `test_outlined.py`",
    "stablehlo.set_dimension_size": "gives a bounded dimension",
    "stablehlo.compute_reshape_shape": "is refused in the interpreter", "stablehlo.cstr_reshapable": NO_TENSOR,
    "stablehlo.trace": "is refused in the interpreter",
}  # fmt: skip


def test_every_op_is_tried_or_excluded_for_a_reason() -> None:
    """Only some elementwise ops are tried: all of them behave alike in a region."""
    names = {n for n in OPS if not OPS[n].has("elementwise") and not n.startswith("chlo.broadcast_")}
    assert names - BODIES.keys() - LEFT_OUT.keys() == set()
    assert not BODIES.keys() & LEFT_OUT.keys()
