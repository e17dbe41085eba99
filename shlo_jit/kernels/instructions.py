"""Instructions: arithmetic, comparisons, conversions, lanes, and memory."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.function_text import FunctionText, hidden
from shlo_jit.kernels.llvm_values import Index, V, bits, const, i32, lanes, mangle, scalar, vector, vector_literal


class Instructions(FunctionText):
    """The instructions of a function. Those that compute work on scalars and vectors alike."""

    # ------------------------------------------------------------------ arithmetic
    def _binary(self, op: str, a: V, c: V) -> V:
        return self.emit(a.type, f"{op} {a.type} {a.text}, {c.text}")

    def add(self, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y is not None:
            return const(a.type, x + y)
        return c if x == 0 else a if y == 0 else self._binary("add", a, c)

    def sub(self, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y is not None:
            return const(a.type, x - y)
        return a if y == 0 else self._binary("sub", a, c)

    def mul(self, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y is not None:
            return const(a.type, x * y)
        if x == 0 or y == 1:
            return a
        return c if y == 0 or x == 1 else self._binary("mul", a, c)

    def sdiv(self, a: V, c: V) -> V:
        return self._binary("sdiv", a, c)

    def udiv(self, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y:
            return const(a.type, x // y)
        return a if y == 1 else self._binary("udiv", a, c)

    def srem(self, a: V, c: V) -> V:
        return self._binary("srem", a, c)

    def urem(self, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y:
            return const(a.type, x % y)
        return const(a.type, 0) if y == 1 else self._binary("urem", a, c)

    def and_(self, a: V, c: V) -> V:
        return self._binary("and", a, c)

    def or_(self, a: V, c: V) -> V:
        return self._binary("or", a, c)

    def xor(self, a: V, c: V) -> V:
        return self._binary("xor", a, c)

    def not_(self, a: V) -> V:
        return self._binary("xor", a, const(a.type, 1 if bits(a.type) == 1 else -1))

    def shl(self, a: V, c: Index) -> V:
        return self._binary("shl", a, c if isinstance(c, V) else const(a.type, c))

    def lshr(self, a: V, c: Index) -> V:
        return self._binary("lshr", a, c if isinstance(c, V) else const(a.type, c))

    def ashr(self, a: V, c: Index) -> V:
        return self._binary("ashr", a, c if isinstance(c, V) else const(a.type, c))

    def fadd(self, a: V, c: V) -> V:
        return self._binary("fadd", a, c)

    def fsub(self, a: V, c: V) -> V:
        return self._binary("fsub", a, c)

    def fmul(self, a: V, c: V) -> V:
        return self._binary("fmul", a, c)

    def fdiv(self, a: V, c: V) -> V:
        return self._binary("fdiv", a, c)

    def fneg(self, a: V) -> V:
        return self.emit(a.type, f"fneg {a.type} {a.text}")

    def fma(self, a: V, c: V, d: V) -> V:
        """Returns a * c + d, rounded once."""
        return self.intrinsic("fma", a.type, [a, c, d])

    def icmp(self, predicate: str, a: Index, c: Index) -> V:
        a, c = self._coerce(a, c), self._coerce(c, a)
        return self.emit(vector("i1", lanes(a.type)), f"icmp {predicate} {a.type} {a.text}, {c.text}")

    def fcmp(self, predicate: str, a: V, c: V) -> V:
        return self.emit(vector("i1", lanes(a.type)), f"fcmp {predicate} {a.type} {a.text}, {c.text}")

    def select(self, condition: V, a: V, c: V, unpredictable: bool = False) -> V:
        """Returns one of two values. LLVM makes no branch of an `unpredictable` select."""
        text = f"select {condition.type} {condition.text}, {a.type} {a.text}, {c.type} {c.text}"
        return self.emit(a.type, text + (", !unpredictable !{}" if unpredictable else ""))

    def min_(self, a: Index, c: Index) -> V:
        """Returns the signed minimum."""
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y is not None:
            return const(a.type, min(x, y))
        return self.intrinsic("smin", a.type, [a, c])

    def max_(self, a: Index, c: Index) -> V:
        """Returns the signed maximum."""
        a, c = self._coerce(a, c), self._coerce(c, a)
        x, y = a.literal, c.literal
        if x is not None and y is not None:
            return const(a.type, max(x, y))
        return self.intrinsic("smax", a.type, [a, c])

    def cast(self, op: str, a: V, to: str) -> V:
        """Converts by `op`: trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp bitcast ptrtoint inttoptr.

        `to` names an element type; the lanes are those of `a` (except for a bitcast that changes them).
        """
        if "<" not in to:
            to = vector(to, lanes(a.type))
        if to == a.type:
            return a
        return self.emit(to, f"{op} {a.type} {a.text} to {to}")

    def field(self, a: V, place: Index, to: str) -> V:
        """The bits of `a` from `place` on, as integers of the element type `to`."""
        shift = place if isinstance(place, V) else const(scalar(a.type), place)
        found = self.cast("trunc", self.lshr(a, self.splat(shift, lanes(a.type))), to)
        self._fields[found.text] = a, shift
        return found

    def cut(self, x: V, halves: V | None = None) -> V:
        """The upper halves of f32 numbers whose lower halves are zero; `halves`: these, if they are known."""
        found = halves or self.cast("trunc", self.lshr(self.bitcast(x, vector("i32", lanes(x.type))), 16), "i16")
        return self.narrowed(found, x)

    def narrowed(self, narrow: V, wide: V) -> V:
        """Returns numbers in a narrow type, after noting that they are exactly those of `wide`; see `wide_of`."""
        self._wide[narrow.text] = wide
        return narrow

    def wide_of(self, a: V) -> V | None:
        """The f32 numbers that `a` holds exactly, as `cut` and `narrowed` have noted; None if they have not. LLVM does
        not know that nothing was lost."""
        return self._wide.get(a.text)

    def field_of(self, a: V) -> tuple[V, V] | None:
        """The integers that `a` is a field of, and the place of its first bit in them; None if it is none."""
        return self._fields.get(a.text)

    def bitcast(self, a: V, to: str) -> V:
        return self.cast("bitcast", a, to)

    # ------------------------------------------------------------------ lanes
    def splat(self, a: V, n: int) -> V:
        """Returns n lanes of a scalar; the scalar itself for n = 1."""
        if n == 1 or lanes(a.type) == n:
            return a
        t = vector(a.type, n)
        if not a.text.startswith("%"):
            return V(t, f"splat ({a.type} {a.text})")
        one = self.emit(t, f"insertelement {t} poison, {a.type} {a.text}, i64 0")
        return self.emit(t, f"shufflevector {t} {one.text}, {t} poison, <{n} x i32> zeroinitializer")

    def iota(self, element: str, n: int) -> V:
        """Returns 0, 1, ... n-1; the literal 0 for n = 1."""
        return const(element, 0) if n == 1 else vector_literal(element, range(n))

    def extract(self, a: V, lane: Index) -> V:
        if lanes(a.type) == 1 and a.type[0] != "<":
            return a
        lane = self._coerce(lane)
        return self.emit(scalar(a.type), f"extractelement {a.type} {a.text}, i64 {lane.text}")

    def insert(self, a: V, x: V, lane: Index) -> V:
        lane = self._coerce(lane)
        return self.emit(a.type, f"insertelement {a.type} {a.text}, {x.type} {x.text}, i64 {lane.text}")

    def shuffle(self, a: V, c: V | None, mask: Sequence[int]) -> V:
        """Returns the lanes of a (0..n-1) and c (n..2n-1) that `mask` selects."""
        t = vector(a.type, len(mask)) if len(mask) > 1 else f"<1 x {scalar(a.type)}>"
        other = c.text if c is not None else "poison"
        picks = ", ".join(f"i32 {m}" for m in mask)
        return self.emit(t, f"shufflevector {a.type} {a.text}, {a.type} {other}, <{len(mask)} x i32> <{picks}>")

    def reverse(self, a: V) -> V:
        n = lanes(a.type)
        return a if n == 1 else self.shuffle(a, None, list(range(n - 1, -1, -1)))

    def intrinsic(self, name: str, type: str, args: Sequence[V]) -> V:
        """Calls `llvm.<name>.<type>`, whose operands and result share one type."""
        return self.call(type, f"llvm.{name}.{mangle(type)}", args)

    def intrinsic_with_flag(self, name: str, a: V, flag: bool) -> V:
        """Calls `llvm.<name>` with a trailing i1, such as ctlz (zero is poison) and abs (minimum is poison)."""
        return self.call(a.type, f"llvm.{name}.{mangle(a.type)}", [a, V("i1", "true" if flag else "false")])

    def reduce(self, op: str, a: V, start: V | None = None) -> V:
        """Calls `llvm.vector.reduce.<op>`; with `start` for fadd and fmul (in order of the lanes)."""
        if lanes(a.type) == 1:
            assert start is None
            return a
        args = [start, a] if start is not None else [a]
        return self.call(scalar(a.type), f"llvm.vector.reduce.{op}.{mangle(a.type)}", args)

    # ------------------------------------------------------------------ memory
    def offset(self, pointer: V, nbytes: Index) -> V:
        """Returns the pointer moved by a number of bytes."""
        n = self._coerce(nbytes)
        if n.literal == 0:
            return pointer
        return self.emit("ptr", f"getelementptr inbounds i8, ptr {pointer.text}, i64 {n.text}")

    def element(self, pointer: V, type: str, index: Index) -> V:
        """Returns the address of element `index` of an array of the scalar type."""
        n = self._coerce(index)
        if n.literal == 0:
            return pointer
        return self.emit("ptr", f"getelementptr inbounds {scalar(type)}, ptr {pointer.text}, i64 {n.text}")

    def load(self, type: str, pointer: V, align: int | None = None, extra: str = "") -> V:
        """Loads a value; `align` in bytes defaults to the element's size. `extra`: metadata such as
        `, !nontemporal !0`."""
        align = align or max(1, bits(type) // 8)
        return self.emit(type, f"load {type}, ptr {pointer.text}, align {align}{extra}")

    def store(self, value: V, pointer: V, align: int | None = None, extra: str = "") -> None:
        align = align or max(1, bits(value.type) // 8)
        self.line(f"store {value.type} {value.text}, ptr {pointer.text}, align {align}{extra}")

    def masked_load(self, type: str, pointer: V, mask: V, other: V | None = None, align: int = 0) -> V:
        """Loads the lanes of the mask. The others are `other` (zero by default) and touch no memory. `align` in bytes
        defaults to a lane's."""
        if "bfloat" in type:
            # Loads the bits: if the machine has masks but no bf16, LLVM 22 converts them by a library function.
            words = type.replace("bfloat", "i16")
            return self.bitcast(self.masked_load(words, pointer, mask, other and self.bitcast(other, words)), type)
        align = align or max(1, bits(type) // 8)
        other = other or const(type, 0)
        name = f"llvm.masked.load.{mangle(type)}.p0"
        return self.call(type, name, [V(f"ptr align {align}", pointer.text), mask, other])

    def masked_store(self, value: V, pointer: V, mask: V) -> None:
        """Stores the lanes of the mask; touches no other memory."""
        align = max(1, bits(value.type) // 8)
        if self._may_narrow(value.type):
            mask = self.and_(mask, self._all_lanes(lanes(value.type)))
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        self.call("void", name, [value, V(f"ptr align {align}", pointer.text), mask])

    def _may_narrow(self, type: str) -> bool:
        """Whether LLVM may merge a conversion to this type and its masked store into one instruction."""
        target = self.module.target
        return (target is None or target.has_mask_registers) and scalar(type) not in ("float", "double")

    def _all_lanes(self, n: int) -> V:
        """Returns a mask of n lanes that are all true, without LLVM knowing that.

        LLVM 22 (and some before) merges a truncation with the masked store after it. If the mask is a constant with one
        lane, it then makes a scalar store of the value before the truncation: too many bytes are written. So it must
        not see a constant there. `tests/kernels/test_masked_stores.py` shows the bug.
        """
        if n not in self._masks:
            whole, one, mask = self._name("true"), self._name("true"), self._name("true")
            t = vector("i1", n)
            self._entry.append(f'  {whole} = {hidden(const("i32", -1), "r")}')
            self._entry.append(f"  {one} = trunc i32 {whole} to i1")
            if n > 1:
                first = f"%{self._names.claim(one[1:] + 'v')}"
                self._entry.append(f"  {first} = insertelement {t} poison, i1 {one}, i64 0")
                self._entry.append(f"  {mask} = shufflevector {t} {first}, {t} poison, <{n} x i32> zeroinitializer")
            self._masks[n] = V(t, mask if n > 1 else one)
        return self._masks[n]

    def gather(self, type: str, pointers: V, mask: V, other: V | None = None) -> V:
        """Loads from a vector of pointers, in the lanes of the mask."""
        align = max(1, bits(type) // 8)
        other = other or const(type, 0)
        name = f"llvm.masked.gather.{mangle(type)}.v{lanes(type)}p0"
        return self.call(type, name, [V(f"{pointers.type} align {align}", pointers.text), mask, other])

    def scatter(self, value: V, pointers: V, mask: V) -> None:
        align = max(1, bits(value.type) // 8)
        name = f"llvm.masked.scatter.{mangle(value.type)}.v{lanes(value.type)}p0"
        self.call("void", name, [value, V(f"{pointers.type} align {align}", pointers.text), mask])

    def pointers(self, base: V, type: str, indices: V) -> V:
        """Returns a vector of addresses: elements `indices` (a vector of i64) of an array of the scalar type."""
        t = vector("ptr", lanes(indices.type))
        text = f"getelementptr inbounds {scalar(type)}, ptr {base.text}, {indices.type} {indices.text}"
        return self.emit(t, text)

    def alloca(self, type: str, count: int = 1, align: int = 64) -> V:
        """Allocates stack space, once, at the entry of the function."""
        name = self._name("stack")
        self._entry.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return V("ptr", name)

    def variable(self, value: V) -> V:
        """Allocates stack space that holds a constant from the entry of the function on."""
        place = self.alloca(value.type, align=8)
        self._entry.append(f"  store {value.type} {value.text}, ptr {place.text}, align 8")
        return place

    def memcpy(self, to: V, source: V, nbytes: Index) -> None:
        n = self._coerce(nbytes)
        self.call("void", "llvm.memcpy.p0.p0.i64", [to, source, n, V("i1", "false")])

    def memset(self, to: V, byte: int, nbytes: Index) -> None:
        n = self._coerce(nbytes)
        self.call("void", "llvm.memset.p0.i64", [to, const("i8", byte), n, V("i1", "false")])

    def prefetch(self, pointer: V, write: bool = False, locality: int = 3) -> None:
        """Fetches a line, with a `locality` of 3 into the first-level cache, of 2 into the second. Lines of several
        rows belong into the second: rows that are a power of two apart share a set of the first, which keeps few of
        them."""
        self.call("void", "llvm.prefetch.p0", [pointer, i32(int(write)), i32(locality), i32(1)])
