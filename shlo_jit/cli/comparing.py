"""Results held against others: those of the reference interpreter, or arrays in files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.cli import arrays, mistakes
from shlo_jit.cli.progress import progress

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.ir.core import Module
    from shlo_jit.reference.compare import Difference, Tolerance

INTERPRETED, EXPECTED = "interpreted", "expected"


class Against(NamedTuple):
    """What results are held against, as the options of the command say."""

    interpreter: bool
    files: list[Path]
    rtol: float | None
    atol: float | None

    @property
    def is_asked(self) -> bool:
        return self.interpreter or bool(self.files)

    @property
    def tolerance(self) -> Tolerance | None:
        from shlo_jit.reference.compare import Tolerance

        if self.rtol is None and self.atol is None:
            return None
        return Tolerance(self.rtol or 0.0, self.atol or 0.0)

    def check(self) -> None:
        """End the command where the options make no sense together."""
        if self.interpreter and self.files:
            mistakes.fail("--check and --expected: give one of them")
        if not self.is_asked and self.tolerance is not None:
            mistakes.fail("--rtol and --atol are for --check or --expected")


class Comparison(NamedTuple):
    """Results, and what they should be."""

    got: Sequence[np.ndarray]
    want: Sequence[np.ndarray]
    origin: str
    """What one of `want` is called."""

    def differences(self, tolerance: Tolerance | None) -> list[Difference]:
        from shlo_jit.reference.compare import difference

        return [difference(g, w, tolerance) for g, w in zip(self.got, self.want, strict=True)]


def with_interpreter(
    module: Module, entry: str, arguments: Sequence[np.ndarray], got: Sequence[np.ndarray]
) -> Comparison:
    """With what the program means."""
    return Comparison(got, interpret(static(module, entry, arguments), entry, arguments), INTERPRETED)


def with_files(files: Sequence[Path], got: Sequence[np.ndarray]) -> Comparison:
    """With arrays in files, one for each result. Too few or too many end the command, and those of another type."""
    if len(files) != len(got):
        mistakes.fail(f"--expected: the program has {len(got)} result(s), got {len(files)} file(s)")
    want = [arrays.as_saved(arrays.load(path), g.dtype) for path, g in zip(files, got, strict=True)]
    for i, (path, g, w) in enumerate(zip(files, got, want, strict=True)):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            mistakes.fail(f"{path}: result {i} is {g.dtype.name}{list(g.shape)}, got {w.dtype.name}{list(w.shape)}")
    return Comparison(got, want, EXPECTED)


def static(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> Module:
    """The program for these arguments, as far as its shapes follow from them."""
    from shlo_jit import api
    from shlo_jit.ir.unknown import has_unknown

    return api.refine(module, arguments, entry) if has_unknown(module) else module


def interpret(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the program means, by the reference interpreter. A call whose meaning nobody knows ends the command."""
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.first_platform import first_platform
    from shlo_jit.reference.flattened import evaluate_flattened

    function = module.function(entry)
    assert function is not None  # it was compiled
    with progress("interpreting"):
        return evaluate_flattened(first_platform(function, Context(module)), *arguments, module=module)


def draws_numbers(module: Module) -> bool:
    """Whether a program has random numbers that the specification leaves open."""
    from shlo_jit.ir.core import walk

    return any(op.name == "stablehlo.rng" for op in walk(module.body))


def as_json(found: Difference, comparison: Comparison, number: int) -> dict[str, Any]:
    """What a result's difference is, for JSON; numbers that are none there are words."""
    from shlo_jit.reference.compare import Tolerance

    bound: Any = found.bound
    if isinstance(bound, Tolerance):
        bound = {name: finite(x) for name, x in bound._asdict().items()}
    got, want = (str(side[number][found.at]) if found.relative else None for side in (comparison.got, comparison.want))
    return {
        "against": comparison.origin,
        "verdict": found.verdict,
        "close": found.is_close,
        "same_bits": found.same_bits,
        "ulps": finite(found.ulps),
        "relative": finite(found.relative),
        "bound": bound,
        "at": list(found.at),
        "got": got,
        "expected": want,
    }


def finite(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
