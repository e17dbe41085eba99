"""Elements in memory for kernels: loads and stores of one or several lanes at element indices, and loops over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.registers import Reg, from_memory, is_pair, memory_type, to_memory


@dataclass(frozen=True)
class Buffer:
    """Memory with elements of one dtype. Indices count elements; a complex element is two numbers in memory."""

    b: Builder
    dtype: DType
    pointer: V

    @property
    def parts(self) -> int:
        return 2 if self.dtype.is_complex else 1

    def address(self, index: V | int) -> V:
        return self.b.element(self.pointer, memory_type(self.dtype), self.b.mul(index, self.parts))

    def load(self, index: V | int, n: int = 1, mask: V | None = None) -> Reg:
        """Loads n consecutive elements as lanes. Masked-off lanes are zero and access no memory."""
        b, t, address = self.b, memory_type(self.dtype), self.address(index)
        if self.dtype.is_complex and n == 1:
            return b.load(t, address), b.load(t, b.element(address, t, 1))
        kind = vector(t, n * self.parts)
        if mask is None:
            x = b.load(kind, address)
        else:
            x = b.masked_load(kind, address, self._both(mask, n))
        if self.dtype.is_complex:
            return b.shuffle(x, None, range(0, 2 * n, 2)), b.shuffle(x, None, range(1, 2 * n, 2))
        return from_memory(b, self.dtype, x)

    def store(self, index: V | int, x: Reg, n: int = 1, mask: V | None = None) -> None:
        """Stores the lanes of x to n consecutive elements, except masked-off lanes."""
        b, t, address = self.b, memory_type(self.dtype), self.address(index)
        if isinstance(x, V):
            y = to_memory(b, self.dtype, x)
        elif n == 1:
            b.store(x[0], address)
            b.store(x[1], b.element(address, t, 1))
            return
        else:
            y = b.shuffle(x[0], x[1], [i // 2 + (i % 2) * n for i in range(2 * n)])
        if mask is None:
            b.store(y, address)
        else:
            b.masked_store(y, address, self._both(mask, n))

    def gather(self, index: V, mask: V) -> Reg:
        """Gathers the elements at a vector of indices; masked-off lanes are zero."""
        b, t = self.b, memory_type(self.dtype)
        kind = vector(t, lanes(index.type))
        found = [b.gather(kind, p, mask) for p in self._places(index)]
        return (found[0], found[1]) if self.dtype.is_complex else from_memory(b, self.dtype, found[0])

    def scatter(self, index: V, x: Reg, mask: V) -> None:
        """Scatters lanes to the elements at a vector of (different) indices, except masked-off lanes."""
        values = [to_memory(self.b, self.dtype, x)] if isinstance(x, V) else list(x)
        for value, place in zip(values, self._places(index), strict=True):
            self.b.scatter(value, place, mask)

    def _places(self, index: V) -> list[V]:
        b, t = self.b, memory_type(self.dtype)
        if not self.dtype.is_complex:
            return [b.pointers(self.pointer, t, index)]
        first = b.mul(index, const(index.type, 2))
        return [b.pointers(self.pointer, t, b.add(first, const(index.type, p))) for p in (0, 1)]

    def _both(self, mask: V, n: int) -> V:
        """Expands a mask of elements to one of the numbers in memory."""
        return mask if self.parts == 1 else self.b.shuffle(mask, None, [i // 2 for i in range(2 * n)])


LaneBody = Callable[[V, int, "V | None"], None]
"""Called with the first index, the number of lanes and the mask of the lanes that exist (None: all)."""


def lanes_loop(
    b: Builder, target: Target, start: V | int, stop: V | int, width: int, body: LaneBody, unroll: int = 1
) -> None:
    """Runs `body` over [start, stop): first `unroll` vectors per iteration, then single vectors, then a masked vector
    or single elements."""
    start, stop = (x if isinstance(x, V) else i64(x) for x in (start, stop))
    stop = b.max_(start, stop)
    at = start
    for step in dict.fromkeys([width * unroll, width]):
        if step == 1:
            break
        whole = _round_down(b, b.sub(stop, at), step)
        end = b.add(at, whole)
        if whole.literal != 0:
            with b.loop(at, end, step, "lanes") as i:
                for k in range(step // width):
                    body(b.add(i, k * width), width, None)
        at = end
    left = b.sub(stop, at)
    if left.literal == 0:
        return
    if width == 1 or not target.has_masks:
        with b.loop(at, stop, 1, "tail") as i:
            body(i, 1, None)
        return
    if left.literal is not None:
        body(at, width, tail_mask(b, left, width))
        return
    with b.if_(b.icmp("sgt", left, i64(0)), "tail"):
        body(at, width, tail_mask(b, left, width))


def _round_down(b: Builder, n: V, step: int) -> V:
    if n.literal is not None:
        return i64(max(0, n.literal) // step * step)
    return b.and_(n, i64(-step))


def tail_mask(b: Builder, left: V, width: int) -> V:
    """Mask of the lanes below `left`."""
    return b.icmp("ult", b.iota("i64", width), b.splat(left, width))


def same_lanes(x: Reg) -> list[V]:
    """The parts of a register."""
    return list(x) if is_pair(x) else [x]  # type: ignore[arg-type, list-item]
