"""rng and rng_bit_generator (specification, sections of the same names).

The bits are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), in XLA's layout.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.numeric import Array, convert, result_type
from shlo_jit.ops.record import Violation, define, required
from shlo_jit.ops.type_algebra import (
    constant_ints,
    operand_type,
    operand_types,
    type_text,
    with_bounds,
)

MAX_RANK_OF_RESULT = 1 << 16
"""Maximum rank of a result whose rank is given by an extent, which could otherwise make its type terabytes large."""

# rng


def _infer_rng(op: Op) -> list[Type]:
    a, b, shape = operand_types(op)
    if a.dtype != b.dtype:
        raise Violation("C1", f"requires the same element type, got '{type_text(a)}' and '{type_text(b)}'")
    normal = op.attributes["rng_distribution"].value == "NORMAL"
    if normal and not a.dtype.is_float:  # type: ignore[union-attr]
        raise Violation("C2", f"mu and sigma must be floats, got '{type_text(a)}'")
    known = constant_ints(op.operands[2])
    if known is None:
        rank = shape.extents[0]
        if rank > MAX_RANK_OF_RESULT:
            raise Violation("C3", f"shape must have a number for each dimension of the result, got {rank:,}")
        return [with_bounds((None,) * rank, a.dtype, None)]
    if any(n < 0 for n in known):
        raise Violation("C3", f"shape must not be negative, got {list(known)}")
    return [with_bounds(known, a.dtype, None)]


def _rng(op: Op, a: Array, b: Array, shape: Array) -> Array:
    """Reference of rng: numbers of the distribution; the specification does not determine which."""
    generator = np.random.default_rng(0)
    size = tuple(int(n) for n in shape)
    if op.attributes["rng_distribution"].value == "NORMAL":
        return convert(generator.normal(float(a), float(b), size), a.dtype)
    if a.dtype == np.bool_:
        return generator.integers(0, 2, size).astype(np.bool_)
    if a.dtype.kind in "iu":
        return generator.integers(int(a), max(int(b), int(a) + 1), size).astype(a.dtype)
    return convert(generator.uniform(float(a), float(b), size), a.dtype)


define(
    "stablehlo.rng", section="rng",
    operands=("a: 0d pred|int|float", "b: 0d pred|int|float", "shape: shape"), results=("result: pred|int|float",),
    attributes={"rng_distribution": required("enum rng_distribution")},
    traits={"side_effect", "looks_at_operands"}, infer=_infer_rng, reference=_rng,
)  # fmt: skip

# rng_bit_generator


def _check_state(algorithm: str, state: TensorType) -> None:
    """Checks that the state has two or three 64-bit words. The state of DEFAULT, which is Philox here, may have shorter
    elements."""
    assert state.shape is not None
    size, bits = state.shape[0], state.storage.bits
    allowed = (2,) if algorithm == "THREE_FRY" else (2, 3)
    words = " or ".join(map(str, allowed))
    if algorithm != "DEFAULT" and bits != 64:
        raise Violation("C2", f"state of {algorithm} must have elements of 64 bits, got '{type_text(state)}'")
    if bits < 8:
        raise Violation("C2", f"state must have elements of 8 to 64 bits, got '{type_text(state)}'")
    if size is None or (size * bits) in [64 * n for n in allowed]:
        return
    what = f"{words} elements" if bits == 64 else f"{words} times 64 bits"
    raise Violation("C2", f"state of {algorithm} must have {what}, got {size} elements of {bits} bits")


def _infer_bits(op: Op) -> list[Type]:
    state = operand_type(op, 0)
    algorithm = op.attributes["rng_algorithm"].value
    assert state.shape is not None
    _check_state(algorithm, state)
    if len(op.results) != 2:
        raise Violation("C1", f"expects 2 results, got {len(op.results)}")
    return [state, op.results[1].type]


def _low_high(x: Array) -> tuple[Array, Array]:
    return (x & np.uint64(0xFFFFFFFF)).astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)


def _join(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def threefry(x0: Array, x1: Array, key0: Array, key1: Array) -> tuple[Array, Array]:
    """Threefry-2x32, 20 rounds."""
    keys = [key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA)]
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def philox(x: list[Array], key0: Array, key1: Array) -> list[Array]:
    """Philox-4x32, 10 rounds."""
    for _ in range(10):
        low0, high0 = _low_high(x[0].astype(np.uint64) * np.uint64(0xD2511F53))
        low1, high1 = _low_high(x[2].astype(np.uint64) * np.uint64(0xCD9E8D57))
        x = [high1 ^ x[1] ^ key0, low1, high0 ^ x[3] ^ key1, low0]
        key0, key1 = key0 + np.uint32(0x9E3779B9), key1 + np.uint32(0xBB67AE85)
    return x


def _threefry_bits(state: Array, shape: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    key0, key1 = _low_high(state[0])
    if wide:
        count = int(np.prod(shape, dtype=np.int64))
        counter = state[1] + np.arange(count, dtype=np.uint64)
        bits = _join(*threefry(*_low_high(counter), key0, key1)).reshape(shape)
    else:
        split = _split_dimension(shape)
        half = [-(-n // 2) if d == split else n for d, n in enumerate(shape)] if shape else [1]
        count = int(np.prod(half, dtype=np.int64))
        counter = state[1] + np.arange(count, dtype=np.uint64)
        first, second = (x.reshape(half) for x in threefry(*_low_high(counter), key0, key1))
        pairs = np.stack([first, second], axis=split + 1)
        whole = [2 * n if d == split else n for d, n in enumerate(half)]
        cut = pairs.reshape(whole)[tuple(slice(0, n) for n in (shape or (1,)))]
        bits = cut.reshape(shape)
    return np.asarray([state[0], state[1] + np.uint64(count)], np.uint64), bits


def _split_dimension(shape: tuple[int, ...]) -> int:
    """Returns the dimension along which the two 32-bit words of a block are adjacent: the first even one, otherwise the
    largest."""
    if not shape:
        return 0
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    return even[0] if even else int(np.argmax(shape))


def _philox_bits(state: Array, shape: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    low, high = (state[1], state[2]) if len(state) == 3 else (state[1], state[0])
    key0, key1 = _low_high(state[0])
    count = int(np.prod(shape, dtype=np.int64))
    blocks = -(-count * (2 if wide else 1) // 4)
    counter_low = low + np.arange(blocks, dtype=np.uint64)
    counter_high = high + (counter_low < low).astype(np.uint64)
    words = philox([*_low_high(counter_low), *_low_high(counter_high)], key0, key1)
    if wide:
        lanes = [_join(words[0], words[1]), _join(words[2], words[3])]
    else:
        lanes = words
    bits = np.stack(lanes, axis=1).reshape(-1)[:count].reshape(shape)
    next_low = low + np.uint64(blocks)
    next_high = high + np.uint64(next_low < low)
    new = [state[0], next_low, next_high] if len(state) == 3 else [state[0], next_low]
    return np.asarray(new, np.uint64), bits


def _rng_bits(op: Op, state: Array) -> tuple[Array, Array]:
    t = result_type(op, 1)
    dtype = t.storage
    generate = _threefry_bits if op.attributes["rng_algorithm"].value == "THREE_FRY" else _philox_bits
    counters = np.ascontiguousarray(state).view(np.uint64)
    new, bits = generate(counters, t.extents, dtype.bits == 64)
    new = new.view(state.dtype)
    if dtype.bits < 32:
        bits = bits.astype(f"u{max(1, dtype.bits // 8)}")
    if dtype.bits < 8:
        bits = (bits & ((1 << dtype.bits) - 1)).astype(np.uint8)
        return new, bits.view(dtype.numpy) if dtype.is_float else convert(bits, dtype.numpy)
    return new, np.ascontiguousarray(bits).view(dtype.numpy).reshape(t.extents)


define(
    "stablehlo.rng_bit_generator", section="rng_bit_generator",
    operands=("initial_state: 1d int|float",), results=("output_state: 1d int|float", "output: int|float"),
    attributes={"rng_algorithm": required("enum rng_algorithm")},
    traits={"chooses_result"}, infer=_infer_bits, reference=_rng_bits,
)  # fmt: skip
