"""Attention with masks reads the keys that the mask leaves to a block of rows.

SHLO_JIT_RANDOM=200 pytest -m slow tests/lower/test_masked_keys.py     # more random programs
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp = jax.numpy
ROUNDS = int(os.environ.get("SHLO_JIT_RANDOM", "16"))
LOW = float(np.finfo(np.float32).min)
Arrays = list[Any]


def scores(q: Any, k: Any) -> Any:
    return jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4


def attend(weights: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def masked(inside: Any, q: Any, k: Any, v: Any, low: float = -np.inf) -> Any:
    return attend(jax.nn.softmax(jnp.where(inside, scores(q, k), low), -1), v)


def places(q: Any, k: Any) -> tuple[Any, Any]:
    return jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None]


def prefix(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    return masked(jnp.arange(k.shape[2]) < first, q, k, v)


def causal(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    row, key = places(q, k)
    return masked(row + first >= key, q, k, v)


def triangle(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    return masked(jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool)), q, k, v)


def window(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    row, key = places(q, k)
    return masked((key <= row + first) & (key > row + first - 40), q, k, v, LOW)


def padded(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """Each batch has a length; those of length 0 have no key, and NaN as their result."""
    return masked(jnp.arange(k.shape[2]) < lengths[:, None, None, None], q, k, v)


def added(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    inside = jnp.arange(k.shape[2]) < lengths[:, None, None, None]
    return attend(jax.nn.softmax(scores(q, k) + jnp.where(inside, 0, -1e9).astype(q.dtype), -1), v)


def from_numbers(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """The mask is computed by arithmetic, as in BERT."""
    return attend(jax.nn.softmax(scores(q, k) + (1 - data[:, None].astype(q.dtype)) * LOW, -1), v)


def divided_late(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """Weights are multiplied with the mask, and their sum divides the result."""
    inside = jnp.arange(k.shape[2]) <= first
    masked = jnp.where(inside, scores(q, k), LOW)
    weights = jnp.exp(masked - masked.max(-1, keepdims=True)) * inside
    return attend(weights, v) / weights.sum(-1)[..., None]


def from_data(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    return masked(data[:, None], q, k, v)


def zeroed(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """The softmax itself takes the mask."""
    row, key = places(q, k)
    return attend(jax.nn.softmax(scores(q, k), -1, where=jnp.broadcast_to(key <= row + first, data[:, None].shape)), v)


def with_weights(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """The weights are a result, too, so none may be left out."""
    weights = jax.nn.softmax(jnp.where(jnp.arange(k.shape[2]) <= first, scores(q, k), -np.inf), -1)
    return attend(weights, v), weights


def with_entropy(q: Any, k: Any, v: Any, first: Any, lengths: Any, data: Any) -> Any:
    """Another sum over the row, to which masked scores contribute."""
    raw = scores(q, k)
    weights = jax.nn.softmax(jnp.where(jnp.arange(k.shape[2]) <= first, raw, -np.inf), -1)
    return attend(weights, v), raw.sum(-1)


FORMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "prefix": (prefix, True), "causal": (causal, True), "triangle": (triangle, True), "window": (window, True),
    "padded": (padded, True), "added": (added, True), "from data": (from_data, True), "zeroed": (zeroed, False),
    "from numbers": (from_numbers, True), "divided late": (divided_late, True),
    "with weights": (with_weights, False), "with entropy": (with_entropy, False),
}  # fmt: skip
"""Functions of q, k, v, a position, lengths and a mask; and whether the row program leaves out keys."""


def arguments(r: np.random.Generator, rows: int, keys: int, depth: int = 16) -> Arrays:
    batch, heads = 2, 2
    q, k, v = (r.standard_normal((batch, heads, n, depth), np.float32) for n in (rows, keys, keys))
    data = r.random((batch, rows, keys)) < 0.3
    data[..., int(keys * r.random()) :] = False
    data[..., 0] = True
    lengths = r.integers(0, keys + 1, batch)
    return [q, k, v, np.int32(r.integers(keys)), lengths.astype(np.int32), data]


def check(function: Callable[..., Any], given: Arrays, **options: Any) -> Any:
    """Compares with XLA, in guarded memory, and for several numbers of threads. Returns the executable."""
    lowered = jax.jit(function, keep_unused=True).lower(*given)
    want = [np.asarray(v) for v in jax.tree.leaves(lowered.compile()(*given))]
    exe = guarded.compile(lowered.as_text(), threads=1, **options)
    found = exe(*given)
    got = found if isinstance(found, tuple) else (found,)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)
    for threads in (2, 3, 8):
        again = shlo_jit.compile(lowered.as_text(), threads=threads, **options)(*given)
        for a, b in zip(again if isinstance(again, tuple) else (again,), got, strict=True):
            assert a.tobytes() == b.tobytes(), threads
    return exe


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("rows", "keys"), [(1, 200), (4, 513), (70, 256), (160, 160)])
@pytest.mark.parametrize("name", FORMS)
def test_masks_of_positions(name: str, rows: int, keys: int) -> None:
    function, leaves_out = FORMS[name]
    r = np.random.default_rng([rows, keys, len(name)])
    exe = check(function, arguments(r, rows, keys), assume_finite=True)
    notes = exe.text("schedule")
    assert ("masked-keys" in notes and "scores" in notes) or not leaves_out
    assert "weights, scores" not in notes or leaves_out or name == "zeroed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_many_random_masks(seed: int) -> None:
    r = np.random.default_rng(seed)
    name = [*FORMS][seed % len(FORMS)]
    given = arguments(r, int(r.integers(1, 140)), int(r.integers(128, 700)), int(r.choice([8, 24, 64, 80])))
    check(FORMS[name][0], given, assume_finite=bool(r.integers(2)))


def test_without_a_promise_values_are_tested() -> None:
    """Many rows: the test costs little. A number that is not finite has its effect on all rows of its head."""
    given = arguments(np.random.default_rng(1), 40, 300)
    exe = check(causal, given)
    assert "masked-keys" in exe.text("schedule")
    given[2][0, 1, 299, 3] = np.inf
    check(causal, given)
    given[2][1, 0, 250, 2] = np.nan
    check(causal, given)


def test_without_a_promise_scores_are_tested() -> None:
    """The mask's value is finite, so scores must be far above it. If all scores of a row are below, its weights are
    those of masked keys."""
    given = arguments(np.random.default_rng(6), 40, 300)
    exe = check(window, given)
    assert "masked-keys" in exe.text("schedule")
    given[0][0, 1, 7], given[1][0, 1] = -1e25, 1e25
    with np.errstate(over="ignore", invalid="ignore"):
        check(window, given)
    given[0][0, 1, 7, 3] = np.nan
    check(window, given)


def test_without_a_promise_few_rows_and_added_numbers_compute_all_keys() -> None:
    """A test of the values would cost as much as the product, or would not be enough."""
    for function, rows in ((prefix, 4), (added, 40)):
        exe = check(function, arguments(np.random.default_rng(2), rows, 300))
        assert "masked-keys" not in exe.text("schedule")


@pytest.mark.parametrize(("heads", "rows", "keys", "depth"), [(2, 7, 1100, 40), (3, 3, 700, 64), (5, 1, 520, 64)])
def test_threads_share_the_columns_of_some_heads(heads: int, rows: int, keys: int, depth: int) -> None:
    """Caches of few heads: those that are left when each thread has had the same number are cut into columns."""
    r = np.random.default_rng(heads)
    given: Arrays = [r.standard_normal((1, heads, n, depth), np.float32) for n in (rows, keys, keys)]
    for position in (0, 100, keys):
        exe = check(prefix, [*given, np.int32(position), *arguments(r, 1, 1)[4:]])
    notes = exe.text("schedule")
    assert "masked-keys" in notes and "uneven-batches" in notes
    given[2][0, 1, keys - 1, depth - 1], given[2][0, 0, 0, 1] = np.nan, np.inf
    check(prefix, [*given, np.int32(100), *arguments(r, 1, 1)[4:]])

    def heads_last(*values: Any) -> Any:
        return prefix(*values).transpose(0, 2, 1, 3).reshape(rows, heads * depth)

    exe = check(heads_last, [*given, np.int32(200), *arguments(r, 1, 1)[4:]])
    assert "uneven-batches" in exe.text("schedule")


def test_ranges_that_follow_from_many_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether values are finite is computed from all that a program has done before."""
    monkeypatch.setattr(tuning, "ORDER_SEARCH", 60)
    monkeypatch.setattr(tuning, "ROW_BLOCK_OPERAND_BYTES", 0)

    def late(q: Any, k: Any, v: Any, *others: Any) -> Any:
        for _ in range(40):
            v = jnp.cumsum(v, 3) * 0.01
        return causal(q, k[1], v[1], *others)

    given = arguments(np.random.default_rng(8), 40, 300)
    given[1:3] = [np.stack([x, x]) for x in given[1:3]]
    exe = check(late, given)
    assert "for the product of weights and values, weights, scores" in exe.text("schedule")


