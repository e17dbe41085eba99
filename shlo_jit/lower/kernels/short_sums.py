"""Units of products of bytes with a computed operand of few bits: sums of some terms are in 16 bits (see
`schedule/register_dots.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.gemm.dot_instructions import multiply_byte_pairs, multiply_pairs
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector
from shlo_jit.lower.kernels.dots_in_registers import DotOutputs, DotTerms, converted, element_of, factor_of
from shlo_jit.lower.kernels.outputs_in_registers import Places, Steps
from shlo_jit.lower.kernels.shifted_bytes import less_smallest
from shlo_jit.lower.kernels.units_in_registers import UnitWriter, Variables
from shlo_jit.lower.nest.position import Position

COLUMNS = 8
"""Outputs whose pairs of terms fill 16 bytes, within which instructions interleave."""


class ShortOutputs(DotOutputs):
    """Writes a unit whose lanes are outputs: 16 bits hold the sums of the terms that are computed together."""

    def columns(self, steps: Steps, x: V, places: Places) -> None:
        """Starts the sums with what the smallest element contributes."""
        b, s, w = self.b, self.s, self.w
        assert s.dots is not None
        whole = len(steps) // 2 * 2
        self.starts: list[V] = []
        for r in range(s.count if s.dots.offset else 0):
            total: V = const("i16", 0)
            for _, offset in steps[:whole]:
                at = b.offset(x, (r * s.vectors.row + offset) * w.factor_size)
                total = b.add(total, b.cast("sext", b.load("i8", at), "i16"))
            self.starts.append(b.mul(total, const("i16", s.dots.offset)))
        super().columns(steps, x, places)

    def outputs_in_memory(self, steps: Steps, x: V, places: Places, j: V, width: int, mask: V | None = None) -> None:
        if width == 1 or len(steps) < 2:
            super().outputs_in_memory(steps, x, places, j, width, mask)
            return
        b, s, w = self.b, self.s, self.w
        ((place, _),) = places
        whole = len(steps) // 2 * 2
        variables = [{**here, s.lanes: j} for here, _ in steps]
        shifted = [_less_smallest(w, at, width, mask) for at in variables[:whole]]
        pairs = [_pairs(w, shifted[t : t + 2]) for t in range(0, whole, 2)]
        single = [converted(w, element_of(w, at, width, mask), s.acc) for at in variables[whole:]]
        at = b.offset(w.sums, b.mul(b.sub(j, self.start), w.size))
        for r in range(s.count):
            address = b.offset(at, r * w.sums_row + place * w.sums_chunk)
            terms = [b.offset(x, (r * s.vectors.row + offset) * w.factor_size) for _, offset in steps]
            units = [b.load("i16", term, align=1) for term in terms[:whole:2]]
            sums = self._short_sums(units, pairs, r)
            for part in range(width // COLUMNS):
                to = b.offset(address, part * COLUMNS * w.size)
                total = b.load(vector(w.acc, COLUMNS), to, align=w.size)
                total = b.add(total, b.cast("sext", sums[part], "i32"))
                for term, element in zip(terms[whole:], single, strict=True):
                    y = b.shuffle(element, None, range(part * COLUMNS, (part + 1) * COLUMNS))
                    total = w.multiply_add(b.splat(factor_of(w, term), COLUMNS), y, total)
                b.store(total, to, align=w.size)

    def _short_sums(self, units: Sequence[V], pairs: Sequence[Sequence[V]], r: int) -> list[V]:
        """The sums in 16 bits, for each run of COLUMNS outputs."""
        b = self.b
        found: list[V] = []
        for half in range(len(pairs[0])):
            n = lanes(pairs[0][half].type) // 2
            total = b.splat(self.starts[r], n) if self.starts else const(vector("i16", n), 0)
            for unit, some in zip(units, pairs, strict=True):
                factors = b.bitcast(b.splat(unit, n), vector("i8", 2 * n))
                total = b.add(total, multiply_byte_pairs(b, some[half], factors))
            found.append(total)
        runs = lanes(found[0].type) // COLUMNS
        return [
            b.shuffle(total, None, range(run * COLUMNS, (run + 1) * COLUMNS)) for run in range(runs) for total in found
        ]


class ShortTerms(DotTerms):
    """Writes a unit whose lanes are terms: pairs of them are added up in 16 bits, and pairs of these in 32."""

    def terms(self, at: V, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        if width == 1:
            return super().terms(at, width, outputs, x, sums)
        b, s, w = self.b, self.s, self.w
        assert s.dots is not None
        found, ones = list(sums), const(vector("i16", width // 2), 1)
        place = b.offset(x, b.mul(at, s.vectors.along[s.lanes] * w.factor_size))
        inner = list(w.combinations(self.short))
        for first in range(0, len(inner), s.dots.together):
            some = inner[first : first + s.dots.together]
            offsets = [sum(s.vectors.along[v] * k for v, k in each.items()) for each in some]
            fixed = [{v: i64(k) for v, k in each.items()} for each in some]
            elements = [[self.element({**here, **each, s.lanes: at}, width) for each in fixed] for here in outputs]
            for r in range(s.count):
                factors = [
                    b.load(vector("i8", width), b.offset(place, (o + r * s.vectors.row) * w.factor_size), align=1)
                    for o in offsets
                ]
                for i, row in enumerate(elements):
                    total = const(vector("i16", width // 2), 0)
                    for element, factor in zip(row, factors, strict=True):
                        total = b.add(total, multiply_byte_pairs(b, element, factor))
                    found[i * s.count + r] = multiply_pairs(b, total, ones, found[i * s.count + r])
        return found

    def element(self, variables: Variables, width: int) -> V:
        return _less_smallest(self.w, variables, width, None)

    def finished(self, total: V, r: int) -> V:
        """Adds what the smallest element contributes to all terms."""
        b, s = self.b, self.s
        assert s.dots is not None
        if not s.dots.offset:
            return total
        at = b.offset(self.x, (r + 1) * s.vectors.row - s.dots.row_padding)
        return b.add(total, b.mul(b.load("i32", at, align=1), const("i32", s.dots.offset)))


def _less_smallest(w: UnitWriter, variables: Variables, width: int, mask: V | None) -> V:
    """Elements of the computed operand less the smallest one."""
    assert w.s.dots is not None
    return less_smallest(w.b, w.ev, Position(variables, width, mask, w.known), w.s.key, w.s.dots.offset)


def _pairs(w: UnitWriter, rows: Sequence[V]) -> list[V]:
    """The elements of two adjacent terms side by side: of the first COLUMNS outputs of each 16 bytes, then of the
    others."""
    x, y = rows
    n = lanes(x.type)
    step = min(n, 2 * COLUMNS)
    halves = [[run + half + i for run in range(0, n, step) for i in range(COLUMNS)] for half in range(0, step, COLUMNS)]
    return [w.b.shuffle(x, y, [k for i in half for k in (i, n + i)]) for half in halves]
