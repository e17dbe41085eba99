"""Known custom calls are checked against their records: types, ranks, extents, numbers and options."""

from __future__ import annotations

from dataclasses import replace

import guarded
import numpy as np
import pytest
from call_programs import CALLS, Call, other_element, other_extents
from refusing import refused as refused_with

import shlo_jit
from shlo_jit.ops.lapack_records import OLD_ROUTINES, ROUTINES


def refused(call: Call) -> bool:
    """Whether the verifier rejects a call, with its line and a message."""
    text = call.text()
    found = shlo_jit.verify(text)
    for d in found:
        assert d.line == 1 + next(i for i, line in enumerate(text.splitlines()) if "custom_call" in line), d
        assert d.op == "stablehlo.custom_call" and len(d.message) > 40
    return bool(found)


LAPACK = [name for name in CALLS if name.startswith(("lapack_", "blas_", "tridiagonal_"))]
ONE_LETTER = [name for name in LAPACK if CALLS[name].target.startswith(("lapack_s", "blas_s", "lapack_z"))]


@pytest.mark.parametrize("name", CALLS)
def test_valid(name: str) -> None:
    assert shlo_jit.verify(CALLS[name].text()) == []


def test_all_routines_are_there() -> None:
    assert len(LAPACK) == 4 * (len(ROUTINES) + len(OLD_ROUTINES))


def _free_of(call: Call, what: str, index: int) -> bool:
    """Whether a LAPACK call leaves it open: workspaces, the length of dl and du, one more row of what is multiplied."""
    name = call.names[what == "results"][index]
    return name in ("work", "rwork", "vlwork", "vrwork")


@pytest.mark.parametrize("name", ONE_LETTER)
def test_other_elements(name: str) -> None:
    call = CALLS[name]
    for what in ("operands", "results"):
        for i, t in enumerate(getattr(call, what)):
            numbers = what == "operands" and call.numbers[i] is not None
            if numbers or _free_of(call, what, i):
                continue
            for other in other_element(t):
                assert refused(call.with_type(what, i, other)), (what, i, other)


@pytest.mark.parametrize("name", ONE_LETTER)
def test_other_shapes(name: str) -> None:
    """Every extent of every operand and result is changed separately."""
    call = CALLS[name]
    for what in ("operands", "results"):
        for i, t in enumerate(getattr(call, what)):
            port = call.names[what == "results"][i]
            for k, other in enumerate(other_extents(t)):
                if _free_of(call, what, i) or ((port, k) in {("a", 1), ("tau", 1)} and what == "operands"):
                    continue  # more columns than used reflectors, or one more reflector
                assert refused(call.with_type(what, i, other)), (what, i, other)


@pytest.mark.parametrize("name", ONE_LETTER)
def test_other_numbers(name: str) -> None:
    """Operands that are numbers must agree with the shapes and be in range."""
    call = CALLS[name]
    for i, number in enumerate(call.numbers):
        if number is not None and call.names[0][i] != "lwork":
            for wrong in (-1, 77):
                numbers = (*call.numbers[:i], wrong, *call.numbers[i + 1 :])
                assert refused(replace(call, numbers=numbers)), (call.names[0][i], wrong)


@pytest.mark.parametrize("name", CALLS)
def test_missing_values(name: str) -> None:
    call = CALLS[name]
    assert refused(replace(call, operands=(*call.operands, "!stablehlo.token"))) or call.target in FREE
    if call.names[1][-1:] == ("work",):
        call = replace(call, results=call.results[:-1])
    if call.operands:
        fewer = replace(call, operands=call.operands[:-1], numbers=call.numbers[: len(call.operands) - 1])
        assert refused(fewer) or call.target in FREE or "alpha" in call.names[0]
    if call.results:
        assert refused(replace(call, results=call.results[:-1])) or call.target in FREE


FREE = {"Sharding", "MoveToHost", "dce_sink", "AllocateBuffer", "shape_assertion"}
"""Targets that accept any operands; senseless calls are rejected by the compiler."""


@pytest.mark.parametrize("name", [n for n in LAPACK if CALLS[n].config])
def test_options(name: str) -> None:
    call = CALLS[name]
    for i, (option, _) in enumerate(call.config):
        without = (*call.config[:i], *call.config[i + 1 :])
        assert refused(replace(call, config=without))
        for wrong in ("88 : ui8", '"UL"', "-1 : i64", "1.5 : f32", "unit", "99999 : i64"):
            assert refused(replace(call, config=(*without, (option, wrong)))), (option, wrong)


@pytest.mark.parametrize("name", [n for n in ONE_LETTER if "lapack_s" in n or "blas_s" in n])
def test_unknown_numbers_are_not_compiled(name: str) -> None:
    """Sizes may be arguments of the function for the verifier, but not for the compiler."""
    call = CALLS[name]
    if not any(number is not None for number in call.numbers):
        return
    free = replace(call, numbers=())
    assert not refused(free)
    with refused_with(shlo_jit.UnsupportedError, "target", (2, 10), shows="constant") as caught:
        shlo_jit.compile(free.text(), cache=False)
    assert caught.value.line > 0


