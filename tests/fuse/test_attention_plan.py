"""Products that become attention by blocks of rows, and the reasons that the plan prints for the others."""

from __future__ import annotations

import pytest
from printed_codes import codes

from shlo_jit import parse, tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show

CONSTANTS = """%low = stablehlo.constant dense<0xFF800000> : tensor<f32>
%zero = stablehlo.constant dense<0.0> : tensor<f32>"""


def t(*extents: int) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + "f32>"


def dot(name: str, a: str, b: str, x: tuple[int, ...], y: tuple[int, ...], z: tuple[int, ...], numbers: str) -> str:
    return f"{name} = stablehlo.dot_general {a}, {b}, {numbers} : ({t(*x)}, {t(*y)}) -> {t(*z)}"


def reduce(name: str, of: str, init: str, op: str, shape: tuple[int, ...], dim: int) -> str:
    left = t(*(n for i, n in enumerate(shape) if i != dim))
    return (
        f"{name} = stablehlo.reduce({of} init: {init}) applies stablehlo.{op} across dimensions = [{dim}]"
        f" : ({t(*shape)}, tensor<f32>) -> {left}"
    )


def softmax(name: str, of: str, *shape: int) -> str:
    """Softmax along the last dimension. The sums are called %sum."""
    last = len(shape) - 1
    whole, dims = t(*shape), ", ".join(map(str, range(last)))
    return f"""{reduce("%most", of, "%low", "maximum", shape, last)}
      %mosts = stablehlo.broadcast_in_dim %most, dims = [{dims}] : ({t(*shape[:-1])}) -> {whole}
      %moved = stablehlo.subtract {of}, %mosts : {whole}
      %e = stablehlo.exponential %moved : {whole}
      {reduce("%sum", "%e", "%zero", "add", shape, last)}
      %total = stablehlo.broadcast_in_dim %sum, dims = [{dims}] : ({t(*shape[:-1])}) -> {whole}
      {name} = stablehlo.divide %e, %total : {whole}"""


def plan(arguments: list[tuple[int, ...]], results: list[tuple[str, tuple[int, ...]]], *lines: str) -> str:
    """Returns the plan of a function of %a, %b, ..."""
    parameters = ", ".join(f"%{name}: {t(*shape)}" for name, shape in zip("abcdef", arguments, strict=False))
    names, kinds = ", ".join(name for name, _ in results), ", ".join(t(*shape) for _, shape in results)
    body = "\n".join([CONSTANTS, *lines])
    text = f"func.func @main({parameters}) -> ({kinds}) {{\n{body}\nreturn {names} : {kinds}\n}}"
    return show(lower(parse(text), CompileOptions(resolve())), "plan", resolve())


ROWS, KEYS, DEPTH = (3, 40, 16), (3, 50, 16), (3, 50, 24)
SCORES, RESULT = (3, 40, 50), (3, 40, 24)
FIRST = dot("%s", "%a", "%b", ROWS, KEYS, SCORES, "batching_dims = [0] x [0], contracting_dims = [2] x [2]")
SECOND = dot("%y", "%p", "%c", SCORES, DEPTH, RESULT, "batching_dims = [0] x [0], contracting_dims = [2] x [1]")
THREE = [ROWS, KEYS, DEPTH]


def test_formed() -> None:
    text = plan(THREE, [("%y", RESULT)], FIRST, softmax("%p", "%s", *SCORES), SECOND)
    assert text.splitlines()[0].startswith("1 step: 1 attention")
    assert not codes(text, "no row blocks")


def test_steps_between_keep_their_order() -> None:
    """Steps that need the row program's sums run after the attention; steps that the second product needs run before
    it."""
    sorted_sums = """%o = "stablehlo.sort"(%sum) ({
      ^bb0(%x: tensor<f32>, %z: tensor<f32>):
        %l = stablehlo.compare LT, %x, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %l : tensor<i1>
      }) {dimension = 1 : i64, is_stable = true} : (tensor<3x40xf32>) -> tensor<3x40xf32>"""
    values = dot("%v", "%c", "%d", DEPTH, (24, 24), DEPTH, "contracting_dims = [2] x [0]")
    lines = [FIRST, softmax("%p", "%s", *SCORES), sorted_sums, values, SECOND.replace("%c", "%v")]
    text = plan([*THREE, (24, 24)], [("%y", RESULT), ("%o", (3, 40))], *lines)
    kinds = [line.split()[1] for line in text.splitlines() if line[:3].strip().isdigit()]
    assert [kind for kind in kinds if kind != "view"] == ["dot_general", "attention", "sort"]


def test_the_operand_on_the_right_and_views() -> None:
    """v @ p^T, transposed: the operands are swapped. A reshape in between is not a separate step."""
    flat = (3, 40, 50)
    second = dot("%w", "%c", "%f", DEPTH, flat, (3, 24, 40), "batching_dims = [0] x [0], contracting_dims = [1] x [2]")
    lines = [
        dot("%s", "%a", "%b", ROWS, KEYS, SCORES, "batching_dims = [0] x [0], contracting_dims = [2] x [2]"),
        f"%g = stablehlo.reshape %s : ({t(*SCORES)}) -> {t(1, *SCORES)}",
        softmax("%p", "%g", 1, *SCORES),
        f"%f = stablehlo.reshape %p : ({t(1, *SCORES)}) -> {t(*flat)}",
        second,
        f"%y = stablehlo.transpose %w, dims = [2, 0, 1] : ({t(3, 24, 40)}) -> {t(40, 3, 24)}",
    ]
    text = plan(THREE, [("%y", (40, 3, 24))], *lines)
    assert "1 attention" in text.splitlines()[0]
    assert "dot_general," not in text.splitlines()[0]


