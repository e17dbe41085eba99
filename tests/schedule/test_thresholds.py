"""Thresholds are in tuning/; each is read, has a docstring, and names only existing benchmark cases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shlo_jit
from shlo_jit import tuning

PACKAGE = Path(shlo_jit.__file__).parent
NAMES = {name for name in vars(tuning) if name.isupper()}

NO_THRESHOLDS = {
    # bytes and bits of formats and layouts, and numbers that identify them
    "codegen/abi.py": {"ABI_VERSION", "ALIGNED_RESULT_BYTES", "ALIGNMENT", "AT_CALL", "CONSTANTS", "FIRST_CODE", "NO_CALL", "PROFILE_BYTES",
                       "PROFILE_SAMPLES"},
    "codegen/cpu_features.py": {"APX_STATE", "AT_HWCAP", "AT_HWCAP2", "AVX_STATE", "AVX512_STATE", "TILE_STATE"},
    "codegen/elf.py": {"AARCH64", "ABSOLUTE", "X86_64"},
    "codegen/library_format.py": {"DIGEST_BYTES", "INTERFACE_VERSION", "LONGEST_METADATA", "NOTE_TYPE", "WEIGHTS_ALIGNMENT"},
    "codegen/link.py": {"ENTRY", "FAR_BYTES", "PAGE"},
    "codegen/optimize.py": {"DEFAULT_LEVEL"},
    "codegen/unlocked.py": {"OBJECT_CODE"},
    "kernels/collective/board.py": {"ACTIVE", "ADDRESSES", "ASLEEP", "BELL", "CALL", "CALLER_ASLEEP", "CALL_NUMBER",
                                    "CALL_SHIFT", "COMMAND", "ENDED", "ENDED_EARLY", "FAULT_PEER", "FAULT_PEER_SITE",
                                    "HEADERS", "HEADER_BYTES", "HEART", "IDLE", "INLINE", "LANE_SHIFT", "LAST_CALL",
                                    "LEAVE", "LINE", "MESSAGE", "MISMATCHED", "NONE", "NUMBERS",
                                    "NUMBERS_OF_MESSAGES", "NUMBER_SHIFT", "OK", "PLACE", "POINTERS", "POSTED_AT",
                                    "RANKS", "RANK_BYTES", "RING", "RUN", "SIGNATURE", "SITE", "STATUS", "STOP",
                                    "STOPPED", "THIS_CALL", "TIMED_OUT", "UNREADABLE", "WAITS_FOR"},
    "codegen/value_numbering.py": {"MAX_BLOCKS"},  # a limit of LLVM's
    "kernels/collective/messages.py": {"PAYLOAD_ALIGN"},
    "kernels/collective/waiting.py": {"FUTEX_WAIT", "FUTEX_WAKE", "NAP_NANOSECONDS", "SLICE_NANOSECONDS"},
    "kernels/collective/copies.py": {"COPY_ROW"},
    "kernels/gemm/many_threads.py": {"MOST_HALVINGS"},
    "kernels/gemm/policy.py": {"SKINNY_PANELS", "SKINNY_TILE", "IN_PLACE", "PAIR_PANELS", "PREPACKED", "PRIVATE", "SHARED"},
    "kernels/sort.py": {"INDEX_BITS", "SLACK"},
    "kernels/threads/jobs.py": {"FRAME", "FRAME_WORDS", "JOB_BYTES", "ROOM", "TASK", "TASKS"},
    "kernels/threads/neighbors.py": {"MONOTONIC", "OF_THREAD", "SECOND", "TAKEN_OFF", "USAGE_BYTES"},
    "kernels/threads/state.py": {"ALONE_UNTIL", "CHECK", "EPOCH", "FRAME", "HANDLES", "LATE_BEFORE", "LEFT", "LOCK", "MAX_WORKERS", "PID", "PLACES",
                                 "QUIT", "READY", "REMAINING", "RESERVED", "SLEEPERS", "SLEPT_AT", "STARTED", "STARTING", "STATE_BYTES", "TAKEN",
                                 "TASK", "TASKS", "TEAM_PLACES", "WAITING", "WAITING_BYTES"},
    "kernels/threads/waiting.py": {"EVERYBODY", "FUTEX_WAIT", "FUTEX_WAKE", "OBJECT_BYTES"},
    "kernels/threads/workers.py": {"ATTRIBUTE_BYTES", "MOST_CPUS", "STACK_BYTES"},
    "kernels/target.py": {"VIRTUAL_VECTOR_BITS"},
    "lower/kernels/window/padding.py": {"LARGEST"},
    "lower/elements/floats.py": {"CURRENT_ROUNDING", "RANGE_SIGNED", "VECTORS"},
    "lower/elements/small_floats.py": {"F32_INFINITY", "F32_NAN"},
    "lower/elements/nibble_tables.py": {"ENTRIES"},
    "lower/elements/byte_tables.py": {"CODES", "BYTES", "WORDS", "GROUP"},
    "lower/kernels/short_sums.py": {"COLUMNS"},
    "lower/kernels/vector_sums.py": {"LANES"},
    "lower/timing.py": {"MONOTONIC", "SHOWN_OPS"},
    "passes/canonical/collective_layouts.py": {"MOST_OPERANDS"},  # number of operands that fit into a message
    "passes/expand/random.py": {"ROTATIONS"},
    "schedule/fft.py": {"HEADER"},
    "schedule/boxes.py": {"WORD"},
    "schedule/shared_units.py": {"FEW", "MOST_IN_UNIT"},
    "schedule/lapack.py": {"INT_BYTES", "LARGEST"},
    "passes/canonical/round_activations.py": {"STEPS"},
    "passes/canonical/exact_narrowing.py": {"LARGEST", "LEAST_GROUP", "LEAST_MULTIPLE", "LINE", "MOST_GROUP",
                                            "NEIGHBOURS", "SAMPLED", "SLAB"},
    "passes/finite_sources.py": {"DEPTH"},
    "passes/intervals.py": {"DEPTH", "MOST_BOUNDS", "MOST_OFFSET"},
    "schedule/register_dots.py": {"FACTOR", "LEAST_TERMS", "MOST_TERMS", "SHORT_SUM"},
    "schedule/groups_in_registers.py": {
        "BLOCK_BYTES", "BLOCK_ROWS", "FEW_TASKS", "LANE", "LONG", "TOGETHER", "UNITS",
    },
    "lower/kernels/groups_in_registers.py": {"OUTPUTS"},
    "lower/kernels/groups_by_outputs.py": {"PASSES", "UNROLLED"},
    "lower/kernels/groups_in_lanes.py": {"IN_LANE", "LEAST"},
    "lower/kernels/values_of_vectors.py": {"MOST_BYTES"},
    "schedule/operand_in_registers.py": {"SUMMED"},
    "schedule/register_lanes.py": {"FAR_TOGETHER", "REUSED", "TOGETHER", "WIDE_TOGETHER"},
    "schedule/run_time_offsets.py": {"UNIT"},
    "schedule/register_units.py": {"EVEN", "RUN", "STEPS", "SUMMED_STEPS"},
    "schedule/register_vectors.py": {"ALIASED", "COPIED_FOR", "LINE"},
    "schedule/scratch.py": {"ALIGN"},
    "schedule/sum_order.py": {"ACCUMULATORS"},
    # limits of the hardware, and of the generated code
    "fuse/state_reads.py": {"VISITS"},
    "passes/canonical/byte_operands.py": {"LARGEST_ZERO"},
    "passes/factorizations/matrices.py": {"COLUMNS", "ROWS"},
    "passes/factorizations/rotations.py": {"SWEEPS"},
    "passes/states/counted_loops.py": {"ELEMENTS", "OPS_RUN"},
    "passes/states/known_ranges.py": {"ELEMENTS"},
    "passes/states/known_signs.py": {"ELEMENTS", "ROUNDS"},
    "passes/states/masked_updates.py": {"OUTSIDE", "SWEEPS"},
    "passes/states/stacked_rows.py": {"DEPTH"},
    "passes/expand/expand.py": {"ROUNDS"},
    "passes/refine/origins.py": {"SHOWN"},
    "passes/require_addressable.py": {"ADDRESS_BITS"},
    # sides of register tiles and radices, which the code is written for
    "kernels/convolution/computed_kernel.py": {"ROW_TERMS"},
    "kernels/convolution/depthwise.py": {"PIXELS"},
    "kernels/convolution/grouped.py": {"PIXELS", "WIDE"},
    "kernels/convolution/legality.py": {"MOST_ROWS"},
    "kernels/convolution/padding_terms.py": {"SUMS"},
    "kernels/fft/fft.py": {"MANY_ROOTS", "MOST_ROOTS_KEPT", "WRITTEN_OUT"},
    "kernels/fft/real.py": {"REAL_WRITTEN_OUT"},
    "codegen/target_hints.py": {"MOST_NAMES"},
    "kernels/hexadecimal.py": {"DIGITS"},
    "kernels/gemm/amx.py": {"SIDE", "TILE"},
    "kernels/gemm/blocks.py": {"FETCHED_A_STEP"},  # a cache line
    "kernels/gemm/computed.py": {"BOX_TERMS", "BOX_WIDTH"},
    "kernels/gemm/micro.py": {"ROW_GROUP", "SUMS"},
    "kernels/gemm/prepacking.py": {"SPARE"},  # bytes that a store may exceed the end by
    "kernels/quicksort.py": {"NETWORK", "PERMUTED"},
    "kernels/gemm/vector.py": {"STEPS"},
    "kernels/substitution.py": {"ROWS"},
    "schedule/copies.py": {"LINE", "UNROLL"},
    "schedule/nest_alternatives.py": {"MOST_CODE", "PREFETCH_BYTES", "TASKS"},  # what a search tries
    "lower/temporal_tiling.py": {"SLOT"},
    "passes/canonical/one_hot_products.py": {"MOST_ROWS"},  # what i32 holds
    "passes/one_hot.py": {"MOST_TERMS"},  # keeps programs short
}  # fmt: skip
"""For each file, the integers at module level that are not thresholds."""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def numbers_at_module_level(tree: ast.Module) -> Iterator[str]:
    """Yields upper-case names that are assigned integers, or sums, products and shifts of them."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        kinds = (ast.Constant, ast.BinOp, ast.Tuple, ast.operator, ast.UnaryOp, ast.unaryop, ast.expr_context, ast.Name)
        if not all(isinstance(n, kinds) for n in ast.walk(node.value)):
            continue
        constants = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
        if not constants or not all(type(c) is int for c in constants):
            continue
        targets = [n for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        yield from (t.id for t in targets if t.id.isupper() and not t.id.startswith("_"))


def test_every_threshold_is_read() -> None:
    read: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        read |= {
            n.attr
            for n in ast.walk(parsed(path))
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "tuning"
        }
    assert read == NAMES


def test_thresholds_stand_nowhere_else() -> None:
    found = {}
    for folder in ("passes", "fuse", "schedule", "memory", "lower", "kernels", "codegen"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            if path.is_relative_to(PACKAGE / "kernels" / "math"):
                continue  # coefficients, ranges and exponents of elementary functions
            names = set(numbers_at_module_level(parsed(path)))
            if names:
                found[path.relative_to(PACKAGE).as_posix()] = names
    assert found == NO_THRESHOLDS


def docstrings() -> Iterator[tuple[list[str], str]]:
    """Yields the names of each assignment of tuning/, with the docstring below it."""
    for path in sorted((PACKAGE / "tuning").glob("*.py")):
        body = parsed(path).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.Assign):
                names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                yield names, str(text)


def test_every_threshold_says_what_it_is() -> None:
    assert {name for names, text in docstrings() if len(text) > 3 for name in names if name.isupper()} == NAMES


def test_cases_that_are_named_exist_and_are_measured() -> None:
    from benchmarks.cases import select
    from benchmarks.thresholds import CASES

    cases = {case.name for case in select()}
    assert set(CASES) <= NAMES
    assert set(CASES.values()) <= cases
    for names, text in docstrings():
        for case in re.findall(r"[Cc]ase\s+`([^`]+)`", text):
            assert case in {CASES.get(name) for name in names}, f"{names} names {case}"


def test_former_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="EXPENSIVE_COST"):
        assert getattr(tuning, "DEAR_COST") == tuning.EXPENSIVE_COST  # noqa: B009 - pyright knows no such name
    assert all(hasattr(tuning, name) for name in tuning.former_names.values())
    with pytest.raises(AttributeError):
        getattr(tuning, "NO_SUCH_THRESHOLD")  # noqa: B009