@pytest.mark.parametrize("name", [n for n in LAPACK if "_s" in n or "_z" in n])
def test_valid_ones_stay_inside(name: str) -> None:
    """Calls run next to inaccessible pages, with operands that are not writable even temporarily (as ormqr would)."""
    exe = shlo_jit.compile(CALLS[name].text(), cache=False)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, p.shape).astype(p.dtype) for p in exe.inputs]
    for at_end in (True, False):
        assert len(guarded.call(exe, arrays, at_end)) == len(CALLS[name].results)


def aliases(*pairs: tuple[int, int]) -> str:
    """Returns the attribute of aliases, given as pairs of a result and an operand."""
    texts = [
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{result}], operand_index = {operand}, operand_tuple_indices = []>"
        for result, operand in pairs
    ]
    return f"output_operand_aliases = [{', '.join(texts)}]"


@pytest.mark.parametrize("pairs", [[(0, 0), (1, 1)], [(0, 1), (1, 0)], [(0, 0), (0, 1)], [(0, 0), (1, 0), (2, 0)]])
def test_aliases_change_nothing(pairs: list[tuple[int, int]]) -> None:
    """Results do not depend on declared aliases of operands and results, even of one result with two operands."""
    call = CALLS["lapack_sgtsv_ffi"]
    rng = np.random.default_rng(1)
    exe = shlo_jit.compile(call.text(), cache=False)
    arrays = [rng.standard_normal(p.shape).astype(p.dtype) for p in exe.inputs]
    other = shlo_jit.compile(replace(call, attributes=aliases(*pairs)).text(), cache=False)
    for x, y in zip(exe(*arrays), other(*arrays), strict=True):
        np.testing.assert_array_equal(x, y)


LAYOUT = "operand_layouts = [{0}, {0}], result_layouts = [{0}]"


SHAPED = """func.func @main(%s: tensor<2xi32>, %x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>) {
  %e = stablehlo.constant dense<> : tensor<0xi32>
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%s, %x, %e) {
    indices_of_shape_operands = dense<[0, 2]> : tensor<2xi64>, mhlo.backend_config = {uplo = 76 : ui8},
    operand_layouts = [dense<0> : tensor<1xindex>, dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1,
      operand_tuple_indices = []>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]
  } : (tensor<2xi32>, tensor<3x3xf32>, tensor<0xi32>) -> (tensor<3x3xf32>, tensor<i32>)
  return %0#0, %0#1 : tensor<3x3xf32>, tensor<i32>
}"""


def test_operands_that_say_shapes_are_beside_the_calls_own() -> None:
    shape = np.array([3, 3], np.int32)
    factor, info = shlo_jit.compile(SHAPED, cache=False)(shape, 4 * np.eye(3, dtype=np.float32))
    assert info == 0
    assert np.tril(factor).tolist() == (2 * np.eye(3)).tolist()


@pytest.mark.parametrize(
    ("old", "new", "label", "shows"),
    [
        ("dense<[0, 2]> : tensor<2xi64>", "dense<0> : tensor<1xi64>", "indices_of_shape_operands", "1 for 2"),
        (
            "dense<[0, 2]> : tensor<2xi64>",
            "dense<[0, 3]> : tensor<2xi64>",
            "indices_of_shape_operands",
            "operand 3 of 3",
        ),
        (
            "dense<[0, 2]> : tensor<2xi64>",
            "dense<[0, -1]> : tensor<2xi64>",
            "indices_of_shape_operands",
            "operand -1 of 3",
        ),
        ("dense<[0, 2]> : tensor<2xi64>", "dense<[0, 1]> : tensor<2xi64>", "indices_of_shape_operands", "operand #1"),
        ("dense<[0, 2]> : tensor<2xi64>", '"first"', "indices_of_shape_operands", "array of integers"),
        ("operand_index = 1", "operand_index = 0", "alias", "shapes mismatch"),
    ],
)
def test_shape_operands_that_are_none(old: str, new: str, label: str, shows: str) -> None:
    assert old in SHAPED
    with refused_with(shlo_jit.VerifyError, label, (3, 10), shows):
        shlo_jit.compile(SHAPED.replace(old, new), cache=False)


def test_layouts() -> None:
    """A batch must stay in front. A matrix may be row-major or column-major; its shape is that in memory."""
    call = CALLS["lapack_strsm_ffi"]
    turned = replace(call, operands=("tensor<2x4x4xf32>", "tensor<2x4x3xf32>"), results=("tensor<2x4x3xf32>",))
    layout = LAYOUT.format("dense<[1, 2, 0]> : tensor<3xindex>")
    assert not refused(replace(turned, attributes=layout))
    assert refused(turned)
    assert refused(replace(turned, attributes=LAYOUT.format("dense<[0, 1, 2]> : tensor<3xindex>")))


