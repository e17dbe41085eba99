"""Products with fields of integers, in guarded memory, with exact and with rounded activations.

    RANDOM_PROGRAMS=3000 pytest -m slow tests/lower/test_random_fields.py
"""

from __future__ import annotations

from typing import Any

import guarded
import numpy as np
import pytest
from random_fields import FieldsProgram
from random_runs import seeds

from shlo_jit import tuning


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields are views, and operands are computed where they are read, however small they are."""
    monkeypatch.setattr(tuning, "PACKED_FIELDS_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)


def run(numbers: range) -> dict[str, int]:
    """Checks programs; returns how many of their schedules had views, and operands in registers."""
    found = {"in registers": 0, "view": 0}
    for seed in numbers:
        program = FieldsProgram(seed)
        held = {i: a for i, a in enumerate(program.arguments) if i} if seed % 5 < 2 else {}
        given = [a for i, a in enumerate(program.arguments) if i not in held]
        for options in ({}, {"round_activations": "int8"}):
            try:
                schedule = _check(program, given, threads=1 + seed % 3, constants=held, **options)
            except Exception as e:
                e.add_note(f"program {seed}, {options}:\n{program.text}")
                raise
            for words in found:
                found[words] += words in schedule
    return found


def _check(program: FieldsProgram, given: list[np.ndarray], **options: Any) -> str:
    """Compares the results of a program with what they should be; returns its schedule."""
    exe = guarded.compile(program.text, cache=False, **options)
    error = np.abs(guarded.outputs(exe(*given))[0] - program.expected())
    assert np.all(error <= program.bound("round_activations" in options))
    return exe.text("schedule")


def test_operation_that_depends_on_an_inner_loop() -> None:
    """LLVM's NewGVN takes the last result of the inner loop for all of them in program 73, unless it is told not to."""
    run(range(73, 74))


def test_blocks_of_rows_that_fill_no_vector() -> None:
    """Vectors are read in blocks of groups in program 5400, whose 24 bytes are a vector and a half."""
    run(range(5400, 5401))


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_programs(first: int) -> None:
    run(range(first, first + 10))


def test_programs_are_of_all_kinds() -> None:
    found = run(range(60, 90))
    assert all(count >= 5 for count in found.values()), found


@pytest.mark.slow
def test_many_random_programs() -> None:
    run(seeds(500))
