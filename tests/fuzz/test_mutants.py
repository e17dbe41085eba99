"""Mutants of programs are rejected, or they compile, run in guarded memory and give correct results. A sample with
fixed numbers always runs; `pytest -m slow tests/fuzz` runs 10,000 more, `python tests/fuzz/run_programs.py` any number.

Mutants of single ops are rejected by the verifier, or pass through all stages before LLVM or are rejected there with a
location: `SHLO_JIT_MUTANTS=200000 pytest -m slow tests/fuzz -k ops`, or `run_programs.py --ops 200000`."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1])]

from mutate_one_op import op_bases, op_mutant, op_text
from mutate_programs import bases, mutant
from run_programs import run

from shlo_jit.ops import OPS
from shlo_jit.passes import CHECK

SAMPLE, OP_SAMPLE = 120, 400
MANY_OPS = int(os.environ.get("SHLO_JIT_MUTANTS", "5000"))
WITHOUT_BASES = {"builtin.module", "func.func", "func.constant", "func.call_indirect"}
"""Ops that are not part of a program that is run."""


def test_a_number_is_a_program() -> None:
    texts = bases()
    assert len(texts) > 1000
    numbers = random.Random(1).sample(range(100_000), 20)
    assert [mutant(texts, n) for n in numbers] == [mutant(texts, n) for n in numbers]
    assert len({mutant(texts, n) for n in numbers}) > 15


def _check(count: int, first: int) -> None:
    report = run(count, first)
    assert sum(report.outcomes.values()) == count
    assert not report.findings, "\n".join(f"{n}: {text}" for n, text in report.findings.items())
    assert not report.differs, report.differs
    assert report.outcomes["equal"] > count / 10 and report.outcomes["invalid"] > count / 10


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables checks of the passes, so that contradictions are detected after them, as for users."""
    monkeypatch.delenv(CHECK, raising=False)


def test_a_sample() -> None:
    _check(SAMPLE, 0)


@pytest.mark.slow
def test_many() -> None:
    _check(10_000, 1_000_000)


# Single ops


def test_every_op_has_bases() -> None:
    assert OPS.keys() - op_bases().keys() <= WITHOUT_BASES
    numbers = random.Random(2).sample(range(100_000), 20)
    texts = [op_text(op_mutant(op_bases(), n)) for n in numbers]
    assert texts == [op_text(op_mutant(op_bases(), n)) for n in numbers]
    assert len(set(texts)) > 15


def _check_ops(count: int, first: int) -> None:
    report = run(count, first, ops=True)
    assert sum(report.outcomes.values()) == count
    assert not report.findings, "\n".join(f"{n}: {text}" for n, text in report.findings.items())
    assert not report.differs, report.differs
    assert report.outcomes["lowered"] > count / 10 and report.outcomes["invalid"] > count / 10
    assert report.outcomes["equal"] + report.outcomes["close"] > count / 400


def test_a_sample_of_ops() -> None:
    _check_ops(OP_SAMPLE, 0)


@pytest.mark.slow
def test_many_ops() -> None:
    _check_ops(MANY_OPS, 1_000_000)