@pytest.mark.parametrize(
    "name,old,new,label,shows",
    [
        ("lapack_sgeqrf_ffi", "tensor<2x3xf32>", "tensor<2x2xf32>", "target", "'tau'"),
        ("lapack_dpotrf_ffi", "tensor<2x3x3xf64>", "tensor<2x3x3xi8>", "target", "operand #0 'x'"),
        ("lapack_sorgqr_ffi", "tensor<2x2xf32>", "tensor<2x9xf32>", "target", "k = 9, n = 3, m = 4"),
        ("mhlo.topk7", "k = 3", "k = 7", "C2", "at least 7"),
        ("mhlo.topk7", "k = 3", "k = 2", "C3", ""),
        ("mhlo.topk7", "k = 3 : i64, ", "", "attribute", "'k'"),
        ("mhlo.topk7", "largest = true", "largest = 1 : i64", "attribute", "'largest'"),
        ("mhlo.erf6", "xf32", "xi32", "type", "operand #0"),
        ("stablehlo.dynamic_top_k9", "dense<3>", "dense<2>", "target", "'k' is [2]"),
        ("stablehlo.dynamic_top_k9", "2x5xf32", "2x2xf32", "C2", "at least 3"),
        ("stablehlo.dynamic_rng_bit_generator10", "dense<3>", "dense<4>", "target", "'shape' is [4]"),
        ("stablehlo.dynamic_rng_bit_generator10", "tensor<2xui64>", "tensor<3xui64>", "C2", "THREE_FRY"),
        ("stablehlo.dynamic_reduce_window11", "tensor<2x2xi32>", "tensor<3xi32>", "target", "'padding'"),
        ("stablehlo.dynamic_reduce_window11", "[@sum]", "[@main]", "target", "'main'"),
        ("stablehlo.dynamic_reduce_window11", "[@sum]", "[@none]", "target", "'none'"),
        ("stablehlo.dynamic_reduce_window11", "[@sum]", "[]", "target", "one function"),
        ("ApproxTopK12", "reduction_dim = 1", "reduction_dim = 2", "target", "reduction_dim 2"),
        ("ApproxTopK12", "top_k = 3", "top_k = 2", "target", "top_k = 2"),
        ("ApproxTopK12", "2x5xi32", "2x4xi32", "target", "2x4xi32"),
        ("ApproxTopK12", "2x3x", "2x6x", "target", "6 elements"),
        ("ApproxTopK12", "[@greater]", "[@main]", "target", "'main'"),
        ("cpu_csr_sparse_dense_ffi1", "tensor<4xi32>", "tensor<5xi32>", "target", "'tensor<4x2xf32>'"),
        ("cpu_csr_sparse_dense_ffi1", "tensor<5xi32>", "tensor<6xi32>", "target", "column"),
        ("cpu_csr_sparse_dense_ffi1", "tensor<5xf32>", "tensor<5xf64>", "target", "'f64'"),
        ("shape_assertion0", "tensor<i1>", "tensor<3xi1>", "target", "operand #0"),
        ("shape_assertion0", "tensor<i32>", "tensor<2xi32>", "target", "operand #1"),
    ],
)  # fmt: skip
def test_messages(name: str, old: str, new: str, label: str, shows: str) -> None:
    text = CALLS[name].text()
    assert old in text
    with refused_with(shlo_jit.VerifyError, label, shows=shows) as caught:
        shlo_jit.compile(text.replace(old, new), cache=False)
    assert caught.value.line > 0


@pytest.mark.parametrize(
    "name", ["lapack_sgeqrf_ffi", "lapack_spotrf", "mhlo.erf6", "stablehlo.dynamic_top_k9", "ApproxTopK12"]
)
def test_the_users_own_call_is_the_users(name: str) -> None:
    """A call that the user implements is not checked against a record, and the user's implementation runs."""
    call = replace(CALLS[name], operands=("tensor<3xi8>",), results=("tensor<5xi16>",), numbers=(), config=())
    seen = []

    def own(x: np.ndarray) -> np.ndarray:
        seen.append(x.copy())
        return np.arange(5, dtype=np.int16)

    text = replace(call, attributes="").text()
    exe = shlo_jit.compile(text, cache=False, custom_calls={call.target: own})
    assert exe(np.array([1, 2, 3], np.int8)).tolist() == [0, 1, 2, 3, 4]
    assert len(seen) == 1
    assert shlo_jit.verify(text)
    shlo_jit.register_custom_call(call.target, own)
    try:
        assert shlo_jit.verify(text) == []
    finally:
        shlo_jit.register_custom_call(call.target, None)