def test_rows_without_keys_have_equal_weights() -> None:
    """The mask's value is finite, so the scores of a row without keys are all the same."""
    given = arguments(np.random.default_rng(3), 6, 200)
    given[4][:] = 0, 150
    check(added, given, assume_finite=True)
    given[3] = np.int32(-300)
    check(window, given, assume_finite=True)


def layers(q: Any, k: Any, v: Any, first: Any) -> Any:
    """Every iteration reads a layer of caches [heads, layers, keys, numbers]. The heads of a layer are apart, so products
    and softmax are separate steps."""

    def one(x: Any, layer: Any) -> Any:
        keys, values = (jax.lax.dynamic_index_in_dim(c, layer, 1, keepdims=False) for c in (k, v))
        found = jnp.einsum("hqd,hkd->hqk", x, keys) / 4
        weights = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= first, found, -jnp.inf), -1)
        return jnp.einsum("hqk,hkd->hqd", weights, values), None

    return jax.lax.scan(one, q, jnp.arange(k.shape[1]))[0]


@pytest.mark.parametrize("rows", [1, 5])
def test_separate_steps_leave_out_keys_too(rows: int) -> None:
    r = np.random.default_rng(rows)
    given: Arrays = [r.standard_normal(shape, np.float32) for shape in ((6, rows, 16), *[(6, 3, 400, 16)] * 2)]
    for first in (0, 63, 130, 399):
        exe = check(layers, [*given, np.int32(first)], assume_finite=True)
    notes = exe.text("schedule")
    assert "a range of the columns" in notes and "a range of the terms" in notes
    want = exe(*given, np.int32(100))
    for array in given[1:]:
        array[:, :, 128:] = np.nan
    assert exe(*given, np.int32(100)).tobytes() == want.tobytes()


