"""Products that become the gradient of attention by blocks of rows, and the reasons that the plan prints for the
others."""

from __future__ import annotations

import pytest
from printed_codes import codes, in_memory
from test_attention_plan import dot, plan, reduce, t

from shlo_jit import tuning

B, M, N, K = 8, 40, 50, 16
ROWS, KEYS, SCORES = (B, M, K), (B, N, K), (B, M, N)
ROWS_BY_KEYS = "batching_dims = [0] x [0], contracting_dims = [2] x [2]"
BY_ROWS = "batching_dims = [0] x [0], contracting_dims = [1] x [1]"
BY_KEYS = "batching_dims = [0] x [0], contracting_dims = [2] x [1]"
ARGUMENTS = [ROWS, KEYS, KEYS, ROWS]
"""Arguments: q, k, v, and the gradient of the result."""
RESULTS = [("%dq", ROWS), ("%dk", KEYS), ("%dv", KEYS)]
SCORE = dot("%s", "%a", "%b", ROWS, KEYS, SCORES, ROWS_BY_KEYS)
OTHER = dot("%g", "%d", "%c", ROWS, KEYS, SCORES, ROWS_BY_KEYS)
PROGRAM = f"""%w = stablehlo.logistic %s : {t(*SCORES)}
%wg = stablehlo.multiply %w, %g : {t(*SCORES)}
{reduce("%sum", "%wg", "%zero", "add", SCORES, 2)}
%sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({t(B, M)}) -> {t(*SCORES)}
%moved = stablehlo.subtract %g, %sums : {t(*SCORES)}
%ds = stablehlo.multiply %moved, %w : {t(*SCORES)}"""
DQ = dot("%dq", "%ds", "%b", SCORES, KEYS, ROWS, BY_KEYS)
DK = dot("%dk", "%ds", "%a", SCORES, ROWS, KEYS, BY_ROWS)
DV = dot("%dv", "%w", "%d", SCORES, ROWS, KEYS, BY_ROWS)


def test_formed() -> None:
    """All products in any order, and no value of the size of the scores."""
    for lines in ([SCORE, OTHER, PROGRAM, DQ, DK, DV], [OTHER, SCORE, PROGRAM, DV, DK, DQ]):
        text = plan(ARGUMENTS, RESULTS, *lines)
        assert text.splitlines()[0].startswith("1 step: 1 gradient") and "40x50" not in in_memory(text)


def test_one_sum() -> None:
    """Values need no gradient: the weights are not materialized, either."""
    text = plan(ARGUMENTS, RESULTS[:2], SCORE, OTHER, PROGRAM, DQ, DK)
    assert text.splitlines()[0].startswith("1 step: 1 gradient")


def test_steps_around_keep_their_order() -> None:
    """Steps that a sum needs run before the gradient, steps that read a sum after it."""
    sort = """%{0} = "stablehlo.sort"(%{1}) ({{
      ^bb0(%x: tensor<f32>, %z: tensor<f32>):
        %l = stablehlo.compare LT, %x, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %l : tensor<i1>
      }}) {{dimension = 1 : i64, is_stable = true}} : ({2}) -> {2}"""
    before, after = sort.format("q2", "a", t(*ROWS)), sort.format("y", "dv", t(*KEYS))
    lines = [SCORE, OTHER, PROGRAM, DV, after, before, DK.replace("%a", "%q2"), DQ]
    text = plan(ARGUMENTS, [*RESULTS[:2], ("%y", KEYS)], *lines)
    kinds = [line.split()[1] for line in text.splitlines() if line[:3].strip().isdigit()]
    assert kinds == ["sort", "gradient", "sort"]


def test_several_products_of_the_same_rows() -> None:
    """The attention itself, if it is computed only for the gradient: one step."""
    y = dot("%y", "%w", "%c", SCORES, KEYS, ROWS, BY_KEYS)
    for lines in ([y, DQ, DK, DV], [DQ, DV, DK, y]):
        text = plan(ARGUMENTS, [*RESULTS, ("%y", ROWS)], SCORE, OTHER, PROGRAM, *lines)
        assert text.splitlines()[0].startswith("1 step: 1 gradient") and "40x50" not in in_memory(text)


@pytest.mark.parametrize("value", ["%w", "%ds"])
def test_values_with_other_readers_are_written(value: str) -> None:
    """Weights, or the gradient of a bias, are returned: only that matrix is in memory."""
    text = plan(ARGUMENTS, [*RESULTS, (value, SCORES)], SCORE, OTHER, PROGRAM, DQ, DK, DV)
    assert text.splitlines()[0].startswith("1 step: 1 gradient") and text.count("writes  ") == 4


def test_one_product_reads_the_result_of_another() -> None:
    """A product's loop adds the result of another product, which is not available before everything is done."""
    square = (B, M, M)
    text = plan(
        [ROWS, (B, M, K), (B, M, K), ROWS],
        [("%sum", ROWS), ("%dv", ROWS)],
        dot("%s", "%a", "%b", ROWS, ROWS, square, ROWS_BY_KEYS),
        dot("%g", "%d", "%c", ROWS, ROWS, square, ROWS_BY_KEYS),
        PROGRAM.replace("%sum", "%total").replace(t(*SCORES), t(*square)),
        dot("%dq", "%ds", "%b", square, ROWS, ROWS, BY_KEYS),
        dot("%dv", "%w", "%d", square, ROWS, ROWS, BY_ROWS),
        f"%sum = stablehlo.add %dq, %dv : {t(*ROWS)}",
    )
    assert "gradient" in text.splitlines()[0] or "next-product-reads-another" in codes(text)


NOT_FORMED = {
    "nothing is multiplied row by row": (RESULTS[1:], [SCORE, OTHER, PROGRAM, DK, DV]),
    "weights on both sides": (
        [*RESULTS, ("%o", (B, M, M))],
        [SCORE, OTHER, PROGRAM, DQ, DK, DV, dot("%o", "%ds", "%w", SCORES, SCORES, (B, M, M), ROWS_BY_KEYS)],
    ),
}


@pytest.mark.parametrize("what", NOT_FORMED)
def test_not_formed(what: str) -> None:
    results, lines = NOT_FORMED[what]
    assert "gradient" not in plan(ARGUMENTS, results, *lines).splitlines()[0]


def test_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        text = plan(ARGUMENTS, RESULTS, SCORE, OTHER, PROGRAM, DQ, DK, DV)
        assert "gradient" not in text.splitlines()[0]
        return text

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "ATTENTION_LEAST_TASKS", B + 1)
        patch.setattr(tuning, "GEMM_TASK", 1)
        assert {*codes(refused(), "no row blocks")} == {"too-few-tasks"}
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "ATTENTION_OPERAND_BYTES", 1)
        assert {*codes(refused(), "no row blocks")} == {"large-operands"}
    monkeypatch.setattr(tuning, "EPILOGUE_DISTANCE", 1)
    assert "reader-too-far" in codes(refused(), "no row blocks")
