"""Units of products that are computed in registers, with instructions that multiply several terms of a sum at a time
(see `schedule/register_dots.py`).

If lanes are outputs, the elements of adjacent terms are interleaved: 2 terms x 8 outputs fill a register of 8 lanes. If
lanes are terms, adjacent elements are in one lane already.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.dot_instructions import dot_bf16, dot_bytes, multiply_pairs
from shlo_jit.kernels.llvm_values import V, i64, lanes, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import register_type
from shlo_jit.lower.kernels.outputs_in_registers import Outputs, Places, Steps
from shlo_jit.lower.kernels.terms_in_registers import Terms
from shlo_jit.lower.kernels.units_in_registers import UnitWriter, Variables
from shlo_jit.lower.nest.position import Position
from shlo_jit.schedule.register_dots import RegisterDots


class DotOutputs(Outputs):
    """Writes a unit whose lanes are outputs."""

    def copy(self, r: int, i: int, offset: int) -> None:
        s, w = self.s, self.w
        step = s.free[s.lanes] * s.own_outputs.free
        own = [sum(s.free[v] * k for v, k in inner.items()) for inner in w.combinations(s.inner)]
        if step & step - 1 or own != list(range(step)):
            super().copy(r, i, offset)
        elif i == 0:
            self.copy_side_by_side(r, step)

    def copy_side_by_side(self, r: int, step: int) -> None:
        """Copies the sums of one vector, of which `step` adjacent ones are in as many places, to the results."""
        b, s, w = self.b, self.s, self.w
        count, n = b.sub(self.stop, self.start), s.target.lanes(32)
        whole = b.and_(count, i64(-n))
        to = b.offset(self.y, b.mul(self.start, step * w.size))
        to = b.offset(to, r * s.own_outputs.row * w.size)
        for first, last, width in ((i64(0), whole, n), (whole, count, 1)):
            with b.loop(first, last, width) as o:
                of = b.offset(w.sums, b.add(b.mul(o, w.size), r * w.sums_row))
                kind = vector(w.acc, width)
                rows = [b.load(kind, b.offset(of, k * w.sums_chunk), align=w.size) for k in range(step)]
                at = b.offset(to, b.mul(o, step * w.size))
                if width > 1:
                    b.store(_side_by_side(b, rows), at, align=w.size)
                    continue
                for k, x in enumerate(rows):
                    b.store(x, b.offset(at, k * w.size), align=w.size)

    def outputs_in_memory(self, steps: Steps, x: V, places: Places, j: V, width: int, mask: V | None = None) -> None:
        b, s, w = self.b, self.s, self.w
        ((place, _),) = places
        assert s.dots is not None
        if s.dots.is_float:
            elements = [self.element(here, places[0], j, width, mask) for here, _ in steps]
        else:
            elements = [element_of(w, {**here, s.lanes: j}, width, mask) for here, _ in steps]
        whole = len(steps) // w.group * w.group if width > 1 else 0
        n = min(width, s.target.lanes(32))
        rows = [
            [_interleaved(w, elements[t : t + w.group], first, n) for first in range(0, width, n)]
            for t in range(0, whole, w.group)
        ]
        single = [x if x.type == vector(w.acc, width) else converted(w, x, s.acc) for x in elements[whole:]]
        at = b.offset(w.sums, b.mul(b.sub(j, self.start), w.size))
        for r in range(s.count):
            address = b.offset(at, r * w.sums_row + place * w.sums_chunk)
            terms = [b.offset(x, (r * s.vectors.row + offset) * w.factor_size) for _, offset in steps]
            units = [b.splat(b.load("i32", term, align=w.factor_size), n) for term in terms[: whole : w.group]]
            for part in range(width // n):
                to = b.offset(address, part * n * w.size)
                total = b.load(vector(w.acc, n), to, align=w.size)
                for unit, row in zip(units, rows, strict=True):
                    total = _multiply(b, s.dots, unit, row[part], total)
                for term, element in zip(terms[whole:], single, strict=True):
                    y = element if width == n else b.shuffle(element, None, range(part * n, (part + 1) * n))
                    total = w.multiply_add(b.splat(factor_of(w, term), n), y, total)
                b.store(total, to, align=w.size)


class DotTerms(Terms):
    """Writes a unit whose lanes are terms."""

    def terms(self, at: V, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        b, s, w = self.b, self.s, self.w
        assert s.dots is not None
        found = list(sums)
        for inner in w.combinations(self.short):
            fixed = {v: i64(k) for v, k in inner.items()}
            offset = sum(s.vectors.along[v] * k for v, k in inner.items())
            elements = [self.element({**here, **fixed, s.lanes: at}, width) for here in outputs]
            wanted = s.acc if width == 1 else s.dots.element
            elements = [converted(w, element, wanted) for element in elements]
            place = b.offset(x, b.mul(at, s.vectors.along[s.lanes] * w.factor_size))
            for r in range(s.count):
                of = b.offset(place, (offset + r * s.vectors.row) * w.factor_size)
                kind = register_type(s.dots.factor)
                factor = factor_of(w, of) if width == 1 else b.load(vector(kind, width), of, align=w.factor_size)
                for i, element in enumerate(elements):
                    total = found[i * s.count + r]
                    if width == 1:
                        total = w.multiply_add(factor, element, total)
                    else:
                        total = _multiply(b, s.dots, factor, element, total)
                    found[i * s.count + r] = total
        return found

    def element(self, variables: Variables, width: int) -> V:
        """Elements of the computed operand, as they are multiplied by the vectors."""
        return element_of(self.w, variables, width, None)


def element_of(w: UnitWriter, variables: Variables, width: int, mask: V | None) -> V:
    """Elements of the computed operand, as they are computed."""
    position = Position(variables, width, mask, w.known)
    if w.s.dots is not None and w.s.dots.is_float and width > 1:
        return w.own_value(position, width)  # pairs of bf16
    x = w.ev.value(position, w.s.key)
    assert isinstance(x, V)
    return w.b.splat(x, width)


def converted(w: UnitWriter, x: V, dtype: DType) -> V:
    y = convert(w.b, w.s.key[0].tensor.storage, dtype, x)
    assert isinstance(y, V)
    return y


def factor_of(w: UnitWriter, at: V) -> V:
    """A single factor of the vectors, in the type of the sums."""
    assert w.s.dots is not None
    dtype = w.s.dots.factor
    found = convert(w.b, dtype, w.s.acc, w.b.load(register_type(dtype), at, align=w.factor_size))
    assert isinstance(found, V)
    return found


def _interleaved(w: UnitWriter, rows: Sequence[V], first: int, count: int) -> V:
    """The elements of some adjacent terms and `count` outputs from `first` on: those of an output side by side."""
    b, width = w.b, lanes(rows[0].type)
    found = [b.shuffle(x, None, range(first, first + count)) if width > count else x for x in rows]
    assert w.s.dots is not None
    return converted(w, _side_by_side(b, found), w.s.dots.element)


def _side_by_side(b: Builder, rows: Sequence[V]) -> V:
    """Lane 0 of all rows, then lane 1, and so on."""
    found = list(rows)
    while len(found) > 1:
        half, n = len(found) // 2, lanes(found[0].type)
        order = [x for i in range(n) for x in (i, n + i)]
        found = [b.shuffle(x, y, order) for x, y in zip(found[:half], found[half:], strict=True)]
    return found[0]


def _multiply(b: Builder, dots: RegisterDots, x: V, y: V, total: V) -> V:
    """Adds the products of units of adjacent terms."""
    if dots.is_float:
        return dot_bf16(b, x, y, total)
    if dots.group == 4:
        return dot_bytes(b, x, dots.factor.name, y, dots.element.name, total)
    return multiply_pairs(b, x, y, total)
