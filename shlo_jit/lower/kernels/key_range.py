"""The range of keys that some rows need, in machine code (see `ops/ranged.py`)."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64


class Keys(NamedTuple):
    """A range of keys, in whole steps."""

    low: V
    high: V


def keys_of_rows(b: Builder, bounds: tuple[V, V], keys: int, first: V, count: V, step: int) -> Keys:
    """Emits the keys that `count` rows from `first` on need. `bounds`: addresses of the first key and of the end of the
    keys of each row. There is at least one step: the weights of a row without keys may still be NaN."""
    with b.loop_carry(first, b.add(first, count), [i64(keys), i64(0)], 1, "range") as carry:
        low, high = (b.load("i64", b.element(p, "i64", carry.index)) for p in bounds)
        carry.next(b.min_(carry.values[0], low), b.max_(carry.values[1], high))
    low, high = carry.values
    last = (keys - 1) // step * step
    low = b.and_(b.max_(b.min_(low, last), 0), i64(-step))
    high = b.mul(b.udiv(b.add(b.max_(high, b.add(low, 1)), step - 1), step), step)
    return Keys(low, b.min_(high, keys))
