"""Triangular systems and Cholesky factors, by substitution on register tiles.

    shlo_substitute_<t>(ptr A, i64 a_row, i64 a_col, ptr X, i64 x_row, i64 first, i64 last, i64 columns, i64 mode)

iterates over rows i = first, ..., last - 1 of X, which hold right-hand sides in `columns` adjacent elements, and stores

    x[i] = (x[i] - sum over k < i of a[i, k] x[k]) / a[i, i]                      (mode SOLVE; UNIT does not divide)

Strides are in elements and of any sign, so upper triangular systems are solved in the same way, from the last row up.
ROWS rows of a strip of columns stay in registers while k runs, as in a matrix product. The factor A = U^H U of a
positive definite matrix is the solution of U^H U = A from the first row on, where row i needs only the rows before it.
Modes FACTOR and BELOW read conj x[k, i] for a[i, k] and the (real) x[i, i] for a[i, i]. FACTOR is for the strip with
the diagonal: there a[i, i] is the root of the value that the sum left in x[i, i].

    shlo_cholesky_<t>(ptr U, i64 n, ptr scratch, i64 threads)

replaces a positive definite matrix (its upper triangle) by U, with zeros below; if the matrix is not positive definite,
all elements become NaN. `threads` work on the strips right of the diagonal, in `cholesky_scratch` bytes of scratch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.fft.access import Mask, first_lanes
from shlo_jit.kernels.field import Field, Number
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

ROWS = 4
SOLVE, UNIT, FACTOR, BELOW = range(4)
MODES = (SOLVE, UNIT, FACTOR, BELOW)

PARAMS = (
    ("ptr", "A"), ("i64", "a_row"), ("i64", "a_col"), ("ptr", "X"), ("i64", "x_row"),
    ("i64", "first"), ("i64", "last"), ("i64", "columns"),
)  # fmt: skip


def symbol(kind: str, dtype: str) -> str:
    """Returns `shlo_cholesky_f32` or, as there is one substitution for each mode, `shlo_substitute0_f32`."""
    return f"shlo_{kind}_{re.sub(r'[^a-z0-9]', '', dtype)}"


def strip_columns(dtype: str, target: Target) -> int:
    """Returns the number of columns that are computed together."""
    field = Field.of(dtype, target)
    return field.lanes * field.vectors


@cache
def solve_routine(dtype: str, target: Target) -> Routine:
    """Returns the routine with modes SOLVE and UNIT."""
    names = tuple(symbol(f"substitute{mode}", dtype) for mode in (SOLVE, UNIT))

    def build(module: ModuleText, target: Target) -> None:
        for mode in (SOLVE, UNIT):
            _emit_substitute(module, dtype, mode, target, "")

    return Routine(symbol("substitute", dtype), names, build)


@cache
def cholesky_routine(dtype: str, target: Target) -> Routine:
    name = symbol("cholesky", dtype)

    def build(module: ModuleText, target: Target) -> None:
        for mode in (FACTOR, BELOW):
            _emit_substitute(module, dtype, mode, target, "internal")
        _emit_cholesky(module, dtype, target)

    return Routine(name, (name,), build)


@dataclass
class _Tile:
    """A tile of `height` rows from `i` on, of a strip of columns."""

    b: Builder
    field: Field
    mode: int
    masks: list[Mask | None]
    i: V
    height: int

    def __post_init__(self) -> None:
        p = self.b.params
        self.A, self.a_row, self.a_col, self.X, self.x_row = p[:5]

    def coefficient(self, r: int, k: V) -> Number:
        """Returns a[i + r, k], in one lane."""
        b, row = self.b, self.b.add(self.i, r)
        if self.mode in (FACTOR, BELOW):
            return self.field.conj(b, self.field.load_one(b, self.A, b.add(b.mul(k, self.a_col), row)))
        at = b.add(b.mul(row, self.a_row), b.mul(k, self.a_col))
        return self.field.load_one(b, self.A, at)

    def row(self, k: V, column: V) -> list[Number]:
        b, at = self.b, self.b.add(self.b.mul(k, self.x_row), column)
        return [self.field.load(b, self.X, b.add(at, v * self.field.lanes), mask) for v, mask in enumerate(self.masks)]

    def write(self, column: V) -> None:
        b, field = self.b, self.field
        start = [self.row(b.add(self.i, r), column) for r in range(self.height)]
        flat = [x for row in start for number in row for x in number]
        with b.loop_carry(0, self.i, flat, 1, "k") as carry:
            sums = self._numbers(carry.values)
            x = self.row(carry.index, column)
            for r, row in enumerate(sums):
                a = field.splat(b, self.coefficient(r, carry.index))
                sums[r] = [field.minus_product(b, s, a, y) for s, y in zip(row, x, strict=True)]
            carry.next(*[v for row in sums for number in row for v in number])
        self._finish(self._numbers(carry.values), column)

    def _numbers(self, flat: list[V]) -> list[list[Number]]:
        parts, vectors = self.field.parts, len(self.masks)
        numbers = [tuple(flat[k : k + parts]) for k in range(0, len(flat), parts)]
        return [numbers[k : k + vectors] for k in range(0, len(numbers), vectors)]

    def _finish(self, sums: list[list[Number]], column: V) -> None:
        """Emits the substitution among the rows of the tile."""
        b, field = self.b, self.field
        for r, row in enumerate(sums):
            k = b.add(self.i, r)
            for s in range(r):
                a = field.splat(b, self.coefficient(r, b.add(self.i, s)))
                row = [field.minus_product(b, x, a, y) for x, y in zip(row, sums[s], strict=True)]
            if self.mode == FACTOR:
                self._store(k, column, row)  # to read the element on the diagonal
            row = self._divide(row, k)
            sums[r] = row
            self._store(k, column, row)
            if self.mode == FACTOR:
                field.store_one(b, self.A, b.add(b.mul(k, self.a_col), k), self.root)

    def _divide(self, row: list[Number], k: V) -> list[Number]:
        b, field = self.b, self.field
        if self.mode == UNIT:
            return row
        if self.mode == SOLVE:
            return field.divide(b, row, field.load_one(b, self.A, b.mul(k, b.add(self.a_row, self.a_col))))
        real = field.load_one(b, self.A, b.add(b.mul(k, self.a_col), k))[0]
        if self.mode == FACTOR:
            real = self.root = b.intrinsic("sqrt", real.type, [real])
        real = b.splat(real, field.lanes)
        return [tuple(b.fdiv(x, real) for x in number) for number in row]

    def _store(self, k: V, column: V, row: list[Number]) -> None:
        b, at = self.b, self.b.add(self.b.mul(k, self.x_row), column)
        for v, (number, mask) in enumerate(zip(row, self.masks, strict=True)):
            self.field.store(b, self.X, b.add(at, v * self.field.lanes), number, mask)


def _emit_substitute(module: ModuleText, dtype: str, mode: int, target: Target, linkage: str) -> None:
    field = Field.of(dtype, target)
    b = module.function(symbol(f"substitute{mode}", dtype), PARAMS, linkage=linkage, attributes="nounwind")
    first, last, columns = b.params[5:8]

    def strip(column: V, masks: list[Mask | None]) -> None:
        whole = b.add(first, b.mul(b.udiv(b.sub(last, first), ROWS), ROWS))
        for start, stop, height in ((first, whole, ROWS), (whole, last, 1)):
            with b.loop(start, stop, height, "row") as i:
                _Tile(b, field, mode, masks, i, height).write(column)

    wide = field.lanes * field.vectors
    rest = b.urem(columns, wide)
    with b.loop(0, b.sub(columns, rest), wide, "strip") as column:
        strip(column, [None] * field.vectors)
    at = b.sub(columns, rest)
    narrow = b.icmp("sle", rest, field.lanes)

    def one() -> list[V]:
        strip(at, [first_lanes(b, field.lanes, rest)])
        return []

    def several() -> list[V]:
        strip(at, [first_lanes(b, field.lanes, b.sub(rest, v * field.lanes)) for v in range(field.vectors)])
        return []

    with b.if_(b.icmp("sgt", rest, 0), "rest"):
        b.if_else(narrow, one, several)
    b.ret()


# ---------------------------------------------------------------------- cholesky
FRAME = ("U", "n", "first", "packed")


def cholesky_scratch(dtype: str, target: Target, n: int, threads: int) -> int:
    """Returns the bytes of scratch memory of shlo_cholesky, aligned to 64."""
    width = strip_columns(dtype, target)
    return (threads + 1) * n * width * Field.of(dtype, target).itemsize if n > width else 0


def _emit_cholesky(module: ModuleText, dtype: str, target: Target) -> None:
    """Emits the factorization: it goes down the diagonal in blocks of one strip's width. Strips are copied to memory
    where their rows are contiguous: if the rows of a matrix are a power of two apart, all rows of a strip map to a few
    lines of the cache."""
    field = Field.of(dtype, target)
    width = strip_columns(dtype, target)
    task = _emit_strip_task(module, dtype, field, width)
    params = [("ptr", "U"), ("i64", "n"), ("ptr", "scratch"), ("i64", "threads")]
    b = module.function(symbol("cholesky", dtype), params, linkage="", attributes="nounwind")
    U, n, scratch, threads = b.params
    factor = symbol(f"substitute{FACTOR}", dtype)

    def small() -> list[V]:
        b.call("void", factor, [U, i64(1), n, U, n, i64(0), n, n], declare=False)
        return []

    def large() -> list[V]:
        frame = b.alloca("i64", len(FRAME))
        b.store(U, frame)
        b.store(n, b.element(frame, "i64", 1))
        b.store(scratch, b.element(frame, "i64", 3))
        with b.loop(0, n, width, "block") as j:
            end = b.min_(b.add(j, width), n)
            columns, right = b.sub(end, j), b.sub(n, end)
            at = field.element(b, U, j)
            # a[i, k] is element k width + i of the packed strip, whose first column is column j
            shifted = field.element(b, scratch, b.sub(i64(0), j))
            _copy_rows(b, field, (scratch, i64(width)), (at, n), i64(0), end, columns)
            args = [shifted, i64(1), i64(width), scratch, i64(width), j, end, columns]
            b.call("void", factor, args, declare=False)
            _copy_rows(b, field, (at, n), (scratch, i64(width)), j, end, columns)
            b.store(j, b.element(frame, "i64", 2))
            alone = b.icmp("slt", b.mul(b.mul(right, end), width), tuning.PARALLEL_WORK)
            some = b.select(alone, i64(1), threads)
            tasks = b.udiv(b.add(right, width - 1), width)
            with b.if_(b.icmp("sgt", right, 0), "right"):
                b.call("void", "shlo_parallel", [V("ptr", f"@{task}"), frame, tasks, some])
        return []

    b.if_else(b.icmp("sle", n, width), small, large)
    _finish_cholesky(b, field, U, n)
    b.ret()


def _copy_rows(
    b: Builder, field: Field, target: tuple[V, V], source: tuple[V, V], first: V, last: V, columns: V
) -> None:
    """Copies rows [first, last) between two matrices, each an address and a row stride."""
    nbytes = b.mul(columns, field.itemsize)
    with b.loop(first, last, 1, "copy") as i:
        to, at = (field.element(b, p, b.mul(i, stride)) for p, stride in (target, source))
        b.memcpy(to, at, nbytes)


def _emit_strip_task(module: ModuleText, dtype: str, field: Field, width: int) -> str:
    """Emits the task that computes the rows of a block, in one strip right of the diagonal. Returns its name."""
    name = symbol("cholesky", dtype) + "_strip"
    b = module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
    frame, index, worker = b.params
    U, scratch = b.load("ptr", frame), b.load("ptr", b.element(frame, "i64", 3))
    n, j = b.load("i64", b.element(frame, "i64", 1)), b.load("i64", b.element(frame, "i64", 2))
    end = b.add(j, width)
    column = b.add(end, b.mul(index, width))
    columns = b.min_(b.sub(n, column), width)
    at = field.element(b, U, column)
    mine = field.element(b, scratch, b.mul(b.add(worker, 1), b.mul(n, width)))
    shifted = field.element(b, scratch, b.sub(i64(0), j))
    _copy_rows(b, field, (mine, i64(width)), (at, n), i64(0), end, columns)
    args = [shifted, i64(1), i64(width), mine, i64(width), j, end, columns]
    b.call("void", symbol(f"substitute{BELOW}", dtype), args, declare=False)
    _copy_rows(b, field, (at, n), (mine, i64(width)), j, end, columns)
    b.ret()
    return name


def _finish_cholesky(b: Builder, field: Field, U: V, n: V) -> None:
    """Emits zeros below the diagonal, or NaN everywhere if an element of the diagonal is not positive."""
    zero = const(field.part, 0.0)
    with b.loop_carry(0, n, [const("i1", 1)], 1, "check") as carry:
        d = field.load_one(b, U, b.mul(carry.index, b.add(n, 1)))[0]
        carry.next(b.and_(carry.values[0], b.fcmp("ogt", d, zero)))

    def clear() -> list[V]:
        with b.loop(1, n, 1, "row") as i:
            b.memset(field.element(b, U, b.mul(i, n)), 0, b.mul(i, field.itemsize))
        return []

    def spoil() -> list[V]:
        with b.loop(0, b.mul(b.mul(n, n), field.parts), 1, "nan") as i:
            b.store(const(field.part, float("nan")), b.element(U, field.part, i))
        return []

    b.if_else(carry.values[0], clear, spoil)
