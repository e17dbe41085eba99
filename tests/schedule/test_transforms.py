"""fft, cholesky and triangular_solve: in blocks or separately, several threads on one matrix or each on its own; custom
calls."""

from __future__ import annotations

import numpy as np
import pytest
from decisions import AVX512, decides, main, note, schedules, tensor, the_schedule
from refusing import refused

import shlo_jit
from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.custom_call import CallbackSchedule
from shlo_jit.schedule.fft import FftSchedule
from shlo_jit.schedule.lapack import LapackSchedule
from shlo_jit.schedule.linalg import CholeskySchedule, SolveSchedule


def fft(shape: tuple[int, ...], *lengths: int, target: Target = AVX512) -> FftSchedule:
    t = tensor(*shape, dtype="complex<f32>")
    sizes = ", ".join(map(str, lengths or shape[-1:]))
    text = main(f"%x: {t}", t, f"%y = stablehlo.fft %x, type = FFT, length = [{sizes}] : ({t}) -> {t}")
    found = the_schedule(text, target)
    assert isinstance(found, FftSchedule)
    return found


# ---------------------------------------------------------------------- fft
LANES = 16
"""Lanes of a register, for real parts."""


def blocks(found: FftSchedule) -> bool:
    (axis,) = found.axes
    return axis.transform.block


def test_short_sequences_go_several_at_a_time() -> None:
    assert blocks(fft((1000, 96)))
    assert blocks(fft((1000, 64)))
    assert not blocks(fft((1000, 128)))  # powers of two fill the registers early
    decides(fft((1000, 96)), "tasks", f"blocks of {LANES} sequences")
    decides(fft((1000, 128)), "tasks", "blocks of 1 column")


def test_a_block_of_sequences_has_so_many_elements() -> None:
    """3^a 5^b on both sides of FFT_BLOCK_ELEMENTS / lanes = 1024: 1000 = 8 * 125 has too few factors of two to fill
    them."""
    most = tuning.FFT_BLOCK_ELEMENTS // LANES
    assert most == 1024
    assert blocks(fft((1000, 1000)))
    assert not blocks(fft((1000, 1125)))


