"""Rules of ops that compute on padded tensors: `RULES`, by name, including those of `bounded_moves.py`.

Elements beyond the sizes are arbitrary and never affect valid elements. If an op combines elements of a bounded
dimension, the invalid ones are first replaced by a neutral element.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Block, Region, Value
from shlo_jit.ir.types import I1, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.reduce import reduce_window_window
from shlo_jit.passes import build as mk
from shlo_jit.passes.refine import bounded_moves
from shlo_jit.passes.refine.padded import Padded, Writer


def elementwise(w: Writer, given: list[Padded]) -> list[Padded]:
    """Computes all elements, including invalid ones."""
    given, sizes = _aligned(w, given)
    return [Padded(v, sizes) for v in w.again([x.value for x in given])]


def _aligned(w: Writer, given: Sequence[Padded]) -> tuple[list[Padded], tuple[Value | None, ...]]:
    """Returns the operands, which have one shape except for scalars, cut to the same extents; and their sizes."""
    wide = [x for x in given if x.rank]
    found = [w.same([(x, d) for x in wide]) for d in range(wide[0].rank)]
    extents, sizes = [n for n, _ in found], tuple(size for _, size in found)
    return [Padded(w.cut(x, extents), sizes) if x.rank else x for x in given], sizes


def bitcast_convert(w: Writer, given: list[Padded]) -> list[Padded]:
    if w.op.result.tensor.rank != given[0].rank:
        raise w.refuse(
            "a conversion to elements of another width is not supported for sizes that are only known at run time"
        )
    return elementwise(w, given)


# ---------------------------------------------------------------------------- sums
def reduce(w: Writer, given: list[Padded]) -> list[Padded]:
    """Replaces invalid elements by the neutral element of the body. If the body has none, they become the initial
    value, which the specification allows to be used any number of times."""
    half, over = len(given) // 2, w.op.ints("dimensions")
    inputs, sizes = _aligned(w, given[:half])
    inits = [x.value for x in given[half:]]
    if any(sizes[d] is not None for d in over):
        dtypes = [a.tensor.storage for a in w.op.block().arguments[:half]]
        inits = [mk.convert(w.rw, v, t) for v, t in zip(inits, dtypes, strict=True)]
        wide = [Padded(mk.convert(w.rw, x.value, t), sizes) for x, t in zip(inputs, dtypes, strict=True)]
        neutral = _neutral(w)
        inputs = [Padded(w.filled(x, over, n or v), sizes) for x, v, n in zip(wide, inits, neutral, strict=True)]
    kept = tuple(n for d, n in enumerate(sizes) if d not in over)
    return [Padded(v, kept) for v in w.again([*(x.value for x in inputs), *inits])]


def _neutral(w: Writer) -> list[Value | None]:
    """Returns the neutral element for each input, or None if it is not known."""
    block = w.op.block()
    if len(block.ops) == 2 and len(block.arguments) == 2 and set(block.ops[0].operands) == set(block.arguments):
        t = block.arguments[0].tensor
        record = OPS.get(block.ops[0].name)
        number = None if record is None else record.neutral_on(t.storage)
        if number is not None and block.ops[0].results == block.terminator.operands:
            return [mk.constant(w.rw, t, number)]
    return [None] * (len(block.arguments) // 2)


def reduce_window(w: Writer, given: list[Padded]) -> list[Padded]:
    half = len(given) // 2
    inputs, sizes = _aligned(w, given[:half])
    window = reduce_window_window(w.op, len(sizes))
    steps = zip(window.dimensions, window.strides, window.padding, window.base_dilations, strict=True)
    for d, step in enumerate(steps):
        if sizes[d] is not None and step != (1, 1, (0, 0), 1):
            raise w.refuse(f"windows along dimension {d}, whose size is only known at run time, are not compiled")
    return [Padded(v, sizes) for v in w.again([x.value for x in (*inputs, *given[half:])])]


def dot_general(w: Writer, given: list[Padded]) -> list[Padded]:
    numbers = w.op.attributes["dot_dimension_numbers"]
    names = "lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting"
    return _product(w, given, [dims_of(numbers, f"{name}_dimensions") for name in names])


def dot(w: Writer, given: list[Padded]) -> list[Padded]:
    return _product(w, given, [(), (), (given[0].rank - 1,), (0,)])


def _product(w: Writer, given: list[Padded], roles: Sequence[Sequence[int]]) -> list[Padded]:
    """Replaces invalid elements along the contracting dimensions by zero, on both sides."""
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = roles
    extents = [list(x.extents) for x in given]
    sizes = [list(x.sizes) for x in given]
    for i, j in zip((*lhs_batch, *lhs_sum), (*rhs_batch, *rhs_sum), strict=True):
        n, size = w.same([(given[0], i), (given[1], j)])
        extents[0][i] = extents[1][j] = n
        sizes[0][i] = sizes[1][j] = size
    sides = [Padded(w.cut(x, n), tuple(s)) for x, n, s in zip(given, extents, sizes, strict=True)]
    filled = [w.filled(x, over, w.zero(x)) for x, over in zip(sides, (lhs_sum, rhs_sum), strict=True)]
    kept = [sizes[0][d] for d in lhs_batch]
    for size, used in zip(sizes, ((*lhs_batch, *lhs_sum), (*rhs_batch, *rhs_sum)), strict=True):
        kept += [n for d, n in enumerate(size) if d not in used]
    return [Padded(w.again(filled)[0], tuple(kept))]


def convolution(w: Writer, given: list[Padded]) -> list[Padded]:
    """Computes a convolution whose batch size is unknown."""
    lhs, rhs = given
    numbers = w.op.attributes["dimension_numbers"]
    batch, target = numbers.input_batch_dimension, numbers.output_batch_dimension
    rest = [n for d, n in enumerate(lhs.sizes) if d != batch]
    if any(rest) or not rhs.is_whole or w.op.int("batch_group_count", 1) != 1:
        raise w.refuse("sizes that are only known at run time are supported only for the batch dimension")
    (value,) = w.again([lhs.value, rhs.value])
    return [Padded(value, tuple(lhs.sizes[batch] if d == target else None for d in range(value.tensor.rank)))]


# ---------------------------------------------------------------------------- order
def sort(w: Writer, given: list[Padded]) -> list[Padded]:
    """Sorts with an additional operand that marks valid elements, and orders them first: invalid ones go to the end."""
    inputs, sizes = _aligned(w, given)
    axis = w.op.int("dimension", -1) % len(sizes)
    inside = w.inside(inputs[0], [axis])
    if inside is None:
        return [Padded(v, sizes) for v in w.again([x.value for x in inputs])]
    operands = [*(x.value for x in inputs), inside]
    types = [v.type for v in operands]
    region = Region([_comparator(w, w.op.block())])
    results = w.rw.emit("stablehlo.sort", operands, types, w.op.attributes, [region])
    return [Padded(v, sizes) for v in results[:-1]]


def _comparator(w: Writer, old: Block) -> Block:
    """a before b: a is valid and b is not, or both are valid and the old comparator orders them so"""
    rw, flag = w.rw, tensor((), I1)
    arguments = [Value(a.type, name=a.name) for a in old.arguments]
    a, b = Value(flag), Value(flag)
    new = Block([*arguments, a, b])
    rw.values.update(zip(old.arguments, arguments, strict=True))
    rw.blocks.append(new)
    rw.run(old.ops[:-1])
    before = rw.get(old.terminator.operands[0])
    first = mk.apply(rw, "or", mk.apply(rw, "not", b), before)
    rw.emit("stablehlo.return", [mk.apply(rw, "and", a, first)], [])
    rw.blocks.pop()
    return new


RULES: dict[str, bounded_moves.Rule] = {
    **bounded_moves.RULES,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.map": elementwise,
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.dot_general": dot_general,
    "stablehlo.dot": dot,
    "stablehlo.convolution": convolution,
    "stablehlo.sort": sort,
}