SWAPPED = (40, 3, 50)
SORTED = f"""%o = "stablehlo.sort"(%sum) ({{
  ^bb0(%x: tensor<f32>, %z: tensor<f32>):
    %l = stablehlo.compare LT, %x, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }}) {{dimension = 1 : i64, is_stable = true}} : (tensor<3x40xf32>) -> tensor<3x40xf32>
%first = stablehlo.slice %o [0:3, 0:1] : (tensor<3x40xf32>) -> tensor<3x1xf32>
%spread = stablehlo.broadcast_in_dim %first, dims = [0, 1] : (tensor<3x1xf32>) -> {t(*DEPTH)}
%v = stablehlo.multiply %c, %spread : {t(*DEPTH)}"""
REFUSED = {
    "product-not-private": ([("%y", RESULT), ("%s", SCORES)], [FIRST, softmax("%p", "%s", *SCORES), SECOND]),
    "not-each-element-once": (
        [("%y", RESULT)],
        [FIRST, f"%x = stablehlo.reverse %s, dims = [1] : {t(*SCORES)}", softmax("%p", "%x", *SCORES), SECOND],
    ),
    "other-row-order": (
        [("%y", RESULT)],
        [FIRST, f"%x = stablehlo.transpose %s, dims = [1, 0, 2] : ({t(*SCORES)}) -> {t(*SWAPPED)}",
         softmax("%p", "%x", *SWAPPED),
         dot("%y", "%p", "%c", SWAPPED, DEPTH, RESULT, "batching_dims = [1] x [0], contracting_dims = [2] x [1]")],
    ),
    "compound-reduction": (
        [("%y", RESULT)],
        [FIRST, f"""%sum = "stablehlo.reduce"(%s, %zero) <{{dimensions = array<i64: 2>}}> ({{
           ^bb0(%x: tensor<f32>, %z: tensor<f32>):
             %m = stablehlo.abs %z : tensor<f32>
             %r = stablehlo.add %x, %m : tensor<f32>
             stablehlo.return %r : tensor<f32>
           }}) : ({t(*SCORES)}, tensor<f32>) -> {t(3, 40)}
           %total = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({t(3, 40)}) -> {t(*SCORES)}
           %p = stablehlo.divide %s, %total : {t(*SCORES)}""", SECOND],
    ),
    "products-have-other-rows": (
        [("%y", (3, 50, 16))],
        [FIRST, softmax("%p", "%s", *SCORES),
         dot("%y", "%p", "%a", SCORES, ROWS, (3, 50, 16), "batching_dims = [0] x [0], contracting_dims = [1] x [1]")],
    ),
    "step-between-products": (
        [("%y", RESULT)], [FIRST, softmax("%p", "%s", *SCORES), SORTED, SECOND.replace("%c", "%v")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", REFUSED)
def test_refused(code: str) -> None:
    results, lines = REFUSED[code]
    text = plan(THREE, results, *lines)
    assert "attention" not in text.splitlines()[0]
    assert codes(text, "no row blocks") == [code]


def test_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "EPILOGUE_DISTANCE", 1)
    text = plan(THREE, [("%y", RESULT)], FIRST, softmax("%p", "%s", *SCORES), SECOND)
    assert codes(text, "no row blocks") == ["reader-too-far"]


def layer(m: int, n: int, k: int) -> str:
    """softmax(x @ w1) @ w2."""
    return plan(
        [(m, k), (k, n), (n, k)],
        [("%y", (m, k))],
        dot("%s", "%a", "%b", (m, k), (k, n), (m, n), "contracting_dims = [1] x [0]"),
        softmax("%p", "%s", m, n),
        dot("%y", "%p", "%c", (m, n), (n, k), (m, k), "contracting_dims = [1] x [0]"),
    )


def test_operands_that_no_cache_holds() -> None:
    n = tuning.ATTENTION_OPERAND_BYTES // 4 // 2 // 64
    assert "1 attention" in layer(2048, n, 64)
    assert "large-operands" in codes(layer(2048, n + 1, 64))


def test_too_few_tasks() -> None:
    """Many rows are divided into tasks of some rows each; few rows with much work are not fused."""
    m = tuning.ATTENTION_LEAST_TASKS * tuning.ATTENTION_TASK_ROWS
    assert "1 attention" in layer(m, 2048, 64)
    assert "too-few-tasks" in codes(layer(m - tuning.ATTENTION_TASK_ROWS, 2048, 64))
    assert "too-few-tasks" in codes(layer(12, 512, 2048)), "few rows of a layer, which has most to do with its matrices"
    assert "1 attention" in layer(m // 8, 128, 32)


def test_short_rows() -> None:
    least = tuning.ATTENTION_LEAST_COLUMNS
    assert "1 attention" in layer(200, least, 32)
    assert "rows-differ" in codes(layer(200, least - 1, 32))
