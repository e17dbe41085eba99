"""Fields of scratch memory: their offsets and total size, and that kernels state enough."""

from __future__ import annotations

import itertools

import pytest
from decisions import AVX2, AVX512, the_schedule
from test_sorts import sort

from shlo_jit import tuning
from shlo_jit.schedule.scratch import Field, Scratch, ScratchBytes
from shlo_jit.schedule.sort import TopKSchedule
from shlo_jit.sizes import Symbol, size_of

PLAIN = "%c = stablehlo.compare LT, %l0, %r0 : (tensor<{t}>, tensor<{t}>) -> tensor<i1>"


def test_fields_lie_one_after_the_other_at_multiples_of_their_alignment() -> None:
    found = Scratch((Field("a", 1), Field("b", 100)), (Field("c", 3, 8), Field("d", 5, 8), Field("e", 64)))
    assert found.shared_offsets == {"a": 0, "b": 64}
    assert found.worker_offsets == {"c": 0, "d": 8, "e": 64}
    assert found.bytes == ScratchBytes(192, 128)
    assert found.bytes.nbytes(3) == 192 + 3 * 128


def test_sizes_that_are_known_at_the_call_only() -> None:
    n = size_of(Symbol(1, 1000, 10))
    found = Scratch(worker=(Field("a", 3 * n), Field("b", 8 * n)))
    for value in (1, 21, 22, 1000):
        (offset, end) = (x.at(value) for x in (found.worker_offsets["b"], found.per_thread))  # type: ignore[attr-defined]
        assert offset == -(-3 * value // 64) * 64
        assert end == offset + 8 * value // 64 * 64 + (64 if 8 * value % 64 else 0)


def test_a_routine_divides_its_memory_by_itself() -> None:
    found = Scratch.of(lambda threads: 100 + 7 * threads)
    assert found.bytes == ScratchBytes(100, 7)
    with pytest.raises(AssertionError):
        Scratch((Field("a", 1),), routine=found.routine)


def test_two_fields_of_one_name_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="two fields named a"):
        _ = Scratch((Field("a", 1), Field("a", 1))).shared_offsets


@pytest.mark.parametrize("chunks", [2, 4, 8])
def test_a_sort_in_chunks_has_room_for_counters_and_for_bounds(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SORT_CHUNKS", chunks)
    n = tuning.SORT_LONG_LINE
    for dtype, target in itertools.product(("i1", "i4", "i8", "f16", "f32", "f64"), (AVX2, AVX512)):
        for dtypes in ((dtype,), (dtype, "f32")):
            found = sort((n,), *dtypes, comparator=PLAIN, target=target)
            how = found.records
            assert how is not None and how.chunks == chunks
            counts = {field.name: field.nbytes for field in found.scratch.shared}["counts"]
            assert how.is_partitioned or counts >= 4 * how.records.buckets * chunks
            assert not (how.is_partitioned or how.key_sort_bits) or counts >= 8 * (chunks + 1)


def test_top_k_sorts_whole_lines_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SORT_CHUNKS", 2)
    n = tuning.SORT_LONG_LINE
    text = f"""func.func @main(%x: tensor<{n}xf64>) -> (tensor<300xf64>, tensor<300xi32>) {{
      %v, %i = chlo.top_k(%x, k = 300) : tensor<{n}xf64> -> (tensor<300xf64>, tensor<300xi32>)
      return %v, %i : tensor<300xf64>, tensor<300xi32>
    }}"""
    found = the_schedule(text, AVX2)
    assert isinstance(found, TopKSchedule)
    assert found.records.chunks == 0
    counts = {field.name: field.nbytes for field in found.scratch.worker}["counts"]
    assert counts >= 4 * found.records.records.buckets * found.records.records.passes
