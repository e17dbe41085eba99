"""Comparison of results with those of the reference interpreter, or with arrays in files."""

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
    """Expected results according to the options of the command."""

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
        """Ends the command if the options contradict each other."""
        if self.interpreter and self.files:
            mistakes.fail("--check and --expected: give one of them")
        if not self.is_asked and self.tolerance is not None:
            mistakes.fail("--rtol and --atol are for --check or --expected")


class Comparison(NamedTuple):
    """Results and their expected values."""

    got: Sequence[np.ndarray]
    want: Sequence[np.ndarray]
    origin: str
    """Name of an element of `want` in messages."""

    def differences(self, tolerance: Tolerance | None) -> list[Difference]:
        from shlo_jit.reference.compare import difference

        return [difference(g, w, tolerance) for g, w in zip(self.got, self.want, strict=True)]


def with_interpreter(
    module: Module, entry: str, arguments: Sequence[np.ndarray], got: Sequence[np.ndarray]
) -> Comparison:
    """Compares results with those of the reference interpreter."""
    return Comparison(got, interpret(static(module, entry, arguments), entry, arguments), INTERPRETED)


def with_files(files: Sequence[Path], got: Sequence[np.ndarray]) -> Comparison:
    """Compares results with arrays in files, one for each result. Ends the command if their number or types differ."""
    if len(files) != len(got):
        mistakes.fail(f"--expected: the program has {len(got)} result(s), got {len(files)} file(s)")
    want = [arrays.as_saved(arrays.load(path), g.dtype) for path, g in zip(files, got, strict=True)]
    for i, (path, g, w) in enumerate(zip(files, got, want, strict=True)):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            mistakes.fail(f"{path}: result {i} is {g.dtype.name}{list(g.shape)}, got {w.dtype.name}{list(w.shape)}")
    return Comparison(got, want, EXPECTED)


def static(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> Module:
    """Refines a program for these arguments, as far as shapes depend on them."""
    from shlo_jit import api
    from shlo_jit.ir.dynamic_values import has_dynamic_shapes

    return api.refine(module, arguments, entry) if has_dynamic_shapes(module) else module


def interpret(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of the reference interpreter. Ends the command at a custom call without a definition."""
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.first_platform import first_platform
    from shlo_jit.reference.flattened import evaluate_flattened

    function = module.function(entry)
    assert function is not None  # the program was compiled
    with progress("interpreting"):
        return evaluate_flattened(first_platform(function, Context(module)), *arguments, module=module)


def draws_numbers(module: Module) -> bool:
    """Whether a program has random numbers that the specification leaves open."""
    from shlo_jit.ir.core import walk

    return any(op.name == "stablehlo.rng" for op in walk(module.body))


def as_json(found: Difference, comparison: Comparison, number: int) -> dict[str, Any]:
    """Difference of a result for JSON. Numbers that JSON does not have are strings."""
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
