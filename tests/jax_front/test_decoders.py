"""Decoders of several architectures in plain JAX, against XLA: prompts, tokens, and batches of different lengths."""

from __future__ import annotations

import jax
import numpy as np
import pytest

pytest.importorskip("rich")
from benchmarks.decoders import ARCHITECTURES, KINDS, VARIED, Program, Sizes, decoder

TOLERANCE = {"f32": 2e-4, "bf16": 2e-2, "int8": 2e-4, "int4": 2e-4}
"""bf16 rounds activations before each product: sums in another order may round to another number, a 256th apart. Twice
the largest difference (1.0e-2, with norms of heads); the other architectures differ by less than 1e-5."""


def compare(program: Program, counts: tuple[int, ...], tolerance: float) -> None:
    """Runs calls one after the other, of some tokens each, with the caches of the ones before."""
    ours, theirs, position = program.caches(), program.caches(), 0
    for count in counts:
        tokens, places = program.inputs(count, position)
        (found, ours), (want, theirs) = program.run(ours, tokens, places), program.run_xla(theirs, tokens, places)
        np.testing.assert_allclose(found, want, atol=tolerance, rtol=tolerance)
        position += count
    for found, want in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(found, want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_one_by_one(name: str, kind: str) -> None:
    """More tokens than a sliding window has slots."""
    compare(Program(decoder(name, Sizes(), kind), 1), (1,) * 12, TOLERANCE[kind])


@pytest.mark.parametrize("kind", ["f32", "int4"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_prompts_by_chunks(name: str, kind: str) -> None:
    compare(Program(decoder(name, Sizes(), kind), 11), (11, 11), TOLERANCE[kind])


@pytest.mark.parametrize("is_finite", [True, False], ids=["finite", "any numbers"])
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "mamba"])
def test_long_caches_of_few_heads(name: str, is_finite: bool) -> None:
    """Keys that masks and windows hide are left out, also where tasks share the columns of a head."""
    sizes = Sizes(width=384, heads=6, key_heads=3, slots=1024, window=300)
    made = decoder(name, sizes, "int8")
    program = Program(made, 1, threads=2, assume_finite=is_finite)
    notes = program.ours.text("schedule")
    assert notes.count("masked-keys") == notes.count("uneven-batches") == sizes.layers
    alone, ours = Program(made, 1, threads=1, assume_finite=is_finite), program.caches()
    random = np.random.default_rng(1)
    for cache in jax.tree.leaves(ours):
        cache[:] = random.standard_normal(cache.shape)
    for position in (0, 299, 1000, 1023):
        given, copy = program.inputs(1, position), jax.tree.map(np.array, ours)
        theirs = program.run_xla(jax.tree.map(np.array, ours), *given)[0]
        (found, ours), (same, _) = program.run(ours, *given), alone.run(copy, *given)
        np.testing.assert_allclose(found, theirs, atol=TOLERANCE["int8"], rtol=TOLERANCE["int8"])
        assert found.tobytes() == same.tobytes()


@pytest.mark.parametrize("kind", ["bf16", "int4"])
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in VARIED])
def test_a_scan_over_layers(name: str, kind: str) -> None:
    """Slots for caches whose rows are updated in place."""
    made = decoder(name, Sizes(slots=128), kind, scans=True)
    compare(Program(made, 1), (1,) * 4, TOLERANCE[kind])
    compare(Program(made, 1, 3), (1,) * 4, TOLERANCE[kind])


@pytest.mark.parametrize("is_constant", [False, True], ids=["arguments", "constants"])
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_batches_of_different_lengths(name: str, batch: int, is_constant: bool) -> None:
    program = Program(decoder(name, Sizes(), "int4"), 1, batch, constants=is_constant)
    compare(program, (1,) * 4, TOLERANCE["int4"])
