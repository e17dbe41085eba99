"""Thresholds that are shares of a cache follow the sizes of the target's caches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from decisions import AVX512, decides, main, schedules, tensor, the_schedule
from image_chains import Program, bottleneck
from test_thresholds import docstrings

from shlo_jit import tuning
from shlo_jit.caches import L2, PLAIN, Share
from shlo_jit.codegen.cpu_caches import caches_of
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.fft import FftSchedule
from shlo_jit.schedule.line_tiles import LineTilesSchedule
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.row_blocks import RowBlocksSchedule

KIB, MIB = 1 << 10, 1 << 20
SHARES = {name: value for name, value in vars(tuning).items() if isinstance(value, Share)}

MEASURED = {
    "PREFETCH_BYTES": 2 * MIB,
    "STREAM_BYTES": 8 * MIB,
    "FEATURES_LAST_BYTES": 4 * MIB,
    "FFT_BLOCK_BYTES": 128 * KIB,
    "ATTENTION_BLOCK_BYTES": 32 * KIB,
    "ROW_BUFFER_SHARE": 512 * KIB,
    "LINE_TILE_IMAGE_BYTES": MIB,
    "LINE_BUFFER_BYTES": 512 * KIB,
    "LINE_TILE_KERNEL_BYTES": 640 * KIB,
    "GEMM_NEAR_PANELS": 512 * KIB,
    "GEMM_CHUNK_BYTES": 640 * KIB,
    "GEMM_VECTOR_CHUNK": 32 * KIB,
    "GEMM_VECTOR_FAR": 8 * MIB,
    "CONV_KERNEL_BYTES": 768 * KIB,
    "SCALAR_TABLE_BYTES": 24 * KIB,
    "TEMPORAL_TILE_LOOP_BYTES": 16 * MIB,
    "TEMPORAL_TILE_BYTES": 640 * KIB,
    "TEMPORAL_TILE_SHARED_BYTES": 4 * MIB,
}
"""The bytes that were measured on a Zen 5."""


def larger(**factors: int) -> Target:
    """Returns a target some of whose caches are so many times as large."""
    sizes = {level: getattr(AVX512.caches, level) * factor for level, factor in factors.items()}
    return replace(AVX512, caches=AVX512.caches._replace(**sizes))


def test_bytes_on_the_cpu_they_were_measured_on() -> None:
    zen5 = caches_of("znver5")
    assert {name: zen5.bytes_of(share) for name, share in SHARES.items()} == MEASURED


@pytest.mark.parametrize("name", SHARES)
def test_bytes_follow_the_cache(name: str) -> None:
    share = SHARES[name]
    before = AVX512.bytes_of(share)
    assert larger(**{share.level: 2}).bytes_of(share) == 2 * before
    others = {level: 2 for level in ("l1", "l2", "last_level") if level != share.level}
    assert larger(**others).bytes_of(share) == before
    assert PLAIN._replace(l1=1, l2=1, last_level=1).bytes_of(share) <= max(share.least, 4)


def test_shares() -> None:
    assert PLAIN.bytes_of(L2 * 3 / 4) == 384 * KIB
    assert PLAIN.bytes_of((L2 / 8).at_least(100 * KIB)) == 100 * KIB
    assert PLAIN.bytes_of(12345) == 12345
    assert [str(L2), str(L2 * 2)] == ["the second-level cache", "2 times the second-level cache"]
    assert str((L2 / 8).at_least(1000)) == "1/8 of the second-level cache, at least 1,000 bytes"


def test_thresholds_differ_in_meaning() -> None:
    """No two thresholds have the same text, or the same share of the same cache for the same kernels."""
    texts = Counter(text for _, text in docstrings() if text)
    assert [text for text, times in texts.items() if times > 1] == []
    shares = Counter((name.split("_")[0], share) for name, share in SHARES.items())
    assert [found for found, times in shares.items() if times > 1] == []


# ---------------------------------------------------------------------- schedules
def line_tiles(target: Target) -> int:
    program = Program((1, 224, 112, 12), 1)
    bottleneck(program)
    (found,) = [s for s in schedules(program.text(), target) if isinstance(s, LineTilesSchedule)]
    lines = found.division.tile.value
    decides(found, "line tiles", f"{lines} lines of ", "line-buffer-bytes", f"{target.caches.l2 // 2:,}")
    return lines


def test_twice_the_second_level_makes_line_tiles_twice_as_high() -> None:
    assert abs(line_tiles(larger(l2=2)) - 2 * line_tiles(AVX512)) <= 2


def half_l2() -> Target:
    return replace(AVX512, caches=AVX512.caches._replace(l2=AVX512.caches.l2 // 2))


def test_images_that_the_second_level_keeps_are_not_cut_into_lines() -> None:
    program = Program((1, 112, 112, 24), 1)
    bottleneck(program)
    assert any(isinstance(s, LineTilesSchedule) for s in schedules(program.text(), AVX512))
    assert not any(isinstance(s, LineTilesSchedule) for s in schedules(program.text(), larger(l2=8)))


def test_twice_the_second_level_doubles_the_columns_of_a_product() -> None:
    types = GemmTypes("f32", "f32", "f32")
    now, doubled = gemm_plan(types, AVX512), gemm_plan(types, larger(l2=2))
    assert (now.widest, doubled.widest) == (512, 1024)
    assert doubled.kc == now.kc, "this orders the sums"


def test_twice_the_second_level_doubles_the_columns_of_a_transform() -> None:
    def columns(target: Target) -> int:
        t = tensor(128, 1024, dtype="complex<f32>")
        found = the_schedule(
            main(f"%x: {t}", t, f"%y = stablehlo.fft %x, type = FFT, length = [128, 1024] : ({t}) -> {t}"), target
        )
        assert isinstance(found, FftSchedule)
        return found.axes[0].transform.columns

    assert columns(larger(l2=2)) == 2 * columns(AVX512) == 4 * columns(half_l2())


def test_twice_the_first_level_makes_blocks_of_attention_twice_as_high() -> None:
    def block(target: Target) -> int:
        s, p = "tensor<24x1000x64xf32>", "tensor<24x1000x128xf32>"
        k, r, v = "tensor<24x64x128xf32>", "tensor<24x1000xf32>", "tensor<24x128x64xf32>"
        text = main(
            f"%q: {s}, %k: {k}, %v: {v}", s,
            f"%d = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {k}) -> {p}",
            "%z = stablehlo.constant dense<0.0> : tensor<f32>",
            f"%e = stablehlo.exponential %d : {p}",
            f"%r = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [2] : ({p}, tensor<f32>) -> {r}",
            f"%b = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({r}) -> {p}",
            f"%w = stablehlo.divide %e, %b : {p}",
            f"%y = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({p}, {v}) -> {s}",
        )  # fmt: skip
        found = the_schedule(text, target)
        assert isinstance(found, RowBlocksSchedule)
        return found.block

    assert abs(block(larger(l1=2)) - 2 * block(AVX512)) <= 14


def test_results_and_operands_that_a_larger_cache_keeps() -> None:
    t = tensor(3 << 20)
    text = main(f"%x: {t}", t, f"%y = stablehlo.negate %x : {t}")

    def found(target: Target) -> NestSchedule:
        schedule = the_schedule(text, target)
        assert isinstance(schedule, NestSchedule)
        return schedule

    assert len(found(AVX512).streams) == 1
    assert found(larger(last_level=2)).streams == ()
    assert found(AVX512).prefetches
    assert not found(larger(l2=8)).prefetches


@pytest.mark.parametrize(("factor", "registers"), [(1, 32), (2, 16)])
def test_sums_of_columns_fill_half_of_the_registers(factor: int, registers: int) -> None:
    target = replace(AVX512, vector_registers=registers)
    x, y = tensor(1000, 4096), tensor(4096)
    text = main(
        f"%x: {x}", y, "%z = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : ({x}, tensor<f32>) -> {y}",
    )  # fmt: skip
    found = the_schedule(text, target)
    assert isinstance(found, NestSchedule)
    assert found.unroll.value == registers // 2 == 16 // factor
