"""Random schedules of random programs of every kind: those that are accepted give the reference's result in guarded
memory, with the same bits for one thread and for three; the others are refused with a reason.

    RANDOM_SCHEDULES=10000 pytest -m slow -s tests/schedule/test_random_schedules.py
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import random_check
from image_chains import WRITERS, Program, random_chain
from random_moves import changed_steps
from random_products import more_arguments, random_product
from random_programs import random_program
from random_row_blocks import random_row_blocks
from random_rows import random_rows
from random_stencils import random_stencil

from shlo_jit import parse, pipeline, tuning
from shlo_jit.check_options import given_moves
from shlo_jit.codegen.target import resolve
from shlo_jit.errors import UsageValueError
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.stages import show

TextAndArrays = tuple[str, list[np.ndarray]]
Moves = dict[str, list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small rows and images count as large, and work for one thread enough for three."""
    for name, value in (
        ("ROW_BLOCK_BYTES", 1),
        ("LINE_TILE_IMAGE_BYTES", 1),
        ("LINE_BUFFER_BYTES", 24 << 10),
        ("LINE_TILE_KEPT", 0),
        ("LINE_TILE_TASKS", 2),
        ("LINE_TILE_LINES", 3),
        ("GEMM_SERIAL", 1000),
        ("PARALLEL_WORK", 1000),
    ):
        monkeypatch.setattr(tuning, name, value)


def a_stencil(seed: int) -> TextAndArrays:
    """A loop of some iterations."""
    text, arguments = random_stencil(seed)
    return text, [np.array((0, 1, 2, 5, 9)[seed % 5], np.int32), *arguments]


def a_product(seed: int) -> TextAndArrays:
    text, arguments = random_product(seed)
    return text, [*arguments, *more_arguments(text, seed)]


def a_chain(seed: int) -> TextAndArrays:
    """A random chain, or one that runs in line tiles."""
    rng = random.Random(seed)
    program, _ = random_chain(seed, 22)
    if rng.random() < 0.6:
        shape = rng.randint(1, 3), rng.choice((12, 16, 22)), rng.choice((8, 10, 18)), rng.choice((3, 8, 16))
        program = Program(shape, seed)
        rng.choice(WRITERS)(program)
    return program.text(), [np.random.default_rng(seed).standard_normal(program.input).astype(np.float32)]


KINDS: dict[str, Callable[[int], TextAndArrays]] = {
    "loop nests": random_program,
    "row programs": random_rows,
    "stencils": a_stencil,
    "products": a_product,
    "row blocks": random_row_blocks,
    "line tiles": a_chain,
}


def lowered(text: str, schedule: Moves | None = None) -> tuple[str, Moves]:
    """Returns the LLVM text and the moves of a program."""
    options = CompileOptions(resolve(), schedule=given_moves(schedule) if schedule else ())
    found = pipeline.lower(parse(text), options)
    return found.program.text, json.loads(show(found, "moves", resolve()))


class Counts(dict[str, Counter[str]]):
    """For each kind of program, and for `stages`, how many schedules were drawn, legal and refused."""

    def __init__(self) -> None:
        super().__init__({kind: Counter[str]() for kind in (*KINDS, "stages")})

    def total(self, what: str) -> int:
        return sum(found[what] for kind, found in self.items() if kind in KINDS)

    def __str__(self) -> str:
        words = "drawn", "legal", "refused"
        rows = ((kind, ", ".join(f"{found[word]:,} {word}" for word in words)) for kind, found in self.items())
        return "\n".join(f"{kind:<13} {row}" for kind, row in rows)


def run(seeds: Iterable[int], counts: Counts) -> Counts:
    """Tries a random schedule of a program for each seed, one kind after the other, and counts what happens."""
    names = list(KINDS)
    for seed in seeds:
        kind = names[seed % len(names)]
        text, arguments = KINDS[kind](seed)
        given: Moves = {}
        try:
            code, moves = lowered(text)
            if not moves:  # nothing is left of the program
                continue
            assert lowered(text, moves)[0] == code, "replayed moves give other code"
            given = changed_steps(moves, seed)
            outcome = attempt(text, arguments, given)
        except Exception as error:
            error.add_note(f"{kind} {seed}:\n{text[:4000]}\n{json.dumps(given)}")
            raise
        is_stage = any("/" in label and given[label] != moves[label] for label in moves)
        for name in (kind, "stages") if is_stage else (kind,):
            counts[name].update(("drawn", outcome))
    return counts


def attempt(text: str, arguments: list[np.ndarray], given: Moves) -> str:
    """Checks the results with a schedule, unless it is refused: with a reason code, or because a move names a loop that
    such moves do not have."""
    try:
        random_check.check(text, arguments, schedule=given)
    except OptionError as error:
        assert str(error).endswith("]") and "schedule: " in str(error), error
        return "refused"
    except UsageValueError as error:
        assert str(error).startswith("schedule: step ") and "loop is a whole number" in str(error), error
        return "refused"
    return "legal"


def test_random_schedules() -> None:
    counts = run(range(30), Counts())
    assert counts.total("drawn") >= 24 and counts.total("legal") >= 8 and counts.total("refused") >= 4
    assert counts["stages"]["legal"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_random_schedules() -> None:
    first, number = int(os.environ.get("RANDOM_FIRST", "100")), int(os.environ.get("RANDOM_SCHEDULES", "200"))
    counts = Counts()
    for start in range(first, first + number, 60):
        run(range(start, min(start + 60, first + number)), counts)
        print(f"{counts}\n", flush=True)
    assert counts.total("legal") > counts.total("drawn") // 4 and counts.total("refused") > 0
