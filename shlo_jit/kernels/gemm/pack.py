"""Packing an operand of a product into panels, converting its elements on the way.

A panel holds `width` indices j of the operand that is cut (rows of A, columns of B) for a range of k: step after step
of k, `width` adjacent units each, so the micro-kernel reads it front to back. Elements are read through strides, hence
any layout and any transposed, sliced or broadcast view can be packed.

There are three ways to read: along j (`copy`), along k with a transpose of lanes x lanes blocks in registers
(`transpose`), or one element at a time (`scalar`: if neither stride is dense, and for the remainders of the other two).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm.dot_instructions import multiply_bytes
from shlo_jit.kernels.gemm.precision import GemmPlan, storage
from shlo_jit.kernels.llvm_values import V, bits, const, i64, is_float, lanes, vector
from shlo_jit.kernels.target import Target

PACK_PARAMS = [
    ("ptr", "source"),
    ("i64", "j_stride"),
    ("i64", "k_stride"),
    ("ptr", "panels"),
    ("i64", "width"),
    ("i64", "count"),
    ("i64", "k"),
    ("i64", "panel_bytes"),
]
"""`count` indices j are packed in panels of `width`, each `panel_bytes` after the last. Strides are in bytes, k in
elements. Lanes of the last panel beyond `count` are undefined: they only affect lanes of C that are not stored."""


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Packing of one operand: its element type, unit and layout."""

    name: str
    dtype: str
    unit: str
    group: int
    parts: int
    lanes: int
    masks: bool
    header: int = 0
    """Factor of the sums over k in the header of a panel (see `GemmPlan.flips_a`). 0: no header."""
    word: str = ""
    """LLVM type of an element in a unit of several elements."""
    whole: int = 1
    """The number of steps is rounded up to a multiple of this, with zeros."""

    @property
    def element(self) -> str:
        return storage(self.dtype)

    @property
    def raw(self) -> str:
        """LLVM type in which elements are moved into units of several: an integer of their size."""
        return f"i{bits(self.element)}"

    @property
    def element_bytes(self) -> int:
        return bits(self.element) // 8 * self.parts

    @property
    def unit_bytes(self) -> int:
        return bits(self.unit) // 8


def pack_plans(plan: GemmPlan) -> tuple[PackPlan, PackPlan]:
    """Returns the packers of A and B; they are equal up to the name if one function can do both."""
    factor = plan.unflip if plan.flips_a else 0
    common = (plan.unit, plan.group, plan.parts, plan.lanes, plan.masks)
    word = plan.word if plan.group > 1 else ""
    a = PackPlan(f"{plan.symbol}_pack_a", plan.types.a, *common, word=word)
    b = PackPlan(f"{plan.symbol}_pack_b", plan.types.b, *common, header=factor, word=word, whole=plan.whole)
    if plan.types.a == plan.types.b and not factor and plan.kind != "amx":
        b = a
    return a, b


def convert(b: Builder, x: V, dtype: str, to: str) -> V:
    """Converts a stored element (or a vector of them) to the LLVM type `to`."""
    if dtype == "bf16" and to in ("float", "double"):
        word = b.shl(
            b.cast("zext", x if "bfloat" not in x.type else b.bitcast(x, x.type.replace("bfloat", "i16")), "i32"), 16
        )
        x = b.bitcast(word, word.type.replace("i32", "float"))
        return x if to == "float" else b.cast("fpext", x, to)
    if is_float(x.type) and is_float(to):
        wider = bits(to) > bits(x.type)
        return x if bits(to) == bits(x.type) else b.cast("fpext" if wider else "fptrunc", x, to)
    signed = not dtype.startswith("ui") and dtype != "i1"
    if is_float(to):
        return b.cast("sitofp" if signed else "uitofp", x, to)
    if bits(to) == bits(x.type):
        return x
    return b.cast(("sext" if signed else "zext") if bits(to) > bits(x.type) else "trunc", x, to)


