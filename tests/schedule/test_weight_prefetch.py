"""Weight prefetch: the panels that a step with packed weights fetches for the next step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from decisions import AVX512, main, schedules, tensor

from shlo_jit.kernels.gemm.policy import k_block
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.gemm.prepacked import prepacked_bytes
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.schedule.panels import PanelsSchedule

K = 2500
"""Extent of several blocks of k."""


def chain(rows: int, *widths: int, constant: bool = True) -> list[PanelsSchedule]:
    """Returns the schedules of products of one matrix with several others, one after the other."""
    lines, weights = [], ""
    for i, (k, n) in enumerate(pairwise(widths)):
        left, right, result = tensor(rows, k), tensor(k, n), tensor(rows, n)
        if constant:
            literal = np.arange(k * n, dtype=np.float32).tobytes().hex()
            lines.append(f'%w{i} = stablehlo.constant dense<"0x{literal}"> : {right}')
        else:
            weights += f", %w{i}: {right}"
        name = "%y" if i == len(widths) - 2 else f"%x{i + 1}"
        dims = f"contracting_dims = [1] x [0] : ({left}, {right}) -> {result}"
        lines.append(f"{name} = stablehlo.dot_general %x{i}, %w{i}, {dims}")
    text = main(f"%x0: {tensor(rows, widths[0])}{weights}", tensor(rows, widths[-1]), *lines)
    found = [s for s in schedules(text) if isinstance(s, PanelsSchedule)]
    assert len(found) == len(widths) - 1
    return found


def test_the_first_block_of_the_next_panels_is_fetched() -> None:
    first, second = chain(64, 96, K, 128)
    assert first.prepacked is not None and second.prepacked is not None
    plan = gemm_plan(GemmTypes("f32", "f32", "f32"), AVX512)
    each = k_block(Ints(), plan, K, True)
    assert each < K
    assert first.prefetched is not None and first.prefetched.array is second.prepacked
    assert first.prefetched.nbytes == prepacked_bytes(plan, 128, each) < second.prepacked.nbytes
    assert second.prefetched is None


def test_few_rows_find_all_their_panels_fetched() -> None:
    first, second = chain(1, 96, K, 128)
    assert first.prefetched is not None and second.prepacked is not None
    assert first.prefetched.nbytes == second.prepacked.nbytes


def test_weights_that_are_arguments_are_not_fetched() -> None:
    assert [s.prefetched for s in chain(64, 96, K, 128, constant=False)] == [None, None]
