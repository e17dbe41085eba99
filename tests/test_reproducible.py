"""`reproducible=True`: a row of a result has the same bits whatever the other rows are, and for any number of threads.

pytest -m slow tests/test_reproducible.py     all numbers of rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reproducible_cases import CASES, HEADS, LAYERS, SIZE, SLOTS, WIDTH, Case, decoder, everything, normal, weights

import shlo_jit
from shlo_jit import check_options
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.target import Target

FEW = (1, 3, 16)
MANY = (1, 2, 3, 8, 16, 64)
THREADS = (1, 2, 3, 8)


def outcome(case: Case, count: int, *, threads: int = 2, reproducible: bool = True, **options: Any) -> list[np.ndarray]:
    """Returns the results for the first rows. `options`: further options of `compile`."""
    arguments = [case.rows[:count], *case.others]
    text = jax.jit(case.function).lower(*arguments).as_text()
    exe = shlo_jit.compile(text, threads=threads, cache=False, reproducible=reproducible, **options)
    found = exe(*arguments)
    return [np.asarray(x) for x in (found if isinstance(found, tuple | list) else [found])]


def differs(case: Case, counts: Sequence[int], **options: Any) -> list[int]:
    """Returns the numbers of rows for which some row has other bits than for the largest number."""
    whole = outcome(case, counts[-1], **options)
    return [
        n
        for n in counts[:-1]
        if any(x.tobytes() != y[:n].tobytes() for x, y in zip(outcome(case, n, **options), whole, strict=True))
    ]


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str) -> None:
    assert not differs(CASES[name], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_rows(name: str) -> None:
    assert not differs(CASES[name], MANY)


def test_rows_differ_without_the_option() -> None:
    """Otherwise the cases above would say nothing."""
    assert differs(CASES["product"], FEW, reproducible=False)


@pytest.mark.parametrize("name", ["large scaled bytes", "grouped scales", "nibbles"])
def test_rounded_activations(name: str) -> None:
    """Sums of groups are added up in registers for few rows, by a loop for many."""
    assert not differs(CASES[name], (1, 3, 64), round_activations="int8")


@pytest.mark.parametrize("name", ["product", "nibbles", "softmax of a long row", "attention over a cache", "long sums"])
def test_threads(name: str) -> None:
    found = [outcome(CASES[name], 16, threads=threads) for threads in THREADS]
    assert all([x.tobytes() for x in arrays] == [x.tobytes() for x in found[0]] for arrays in found)


# ---------------------------------------------------------------------- a decoder
PROMPT = 100


def decoded(chunk: int, matrices: Sequence[np.ndarray]) -> tuple[np.ndarray, bytes]:
    """Returns the logits of a prompt that is computed in chunks, and the cache's bytes. The last chunk may be shorter."""
    tokens, cache = normal(PROMPT, SIZE), np.zeros((LAYERS, 2, SLOTS, HEADS, WIDTH), np.float32)
    compiled: dict[int, shlo_jit.Executable] = {}
    logits = []
    for start in range(0, PROMPT, chunk):
        x = tokens[start : start + chunk]
        arguments = [x, np.int32(start), cache, *matrices]
        if len(x) not in compiled:
            text = jax.jit(decoder).lower(*arguments).as_text()
            compiled[len(x)] = shlo_jit.compile(text, threads=2, cache=False, reproducible=True)  # type: ignore
        found, cache = compiled[len(x)](*arguments)
        logits.append(found)
    return np.concatenate(logits), cache.tobytes()


@pytest.mark.parametrize("kind", ["f32", pytest.param("bf16", marks=pytest.mark.slow), "bytes"])
def test_chunks_of_a_prompt(kind: str) -> None:
    matrices = weights(kind)
    whole, cache = decoded(PROMPT, matrices)
    assert np.isfinite(whole).all()
    for chunk in (1, 7, 64):
        found, own = decoded(chunk, matrices)
        assert found.tobytes() == whole.tobytes(), chunk
        assert own == cache, chunk


def test_integers_and_maxima_are_not_refused() -> None:
    x = np.arange(64, dtype=np.int32).reshape(8, 8)

    def f(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x.astype(jnp.float32)
        return jnp.cumsum(x, 0), jax.lax.cummax(y, 0), y.at[1].set(y[2]), x.at[1].add(x[2])

    found = shlo_jit.compile(jax.jit(f).lower(x).as_text(), cache=False, reproducible=True)(x)
    for got, want in zip(found, f(jnp.asarray(x)), strict=True):
        np.testing.assert_array_equal(got, np.asarray(want))


# ---------------------------------------------------------------------- other machines
MACHINES = {
    "256 bits": (256, 16, False),
    "128 bits": (128, 32, False),
    "512 bits": (512, 32, True),
    "64 bits": (64, 32, False),
}
"""Vector bits, registers, and whether masks are cheap: AVX2, NEON, AVX-512, RISC-V without vectors."""


def bits_on(machine: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Returns the bits of everything, compiled as for a machine with other registers. LLVM splits or widens its vectors
    for this one."""
    bits, registers, masks = MACHINES[machine]
    target = replace(resolve(), vector_bits=bits, vector_registers=registers, has_masks=masks, has_vnni=False)
    text, arguments = everything()
    with monkeypatch.context() as patch:
        patch.setattr(check_options, "_target", lambda *_: target)
        patch.setattr(Target, "is_x86", property(lambda _: False))  # instructions of AVX-512
        found = shlo_jit.compile(text, threads=2, cache=False, reproducible=True)(*arguments)
    return [np.asarray(x).tobytes() for x in found]


@pytest.mark.slow
def test_other_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes and registers of other machines, without their instructions: `aot/test_reproducible_targets.py` has
    these."""
    found = {machine: bits_on(machine, monkeypatch) for machine in MACHINES}
    first = found["256 bits"]
    for machine, results in found.items():
        assert [i for i, (x, y) in enumerate(zip(results, first, strict=True)) if x != y] == [], machine


@pytest.mark.parametrize("name", ["product", "layer norm", "feed-forward"])
def test_one_program_for_any_batch(name: str) -> None:
    """Code for any number of rows has the bits of code for one."""
    from jax import export

    case = CASES[name]
    (rows,) = export.symbolic_shape("b")
    given = [jax.ShapeDtypeStruct((rows, *case.rows.shape[1:]), case.rows.dtype)]
    given += [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in case.others]
    text = export.export(jax.jit(case.function))(*given).mlir_module()
    exe = shlo_jit.compile(text, dynamic="symbolic", threads=2, cache=False, reproducible=True)
    (whole,) = outcome(case, 64)
    for n in (2, 5, 64):
        assert np.asarray(exe(case.rows[:n], *case.others)).tobytes() == whole[:n].tobytes()