def transpose(b: Builder, rows: list[V]) -> list[V]:
    """Transposes an n x n block held in n vectors of n lanes: log2 n rounds that interleave vector i with i + n/2."""
    n = len(rows)
    low = [i // 2 + (i % 2) * n for i in range(n)]
    high = [x + n // 2 for x in low]
    for _ in range(n.bit_length() - 1):
        pairs = [(rows[i], rows[i + n // 2]) for i in range(n // 2)]
        rows = [b.shuffle(x, y, mask) for x, y in pairs for mask in (low, high)]
    return rows


def emit_pack(module: ModuleText, plan: PackPlan, target: Target, attributes: str) -> None:
    """Emits `void <name>(PACK_PARAMS)`."""
    b = module.function(plan.name, PACK_PARAMS, linkage="", attributes=attributes)
    p = _Packer(b, plan, target)
    along_j = b.icmp("eq", p.j_stride, plan.element_bytes)
    along_k = b.icmp("eq", p.k_stride, plan.element_bytes)

    def copy() -> list[V]:
        p.copy()
        return []

    def other() -> list[V]:
        with p.each_panel() as panel:
            if plan.parts == 1:
                units = p.units_of(b.select(along_k, p.k, i64(0)))
                p.transposed(panel, units)
                p.scalar(panel, b.mul(units, plan.group), i64(0))
            else:
                p.scalar(panel, i64(0), i64(0))
        return []

    b.if_else(along_j, copy, other)
    if plan.header:
        p.heads()
    if plan.whole > 1:
        p.fill()
    b.ret()


class _Panel:
    """One panel: its address, the address of its source, and the number of lanes that exist."""

    def __init__(self, to: V, source: V, count: V):
        self.to, self.source, self.count = to, source, count


class _Panels:
    """A loop over panels, as a context manager."""

    def __init__(self, p: _Packer):
        self.p = p
        self.loop = p.b.loop_carry(0, p.count, [p.first], p.width, "panel")

    def __enter__(self) -> _Panel:
        p = self.p
        self.carry = self.loop.__enter__()
        at = self.carry.values[0]
        count = p.b.min_(p.b.sub(p.count, self.carry.index), p.width)
        return _Panel(at, p.b.offset(p.source, p.b.mul(self.carry.index, p.j_stride)), count)

    def __exit__(self, *error: object) -> None:
        self.carry.next(self.p.b.offset(self.carry.values[0], self.p.panel_bytes))
        self.loop.__exit__(None, None, None)


class _Packer:
    def __init__(self, b: Builder, plan: PackPlan, target: Target):
        self.b, self.plan, self.target = b, plan, target
        self.source, self.j_stride, self.k_stride, panels, self.width, self.count, self.k, self.panel_bytes = b.params
        self.step = b.mul(self.width, plan.unit_bytes * plan.parts)
        """Bytes of one step of k in a panel."""
        self.base = panels
        self.first = b.offset(panels, plan.lanes * 2 * 4) if plan.header else panels

    def each_panel(self) -> _Panels:
        return _Panels(self)

    def units_of(self, k: V) -> V:
        """Returns the steps that the vector paths pack: all whole units, or whole blocks of `lanes` without masked
        loads."""
        if self.plan.masks:
            return self.b.udiv(k, self.plan.group)
        block = self.plan.lanes * self.plan.group
        return self.b.mul(self.b.udiv(k, block), self.plan.lanes)

    # ------------------------------------------------------------------ along j
    def copy(self) -> None:
        """Copies with steps in the outer loop and panels in the inner one, so that a row of B is read in one pass.
        Groups of k are interleaved bytewise."""
        b, plan = self.b, self.plan
        units = b.udiv(b.add(self.k, plan.group - 1), plan.group)
        with b.loop(0, units, hint="step") as u:
            row = b.offset(self.source, b.mul(b.mul(u, plan.group), self.k_stride))
            left = b.sub(self.k, b.mul(u, plan.group))
            with b.loop_carry(0, self.count, [b.offset(self.first, b.mul(u, self.step))], self.width, "panel") as panel:
                count = b.min_(b.sub(self.count, panel.index), self.width)
                at, source = panel.values[0], b.offset(row, b.mul(panel.index, plan.element_bytes))
                args = source, at, count, left
                pair = b.icmp("eq", count, 2 * plan.lanes)
                if plan.parts == 1 and plan.group == 1:
                    b.if_else(pair, partial(self._copy_pair, source, at), partial(self._copy_step, *args))
                elif plan.group > 1 and plan.raw == "i8":
                    whole = b.and_(pair, b.icmp("sge", left, plan.group))
                    b.if_else(whole, partial(self._copy_bytes, source, at), partial(self._copy_step, *args))
                else:
                    self._copy_step(*args)
                panel.next(b.offset(at, self.panel_bytes))

    def _copy_pair(self, source: V, to: V) -> list[V]:
        """Copies two vectors, a whole step of most panels. Rows may be pages apart, where the hardware does not
        prefetch the next."""
        b, plan = self.b, self.plan
        later = b.offset(source, b.mul(self.k_stride, tuning.GEMM_PACK_PREFETCH))
        for v in range(2):
            at = v * plan.lanes * plan.element_bytes
            b.prefetch(b.offset(later, at), locality=2)
            x = b.load(vector(plan.element, plan.lanes), b.offset(source, at))
            b.store(convert(b, x, plan.dtype, plan.unit), b.offset(to, v * plan.lanes * plan.unit_bytes))
        return []

    def _copy_bytes(self, source: V, to: V) -> list[V]:
        """Copies two vectors of units of several bytes each, a whole step of most panels."""
        b, plan = self.b, self.plan
        later = b.offset(source, b.mul(self.k_stride, tuning.GEMM_PACK_PREFETCH))
        n, rows = 2 * plan.lanes, list[V]()
        for t in range(plan.group):
            row = b.mul(self.k_stride, t)
            b.prefetch(b.offset(later, row), locality=2)
            rows.append(b.load(vector("i8", n), b.offset(source, row)))
        while len(rows) > 1:  # rows k and k + group / 2 first
            half, m = len(rows) // 2, lanes(rows[0].type)
            order = [x for i in range(m) for x in (i, m + i)]
            rows = [b.shuffle(x, y, order) for x, y in zip(rows[:half], rows[half:], strict=True)]
        units = n * plan.group // 2
        for v in range(2):
            x = self._word(b.shuffle(rows[0], None, range(v * units, (v + 1) * units)))
            b.store(b.bitcast(x, vector("i32", plan.lanes)), b.offset(to, v * plan.lanes * plan.unit_bytes))
        return []

    def _copy_step(self, source: V, to: V, count: V, left: V) -> list[V]:
        """Copies a step of any panel; `left` elements of k exist."""
        b, plan = self.b, self.plan
        whole = count if plan.masks else b.mul(b.udiv(count, plan.lanes), plan.lanes)
        with b.loop(0, whole, plan.lanes, "j") as j:
            self._copy_vector(b.offset(source, b.mul(j, plan.element_bytes)), to, j, b.sub(count, j), left)
        if not plan.masks:
            with b.loop(whole, count, hint="rest") as j:
                at = b.offset(source, b.mul(j, plan.element_bytes))
                for t in range(plan.group) if plan.group > 1 else ():
                    exists = b.icmp("slt", i64(t), left)
                    self._copy_in_unit(b.offset(at, b.mul(self.k_stride, t)), to, j, i64(t), exists)
                if plan.group == 1:
                    self._copy_element(at, to, j)
        return []

    def _copy_vector(self, source: V, to: V, j: V, count: V, left: V) -> None:
        """Copies `lanes` units of one step; `count` lanes and `left` elements of k exist."""
        b, plan = self.b, self.plan
        mask = self._mask(count, plan.lanes) if plan.masks else None
        at = b.offset(to, b.mul(j, plan.unit_bytes))
        if plan.parts == 2:
            n = 2 * plan.lanes
            wide = self._mask(b.mul(count, 2), n) if plan.masks else None
            x = self._load(vector(plan.element, n), source, wide)
            re, im = (b.shuffle(x, None, range(part, n, 2)) for part in (0, 1))
            self._store(re, at, mask)
            self._store(im, b.offset(at, b.mul(self.width, plan.unit_bytes)), mask)
            return
        if plan.group == 1:
            x = self._load(vector(plan.element, plan.lanes), source, mask)
            self._store(convert(b, x, plan.dtype, plan.unit), at, mask)
            return
        unit = const(vector("i32", plan.lanes), 0)
        for t in range(plan.group):
            x = b.cast("zext", self._load_row(source, t, mask, left), "i32")
            unit = b.or_(unit, b.shl(x, t * bits(plan.word))) if t else x
        self._store(unit, at, mask)

    def _load_row(self, source: V, t: int, mask: V | None, left: V) -> V:
        """Loads the elements of a step at place `t` of their units: zeros if only `left` elements of k exist."""
        b, plan = self.b, self.plan
        t_exists = b.icmp("slt", i64(t), left)
        at, kind = b.offset(source, b.mul(self.k_stride, t)), vector(plan.raw, plan.lanes)
        if mask is not None:
            here = b.select(t_exists, mask, const(mask.type, 0)) if t else mask
            return self._word(b.masked_load(kind, at, here))
        if t == 0:
            return self._word(b.load(kind, at))
        x = self._word(b.load(kind, b.select(t_exists, at, source)))
        return b.select(t_exists, x, const(x.type, 0))

    def _word(self, x: V) -> V:
        """Elements as they are in units."""
        return x if self.plan.raw == self.plan.word else convert(self.b, x, self.plan.dtype, self.plan.word)

    def _copy_element(self, source: V, to: V, j: V) -> None:
        b, plan = self.b, self.plan
        for part in range(plan.parts):
            x = b.load(plan.element, b.offset(source, part * bits(plan.element) // 8))
            to_part = b.offset(to, b.mul(b.add(j, b.mul(self.width, part)), plan.unit_bytes))
            b.store(convert(b, x, plan.dtype, plan.unit), to_part)

    # ------------------------------------------------------------------ along k
    def transposed(self, panel: _Panel, units: V) -> None:
        """Packs blocks of `lanes` indices j by `lanes` units. Rows beyond the last index repeat it."""
        b, plan = self.b, self.plan
        n = plan.lanes
        blocks = b.mul(b.udiv(units, n), n)
        last = b.sub(panel.count, 1)
        whole = b.select(b.icmp("sgt", units, 0), panel.count, i64(0))
        with b.loop(0, whole, n, "jblock") as j:
            rows = [b.offset(panel.source, b.mul(b.min_(b.add(j, r), last), self.j_stride)) for r in range(n)]
            mask = self._mask(b.sub(panel.count, j), n) if plan.masks else None
            to = b.offset(panel.to, b.mul(j, plan.unit_bytes))
            with b.loop(0, blocks, n, "kblock") as u:
                at = b.mul(u, plan.group * plan.element_bytes)
                block = transpose(b, [self._load_units(b.offset(row, at)) for row in rows])
                place = b.offset(to, b.mul(u, self.step))
                for x in block[:-1]:
                    self._store(x, place, mask)
                    place = b.offset(place, self.step)
                self._store_last(block[-1], place, mask, j)
            if plan.masks:
                self._rest_of_block(rows, b.offset(to, b.mul(blocks, self.step)), blocks, b.sub(units, blocks), mask)

    def _rest_of_block(self, rows: list[V], place: V, first: V, count: V, mask: V | None) -> None:
        """Packs the last `count` units of the rows, fewer than a block has, from unit `first` on."""
        b, plan = self.b, self.plan
        with b.if_(b.icmp("sgt", count, 0)):
            at = b.mul(first, plan.group * plan.element_bytes)
            some = self._mask(count, plan.lanes)
            block = transpose(b, [self._load_units(b.offset(row, at), some) for row in rows])
            for nth, x in enumerate(block[:-1]):
                with b.if_(b.icmp("sgt", count, nth)):
                    self._store(x, b.offset(place, b.mul(self.step, nth)), mask)

    def _store_last(self, x: V, at: V, mask: V | None, j: V) -> None:
        """Stores the last step of a block. Without masked stores, a step of a panel narrower than a vector overwrites
        the beginning of the next step, which is written later. But after the last step comes another panel, which
        another thread may have written already."""
        b = self.b
        if mask is not None:
            self._store(x, at, mask)
            return

        def by_element() -> list[V]:
            row = b.alloca(x.type)
            b.store(x, row)
            with b.loop(0, b.sub(self.width, j), hint="lane") as lane:
                element = b.load(self.plan.unit, b.element(row, self.plan.unit, lane))
                b.store(element, b.element(at, self.plan.unit, lane))
            return []

        def whole() -> list[V]:
            b.store(x, at)
            return []

        b.if_else(b.icmp("sle", b.add(j, self.plan.lanes), self.width), whole, by_element)

    def _load_units(self, at: V, mask: V | None = None) -> V:
        b, plan = self.b, self.plan
        if plan.group == 1:
            return convert(b, self._load(vector(plan.element, plan.lanes), at, mask), plan.dtype, plan.unit)
        size = bits(plan.raw) * plan.group
        units = vector(f"i{size}", plan.lanes)
        x = b.load(units, at, align=1) if mask is None else b.masked_load(units, at, mask, align=1)
        if size == 32:
            return x
        elements = b.bitcast(x, vector(plan.raw, plan.lanes * plan.group))
        return b.bitcast(self._word(elements), vector("i32", plan.lanes))

    # ------------------------------------------------------------------ one by one
    def scalar(self, panel: _Panel, k0: V, j0: V) -> None:
        """Packs the elements k >= k0, j >= j0 of a panel one by one, with zeros up to a whole unit."""
        b, plan = self.b, self.plan
        end = b.mul(b.udiv(b.add(self.k, plan.group - 1), plan.group), plan.group)
        with b.loop(k0, end, hint="k") as k:
            step = b.offset(panel.to, b.mul(b.udiv(k, plan.group), self.step))
            row = b.offset(panel.source, b.mul(k, self.k_stride))
            with b.loop(j0, panel.count, hint="j") as j:
                source = b.offset(row, b.mul(j, self.j_stride))
                if plan.group == 1:
                    self._copy_element(source, step, j)
                else:
                    self._scalar_in_group(source, step, j, k)

    def _scalar_in_group(self, source: V, step: V, j: V, k: V) -> None:
        b, plan = self.b, self.plan
        self._copy_in_unit(source, step, j, b.urem(k, plan.group), b.icmp("slt", k, self.k))

    def _copy_in_unit(self, source: V, step: V, j: V, place: V, exists: V) -> None:
        """Copies an element to a place in a unit, or a zero if it does not exist."""
        b, plan = self.b, self.plan
        x = self._word(b.load(plan.raw, b.select(exists, source, self.source)))
        at = b.add(b.mul(j, plan.group), place)
        b.store(b.select(exists, x, const(plan.word, 0)), b.offset(step, b.mul(at, 4 // plan.group)))

    # ------------------------------------------------------------------ helpers
    def heads(self) -> None:
        """Writes `header` times the sum over k of each column before every panel (see `vnni` in `precision.py`)."""
        b, plan = self.b, self.plan
        units = b.udiv(b.add(self.k, plan.group - 1), plan.group)
        nv = 2
        four = vector("i8", 4 * plan.lanes)
        ones = const(four, 1)
        zero = const(vector("i32", plan.lanes), 0)
        with self.each_panel() as panel:
            head = b.offset(panel.to, -nv * plan.lanes * 4)
            with b.loop_carry(0, units, [zero] * nv) as k:
                row = b.offset(panel.to, b.mul(k.index, self.step))
                sums: list[V] = []
                for v in range(nv):
                    x = b.load(four, b.offset(row, v * plan.lanes * 4))
                    pair = (x, ones) if plan.dtype == "ui8" else (ones, x)
                    sums.append(multiply_bytes(b, *pair, k.values[v]))
                k.next(*sums)
            for v in range(nv):
                scaled = b.mul(k.values[v], const(zero.type, plan.header))
                b.store(scaled, b.offset(head, v * plan.lanes * 4))

    def fill(self) -> None:
        """Writes zeros after the last step, up to a multiple of `whole` steps."""
        b, plan = self.b, self.plan
        units = b.udiv(b.add(self.k, plan.group - 1), plan.group)
        filled = b.mul(b.udiv(b.add(units, plan.whole - 1), plan.whole), plan.whole)
        with self.each_panel() as panel:
            b.memset(b.offset(panel.to, b.mul(units, self.step)), 0, b.mul(b.sub(filled, units), self.step))

    def _mask(self, count: V, n: int) -> V:
        b = self.b
        left = b.sub(n, b.min_(count, n))
        word = b.lshr(const(f"i{n}", -1), b.cast("trunc", left, f"i{n}")) if n > 8 else None
        if word is None:
            word = b.cast("trunc", b.lshr(V("i64", "255"), b.sub(8, b.min_(count, 8))), f"i{n}")
        return b.emit(f"<{n} x i1>", f"bitcast {word.type} {word.text} to <{n} x i1>")

    def _load(self, type: str, at: V, mask: V | None) -> V:
        return self.b.load(type, at) if mask is None else self.b.masked_load(type, at, mask)

    def _store(self, x: V, at: V, mask: V | None) -> None:
        if mask is None:
            self.b.store(x, at)
        else:
            self.b.masked_store(x, at, mask)
