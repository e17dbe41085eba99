"""Batch blocking: run a chain of convolutions on a few images of a large batch at a time.

No cache holds the result of a convolution of a large batch until the next one reads it. The last-level cache does hold
the result of one image. So the images go through a chain of convolutions one after the other, or a few at a time. Each
iteration reads all weights of the chain, so the chain ends where these no longer fit in the cache.

Needs: static shapes. Guarantees: nothing.

    y = f(g(x)) : [8, ...]   ->   while i < 8 { y[i] = f(g(x[i])) }

where `f` and `g` are convolutions, windows and elementwise ops. The result for an image depends only on that image of
their operands, and on values that are the same for all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shlo_jit import tuning
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.byte_convolutions import window_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size


def batch_blocking(function: Op, _: Context) -> Op:
    """The function with its first profitable chain of such convolutions, if there is one, in a loop over the images."""
    chain = _chain(function.block())
    if chain is None:
        return function
    inside, last = set(chain.ops), chain.ops[-1]

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op not in inside:
            return None
        if op is last:
            results = _loop(rw, chain)
            rw.values.update(zip(chain.read_later, results, strict=True))
            return [rw.get(v) for v in op.results]
        return op.results  # nothing reads them before the loop

    return rewrite(function, visit)


@dataclass
class _Chain:
    images: int
    ops: list[Op] = field(default_factory=list)
    values: set[Value] = field(default_factory=set)
    """Values that the ops compute."""
    read_later: list[Value] = field(default_factory=list)
    per_iteration: int = 1
    """Images per iteration."""


def _chain(block: Block) -> _Chain | None:
    """Returns the ops from the first convolution on that can be computed image by image, in order, or None if that is
    not profitable."""
    chain: _Chain | None = None
    kernels = 0
    for op in block.ops:
        if chain is None:
            images = _images_of(op)
            if not images:
                continue
            chain = _Chain(images)
        elif not any(v in chain.values for v in _read(op)):
            continue
        if not _is_per_image(op, chain):
            break
        if op.name == "stablehlo.convolution":
            kernels += op.operands[1].tensor.nbytes
            if kernels > tuning.BATCH_BLOCK_KERNELS:
                break
        chain.ops.append(op)
        chain.values.update(op.results)
    return None if chain is None else _if_profitable(chain, block)


def _images_of(op: Op) -> int:
    """Returns the batch size of a convolution whose operand and result have the batch as their first dimension; else
    0."""
    if op.name != "stablehlo.convolution" or not isinstance(op.operands[0].type, TensorType):
        return 0
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    extents = (*op.operands[0].tensor.extents, *op.result.tensor.extents)
    if (d.input_batch_dimension, d.output_batch_dimension) != (0, 0) or any(isinstance(n, Size) for n in extents):
        return 0
    return extents[0] if window_of(op.attributes, len(d.input_spatial_dimensions)).batch_groups == 1 else 0


def _is_per_image(op: Op, chain: _Chain) -> bool:
    """Whether an image of the result depends only on the same image of the chain's values, and on other values."""
    shapes = [v.type for v in (*op.operands, *op.results)]
    if not all(isinstance(t, TensorType) and t.is_static for t in shapes) or len(op.results) != 1:
        return False
    extents = op.result.tensor.extents
    if not extents or extents[0] != chain.images:
        return False
    if is_elementwise(op):
        return all(o.tensor.extents in (extents, ()) for o in op.operands)
    if any(o in chain.values for o in op.operands[1:]):
        return False
    if op.name == "stablehlo.convolution":
        return _images_of(op) == chain.images
    if op.name == "stablehlo.reduce_window":
        n = len(extents)
        ones = [op.ints(name, (1,) * n)[0] == 1 for name in _WINDOW]
        return len(op.operands) == 2 and all(ones) and not any(op.ints("padding", (0,) * 2 * n)[:2])
    return False


_WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")


