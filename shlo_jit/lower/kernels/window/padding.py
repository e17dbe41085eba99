"""Padding of wide windows: an initial value that is folded many times, in few operations.

Folding the initial value once more is a function of the accumulator alone. So

    v, f(v), f(f(v)), ...    with f(v) = body(v, init)

repeats a value at some point, for most bodies in the first step: sums of zeros, maxima, products of ones. From there on
it is periodic, and only the remainder of the count by the length of the cycle is left to fold. The result has the bits
of folding one by one. Associative bodies on integers need no cycle: the initial value is folded with itself by
squaring. Two cases remain. Growing sums of floats end when an addition changes nothing any more. Other loops are long
in any case, and can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const, i64, is_float, lanes, vector
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.window.fold import Fold

LARGEST = 1 << 62
"""Counts whose product may exceed this are folded in nested loops."""
Function = Callable[[list[Reg]], list[Reg]]


def repeated(b: Builder, fold: Fold, values: list[Reg], counts: Sequence[V | int], n: int) -> list[Reg]:
    """The accumulators after folding the initial value as often as the product of `counts` says."""
    count, *others = counts
    loops: list[V] = []
    product = 1
    for size in others:
        assert isinstance(size, int)
        if product * size > LARGEST:
            loops.append(i64(product))
            product = 1
        product *= size
    first = count if isinstance(count, V) else i64(count)
    if product > 1 and product <= LARGEST >> 31:
        # The first count is below 2^31 if the product fits; otherwise it is a separate loop.
        fits = b.icmp("ult", first, 1 << 31)
        loops += [b.select(fits, b.mul(first, product), first), b.select(fits, i64(1), i64(product))]
    elif product > 1:
        loops += [first, i64(product)]
    else:
        loops.append(first)
    if _is_squared(fold):
        return _squared(b, fold, values, loops, n)
    return _cycled(b, fold, values, loops, n)


def _is_squared(fold: Fold) -> bool:
    """Whether the body is an associative op of integers, whose results are exact in any order."""
    simple = fold.reducer.simple
    return simple is not None and fold.reducer.accumulator.kind in "iub" and not fold.reducer.wide


def _squared(b: Builder, fold: Fold, values: list[Reg], counts: list[V], n: int) -> list[Reg]:
    """Folds by squaring: `power` is the initial value folded 1, 2, 4, ... times with itself."""
    first, *others = counts
    once = fold.start(n)
    for count in others:  # repeats from 1 on
        once = _power(b, fold, once, once, b.sub(count, 1))
    return _power(b, fold, values, once, first)


def _power(b: Builder, fold: Fold, values: list[Reg], x: list[Reg], count: V) -> list[Reg]:
    """`values`, folded with x `count` times."""
    size = len(fold.flat(x))
    with b.loop_carry(0, 64, [count, *fold.flat(values), *fold.flat(x)], 1, "square") as carry:
        left, *flat = carry.values
        total, power = fold.like(list(flat[:size])), fold.like(list(flat[size:]))
        is_odd = b.icmp("ne", b.and_(left, i64(1)), 0)
        more = fold.flat(fold.combine(total, power))
        new = [b.select(is_odd, p, q) for p, q in zip(more, flat[:size], strict=True)]
        carry.next(b.lshr(left, i64(1)), *new, *fold.flat(fold.combine(power, power)))
    return fold.like(list(carry.values[1 : size + 1]))


def _cycled(b: Builder, fold: Fold, values: list[Reg], counts: list[V], n: int) -> list[Reg]:
    """Folds in nested loops, the last count innermost; each looks for a cycle (Brent's algorithm)."""
    began = b.alloca("i64", 1)
    b.store(i64(0), began)
    *outer, inner = counts

    def once(values: list[Reg]) -> list[Reg]:
        return fold.combine(values, fold.start(n))

    def of(count: V, step: Function) -> Function:
        return lambda values: _iterated(b, fold, step, values, count, began)

    step = of(inner, once)
    for count in reversed(outer):
        step = of(count, step)
    return step(values)


def _iterated(b: Builder, fold: Fold, step: Function, values: list[Reg], count: V, began: V) -> list[Reg]:
    """Applies `step` up to `count` times. `kept` has the accumulators of an earlier step. Steps are counted, and the
    accumulators are kept whenever that count is a power of two."""
    flat = fold.flat(values)
    size = len(flat)
    nothing, end = b.icmp("sle", count, 0), i64(0)

    def iterate() -> list[V]:
        with b.repeat([count, i64(0), i64(1), *flat, *flat], "padding") as again:
            left, since, limit, *both = again.values
            now, kept = both[:size], both[size:]
            new = fold.flat(step(fold.like(list(now))))
            left, since = b.sub(left, 1), b.add(since, 1)
            found = _same_bits(b, new, kept)
            left = b.select(found, b.emit("i64", f"urem i64 {left.text}, {since.text}"), left)
            keeps = b.icmp("eq", since, limit)
            kept = [b.select(keeps, p, q) for p, q in zip(new, kept, strict=True)]
            since, limit = b.select(keeps, end, since), b.select(keeps, b.shl(limit, i64(1)), limit)
            asks = b.icmp("eq", b.and_(left, i64(tuning.WINDOW_CHECKS - 1)), 0)
            (stops,) = b.if_else(asks, lambda: [b.call("i1", "shlo_is_stopped", [began])], lambda: [V("i1", "false")])
            again.next(left, since, limit, *new, *kept)
            again.again = b.and_(b.icmp("sgt", left, 0), b.not_(stops))
        return list(again.values[3 : 3 + size])

    return fold.like(b.if_else(nothing, lambda: list(flat), iterate))


def _same_bits(b: Builder, left: Sequence[V], right: Sequence[V]) -> V:
    """Whether all lanes of all registers have the same bits, as i1."""
    same = V("i1", "true")
    for p, q in zip(left, right, strict=True):
        n = lanes(p.type)
        if is_float(p.type):
            integer = vector(f"i{bits(p.type)}", n)
            p, q = b.bitcast(p, integer), b.bitcast(q, integer)
        equal = b.icmp("eq", p, q)
        if n > 1:
            word = b.emit(f"i{n}", f"bitcast {equal.type} {equal.text} to i{n}")
            equal = b.icmp("eq", word, const(word.type, -1))
        same = b.and_(same, equal)
    return same
