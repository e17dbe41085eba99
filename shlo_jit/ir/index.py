"""Affine index expressions over the loop variables of a nest.

A value in a nest is read `At` an index: one `Expr` per dimension, plus the conditions under which the element exists
(below a pad). An index-map op (broadcast, transpose, slice, reverse, reshape, pad, gather, dynamic_slice) computes
nothing: the `IndexMap` of its record maps an index of its result to the indices of its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.sizes import NotSymbolic, equal


class Sym(NamedTuple):
    """A term known only at run time, in gather and dynamic_slice: coefficient * clamp(value at `at`, 0, limit)."""

    coefficient: int
    value: Value
    at: At
    limit: int


class Expr(NamedTuple):
    """const + sum(coefficient * variable) + syms. `terms` are sorted pairs (variable, nonzero coefficient)."""

    const: int
    terms: tuple[tuple[int, int], ...] = ()
    syms: tuple[Sym, ...] = ()

    def coefficient(self, var: int) -> int:
        for v, c in self.terms:
            if v == var:
                return c
        return 0


class Condition(NamedTuple):
    """The condition low <= expr < high."""

    expr: Expr
    low: int
    high: int


class At(NamedTuple):
    """An index: one Expr per dimension, and the conditions that must hold for the element to be read."""

    index: tuple[Expr, ...]  # pyright: ignore[reportIncompatibleMethodOverride] - tuple.index is of no use here
    conditions: tuple[Condition, ...] = ()


ZERO = Expr(0)
ORIGIN = At(())

Places = list[tuple[Value, At]]
"""Operands and the indices at which they are read."""
IndexMap = Callable[[Op, At, list[int]], Places]
"""map(op, at, extents): indices at which an op reads its operands to produce its result `at`. The operand that is
copied comes first. Operands read by run-time terms (gather's indices) are listed, too, since they must be computed or
loaded as well. `extents` are those of the nest's variables. Raises Split or NotAffine."""


def variable(var: int, extent: int) -> Expr:
    """Returns the loop variable as an expression; zero if its extent is 1."""
    return ZERO if equal(extent, 1) else Expr(0, ((var, 1),))


def add(a: Expr, c: Expr) -> Expr:
    if not c.terms and not c.syms:
        return Expr(a.const + c.const, a.terms, a.syms) if c.const else a
    terms = dict(a.terms)
    for v, k in c.terms:
        terms[v] = terms.get(v, 0) + k
    return Expr(a.const + c.const, tuple(sorted((v, k) for v, k in terms.items() if k)), a.syms + c.syms)


def scale(a: Expr, factor: int) -> Expr:
    if factor == 1:
        return a
    if factor == 0:
        return ZERO
    syms = tuple(s._replace(coefficient=s.coefficient * factor) for s in a.syms)
    return Expr(a.const * factor, tuple((v, k * factor) for v, k in a.terms), syms)


def shift(a: Expr, by: int) -> Expr:
    return Expr(a.const + by, a.terms, a.syms) if by else a


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the row-major strides, in elements."""
    out, n = [], 1
    for extent in reversed(shape):
        out.append(n)
        n *= extent
    return tuple(reversed(out))


def linearize(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """Returns the offset, in elements, of an index in a row-major tensor."""
    total = ZERO
    for e, s in zip(index, strides_of(shape), strict=True):
        if e is not ZERO:
            total = add(total, scale(e, s))
    return total


class Split(Exception):
    """Raised if a variable must be split: variable = outer * factor + inner."""

    def __init__(self, var: int, factor: int):
        super().__init__(var, factor)
        self.var = var
        self.factor = factor


class NotAffine(Exception):
    """Raised if the index of an element is not an affine expression over the nest's variables."""


def delinearize(offset: Expr, shape: tuple[int, ...], extents: list[int]) -> tuple[Expr, ...]:
    """Returns the index in a row-major tensor of `shape` of the element at a linear offset.

    Raises Split if a variable spans several dimensions, and NotAffine if no affine index exists, or none that is valid
    for all sizes known only at the call.
    """
    if offset.syms:
        raise NotAffine
    try:
        return _delinearize(offset, shape, extents)
    except NotSymbolic:
        raise NotAffine from None


def _delinearize(offset: Expr, shape: tuple[int, ...], extents: list[int]) -> tuple[Expr, ...]:
    dims = [(d, s) for d, s in enumerate(strides_of(shape)) if not equal(shape[d], 1)]
    parts: dict[int, list[tuple[int, int]]] = {d: [] for d, _ in dims}
    top: dict[int, int] = dict.fromkeys(parts, 0)
    rest, backwards = offset.const, set[int]()
    for var, c in offset.terms:
        if c < 0:  # counted from the other end, and turned around below
            rest += c * (extents[var] - 1)
            backwards.add(var)
            c = -c
        found = next(((d, s) for d, s in dims if c >= s), None)
        if found is None or c % found[1]:
            raise NotAffine
        d, s = found
        room = s * shape[d] // c if (s * shape[d]) % c == 0 else 0
        if extents[var] > room:
            if room <= 1 or extents[var] % room:
                raise NotAffine
            raise Split(var, room)
        parts[d].append((var, c // s))
        top[d] += (c // s) * (extents[var] - 1)
    out = [ZERO] * len(shape)
    if rest < 0:
        raise NotAffine
    for d, s in dims:
        const, rest = divmod(rest, s)
        if const + top[d] >= shape[d]:
            raise NotAffine
        const += sum(k * (extents[var] - 1) for var, k in parts[d] if var in backwards)
        out[d] = Expr(const, tuple(sorted((var, -k if var in backwards else k) for var, k in parts[d])))
    return tuple(out)


def variables(at: At) -> set[int]:
    """Returns all variables that an index depends on, including those of run-time terms."""
    out: set[int] = set()
    exprs = [*at.index, *(c.expr for c in at.conditions)]
    for e in exprs:
        out.update(v for v, _ in e.terms)
        for s in e.syms:
            out |= variables(s.at)
    return out


def terms_of(at: At, most: int) -> int:
    """Returns the number of terms and conditions of an index, including those of the indices of run-time terms.

    Counting stops after `most`, since the number may be exponential in the number of ops on the path.
    """
    total, todo = 0, [at]
    while todo and total <= most:
        place = todo.pop()
        total += len(place.conditions)
        for e in (*place.index, *(c.expr for c in place.conditions)):
            total += len(e.terms) + len(e.syms)
            todo += [s.at for s in e.syms]
    return total


def substitute(at: At, table: dict[int, Expr]) -> At:
    """Returns the index with variables replaced by expressions."""

    def expr(e: Expr) -> Expr:
        syms = tuple(s._replace(at=substitute(s.at, table)) for s in e.syms)
        if not any(v in table for v, _ in e.terms):
            return e if not syms else Expr(e.const, e.terms, syms)
        total = Expr(e.const, (), syms)
        for v, k in e.terms:
            total = add(total, scale(table.get(v, Expr(0, ((v, 1),))), k))
        return total

    conditions = tuple(Condition(expr(c.expr), c.low, c.high) for c in at.conditions)
    return At(tuple(expr(e) for e in at.index), conditions)
