"""Expansion of rng_bit_generator: counter-based generators are elementwise functions of an iota.

Threefry-2x32 and Philox-4x32 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with words laid
out as XLA does. Each block of words is computed from a 64-bit counter (128 bits for Philox) and the key. So the loops
fuse with the consumers of the bits, and are divided into tasks like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import UI32, UI64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.expand.bitcast import from_bits
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.sizes import NotSymbolic


def expand_bits(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """(state, bits) = (state + blocks used, words of the blocks state, state + 1, ...)"""
    state, out = operands[0], op.results[1]
    algorithm = op.attributes["rng_algorithm"]
    dtype = out.tensor.storage
    if not (mk.is_static(state) and mk.is_static(out)) or dtype.is_complex:
        return None
    if not out.tensor.is_fixed:
        raise NotSymbolic("random-bits", "the order of random bits depends on their number")
    assert isinstance(algorithm, EnumAttr)
    stream = _Stream(rw, state)
    shape = mk.shape_of(out)
    if algorithm.value == "THREE_FRY":
        bits, used = (_threefry_wide if dtype.bits == 64 else _threefry_narrow)(stream, shape)
    else:
        bits, used = _philox_bits(stream, shape, dtype.bits == 64)
    return [stream.advance(used), from_bits(rw, bits, dtype)]  # a narrower type takes the low bits


class _Stream:
    """The state of a generator, and arithmetic on lists of counters and words."""

    def __init__(self, rw: Rewriter, state: Value):
        self.rw = rw
        self.type = state.tensor
        self.per_word = 64 // state.tensor.storage.bits
        """Elements of the state per 64-bit word."""
        size = mk.shape_of(state)[0] // self.per_word
        if state.tensor.storage != UI64:
            if self.per_word > 1:
                state = mk.reshape(rw, state, (size, self.per_word))
            state = rw.emit1("stablehlo.bitcast_convert", [state], tensor((size,), UI64))
        self.parts = [mk.reshape(rw, mk.slice_dim(rw, state, 0, k, k + 1), ()) for k in range(size)]
        self.key = self.halves(self.parts[0])

    def op(self, name: str, x: Value, y: Value | int) -> Value:
        return mk.apply(self.rw, name, x, mk.splat_like(self.rw, x, y) if isinstance(y, int) else y)

    def spread(self, x: Value, count: int) -> Value:
        return mk.broadcast(self.rw, x, (count,), ())

    def halves(self, x: Value) -> tuple[Value, Value]:
        """Returns the low and the high 32 bits."""
        return mk.convert(self.rw, x, UI32), mk.convert(self.rw, self.op("shift_right_logical", x, 32), UI32)

    def join(self, low: Value, high: Value) -> Value:
        wide = mk.convert(self.rw, high, UI64)
        return self.op("or", mk.convert(self.rw, low, UI64), self.op("shift_left", wide, 32))

    def counters(self, first: Value, count: int) -> Value:
        """first, first + 1, ..."""
        line = mk.iota(self.rw, tensor((count,), UI64), 0)
        return self.op("add", line, self.spread(first, count))

    def carry(self, moved: Value, start: Value) -> Value:
        """Returns 1 where a sum that began at `start` has wrapped around, else 0."""
        return mk.convert(self.rw, mk.compare(self.rw, "LT", moved, start), UI64)

    def advance(self, used: int) -> Value:
        """Returns the state after `used` blocks."""
        parts = list(self.parts)
        parts[1] = self.op("add", self.parts[1], used)
        if len(parts) == 3:
            parts[2] = self.op("add", self.parts[2], self.carry(parts[1], self.parts[1]))
        state = mk.concatenate(self.rw, [mk.reshape(self.rw, p, (1,)) for p in parts], 0)
        if self.type.storage == UI64:
            return state
        shape = (len(parts),) if self.per_word == 1 else (len(parts), self.per_word)
        state = self.rw.emit1("stablehlo.bitcast_convert", [state], tensor(shape, self.type.storage))
        return mk.reshape(self.rw, state, self.type.extents)


# ---------------------------------------------------------------------------- Threefry-2x32, 20 rounds
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(s: _Stream, count: int) -> tuple[Value, Value]:
    x0, x1 = s.halves(s.counters(s.parts[1], count))
    key0, key1 = (s.spread(k, count) for k in s.key)
    keys = [key0, key1, s.op("xor", s.op("xor", key0, key1), 0x1BD11BDA)]
    x0, x1 = s.op("add", x0, key0), s.op("add", x1, key1)
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = s.op("add", x0, x1)
            rotated = s.op("or", s.op("shift_left", x1, distance), s.op("shift_right_logical", x1, 32 - distance))
            x1 = s.op("xor", rotated, x0)
        x0 = s.op("add", x0, keys[(group + 1) % 3])
        x1 = s.op("add", s.op("add", x1, keys[(group + 2) % 3]), group + 1)
    return x0, x1


def _threefry_wide(s: _Stream, shape: Sequence[int]) -> tuple[Value, int]:
    count = math.prod(shape)
    return mk.reshape(s.rw, s.join(*_threefry(s, count)), shape), count


def _threefry_narrow(s: _Stream, shape: Sequence[int]) -> tuple[Value, int]:
    """The two words of a block are adjacent along one dimension: the first even one, else the largest."""
    whole = list(shape) or [1]
    even = [d for d, n in enumerate(whole) if n % 2 == 0]
    split = even[0] if even else whole.index(max(whole))
    half = [-(-n // 2) if d == split else n for d, n in enumerate(whole)]
    count = math.prod(half)
    thin = [*half[: split + 1], 1, *half[split + 1 :]]
    pairs = mk.concatenate(s.rw, [mk.reshape(s.rw, w, thin) for w in _threefry(s, count)], split + 1)
    bits = mk.reshape(s.rw, pairs, [2 * n if d == split else n for d, n in enumerate(half)])
    if mk.shape_of(bits) != tuple(whole):
        bits = mk.slice_dim(s.rw, bits, split, 0, whole[split])
    return mk.reshape(s.rw, bits, shape), count


# ---------------------------------------------------------------------------- Philox-4x32, 10 rounds
def _philox(s: _Stream, count: int) -> list[Value]:
    start, high = (s.parts[1], s.parts[2]) if len(s.parts) == 3 else (s.parts[1], s.parts[0])
    low = s.counters(start, count)
    above = s.op("add", s.spread(high, count), s.carry(low, s.spread(start, count)))
    x = [*s.halves(low), *s.halves(above)]
    key0, key1 = (s.spread(k, count) for k in s.key)
    for _ in range(10):
        low0, high0 = s.halves(s.op("multiply", mk.convert(s.rw, x[0], UI64), 0xD2511F53))
        low1, high1 = s.halves(s.op("multiply", mk.convert(s.rw, x[2], UI64), 0xCD9E8D57))
        first = s.op("xor", s.op("xor", high1, x[1]), key0)
        third = s.op("xor", s.op("xor", high0, x[3]), key1)
        x = [first, low1, third, low0]
        key0, key1 = s.op("add", key0, 0x9E3779B9), s.op("add", key1, 0xBB67AE85)
    return x


def _philox_bits(s: _Stream, shape: Sequence[int], wide: bool) -> tuple[Value, int]:
    """The words of a block are consecutive in the flat result."""
    count = math.prod(shape)
    blocks = -(-count * (2 if wide else 1) // 4)
    x = _philox(s, blocks)
    words = [s.join(x[0], x[1]), s.join(x[2], x[3])] if wide else x
    rows = mk.concatenate(s.rw, [mk.reshape(s.rw, w, (blocks, 1)) for w in words], 1)
    flat = mk.reshape(s.rw, rows, (blocks * len(words),))
    if mk.shape_of(flat) != (count,):
        flat = mk.slice_dim(s.rw, flat, 0, 0, count)
    return mk.reshape(s.rw, flat, shape), blocks


RULES = {"stablehlo.rng_bit_generator": expand_bits}
