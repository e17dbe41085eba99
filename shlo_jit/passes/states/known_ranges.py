"""Ranges of signed integers: what counters of loops may be, and what is computed from them.

    i = 0; k = 5; while i < 10 { i = i + 1; k = k + 2 }     in the body: i in [0, 9], k in [5, 23], i + 1 in [1, 10]
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.sizes import Size

Range = tuple[int, int]
ELEMENTS = 1 << 16
"""Maximum elements of constants that are looked through."""
SAME = ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.slice", "stablehlo.dynamic_slice",
        "stablehlo.transpose", "stablehlo.reverse", "stablehlo.gather")  # fmt: skip
"""Ops whose elements are elements of the first operand."""

_SIGNS = {"LT": 1, "LE": 1, "GT": -1, "GE": -1}
"""Comparisons of a counter with a limit: with 1, it is below the limit."""


class Ranges:
    """The ranges of the elements of integer tensors of a function."""

    def __init__(self, block: Block) -> None:
        self.known: dict[Value, Range] = {}
        self._block(block)

    def of(self, value: Value) -> Range | None:
        """Returns the least and the greatest number that elements of a value may be, if they are known."""
        return self.known.get(value)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "stablehlo.while":
                self._loop(op)
            for region in op.regions:
                self._block(region.block)
            if len(op.results) == 1 and op.name != "stablehlo.while":
                self._note(op.result, self._range(op))

    def _note(self, value: Value, found: Range | None) -> None:
        """Records a range, unless an element of the type cannot hold it: then numbers wrap around."""
        limits = _limits(value)
        if found is not None and limits is not None and limits[0] <= found[0] and found[1] <= limits[1]:
            self.known[value] = found

    # ------------------------------------------------------------------ loops
    def _loop(self, op: Op) -> None:
        """Records the ranges of counters in the body of a loop that runs while one of them is less, or greater, than a
        limit."""
        body = op.block(1)
        steps = {i: step for i in range(len(op.operands)) if (step := _step(body, i)) is not None}
        for i, limit, sign in self._limits_of(op):
            first, limits, step = self.of(op.operands[i]), _limits(op.operands[i]), sign * steps.get(i, 0)
            if first is None or limits is None or step <= 0:
                continue
            # Of a counter that decreases, the numbers are considered with the other sign.
            low, most = (first[0], limits[1]) if sign > 0 else (-first[1], -limits[0])
            if limit - 1 + step > most:
                continue  # it may wrap around
            iterations = max(0, -(-(limit - low) // step))
            last = max(low, limit - 1)
            self._note(body.arguments[i], (low, last) if sign > 0 else (-last, -low))
            for k, by in steps.items():
                begin = self.of(op.operands[k])
                if begin is None or body.arguments[k] in self.known:
                    continue
                end = by * max(0, iterations - 1)
                self._note(body.arguments[k], (begin[0] + min(0, end), begin[1] + max(0, end)))
            return

    def _limits_of(self, op: Op) -> list[tuple[int, int, int]]:
        """Returns states that are less than a limit whenever the body runs, and the limit, if it is known, or the
        greatest number of the type. The last number is 1; it is -1 if the state and the limit are to be negated."""
        condition, found = op.block(0), []
        todo = [condition.terminator.operands[0]]
        self._block(condition)
        while todo:
            test = todo.pop().op
            if test is None:
                continue
            if test.name == "stablehlo.and":
                todo += test.operands
            elif test.name == "stablehlo.compare" and _direction(test) in _SIGNS:
                (counter, limit), direction = test.operands, _direction(test)
                limits = _limits(counter)
                if counter not in condition.arguments or limits is None:
                    continue
                low, high = self.of(limit) or limits
                sign = _SIGNS[direction]
                most = (high if sign > 0 else -low) + (direction[1] == "E")
                found.append((condition.arguments.index(counter), most, sign))
        return found

    # ------------------------------------------------------------------ ops
    def _range(self, op: Op) -> Range | None:
        t = op.result.type
        if not isinstance(t, TensorType) or t.storage.kind != "i":
            return None
        if op.name == "stablehlo.constant":
            return _of_constant(op)
        if op.name == "stablehlo.iota":
            n = t.extents[op.int("iota_dimension")]
            return None if isinstance(n, Size) else (0, max(0, n - 1))
        ranges = [self.of(v) for v in op.operands]
        if op.name in SAME:
            return ranges[0]
        if op.name == "stablehlo.select":
            return self._selected(op, ranges[1:])
        if op.name == "stablehlo.convert":
            kind = op.operands[0].tensor.storage.kind
            return (0, 1) if kind == "b" else ranges[0]
        if op.name in ("stablehlo.and", "stablehlo.remainder"):
            return _bounded(op.name, ranges)
        if op.name in ("stablehlo.minimum", "stablehlo.maximum", "stablehlo.clamp"):
            return _clipped(op, ranges)
        known = [r for r in ranges if r is not None]
        return _arithmetic(op.name, known) if len(known) == len(ranges) else None

    def _selected(self, op: Op, sides: Sequence[Range | None]) -> Range | None:
        decided = self.decided(op.operands[0].op)
        if decided is not None:
            return sides[0] if decided else sides[1]
        x, y = sides
        return (min(x[0], y[0]), max(x[1], y[1])) if x is not None and y is not None else None

    def decided(self, op: Op | None) -> bool | None:
        """Returns the result of a comparison if it follows from the ranges of its operands."""
        if op is None or op.name != "stablehlo.compare":
            return None
        x, y = (self.of(v) for v in op.operands)
        if x is None or y is None:
            return None
        return _compared(_direction(op), x, y)


def _compared(direction: str, x: Range, y: Range) -> bool | None:
    if direction in ("GT", "GE"):
        return _compared({"GT": "LT", "GE": "LE"}[direction], y, x)
    if direction == "LT":
        return True if x[1] < y[0] else False if x[0] >= y[1] else None
    if direction == "LE":
        return True if x[1] <= y[0] else False if x[0] > y[1] else None
    apart = x[1] < y[0] or y[1] < x[0]
    if apart:
        return direction == "NE"
    return direction == "EQ" if x[0] == x[1] == y[0] == y[1] else None


def _direction(op: Op) -> str:
    return op.attributes["comparison_direction"].value


def _limits(value: Value) -> Range | None:
    """Returns the least and the greatest number of a signed integer type."""
    t = value.type
    if not isinstance(t, TensorType) or t.storage.kind != "i":
        return None
    half = 1 << (t.storage.bits - 1)
    return -half, half - 1


def _step(body: Block, i: int) -> int | None:
    """Returns the constant that each iteration adds to a state."""
    argument, op = body.arguments[i], body.terminator.operands[i].op
    if op is None or argument not in op.operands or argument.tensor.rank or _limits(argument) is None:
        return None
    others = [v for v in op.operands if v is not argument]
    made = others[0].op if len(others) == 1 else None
    if made is None or made.name != "stablehlo.constant":
        return None
    number = int(made.constant.array.reshape(-1)[0])
    if op.name == "stablehlo.add":
        return number
    return -number if op.name == "stablehlo.subtract" and op.operands[0] is argument else None


def _of_constant(op: Op) -> Range | None:
    dense = op.constant
    array = dense.array.reshape(-1)[:1] if dense.is_splat else dense.array
    return (int(array.min()), int(array.max())) if 0 < array.size <= ELEMENTS else None


def _bounded(name: str, ranges: Sequence[Range | None]) -> Range | None:
    """The range of a bitwise and, or of a remainder, of which one operand may be unknown."""
    x, y = ranges
    if name == "stablehlo.and":
        most = [r[1] for r in ranges if r is not None and r[0] >= 0]
        return (0, min(most)) if most else None
    if y is None or y[0] <= 0:
        return None
    low = 0 if x is not None and x[0] >= 0 else 1 - y[1]
    return low, y[1] - 1


def _clipped(op: Op, ranges: Sequence[Range | None]) -> Range | None:
    """The range of a minimum, a maximum or a clamp, of which operands may be unknown."""
    limits = _limits(op.result)
    assert limits is not None
    full = [r if r is not None else limits for r in ranges]
    if op.name == "stablehlo.clamp":
        low, x, high = full
        up = max(x[0], low[0]), max(x[1], low[1])
        return min(up[0], high[0]), min(up[1], high[1])
    pick = min if op.name == "stablehlo.minimum" else max
    return pick(full[0][0], full[1][0]), pick(full[0][1], full[1][1])


def _arithmetic(name: str, ranges: Sequence[Range]) -> Range | None:
    if name == "stablehlo.abs":
        ((low, high),) = ranges
        return max(0, low, -high), max(-low, high)
    if len(ranges) != 2:
        return None
    x, y = ranges
    if name == "stablehlo.add":
        return x[0] + y[0], x[1] + y[1]
    if name == "stablehlo.subtract":
        return x[0] - y[1], x[1] - y[0]
    if name == "stablehlo.multiply":
        products = [a * b for a in x for b in y]
        return min(products), max(products)
    if name == "stablehlo.divide" and x[0] >= 0 and y[0] > 0:
        return x[0] // y[1], x[1] // y[0]
    return None
