"""Judging a compiled random program by the reference interpreter."""

from __future__ import annotations

import zlib
from typing import Any

import guarded
import numpy as np

import shlo_jit
from shlo_jit.ir.core import Op
from shlo_jit.reference.interpreter import Interpreter, evaluate

EXACT = frozenset(
    f"stablehlo.{name}"
    for name in (
        "while if case constant iota reshape transpose broadcast_in_dim slice reverse pad concatenate gather sort select "
        "negate abs dynamic_slice dynamic_update_slice dynamic_reshape dynamic_broadcast_in_dim dynamic_pad "
        "real_dynamic_slice convert maximum minimum floor ceil sign select_and_scatter scatter"
    ).split()
)
"""Ops whose floating-point results do not depend on how they are computed (or only by additions, which count too)."""


class Disturbed(Interpreter):
    """Moves floating-point results by a few units in the last place of an f32, as another order of sums does."""

    def __init__(self, module: Any, seed: int):
        super().__init__(module)
        self.rng = np.random.default_rng(seed)

    def op(self, op: Op, arrays: Any, values: Any = None) -> tuple[Any, ...]:
        return tuple(x if op.name in EXACT else self.moved(x) for x in super().op(op, arrays, values))

    def moved(self, x: Any) -> Any:
        if x.dtype.kind != "f" or x.dtype.itemsize < 4:
            return x
        with np.errstate(all="ignore"):
            factor = 1 + self.rng.choice([-4e-7, 0, 4e-7], x.shape)
            return np.where(np.isfinite(x), x * factor, x).astype(x.dtype)


def near(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal but for rounding."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return False
    if want.dtype.kind != "f":
        return np.array_equal(got, want)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return False
    scale = max(1e-3, float(np.abs(want[finite]).max(initial=0)))
    with np.errstate(all="ignore"):
        return float(np.abs(got[finite] - want[finite]).max(initial=0)) <= 1e-4 * scale


def sensitive(module: Any, arguments: list[np.ndarray], wants: list[np.ndarray]) -> bool:
    """Whether rounding alone changes the results: a comparison of values that are nearly the same, an overflow."""
    for seed in range(8):
        moved = Disturbed(module, seed).function(module.function("main"), list(arguments))
        if not all(near(np.asarray(m), w) for m, w in zip(moved, wants, strict=True)):
            return True
    return False


def check(text: str, arguments: list[np.ndarray], target: str = "native", donate: tuple[int, ...] = ()) -> None:
    """Compiled for one thread and for three: the reference's results, the same bits, also in a second call, and between
    inaccessible pages."""
    module = shlo_jit.parse(text)
    given = [x.copy() for x in arguments]
    with np.errstate(all="ignore"):
        wants = [np.asarray(w) for w in evaluate(module, *arguments)]
    seen: list[list[np.ndarray]] = []
    options = {"cache": False, "target": target, "donate": donate}
    apart = zlib.crc32(text.encode()) % 2 == 0
    # The arena as it is planned, and its values apart, at one end of their pages.
    for exe in (
        guarded.compile(text, threads=1, **options),
        guarded.compile(text, threads=3, apart=apart, **options),
    ):
        for _ in range(2):
            passed = [x.copy() for x in given]
            out = exe(*passed)
            seen.append([np.array(x) for x in (out if isinstance(out, (tuple, list)) else (out,))])
            for i, (x, y) in enumerate(zip(passed, given, strict=True)):
                assert i in donate or x.tobytes() == y.tobytes(), f"argument {i} was written to"
    for again in seen[1:]:
        assert [x.tobytes() for x in again] == [x.tobytes() for x in seen[0]], "two calls differ"
    if not all(near(g, w) for g, w in zip(seen[0], wants, strict=True)):
        with np.errstate(all="ignore"):
            assert sensitive(module, given, wants), "compiled and reference differ"