def test_few_sequences_are_no_block() -> None:
    assert blocks(fft((LANES // 2, 96)))
    assert not blocks(fft((LANES // 2 - 1, 96)))


def test_short_transforms_run_on_the_caller() -> None:
    n = tuning.FFT_PARALLEL
    few, many = fft((n // 128 - 1, 128)), fft((n // 128, 128))
    decides(few, "tasks", "1 task", "too-little-work", f"{n:,}")
    decides(many, "tasks", f"{tuning.MAX_TASKS} tasks", "tasks-by-work", f"{n:,} elements")


def test_one_large_block_is_cut_inside_of_its_passes() -> None:
    decides(fft((tuning.FFT_PARALLEL,)), "tasks", "of the passes", "passes-cut")
    decides(fft((tuning.FFT_PARALLEL // 2,)), "tasks", "1 task")


def test_columns_of_a_block_fit_the_cache() -> None:
    """Along the first axis of n x 4096: all columns, or as many as fit FFT_BLOCK_BYTES."""
    inner = 256
    n = AVX512.bytes_of(tuning.FFT_BLOCK_BYTES) // 8 // inner
    whole, cut = fft((n, inner), n, inner).axes[0], fft((2 * n, inner), 2 * n, inner).axes[0]
    assert (whole.transform.columns, whole.chunks) == (inner, 1)
    assert (cut.transform.columns, cut.chunks) == (inner // 2, 2)


@pytest.mark.parametrize(
    ("n", "columns", "direct"),
    [
        (tuning.FFT_LARGEST_PRIME**2, LANES, True),  # a length that Bluestein's algorithm does not shorten
        (131**2, LANES, False),
        (tuning.FFT_LARGEST_ALONE, 1, True),
        (37**2, 1, False),
        (37**2, LANES, True),
    ],
)
def test_large_primes_go_by_another_algorithm(n: int, columns: int, direct: bool) -> None:
    """Primes above FFT_LARGEST_ALONE use it, too, if there are no whole registers to work on. Bluestein's algorithm
    multiplies by factors between two transforms."""
    axis = fft((n, columns), n, columns).axes[0]
    names = [step.routine.name for step in axis.passes]
    assert direct != any("rows_split_split_factors" in name for name in names), names


def test_rows_of_passes_are_sliced_where_they_are_long() -> None:
    found = fft((1 << 16,)).axes[0]
    assert max(step.units for step in found.passes) >= (1 << 16) // 8 // tuning.FFT_SLICE


# ---------------------------------------------------------------------- linear algebra
def cholesky(*shape: int) -> CholeskySchedule:
    t = tensor(*shape)
    found = next(
        s
        for s in schedules(main(f"%x: {t}", t, f"%y = stablehlo.cholesky %x, lower = true : {t}"))
        if isinstance(s, CholeskySchedule)
    )
    return found


@pytest.mark.parametrize(
    ("found", "together", "code"),
    [
        (cholesky(8, 8), True, "one-matrix"),
        (cholesky(4, tuning.MATRIX_COOPERATIVE, tuning.MATRIX_COOPERATIVE), True, "large-matrix"),
        (cholesky(4, tuning.MATRIX_COOPERATIVE - 1, tuning.MATRIX_COOPERATIVE - 1), False, "small-matrices"),
    ],
)  # fmt: skip
def test_threads_work_together_on_large_matrices(found: CholeskySchedule, together: bool, code: str) -> None:
    assert found.cooperative.value == together
    decides(found, "threads", "together" if together else "own matrices", code)
    assert ("matrices" in note(found, "threads").value) != together


def test_small_matrices_share_a_task() -> None:
    work = 32 * 32 * 40 // 48
    count = 4 * tuning.TASK_WORK // work + 1
    decides(
        cholesky(count, 32, 32),
        "tasks",
        f"4 tasks of {-(-count // 4)} matrices",
        "tasks-by-work",
        f"{tuning.TASK_WORK:,}",
    )
    decides(cholesky(9, 32, 32), "tasks", "1 task", "tasks-by-work", f"{9 * 32 * 32 * 40 // 48:,} element operations")


def solve(n: int, m: int, lower: bool = True, transpose: str = "NO_TRANSPOSE", batch: int = 1) -> SolveSchedule:
    a, b = tensor(batch, n, n), tensor(batch, n, m)
    text = main(
        f"%a: {a}, %b: {b}", b,
        f'%y = "stablehlo.triangular_solve"(%a, %b) <{{left_side = true, lower = {str(lower).lower()},'
        f" unit_diagonal = false, transpose_a = #stablehlo<transpose {transpose}>}}> : ({a}, {b}) -> {b}",
    )  # fmt: skip
    return next(s for s in schedules(text) if isinstance(s, SolveSchedule))


@pytest.mark.parametrize(
    ("lower", "transpose", "way"),
    [
        (True, "NO_TRANSPOSE", "from the first row down"),
        (False, "NO_TRANSPOSE", "from the last row up"),
        (True, "TRANSPOSE", "from the last row up"),
        (False, "TRANSPOSE", "from the first row down"),
    ],
)
def test_a_substitution_begins_where_one_element_is_known(lower: bool, transpose: str, way: str) -> None:
    decides(solve(32, 8, lower, transpose), "strategy", way)


def test_right_hand_sides_are_solved_in_strips() -> None:
    found = solve(256, 512)
    assert found.strips == 512 // found.width
    decides(found, "tasks", f"{found.tasks.tasks} tasks of 1 strip of {found.width} columns")
    decides(solve(8, 8), "tasks", "1 task", "too-little-work")
    assert solve(8, 5).width == 5


# ---------------------------------------------------------------------- custom calls
def call(target: str, arguments: str = "tensor<4xf32>", result: str = "tensor<4xf32>", more: str = "") -> str:
    return main(
        f"%x: {arguments}", result, f"%y = stablehlo.custom_call @{target}(%x) {more} : ({arguments}) -> {result}"
    )


def test_a_registered_call_comes_first() -> None:
    found = the_schedule(call("mine"), calls=frozenset({"mine"}))
    assert isinstance(found, CallbackSchedule)
    decides(found, "call", "@mine", "registered")


def test_a_call_without_an_implementation_is_refused() -> None:
    with refused(UnsupportedError, "unregistered-call", (2, 6), shows="@mine"):
        schedules(call("mine"))


def test_a_call_may_write_into_an_operand() -> None:
    alias = "{output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0,"
    found = the_schedule(call("mine", more=f"{alias} operand_tuple_indices = []>]}}"), calls=frozenset({"mine"}))
    assert isinstance(found, CallbackSchedule)
    assert found.aliases == {0: 0}
    decides(found, "aliases", "result 0 in the memory of operand 0")


ASSERTION = """func.func @main(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {{
  %true = stablehlo.constant dense<{known}> : tensor<i1>
  stablehlo.custom_call @shape_assertion({which}) {{error_message = "no", has_side_effect = true}} : (tensor<i1>) -> ()
  %y = stablehlo.negate %x : tensor<4xf32>
  return %y : tensor<4xf32>
}}"""


@pytest.mark.parametrize(("known", "which", "runs"), [("true", "%true", 0), ("false", "%true", 1), ("true", "%c", 1)])
def test_an_assertion_that_holds_runs_nothing(known: str, which: str, runs: int) -> None:
    found = schedules(ASSERTION.format(known=known, which=which), calls=frozenset({"shape_assertion"}))
    assert sum(isinstance(s, CallbackSchedule) for s in found) == runs


# ---------------------------------------------------------------------- LAPACK
def geqrf(m: int, n: int) -> str:
    t = tensor(m, n)
    return f"""func.func @main(%x: {t}) -> ({t}, tensor<{min(m, n)}xf32>) {{
      %q, %tau = stablehlo.custom_call @lapack_sgeqrf_ffi(%x) {{
        mhlo.backend_config = {{}},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>]
      }} : ({t}) -> ({t}, tensor<{min(m, n)}xf32>)
      return %q, %tau : {t}, tensor<{min(m, n)}xf32>
    }}"""


def test_lapack_works_in_blocks_of_columns() -> None:
    found = next(s for s in schedules(geqrf(30, 20)) if isinstance(s, LapackSchedule))
    assert found.workspaces["work"].elements == 20 * tuning.LAPACK_BLOCK
    assert found.scratch.fixed == 4 * 20 * tuning.LAPACK_BLOCK
    decides(found, "lapack", "sgeqrf, once")
    decides(found, "workspaces", f"work {20 * tuning.LAPACK_BLOCK} x 4 bytes")


def test_without_a_lapack_the_call_is_refused() -> None:
    with refused(UnsupportedError, "lapack-missing", (2, 18), shows="@lapack_sgeqrf_ffi"):
        schedules(geqrf(30, 20), lapack=False)


CALLBACKS = [
    "xla_ffi_python_cpu_callback", "xla_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback",
    "xla_buffer_python_cpu_callback", "xla_python_gpu_callback", "xla_ffi_python_gpu_callback",
]  # fmt: skip


@pytest.mark.parametrize("target", [*CALLBACKS, "my_python_callback", "xla_ffi_python_cpu_callbacks"])
def test_functions_that_jax_keeps_say_how_they_run(target: str) -> None:
    t = "tensor<4xf32>"
    text = f"func.func @main(%x: {t}) -> {t} {{\n%0 = stablehlo.custom_call @{target}(%x) : ({t}) -> {t}\nreturn %0 : {t} }}"
    with pytest.raises(UnsupportedError) as refused:
        shlo_jit.compile(text, cache=False)
    (found,) = refused.value.diagnostics
    kept_by_jax = target in CALLBACKS
    assert (found.op, found.label, found.found) == (
        "stablehlo.custom_call", "jax-callback" if kept_by_jax else "unregistered-call", target
    )  # fmt: skip
    assert found.line == 2
    assert ("shlo_jit.jax.jit" in str(refused.value)) == kept_by_jax
    assert ("JAX_PLATFORMS=shlo" in str(refused.value)) == kept_by_jax
    exe = shlo_jit.compile(text, cache=False, custom_calls={target: lambda x: x + 1})
    assert float(exe(np.ones(4, np.float32))[0]) == 2
