"""Lowers products that compute a range of their terms or columns, with a matrix that is read in registers, as
`schedule/keys_in_registers.py` has decided."""

from __future__ import annotations

from copy import copy

from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.lower.kernels.outputs_in_registers import Outputs
from shlo_jit.lower.kernels.terms_in_registers import Terms
from shlo_jit.lower.kernels.units_in_registers import ChunkWriter, UnitWriter, Variables
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.services import Services
from shlo_jit.schedule.keys_in_registers import KeysInRegisters


def write_keys(low: Services, keys: KeysInRegisters, hint: str) -> str:
    """Writes `void @name(ptr matrix, ptr vectors, ptr results, i64 low, i64 high, [i64 first, i64 last])`: a product
    with the keys from `low` to `high`. If keys are terms, it computes the columns from `first`, which is a multiple of
    the lanes, to `last`. Returns its name. All addresses are those of key 0 and column 0."""
    check_supported(keys.units.nest)
    name = low.new_name(hint)
    _KeysWriter(low, keys, name).write_range()
    return low.share(hint, name)


class _KeysWriter(UnitWriter):
    """Writes the product with a range of keys."""

    def __init__(self, low: Services, keys: KeysInRegisters, name: str):
        super().__init__(low, keys.units, name, [keys.units.key[0]], None, lambda _, *chunk: self.chunk_writer(*chunk))
        self.keys = keys

    def chunk_writer(self, variables: Variables, x: V, y: V, start: V, stop: V) -> ChunkWriter:
        if not self.s.are_outputs:
            return Terms(self, variables, x, y, start, stop)
        kind = _AfterZeros if self.keys.adds_zeros else Outputs
        return kind(self, variables, x, y, start, stop)

    def write_range(self) -> None:
        is_terms = self.keys.is_terms
        self.begin(3, ("low", "high", "first", "last") if is_terms else ("low", "high"))
        b, s, zero = self.b, self.s, i64(0)
        self.range = (low, high) = (b.params[3], b.params[4])
        first, last = (b.params[5], b.params[6]) if is_terms else (low, high)
        self.bounds = {self.keys.key: (low, high)} if is_terms else {}
        if self.keys.adds_zeros:
            self.zeros = copy(self)
            self.zeros.s, self.zeros.sums = self.keys.left_out, b.alloca("i8", self.sums_row)
        with b.loop(first, last, s.chunk, "chunk") as start:
            self.product(zero, {}, start, b.min_(b.add(start, s.chunk), last))
        b.ret()


class _AfterZeros(Outputs):
    """Outputs whose sums begin with the products of 0 and the terms outside of the range."""

    w: _KeysWriter

    def begin(self) -> None:
        w = self.w
        _Zeros(w.zeros, self.variables, self.x, self.y, self.start, self.stop).write()
        for r in range(self.s.count):
            self.b.memcpy(self.b.offset(w.sums, r * w.sums_row), w.zeros.sums, w.sums_row)


class _Zeros(Outputs):
    """The products of 0 and the terms outside of the range."""

    w: _KeysWriter

    def write(self) -> None:
        w = self.w
        self.begin()
        low, high = w.range
        for bounds in ((i64(0), low), (high, i64(w.s.nest.extents[w.keys.key]))):
            w.bounds = {w.keys.key: bounds}
            self.add()

    def factor(self, x: V, r: int, offset: int, width: int) -> V:
        return const(vector(self.w.acc, width), 0)
