"""Sums over the lanes of a vector, which add the upper half of the lanes to the lower half until one is left."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, is_float, lanes


def fold(b: Builder, x: V) -> V:
    """Returns the sum of the lanes, adding the upper half to the lower half in each step."""
    add = b.fadd if is_float(x.type) else b.add
    while (n := lanes(x.type)) > 1:
        low, high = b.shuffle(x, None, range(n // 2)), b.shuffle(x, None, range(n // 2, n))
        if n == 2:
            low, high = b.extract(x, 0), b.extract(x, 1)
        x = add(low, high)
    return x


def fold_together(b: Builder, sums: Sequence[V]) -> V:
    """Sums each vector horizontally. There are at most as many vectors as lanes. Returns a vector with at least one
    lane for each sum."""
    n = part = lanes(sums[0].type)
    add = b.fadd if is_float(sums[0].type) else b.add
    xs = [*sums, *[const(sums[0].type, 0)] * (-len(sums) % (1 << (len(sums) - 1).bit_length()))]
    while part > 1:
        half = part // 2
        starts = [v * n + at for v in range(min(2, len(xs))) for at in range(0, n, part)]
        low = [start + i for start in starts for i in range(half)]
        high = [i + half for i in low]
        pairs = zip(xs[::2], xs[1::2] or [None], strict=True)
        xs = [add(b.shuffle(x, y, low), b.shuffle(x, y, high)) for x, y in pairs]
        n, part = len(low), half
    return xs[0]


def fold_each(b: Builder, sums: Sequence[V]) -> list[V]:
    """The sum of the lanes of each vector. Those of several vectors are added together, in the same order."""
    found, most = list[V](), lanes(sums[0].type)
    for first in range(0, len(sums), most):
        some = sums[first : first + most]
        if len(some) == 1:
            found.append(fold(b, some[0]))
            continue
        together = fold_together(b, some)
        found += [b.extract(together, i) for i in range(len(some))]
    return found