def test_what_is_left_out_is_not_read() -> None:
    """Numbers beyond the keys that are left have no effect, although their products with zeros were NaN."""
    given = arguments(np.random.default_rng(4), 3, 512)
    given[3] = np.int32(100)
    lowered = jax.jit(prefix, keep_unused=True).lower(*given).as_text()
    exe = shlo_jit.compile(lowered, assume_finite=True)
    want = exe(*given)
    for array in given[1:3]:
        array[:, :, 128:] = np.nan
    assert exe(*given).tobytes() == want.tobytes()


# ---------------------------------------------------------------------------- numbers that are not finite, or not low
BATCH, ROWS, KEYS, DEPTH = 4, 32, 256, 16
HUGE = float(np.float32(-3e38))


def product(q: Any, k: Any) -> Any:
    return jnp.einsum("bmd,bkd->bmk", q, k)


def sums(weights: Any, v: Any) -> Any:
    return jnp.einsum("bmk,bkd->bmd", weights, v)


def over_sum(e: Any) -> Any:
    return e / e.sum(-1, keepdims=True)


def times_inverse(e: Any) -> Any:
    return e * (1 / e.sum(-1, keepdims=True))


def soft(s: Any) -> Any:
    return over_sum(jnp.exp(s - s.max(-1, keepdims=True)))


def first_keys(s: Any, low: Any = -np.inf) -> Any:
    return jnp.where(jnp.arange(KEYS) < 64, s, jnp.asarray(low, s.dtype))


