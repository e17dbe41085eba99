"""Comparison of compiled random programs with the reference interpreter."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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


SUMS = frozenset({"stablehlo.dot_general", "stablehlo.convolution"})
"""Ops that add up many products, which round: for these the operands are disturbed."""
RUNS = 24
"""Maximum number of disturbed runs, for results that are not close immediately."""
FACTOR = 6
"""Maximum distance of a result relative to that of the disturbed runs, whose random disturbances may cancel."""
LOOSE = 1e-3
"""Tolerance relative to the largest element beyond which a comparison is not meaningful."""


class Disturbed(Interpreter):
    """Disturbs floating-point results by a few units in the last place of an f32, like another order of sums."""

    def __init__(self, module: Any, seed: int):
        super().__init__(module)
        self.rng = np.random.default_rng(seed)

    def op(self, op: Op, arrays: Any, values: Any = None) -> tuple[Any, ...]:
        if op.name in SUMS:
            arrays = [self.moved(x) for x in arrays]
        return tuple(x if op.name in EXACT else self.moved(x) for x in super().op(op, arrays, values))

    def moved(self, x: Any) -> Any:
        if x.dtype.kind == "c":
            return self.moved(np.ascontiguousarray(x).reshape(-1).view(x.real.dtype)).view(x.dtype).reshape(x.shape)
        if x.dtype.kind != "f" or x.dtype.itemsize < 4:
            return x
        with np.errstate(all="ignore"):
            factor = 1 + self.rng.choice([-4e-7, 0, 4e-7], x.shape)
            return np.where(np.isfinite(x), x * factor, x).astype(x.dtype)


def numbers(x: np.ndarray) -> np.ndarray:
    """Flattens an array to f64 (integers below 2^53 are exact there); complex numbers become pairs."""
    flat = np.ascontiguousarray(x).reshape(-1)
    return (flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat).astype(np.float64)


def differs(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance of elements: 0 if both are the same infinity or NaN, infinite if only one of them is."""
    with np.errstate(all="ignore"):
        distance = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isfinite(distance), distance, np.inf))


def scale_of(want: np.ndarray) -> float:
    return float(np.abs(want[np.isfinite(want)]).max(initial=0))


def far(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Whether results differ by more than a few roundings."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    g, w = numbers(got), numbers(want)
    if want.dtype.kind not in "fc":
        return differs(g, w) != 0
    with np.errstate(all="ignore"):
        return differs(g, w) > 1e-6 * np.abs(np.where(np.isfinite(w), w, 0)) + 1e-7 * scale_of(w)


def judge(module: Any, arguments: list[np.ndarray], gots: list[np.ndarray], wants: list[np.ndarray]) -> bool:
    """Compares results; returns whether every element could be compared with a meaningful tolerance.

    A result that differs from the reference's by more than a few roundings must be about as far from it as results of
    reference runs with other roundings, element by element. Integers may differ if those of such runs do. Raises
    AssertionError otherwise.
    """
    wrong = [far(g, w) for g, w in zip(gots, wants, strict=True)]
    if not any(x.any() for x in wrong):
        return True
    distances = [differs(numbers(g), numbers(w)) for g, w in zip(gots, wants, strict=True)]
    spreads = [np.zeros_like(d) for d in distances]
    for seed in range(RUNS):
        moved = Disturbed(module, seed).function(module.function("main"), list(arguments))
        for i, (m, want) in enumerate(zip(moved, wants, strict=True)):
            spreads[i] = np.maximum(spreads[i], differs(numbers(np.asarray(m)), numbers(want)))
            exact = want.dtype.kind not in "fc"
            wrong[i] &= spreads[i] == 0 if exact else distances[i] > FACTOR * spreads[i]
        if not any(x.any() for x in wrong):
            break
    for i, (bad, got, want) in enumerate(zip(wrong, gots, wants, strict=True)):
        if bad.any():
            at = int(np.argmax(bad))
            found = (
                f"got {numbers(got)[at]!r}, expected {numbers(want)[at]!r}, rounding moves that by {spreads[i][at]:.3g}"
            )
            raise AssertionError(f"result {i}, element {at} of {bad.size}: {found}")
    loose = (
        f & (s > LOOSE * scale_of(numbers(w))) for f, s, w in zip(map(far, gots, wants), spreads, wants, strict=True)
    )
    return not any(x.any() for x in loose)


def check(
    text: str,
    arguments: list[np.ndarray],
    target: str = "native",
    donate: tuple[int, ...] = (),
    schedule: dict[str, Any] | None = None,
) -> bool:
    """Compiles a program for one thread and for three and compares with the reference.

    Results must have the same bits, also in a second call, and between inaccessible pages. Returns whether the results
    could be compared closely, see `judge`.
    """
    module = shlo_jit.parse(text)
    given = [x.copy() for x in arguments]
    with np.errstate(all="ignore"):
        wants = [np.asarray(w) for w in evaluate(module, *arguments)]
    seen: list[list[np.ndarray]] = []
    options = {"cache": False, "target": target, "donate": donate, "schedule": schedule}
    apart = zlib.crc32(text.encode()) % 2 == 0
    # The arena as planned, and with its values separately at one end of their pages.
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
    with np.errstate(all="ignore"):
        return judge(module, given, seen[0], wants)


@contextmanager
def compared_closely(least: float) -> Iterator[list[bool]]:
    """Collects the results of `check` for each program.

    At least this share must have been compared closely, so that a check that accepts everything is noticed.
    """
    closely: list[bool] = []
    yield closely
    share = sum(closely) / len(closely)
    print(f"{share:.1%} of {len(closely)} programs compared closely")
    assert share >= least, f"only {share:.1%} of {len(closely)} programs could be compared closely"