def _if_profitable(chain: _Chain, block: Block) -> _Chain | None:
    """Returns the chain if its values are too large for the caches and few of them are read as a whole, else None."""
    convolutions = [op for op in chain.ops if op.name == "stablehlo.convolution"]
    largest = max((v.tensor.nbytes for v in chain.values), default=0)
    if len(convolutions) < 2 or chain.images < 2 or largest < tuning.BATCH_BLOCK_LARGEST:
        return None
    inside, wanted = set(chain.ops), dict[Value, None]()
    for op in block.ops:
        if op not in inside:
            wanted.update(dict.fromkeys(v for v in _read(op) if v in chain.values))
    chain.read_later = list(wanted)
    if 4 * sum(v.tensor.nbytes for v in wanted) > sum(op.result.tensor.nbytes for op in convolutions):
        return None
    most = max(1, tuning.BATCH_BLOCK_BYTES * chain.images // largest)
    chain.per_iteration = max(n for n in range(1, chain.images + 1) if chain.images % n == 0 and n <= most)
    return chain if chain.per_iteration < chain.images else None


def _read(op: Op) -> list[Value]:
    """Returns the values that an op and its regions read."""
    return [*op.operands, *(v for r in op.regions for b in r.blocks for inner in b.ops for v in _read(inner))]


def _is_same_for_all(op: Op) -> bool:
    """Whether an op repeats its operand along the images."""
    if op.name != "stablehlo.broadcast_in_dim":
        return False
    along = zip(op.ints("broadcast_dimensions"), op.operands[0].tensor.extents, strict=True)
    return all(d != 0 or n == 1 for d, n in along)


def _loop(rw: Rewriter, chain: _Chain) -> list[Value]:
    """Emits the chain as a loop. Returns the chain's values that are read later."""
    zeros = [mk.constant(rw, v.tensor, 0) for v in chain.read_later]

    def iteration(number: Value, whole: list[Value]) -> list[Value]:
        first = mk.apply(rw, "multiply", number, mk.splat_like(rw, number, chain.per_iteration))
        part = _Part(rw, chain, first)
        for op in chain.ops:
            part.compute(op)
        return [part.put(w, v) for w, v in zip(whole, chain.read_later, strict=True)]

    return mk.counted(rw, chain.images // chain.per_iteration, zeros, iteration)


class _Part:
    """The values of the images of one iteration."""

    def __init__(self, rw: Rewriter, chain: _Chain, first: Value):
        self.rw, self.chain, self.first = rw, chain, first
        self.values: dict[Value, Value] = {}

    def compute(self, op: Op) -> None:
        rw = self.rw
        rw.current = op
        by_images = len(op.operands) if is_elementwise(op) else 1
        operands = [self.of(o) if k < by_images else rw.get(o) for k, o in enumerate(op.operands)]
        regions = [Region([rw.sweep(b) for b in r.blocks]) for r in op.regions]
        self.values[op.result] = rw.emit(op.name, operands, [self.type_of(op.result)], op.attributes, regions)[0]

    def type_of(self, value: Value) -> TensorType:
        return tensor((self.chain.per_iteration, *value.tensor.extents[1:]), value.tensor.dtype)

    def of(self, value: Value) -> Value:
        """Returns the images of an operand; values that are the same for all images are emitted again for these."""
        rw, op = self.rw, value.op
        if value not in self.values and value.tensor.extents:
            t = self.type_of(value)
            if op is not None and op.name == "stablehlo.constant" and op.constant.is_splat:
                found = mk.constant(rw, t, op.constant.array.reshape(-1)[0])
            elif op is not None and _is_same_for_all(op):
                found = mk.broadcast(rw, rw.get(op.operands[0]), t.extents, op.ints("broadcast_dimensions"))
            else:
                found = mk.window(rw, rw.get(value), self.corner(value), t.extents)
            self.values[value] = found
        return self.values.get(value, rw.get(value))

    def put(self, whole: Value, value: Value) -> Value:
        operands = [whole, self.values[value], *self.corner(value)]
        return self.rw.emit1("stablehlo.dynamic_update_slice", operands, whole.type)

    def corner(self, value: Value) -> list[Value]:
        zero = mk.splat_like(self.rw, self.first, 0)
        return [self.first, *[zero] * (value.tensor.rank - 1)]
