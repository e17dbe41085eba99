"""Every operation of XLA's documents: its example runs, its results equal XLA's, and the page lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from lax_names import NOT_IN_JAX, Lax

import shlo_jit
from shlo_jit import builder
from shlo_jit.builder import operations
from shlo_jit.builder.operation_table import OLDER, OPERATIONS, SAMPLES, TODAY, Operation
from shlo_jit.reference.interpreter import evaluate

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "xla_operations.md"
X, I = SAMPLES["x"], SAMPLES["i"]
TRIED_IN_JAX = [op for op in OPERATIONS if op.function not in NOT_IN_JAX]
HAVE_NO_REFERENCE = (
    "all_",
    "async",
    "collective",
    "cross",
    "reduce_scatter",
    "ragged_all",
    "rng_",
    "partition",
    "replica",
)


def leaves(results: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(results)]


def assert_close(got: Any, wanted: Any) -> None:
    got, wanted = leaves(got), leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def run(operation: Operation) -> Any:
    found = operations.example(operation)
    return shlo_jit.jit(found.function)(*found.arguments)


@pytest.mark.parametrize("operation", TRIED_IN_JAX, ids=lambda op: op.name)
@pytest.mark.sampled(5)
def test_gives_what_xla_gives(operation: Operation) -> None:
    """Evaluates the example with JAX in place of the builder."""
    wanted = operations.example(operation, Lax())
    with jax.enable_x64(True):
        arguments = wanted.arguments
        if operation.function not in ("sort", "top_k", "rng_bit_generator"):
            arguments = [jax.numpy.asarray(a) for a in arguments]
        expected = wanted.function(*arguments)
        got = run(operation)
        if operation.function == "cholesky":
            got, expected = np.tril(got), np.tril(expected)
        assert_close(got, expected)


@pytest.mark.parametrize("operation", [op for op in OPERATIONS if not op.host], ids=lambda op: op.name)
@pytest.mark.sampled(5)
def test_gives_what_the_reference_interpreter_gives(operation: Operation) -> None:
    if operation.function.startswith(HAVE_NO_REFERENCE) or operation.name == "BuildPartitionId":
        pytest.skip("the meaning takes several processes, or a state, which the interpreter has not")
    module = operations.module_of(operation)
    found = operations.example(operation)
    assert_close(leaves(run(operation)), list(evaluate(module, *found.arguments)))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_programs_are_printed_and_read_again(operation: Operation) -> None:
    module = operations.module_of(operation)
    read = shlo_jit.parse(str(module))
    assert read == module and str(read) == str(module)
    assert shlo_jit.verify(module, warnings=True) == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_functions_are_documented(operation: Operation) -> None:
    function = getattr(builder, operation.function)
    assert function.__doc__ and operation.function in builder.__all__
    assert operation.function + "(" in operation.example.replace("b.copy_done", "copy_done")


# ---------------------------------------------------------------------------- examples of other kinds
def example(name: str) -> Any:
    operation = next(op for op in OPERATIONS if op.name == name)
    found = operations.example(operation)
    return shlo_jit.jit(found.function).compile(*found.arguments), found.arguments


def test_infeed_takes_what_the_host_put() -> None:
    exe, arguments = example("Infeed")
    exe.infeed.put(X)
    assert_close(exe(*arguments), X + X)


def test_outfeed_leaves_an_item() -> None:
    exe, arguments = example("Outfeed")
    exe(*arguments)
    assert_close(exe.outfeed.get(time_out=5), (X, I))


@pytest.mark.parametrize(
    ("name", "wanted"), [("Recv", 3 * X), ("RecvDone", X), ("RecvToHost", 2 * X * X), ("RecvWithTokens", 3 * X)]
)
def test_recv_takes_what_the_host_sent(name: str, wanted: np.ndarray) -> None:
    exe, arguments = example(name)
    exe.channel(7).put(2 * X)
    assert_close(exe(*arguments), wanted)


@pytest.mark.parametrize("name", ["Send", "SendDone", "SendToHost", "SendWithTokens"])
def test_send_gives_the_host_a_value(name: str) -> None:
    exe, arguments = example(name)
    exe(*arguments)
    assert_close(exe.channel(7).get(time_out=5), X)


def test_a_parameter_is_one_more_argument() -> None:
    exe, _ = example("Parameter")
    assert_close(exe(X, 2 * X), 3 * X)


def test_random_numbers_are_distributed_as_they_should() -> None:
    normal, uniform = (run(next(op for op in OPERATIONS if op.name == name)) for name in ("RngNormal", "RngUniform"))
    assert abs(normal.mean() - 1) < 0.5 and 1.5 < normal.std() < 2.5
    assert uniform.min() >= 1 and uniform.max() < 2 and 1.4 < uniform.mean() < 1.6


def test_a_state_of_128_bits_is_counted_on() -> None:
    before, after = run(next(op for op in OPERATIONS if op.name == "RngGetAndUpdateState"))
    state = SAMPLES["key"]
    number = int(state[0]) + (int(state[1]) << 64) + 5
    assert_close(before, state)
    assert [int(n) for n in after] == [number & (2**64 - 1), number >> 64 & (2**64 - 1)]
    carried = shlo_jit.jit(lambda s: builder.rng_get_and_update_state(s, 3)[1])(np.array([2**64 - 1, 4], np.uint64))
    assert carried.tolist() == [2, 5]


def test_batch_norm_grad_is_the_derivative() -> None:
    from jax import numpy as jnp

    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, 5, 3)).astype(np.float32), rng.standard_normal((2, 5, 3)).astype(np.float32)
    scale = np.array([1, 2, 4], np.float32)

    def norm(x: Any, scale: Any, offset: Any) -> Any:
        return (x - x.mean((0, 1))) / jnp.sqrt(x.var((0, 1)) + 0.1) * scale + offset

    _, vjp = jax.vjp(norm, x, scale, scale)
    f = shlo_jit.jit(lambda *a: builder.batch_norm_grad(*a, 0.1, 2))
    assert_close(f(x, scale, x.mean((0, 1)), x.var((0, 1)), g), vjp(g))


def test_convolutions_with_labels() -> None:
    image, kernel = SAMPLES["image"], SAMPLES["kernel"]
    labels = ("NCHW", "OIHW", "NHWC")
    got = [run(next(op for op in OPERATIONS if op.name == n)) for n in ("ConvGeneral", "ConvWithGeneralDimensions")]
    for result, padding in zip(got, ([(1, 0), (0, 2)], "VALID"), strict=True):
        assert_close(result, jax.lax.conv_general_dilated(image, kernel, (1, 1), padding, dimension_numbers=labels))


def test_ragged_dot_multiplies_groups_of_rows() -> None:
    w, t = SAMPLES["w"], SAMPLES["t"]
    rhs = t[:, :, :2].transpose(0, 2, 1)
    got = run(next(op for op in OPERATIONS if op.name == "RaggedDot"))
    assert_close(got, np.stack([w[0] @ rhs[0], w[1] @ rhs[2], w[2] @ rhs[3]]))


def test_a_custom_call_runs_a_function_of_the_host() -> None:
    f = shlo_jit.jit(
        lambda x: builder.custom_call("twice", [x], ["f32[2,3]", "s32[]"]), custom_calls={"twice": lambda x: (2 * x, 5)}
    )
    assert_close(f(X), (2 * X, np.int32(5)))


def test_dynamic_reshape_with_a_bound() -> None:
    f = shlo_jit.jit(lambda x, n: builder.dynamic_reshape(x, [n, 2], (3, 2), (True, False)).sum())
    assert_close(f(X, np.int32(3)), X.sum())


# ---------------------------------------------------------------------------- the page and the documents
def test_the_page_has_the_table() -> None:
    """`python -m shlo_jit.builder.operations docs/xla_operations.md` generates it."""
    text = PAGE.read_text(encoding="utf-8")
    assert operations.written_into(text) == text


def test_the_counts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    operations.main([])
    first = capsys.readouterr().out.splitlines()[0]
    counts = operations.counts()
    assert f"{counts[TODAY]} in today's document" in first and f"{counts[OLDER]} in the older one" in first


@pytest.mark.parametrize("name", ["Clamp", "while_"])
def test_an_example_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    operations.main([name])
    assert "module" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        operations.main(["no_such_operation"])
