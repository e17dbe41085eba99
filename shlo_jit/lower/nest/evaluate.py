"""Values inside a nest: loads, fused ops and index expressions, one register of lanes at a time."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.fuse.choices import CHOICES
from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Condition, Expr, Sym
from shlo_jit.ir.types import DTYPES, I32, I64, DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const, i64, lanes, vector, vector_literal
from shlo_jit.lower.elements import elementwise
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.nibble_tables import has_small_table, look_up_in_memory
from shlo_jit.lower.elements.registers import (
    Reg,
    constant,
    from_memory,
    is_pair,
    lanes_of,
    memory_type,
    register_type,
    select_lanes,
    to_memory,
    widen,
)
from shlo_jit.lower.nest import packed_loads, strided_loads, wide_bytes
from shlo_jit.lower.nest.choices import candidates, deciding
from shlo_jit.lower.nest.interleaved import Waiting
from shlo_jit.lower.nest.position import Position
from shlo_jit.ops import OPS
from shlo_jit.schedule.space import Space, is_interleaved, linear
from shlo_jit.sizes import Size, equal, surely


def has_masks(b: Builder) -> bool:
    """Whether the target has masked loads."""
    target = b.module.target
    return target is not None and target.has_masks


class Evaluator:
    """Emits the computation of a nest's values. `pointers` maps a value to the register with its buffer's address."""

    def __init__(self, b: Builder, nest: Nest, space: Space, pointers: dict[Value, V]):
        self.b = b
        self.nest = nest
        self.space = space
        self.pointers = pointers
        self.along = {space.vector} if space.vector is not None else set()
        self._varies: dict[At, bool] = {}
        self.streaming: set[Value] = set()
        """Targets written past the caches; their vectors are aligned."""
        self.keep: dict[Key, V] = {}
        """Values that passes share, with the row of memory of each."""
        self.kept: set[Key] = set()
        """Those of them that an earlier pass has stored."""
        self.waiting: Waiting | None = None
        """Vectors that wait to be stored as one run, if a variable is interleaved."""
        self.positions = 1
        """Number of positions that advance along a row together."""
        self.words: set[Key] = set()
        """Loads of bytes, four apart from lane to lane, that load whole words, from which each lane shifts its byte."""
        self.prefetches: dict[Key, int] = {}
        """Loads that come from memory, with their prefetch distances in bytes."""

    # ------------------------------------------------------------------ values
    def value(self, position: Position, key: Key) -> Reg:
        """The register of a value at a place: one lane if it does not vary along the vector variable."""
        found = position.find(key)
        if found is not None:
            return found
        todo, entered = [key], set[Key]()
        while todo:  # operands first; not recursive: chains of ops are as deep as programs are long
            k = todo[-1]
            node = self.nest.nodes.get(k)
            if node is not None and k not in entered and k not in self.kept and position.find(k) is None:
                entered.add(k)
                todo.extend(reversed(candidates(position, k, node)))
                continue
            todo.pop()
            if position.find(k) is None:
                position.memo[k] = self.make(position, k)
        return position.memo[key]

    def make(self, position: Position, key: Key) -> Reg:
        """Computes a value whose operands have been computed."""
        if key in self.kept:
            return self.recall(position, key)
        x = self.compute(position, key) if key in self.nest.nodes else self.load(position, key)
        if key in self.keep:
            self.remember(position, key, x)
        return x

    def kept_address(self, position: Position, key: Key) -> V:
        number, size = i64(0), 1
        for v in reversed(self.space.inner):
            number = self.b.add(number, self.b.mul(position.variables[v], size))
            size *= self.space.extents[v]
        if self.space.vector not in self.space.inner:
            number = self.b.mul(self.b.add(self.b.mul(number, self.positions), position.slot), position.width)
        return self.b.element(self.keep[key], memory_type(key[0].tensor.storage), number)

    def remember(self, position: Position, key: Key, x: Reg) -> None:
        """Keeps a value for a later pass. The row has room for one more vector and its runs are written in order, so no
        mask is needed."""
        assert isinstance(x, V)
        stored = to_memory(self.b, key[0].tensor.storage, self.b.splat(x, position.width))
        self.b.store(stored, self.kept_address(position, key))

    def recall(self, position: Position, key: Key) -> V:
        dtype = key[0].tensor.storage
        kind = vector(memory_type(dtype), position.width)
        return from_memory(self.b, dtype, self.b.load(kind, self.kept_address(position, key)))

    def compute(self, position: Position, key: Key) -> Reg:
        value, at = key
        node = self.nest.nodes[key]
        op, name = node.op, node.op.name
        if name == "stablehlo.constant":
            return constant(value.tensor.storage, op.constant.array.reshape(-1)[0])
        if name == "stablehlo.iota":
            return self.iota(position, value.tensor.storage, at.index[op.int("iota_dimension")])
        if name in CHOICES:
            return self.chosen(position, key)
        if OPS[name].index_map is not None:
            return self.value(position, node.operands[0])
        assert name != "stablehlo.reduce", "a reduce is computed by its pass"
        if self.words and name == "stablehlo.convert" and value.tensor.storage.is_float:
            found = wide_bytes.chain(self.nest, position, node.operands[0])
            if found is not None and found[0] in self.words:
                word = wide_bytes.compute(self.b, found, lambda k: self.load_words(position, k))
                return convert(self.b, DTYPES["i8"], value.tensor.storage, word)
        args = [self.value(position, o) for o in node.operands]
        n = max((lanes_of(a) for a in args), default=1)
        return elementwise.emit(self.b, op, [widen(self.b, a, n) for a in args])

    def chosen(self, position: Position, key: Key) -> Reg:
        """The value of one of several operands: that of the last if no other applies."""
        *others, last = candidates(position, key, self.nest.nodes[key])
        x = self.value(position, last)
        for other in reversed(others):
            mask, y = self.condition(position, deciding(key, other)), self.value(position, other)
            assert mask is not None
            n = max(lanes_of(x), lanes_of(y), lanes(mask.type))
            x = select_lanes(self.b, self.b.splat(mask, n), widen(self.b, y, n), widen(self.b, x, n))
        return x

    # ------------------------------------------------------------------ index expressions
    def varies(self, at: At) -> bool:
        """Whether a place differs from lane to lane."""
        found = self._varies.get(at)
        if found is None:
            found = self._varies[at] = self.space.depends(at, self.along)
        return found

    def base(self, position: Position, e: Expr) -> V:
        """The scalar part of an expression at lane 0, excluding run-time terms that vary along the lanes."""
        b, e = self.b, self.space.collapse(e)
        total = i64(e.const)
        for v, k in e.terms:
            total = b.add(total, b.mul(position.variables[v], k))
        for s in e.syms:
            if not self.varies(s.at):
                x = self.sym(position, s)
                total = b.add(total, b.mul(x, s.coefficient))
        return total

    def sym(self, position: Position, s: Sym) -> V:
        """clamp(value, 0, limit) as i64, in one lane or all."""
        b, dtype = self.b, s.value.tensor.storage
        x = self.value(position, (s.value, s.at))
        assert isinstance(x, V)
        n, narrow = lanes(x.type), dtype.bits <= 32 and not isinstance(s.limit, Size) and s.limit < 1 << 31
        element = "i32" if narrow else "i64"  # twice the lanes in a register
        t, limit = vector(element, n), b.splat(const("i32", s.limit) if narrow else i64(s.limit), n)
        if dtype.kind in "ub":
            found = b.intrinsic("umin", t, [b.cast("zext", x, element), limit])
        else:
            found = b.intrinsic("smax", t, [b.cast("sext", x, element), const(t, 0)])
            found = b.intrinsic("smin", t, [found, limit])
        return b.cast("zext", found, "i64")

    def step(self, e: Expr) -> int:
        """Stride of an expression from lane to lane, excluding run-time terms."""
        return 0 if self.space.vector is None else self.space.collapse(e).coefficient(self.space.vector)

    def scattered(self, e: Expr) -> bool:
        return any(self.varies(s.at) for s in e.syms)

    def vector_index(self, position: Position, e: Expr, element: str = "i64") -> V:
        """An expression as a vector, with one value per lane."""
        b, n = self.b, position.width
        base = self.base(position, e)
        if element != "i64":
            base = b.cast("trunc", base, element) if base.literal is None else const(element, base.literal)
        total = b.splat(base, n)
        k = self.step(e)
        if k and n > 1:
            total = b.add(total, self.multiples(element, k))
        for s in e.syms:
            if self.varies(s.at):
                x = b.splat(self.sym(position, s), n)  # one lane if only its place varies (an iota)
                x = b.mul(x, b.splat(i64(s.coefficient), n)) if s.coefficient != 1 else x
                total = b.add(total, b.cast("trunc", x, element) if element != "i64" else x)
        return total

    def multiples(self, element: str, k: int) -> V:
        """The vector 0, k, 2k, ..."""
        b, n = self.b, self.space.width
        if not isinstance(k, Size):
            return vector_literal(element, [k * i for i in range(n)])
        step = i64(k) if element == "i64" else b.cast("trunc", i64(k), element)
        return b.mul(b.iota(element, n), b.splat(step, n))

    def is_small(self, e: Expr, more: int) -> bool:
        """Whether an expression plus `more` fits 31 bits."""

        def largest() -> int:
            fixed = abs(e.const) + sum(abs(k) * self.nest.extents[v] for v, k in e.terms)
            return fixed + sum(abs(s.coefficient) * s.limit for s in e.syms)

        return surely(lambda: largest() + more < 2**31)

    def iota(self, position: Position, dtype: DType, e: Expr) -> Reg:
        varies = self.step(e) != 0 or self.scattered(e)
        small = self.is_small(e, 0)
        element = "i32" if small else "i64"
        if varies:
            x = self.vector_index(position, e, element)
        else:
            x = self.base(position, e)
            x = (self.b.cast("trunc", x, element) if x.literal is None else const(element, x.literal)) if small else x
        return convert(self.b, I32 if small else I64, dtype, x)

    def condition(self, position: Position, conditions: Sequence[Condition], along: bool | None = None) -> V | None:
        """The conjunction of conditions as i1 (one lane if none varies); None if there are none."""
        b, total = self.b, None
        for c in conditions:
            if position.truth.get(c):
                continue
            varies = self.step(c.expr) != 0 or self.scattered(c.expr)
            if along is not None and varies != along:
                continue
            moved = Expr(c.expr.const - c.low, c.expr.terms, c.expr.syms)
            element = "i32" if varies and self.is_small(moved, c.high - c.low) else "i64"
            x = self.vector_index(position, moved, element) if varies else self.base(position, moved)
            size = i64(c.high - c.low) if element == "i64" else const("i32", c.high - c.low)
            hit = b.icmp("ult", x, b.splat(size, lanes(x.type)))
            if total is None:
                total = hit
            else:
                n = max(lanes(total.type), lanes(hit.type))
                total = b.and_(b.splat(total, n), b.splat(hit, n))
        return total

    # ------------------------------------------------------------------ memory
    def load(self, position: Position, key: Key) -> Reg:
        value, at = key
        if value.tensor.is_packed:
            return self.load_packed(position, key)
        b, dtype, offset, pointer = self.b, value.tensor.storage, linear(key), self.pointers[value]
        moves = self.step(offset)
        spread = self.scattered(offset)
        if not moves and not spread:
            return self.load_one(position, dtype, pointer, offset, at)
        mask = self.mask(position, at.conditions)
        if position.width == 1:
            index = self.vector_index(position, offset) if spread else self.base(position, offset)
            return self.load_at(dtype, pointer, index, mask)
        if key in self.words and position.width > 1:
            return b.field(self.load_words(position, key), 0, register_type(dtype))
        if not spread and self.space.is_short_stride(moves) and (mask is None or has_masks(b)):
            return strided_loads.load(b, dtype, pointer, self.base(position, offset), moves, position.width, mask)
        if spread or moves not in (1, -1):
            if spread and has_small_table(b, position.width, value.tensor.size, 8 * dtype.itemsize):
                index = self.vector_index(position, offset, "i32")
                found = look_up_in_memory(b, memory_type(dtype), pointer, value.tensor.size, index)
                return from_memory(b, dtype, found)
            return self.load_gather(position, dtype, pointer, offset, mask)
        index = self.safe_base(position, offset, at.conditions)
        return self.load_run(position, dtype, pointer, index, moves, mask, self.prefetches.get(key, 0))

    def load_words(self, position: Position, key: Key) -> V:
        """Loads the words with the bytes of the lanes, shifted to the lowest bits."""
        value, at = key
        offset, n = linear(key), position.width
        if n == 1:
            byte = self.load_one(position, value.tensor.storage, self.pointers[value], offset, at)
            assert isinstance(byte, V)
            return self.b.cast("zext", byte, "i32")
        mask = self.mask(position, at.conditions)
        mask = None if mask is None else self.b.splat(mask, n)
        return packed_loads.load_words(
            self.b, value.tensor.storage, self.pointers[value], self.unit_at(position, key, 4), n, mask
        )

    def unit_at(self, position: Position, key: Key, per: int) -> tuple[V, V]:
        """The number of the unit of memory, of `per` elements, that holds the element of lane 0, and the number of the
        element in it. Constants, where it is the same in all iterations, so that elements of a unit have one
        address."""
        b, offset, known = self.b, self.space.collapse(linear(key)), linear(key).const
        rest: list[tuple[int, int]] = []
        for v, k in offset.terms:
            literal = position.variables[v].literal
            known += k * literal if literal is not None else 0
            rest += [] if literal is not None else [(v, k)]
        if offset.syms or key[1].conditions or any(k % per for _, k in rest):
            first = self.safe_base(position, linear(key), key[1].conditions)
            return b.ashr(first, per.bit_length() - 1), b.and_(first, i64(per - 1))
        units = Expr(known // per, tuple((v, k // per) for v, k in rest))
        return self.base(position, units), i64(known % per)

    def load_packed(self, position: Position, key: Key) -> V:
        """Loads elements of 2 or 4 bits that share bytes."""
        value, at = key
        b, n, dtype, offset, pointer = self.b, position.width, value.tensor.storage, linear(key), self.pointers[value]
        moves, spread = self.step(offset), self.scattered(offset)
        is_one = not moves and not spread
        if is_one or n == 1:
            common = self.condition(position, at.conditions, along=False)
            safe = common if is_one else self.mask(position, at.conditions)
            index = self.vector_index(position, offset) if spread else self.base(position, offset)
            index = index if safe is None else b.select(safe, index, i64(0))
            return packed_loads.load_at(b, dtype, pointer, index)
        mask = self.mask(position, at.conditions)
        if not spread and moves * dtype.bits in (8, 32) and value.tensor.size * dtype.bits % (moves * dtype.bits) == 0:
            mask, unit = None if mask is None else b.splat(mask, n), moves * dtype.bits
            return packed_loads.load_column(b, dtype, pointer, self.unit_at(position, key, moves), n, unit, mask)
        if spread or moves not in (1, -1):
            everywhere = b.splat(mask if mask is not None else V("i1", "true"), n)
            return packed_loads.load_gather(b, dtype, pointer, self.vector_index(position, offset), everywhere)
        mask = None if mask is None else b.splat(mask, n)
        first = self.safe_base(position, offset, at.conditions)
        if moves == 1:
            return packed_loads.load_run(b, dtype, pointer, first, n, mask)
        backwards = None if mask is None else b.reverse(mask)
        return b.reverse(packed_loads.load_run(b, dtype, pointer, b.sub(first, n - 1), n, backwards))

    def mask(self, position: Position, conditions: Sequence[Condition]) -> V | None:
        """Mask of the lanes to access, from the tail and the conditions: one lane or all. None if all lanes are
        accessed."""
        m = self.condition(position, conditions)
        if position.mask is None:
            return m
        return position.mask if m is None else self.b.and_(position.mask, self.b.splat(m, position.width))

    def load_one(self, position: Position, dtype: DType, pointer: V, offset: Expr, at: At) -> Reg:
        safe = self.condition(position, at.conditions, along=False)
        return self.load_at(dtype, pointer, self.base(position, offset), safe)

    def load_at(self, dtype: DType, pointer: V, index: V, safe: V | None) -> Reg:
        """Loads one element; if `safe` is false, the buffer's first element instead."""
        b, t = self.b, memory_type(dtype)
        if safe is not None:
            index = b.select(safe, index, i64(0))
        if dtype.is_complex:
            index = b.mul(index, 2)
            return b.load(t, b.element(pointer, t, index)), b.load(t, b.element(pointer, t, b.add(index, 1)))
        return from_memory(b, dtype, b.load(t, b.element(pointer, t, index)))

    def safe_base(self, position: Position, offset: Expr, conditions: Sequence[Condition]) -> V:
        """Index at which a run begins. Even if no lane is loaded, the address must not be far from the buffer:
        processors take long to find that an unmapped address is masked off."""
        safe, index = self.condition(position, conditions, along=False), self.base(position, offset)
        if safe is not None and safe.literal is None:
            e = self.space.collapse(offset)
            along = tuple(t for t in e.terms if t[0] == self.space.vector)
            of_row = self.base(position, Expr(e.const, tuple(t for t in e.terms if t not in along), e.syms))
            index = self.b.add(self.b.select(safe, of_row, i64(0)), self.base(position, Expr(0, along)))
        for c in conditions:
            step = self.step(c.expr)
            is_line = c.expr.syms and step and not isinstance(step, Size) and not self.scattered(c.expr)
            if is_line and not position.truth.get(c):
                index = self.b.select(self.holds_for_some(position, c), index, i64(0))
        return index

    def holds_for_some(self, position: Position, c: Condition) -> V:
        """Whether a condition that varies along the lanes holds for one of them, or may if the stride is not one: the
        range of its expression overlaps that of the condition."""
        b, span = self.b, self.step(c.expr) * (position.width - 1)
        first = self.base(position, c.expr)
        last = b.add(first, span)
        smallest, largest = (last, first) if span < 0 else (first, last)
        return b.and_(b.icmp("slt", smallest, i64(c.high)), b.icmp("sge", largest, i64(c.low)))

    def load_run(
        self, position: Position, dtype: DType, pointer: V, index: V, moves: int, mask: V | None, distance: int
    ) -> Reg:
        """Loads consecutive elements, up- or downwards, and prefetches the memory `distance` bytes further."""
        b, n, t = self.b, position.width, memory_type(dtype)
        if moves < 0:
            index = b.sub(index, n - 1)
        if mask is not None:
            mask = b.splat(mask, n)
            mask = b.reverse(mask) if moves < 0 else mask
        parts = 2 if dtype.is_complex else 1
        address = b.element(pointer, t, b.mul(index, parts))
        kind = vector(t, n * parts)
        if distance and position.mask is None:
            b.prefetch(b.offset(address, distance))
        if mask is None:
            x = b.load(kind, address)
        else:
            both = mask if parts == 1 else b.shuffle(mask, None, [i // 2 for i in range(2 * n)])
            x = b.masked_load(kind, address, both)
        if dtype.is_complex:
            pair = [b.shuffle(x, None, range(p, 2 * n, 2)) for p in (0, 1)]
            return tuple(b.reverse(p) if moves < 0 else p for p in pair)  # type: ignore[return-value]
        return from_memory(b, dtype, b.reverse(x) if moves < 0 else x)

    def load_gather(self, position: Position, dtype: DType, pointer: V, offset: Expr, mask: V | None) -> Reg:
        b, n, t = self.b, position.width, memory_type(dtype)
        index = self.vector_index(position, offset)
        mask = b.splat(mask if mask is not None else V("i1", "true"), n)
        if dtype.is_complex:
            index = b.mul(index, const(index.type, 2))
            where = [b.pointers(pointer, t, b.add(index, const(index.type, p))) for p in (0, 1)]
            return tuple(b.gather(vector(t, n), p, mask) for p in where)  # type: ignore[return-value]
        return from_memory(b, dtype, b.gather(vector(t, n), b.pointers(pointer, t, index), mask))

    def store(self, position: Position, s: Store) -> None:
        """Stores a value, which is computed now unless it was before."""
        from shlo_jit.ir import index as ix

        b, dtype = self.b, s.target.tensor.storage
        x = self.value(position, (s.value, s.at))
        offset = ix.linearize(s.index, s.target.tensor.extents)
        pointer, t, moves = self.pointers[s.target], memory_type(dtype), self.step(offset)
        spread = self.scattered(offset)
        if position.width == 1 or (not moves and not spread):
            index = self.vector_index(position, offset) if spread else self.base(position, offset)
            self.store_at(dtype, pointer, index, x)
            return
        n = position.width
        x = widen(b, x, n)
        mask = position.mask
        if moves == 1 and not spread:
            place = b.mul(self.base(position, offset), 2 if dtype.is_complex else 1)
            whole = equal(offset.const % n, 0) and not offset.syms
            streaming = s.target in self.streaming and whole
            self.store_run(dtype, b.element(pointer, t, place), x, mask, n, streaming)
            return
        if self.waiting is not None and not is_pair(x) and is_interleaved(s, self.space, self.waiting.variable):
            columns = self.waiting.add(s, position.variables, to_memory(b, dtype, x))  # type: ignore[arg-type]
            if columns is not None:
                first = b.sub(self.base(position, offset), moves - 1)
                strided_loads.store(b, b.element(pointer, t, first), columns, mask)
            return
        index = self.vector_index(position, offset)
        mask = mask or b.splat(V("i1", "true"), n)
        if is_pair(x):
            index = b.mul(index, const(index.type, 2))
            for p in (0, 1):
                b.scatter(x[p], b.pointers(pointer, t, b.add(index, const(index.type, p))), mask)  # type: ignore[index]
            return
        b.scatter(to_memory(b, dtype, x), b.pointers(pointer, t, index), mask)  # type: ignore[arg-type]

    def store_at(self, dtype: DType, pointer: V, index: V, x: Reg) -> None:
        b, t = self.b, memory_type(dtype)
        if is_pair(x):
            index = b.mul(index, 2)
            for p in (0, 1):
                b.store(x[p], b.element(pointer, t, b.add(index, p)))  # type: ignore[index]
            return
        b.store(to_memory(b, dtype, x), b.element(pointer, t, index))  # type: ignore[arg-type]

    def store_run(self, dtype: DType, address: V, x: Reg, mask: V | None, n: int, streaming: bool) -> None:
        b = self.b
        if is_pair(x):
            y = b.shuffle(x[0], x[1], [i // 2 + (i % 2) * n for i in range(2 * n)])  # type: ignore[arg-type]
            mask = None if mask is None else b.shuffle(mask, None, [i // 2 for i in range(2 * n)])
        else:
            y = to_memory(b, dtype, x)  # type: ignore[arg-type]
        if mask is None and streaming:
            b.store(y, address, bits(y.type) * lanes(y.type) // 8, ", !nontemporal !{i32 1}")
        elif mask is None:
            b.store(y, address)
        else:
            b.masked_store(y, address, mask)