def same_as_reference(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Compares with the reference interpreter. Returns the executable."""
    with jax.enable_x64(True):
        text = jax.jit(function, keep_unused=True).lower(*given).as_text()
    exe = shlo_jit.compile(text, **options)
    with np.errstate(all="ignore"):
        (want,) = evaluate(shlo_jit.parse(text), *given)
    np.testing.assert_allclose(exe(*given), want, rtol=1e-4, atol=1e-4)
    return exe


def numbers() -> list[np.ndarray]:
    r = np.random.default_rng(21)
    return [r.standard_normal((BATCH, n, DEPTH), np.float32) for n in (ROWS, KEYS, KEYS)]


def each_row(usual: float, first: float) -> np.ndarray:
    rows = np.full((BATCH, ROWS, 1), usual, np.float32)
    rows[0, 0] = first
    return rows


def keys_below(last: int) -> np.ndarray:
    return np.broadcast_to(np.arange(KEYS) < last, (BATCH, ROWS, KEYS)).copy()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_mask_that_hides_rows_of_nan(number: float) -> None:
    """The weights of such a row are all NaN, also where no other mask hides them."""
    q, k, v = numbers()
    q[0, 0, 0], k = number, np.abs(k)

    def dropped(q: Any, k: Any, v: Any, drop: Any) -> Any:
        return sums(jnp.where(drop, 0, soft(first_keys(product(q, k)))), v)

    def kept(q: Any, k: Any, v: Any, inside: Any, keep: Any) -> Any:
        return sums(jnp.where(keep, soft(jnp.where(inside, product(q, k), -jnp.inf)), 0), v)

    def low_again(q: Any, k: Any, v: Any, keep: Any) -> Any:
        s = first_keys(product(q, k))
        return sums(jnp.exp(jnp.where(keep, s - s.max(-1, keepdims=True), -jnp.inf)), v)

    same_as_reference(dropped, q, k, v, keys_below(128))
    same_as_reference(kept, q, k, v, keys_below(0), keys_below(64))
    same_as_reference(kept, q, k, v, keys_below(64), keys_below(256) & ~keys_below(128))
    same_as_reference(low_again, q, k, v, ~keys_below(128))


def test_rows_that_a_mask_leaves_out_keep_their_ranges() -> None:
    """A softmax of rows without keys is NaN, and some libraries set it to zero."""
    q, k, v = numbers()
    rows = np.arange(BATCH * ROWS).reshape(BATCH, ROWS, 1) % 5 > 0

    def safe(q: Any, k: Any, v: Any, rows: Any) -> Any:
        s = jnp.where(rows, first_keys(product(q, k)), -jnp.inf)
        return sums(jnp.where((s == -jnp.inf).all(-1, keepdims=True), 0, soft(s)), v)

    assert "masked-keys" in same_as_reference(safe, q, k, v, rows).text("schedule")

    def equal(q: Any, k: Any, v: Any, rows: Any) -> Any:
        return sums(soft(jnp.where(rows, first_keys(product(q, k), HUGE), HUGE)), v)

    same_as_reference(equal, q, k, v, rows)


Steps = dict[str, tuple[Callable[[Any, Any], Any], np.ndarray, bool]]
ROW_STEPS: Steps = {
    "times infinity": (lambda s, r: jnp.exp(first_keys(s)) * r, each_row(1, np.inf), False),
    "over zero": (lambda s, r: jnp.exp(first_keys(s)) / r, each_row(1, 0), False),
    "minus -infinity": (lambda s, r: jnp.exp(first_keys(s) - r), each_row(0, -np.inf), False),
    "minus the mask's value": (
        lambda s, r: jnp.where(jnp.arange(KEYS) < 64, 0, jnp.exp(first_keys(s, -1e30) - r)), each_row(0, -1e30), False
    ),
    "maximum of other rows": (
        lambda s, r: jnp.exp(first_keys(s) - (s + r).max(-1, keepdims=True)), each_row(0, -np.inf), False
    ),
    "minus the mask's value, masked again": (
        lambda s, r: soft(jnp.where(jnp.arange(KEYS) >= 32, first_keys(s, HUGE) - r, HUGE)), each_row(0, HUGE), False
    ),
    "sum of signed numbers": (
        lambda s, r: over_sum(first_keys(jnp.where(jnp.arange(KEYS) % 2 == 0, 1, -1) * r * jnp.exp(s), 0)),
        each_row(1, np.inf), False,
    ),
    "without the maximum": (
        lambda s, r: over_sum(jnp.exp(first_keys(s + r))), each_row(0, -300), True
    ),
    "the maximum and a constant": (
        lambda s, r: jnp.exp(first_keys(s + r) - jnp.maximum(first_keys(s + r).max(-1, keepdims=True), -5)),
        each_row(0, -np.inf), True,
    ),
    "times one over the sum": (
        lambda s, r: times_inverse(jnp.exp(first_keys(s + r) - first_keys(s + r).max(-1, keepdims=True))),
        each_row(0, np.inf), True,
    ),
    "halved": (lambda s, r: soft(first_keys(s + r) / 2 - 3) * 0.5, each_row(0, np.nan), True),
}  # fmt: skip
"""Weights of scores and a number for each row; these numbers; and whether keys are left out without a promise."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ROW_STEPS)
def test_numbers_of_rows(name: str) -> None:
    weights, rows, leaves_out = ROW_STEPS[name]
    q, k, v = numbers()

    def attended(q: Any, k: Any, v: Any, rows: Any) -> Any:
        return sums(weights(product(q, k), rows), v)

    exe = same_as_reference(attended, q, k, np.abs(v), rows)
    assert ("masked-keys" in exe.text("schedule")) == leaves_out


def test_masks_without_common_keys() -> None:
    """Their ranges overlap, but no key is left, so the weights of the row are equal."""
    q, k, v = numbers()

    def twice(q: Any, k: Any, v: Any, one: Any, two: Any) -> Any:
        return sums(soft(jnp.where(two, jnp.where(one, product(q, k), HUGE), HUGE)), v)

    one, two = np.zeros((2, BATCH, ROWS, KEYS), bool)
    one[..., [0, 200]], two[..., 5] = True, True
    same_as_reference(twice, q, k, v, one, two)
    same_as_reference(twice, q, k, v, one, two, assume_finite=True)


LARGE: dict[str, tuple[Callable[[Any], Any], Any, float]] = {
    "f16 products": (lambda s: first_keys(s.astype(jnp.float32), HUGE), np.float16, 300),
    "converted to f16": (lambda s: first_keys(s.astype(jnp.float16).astype(jnp.float32), HUGE), np.float32, 300),
    "scaled up and down": (lambda s: first_keys((s * np.float32(1e30)) / np.float32(1e30), HUGE), np.float32, 1e5),
    "a factor of zero": (lambda s: first_keys(s * 1e-200 * 1e-200, -1e300), np.float64, 3),
    "an infinite factor": (lambda s: first_keys(s / 5e-324, -1e300), np.float64, 3),
}
"""Masked scores, their type, and the size of numbers that the scores are a product of."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", LARGE)
def test_scores_that_overflow_on_the_way(name: str) -> None:
    scores, dtype, size = LARGE[name]
    q, k, v = numbers()
    q, k = np.full_like(q, -size, dtype), np.full_like(k, size, dtype)
    same_as_reference(lambda q, k, v: sums(soft(scores(product(q, k))), v), q, k, v.astype(np.result_type(dtype, v)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "numbers",
    [
        "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>",
        "1 : i64",
        "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, ranged = #shlo_jit.ranged",
    ],
)
def test_a_program_cannot_call_the_product_itself(numbers: str) -> None:
    """It may read the terms of its ranges without a test."""
    text = f"""func.func @main(%x: tensor<8x200xf32>, %y: tensor<200x8xf32>, %s: tensor<8xi64>) -> tensor<8x8xf32> {{
      %0 = stablehlo.custom_call @shlo_jit.product_in_range(%x, %y, %s, %s) {{dot_dimension_numbers = {numbers}}}
        : (tensor<8x200xf32>, tensor<200x8xf32>, tensor<8xi64>, tensor<8xi64>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }}"""
    with pytest.raises(shlo_jit.VerifyError, match="reserved for the compiler"):
        shlo_jit.compile(text)
