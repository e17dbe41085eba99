"""Products of bytes of which an operand is read or computed in registers or panels: exactly the reference's results, in
guarded memory, for any number of threads.

    RANDOM_PROGRAMS=5000 pytest -m slow tests/lower/test_byte_operands.py
"""

from __future__ import annotations

import guarded
import pytest
import random_check
from random_operands import BYTE_PRODUCTS, random_operand
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning

SPREAD = {"PARALLEL_WORK": 1, "TASK_WORK": 64, "GEMM_SERIAL": 1, "GEMM_TASK": 1 << 12, "COMPUTED_FAR_BYTES": 0}
"""Thresholds for which small products have several tasks, and parts of the terms."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are computed however small they are, and products stay products."""
    for name in ("COMPUTED_OPERAND_BYTES", "SMALL_PRODUCT", "SMALL_PRODUCT_STRIDED", "SMALL_VECTOR_PRODUCT"):
        monkeypatch.setattr(tuning, name, 0)


def run(numbers: range) -> dict[str, int]:
    """Checks programs; returns how many of them used instructions for several terms, and how many did not."""
    found = {"several terms": 0, "others": 0}
    for seed in numbers:
        text, arguments = random_operand(seed, BYTE_PRODUCTS)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in SPREAD.items() if seed % 2 else ():
                patch.setattr(tuning, name, value)
            if seed % 4 < 2:  # operands are computed in panels too, whatever that saves
                patch.setattr(tuning, "COMPUTED_OPERAND_SHARE", 1e9)
            try:
                random_check.check(text, arguments, ("x86-64-v3", "x86-64-v2", "native")[seed % 3])
                threads = (1, 2, 3) if seed % 5 == 1 else (1,)
                outs = [shlo_jit.compile(text, threads=n, cache=False) for n in threads]
                bits = {guarded.outputs(exe(*arguments))[0].tobytes() for exe in outs}
                assert len(bits) == 1, "the bits depend on the number of threads"
            except Exception as e:
                e.add_note(f"program {seed}:\n{text}")
                raise
        found["several terms" if "terms at a time" in outs[0].text("schedule") else "others"] += 1
    return found


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_programs(first: int) -> None:
    run(range(first, first + 10))


@pytest.mark.slow
def test_many_random_programs() -> None:
    found = run(seeds(1000))
    print(found)
    assert found["several terms"] > found["others"] / 4
