"""A small builder of LLVM text: a `ModuleText` holds functions, and a `Builder` writes the body of one function.

Building through `llvmlite.ir` costs 17-48 ms per 10,000 instructions and as much again to print; appending lines of
text costs 2.5 ms. Values are in `llvm_values.py`; every arithmetic method works on scalars and vectors alike.

    m = ModuleText()
    b = m.function("axpy", [("ptr", "x"), ("ptr", "y"), ("i64", "n")])
    x, y, n = b.params
    with b.loop(0, n, 1) as i:
        t = b.load("float", b.element(x, "float", i))
        b.store(b.fadd(t, t), b.element(y, "float", i))
    b.ret()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shlo_jit.kernels import size_registers
from shlo_jit.kernels.llvm_values import (
    Index,
    V,
    bits,
    const,
    i32,
    lanes,
    mangle,
    scalar,
    vector,
    vector_literal,
)
from shlo_jit.kernels.names import GlobalNames, LocalNames
from shlo_jit.kernels.target import Target
from shlo_jit.sizes import NotSymbolic


class ModuleText:
    """The text of an LLVM module: functions, declarations, globals."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.names = GlobalNames()

    def function(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        ret: str = "void",
        *,
        linkage: str = "internal",
        attributes: str = "",
        noalias: bool = False,
    ) -> Builder:
        """A Builder for a new function. `params`: (type with parameter attributes, name)."""
        return Builder(self, name, params, ret, linkage, attributes, noalias)

    def declare(self, name: str, ret: str, types: Sequence[str], attributes: str = "") -> None:
        if name not in self.declarations:
            self.names.declare(name)
            passed = ", ".join(self.passed(t, name) for t in types)
            self.declarations[name] = f"declare {self.returned(ret, name)} @{name}({passed}) {attributes}".rstrip()

    def passed(self, type: str, function: str = "") -> str:
        """Returns the type of an argument, with the attributes that the target's C functions rely on. `function`: the
        callee."""
        return f"{type} signext" if self._is_extended(type, function) else type

    def returned(self, type: str, function: str = "") -> str:
        """Returns the same for a function's result."""
        return f"signext {type}" if self._is_extended(type, function) else type

    def _is_extended(self, type: str, function: str) -> bool:
        """Whether the value's sign fills a register: RISC-V's calling convention requires that of an int."""
        if type != "i32" or self.target is None:
            return False
        return self.target.arch == "riscv64" and not function.startswith("llvm.")

    def define_global(self, name: str, text: str) -> None:
        """Defines a global such as `@name = internal constant ...`; `text` is the part after the `=`."""
        self.names.define(name)
        self._define(self.globals, name, f"@{name} = {text}")

    def define_function(self, name: str, text: str) -> None:
        """Defines a function by the text that a Builder has written."""
        self._define(self.functions, name, text)

    def _define(self, symbols: dict[str, str], name: str, text: str) -> None:
        """Defines a symbol. A second definition must have the same text. An empty text reserves the place."""
        other = self.globals if symbols is self.functions else self.functions
        same = symbols.get(name) in (None, "", text)
        assert same and name not in other, f"@{name} has two definitions"
        symbols[name] = text

    def text(self, header: str = "") -> str:
        declared = [d for n, d in self.declarations.items() if n not in self.functions]
        return "\n".join([header, *self.globals.values(), *declared, *self.functions.values(), ""])


class Builder:
    """Writes the body of one function. `done()` (or `ret`) finishes it and adds it to the module."""

    def __init__(
        self,
        module: ModuleText,
        name: str,
        params: Sequence[tuple[str, str]],
        ret: str,
        linkage: str,
        attributes: str,
        noalias: bool,
    ):
        module.names.define(name)
        self.module = module
        self.name = name
        self.return_type = ret
        self.params = [V(t.split()[0] if t[0] != "<" else t, f"%{n}") for t, n in params]
        extra = " noalias" if noalias else ""
        passed = module.passed
        ps = ", ".join(f"{passed(t)}{extra if t == 'ptr' else ''} %{n}" for t, n in params)
        self._head = f"define {linkage} {module.returned(ret)} @{name}({ps}) {attributes} {{"
        self._lines: list[str] = []
        self._fields: dict[str, tuple[V, V]] = {}
        self._wide: dict[str, V] = {}
        self._entry: list[str] = []
        """Lines at the head of the entry block, mainly allocas: inside a loop they would grow the stack."""
        self.dims = next((p for p in self.params if p.text == "%dims"), None)
        """Address of the sizes that are known only at the call; set it at the function's entry."""
        self._masks: dict[int, V] = {}
        self._hidden: dict[str, V] = {}
        """Masks that `_all_lanes` has made, by their lanes."""
        self._names = LocalNames(["entry", *(n for _, n in params)])
        self._block = "entry"
        self._finished = False
        self.flushes_bf16 = False
        """Whether bf16 numbers are rounded by an instruction that takes subnormal numbers for zero."""

    # ------------------------------------------------------------------ the text
    def _name(self, hint: str = "v") -> str:
        return f"%{self._names.new(hint)}"

    def emit(self, type: str, text: str) -> V:
        """Appends `%new = text`; the value has `type`."""
        name = self._name()
        self._lines.append(f"  {name} = {text}")
        return V(type, name)

    def line(self, text: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append("  " + text)

    def comment(self, text: str) -> None:
        self._lines.append("  ; " + text)

    def ret(self, value: V | None = None) -> None:
        """Returns and finishes the function."""
        self.line("ret void" if value is None else f"ret {value.type} {value.text}")
        self.done()

    def ret_early(self, value: V | None = None) -> None:
        """Returns from within an `if_`; the rest of the block is unreachable."""
        self.line("ret void" if value is None else f"ret {value.type} {value.text}")
        self.start(self.label("unreachable"))

    def done(self) -> None:
        """Adds the function to the module (its last block must end in a terminator)."""
        assert not self._finished
        self._finished = True
        sizes = size_registers.used([*self._entry, *self._lines])
        if sizes:
            self._define(sizes)
        text = "\n".join([self._head, "entry:", *self._entry, *self._lines, "}"])
        self.module.define_function(self.name, text)

    def _define(self, sizes: list[str]) -> None:
        """Computes sizes at the function's entry, after the definition of `dims`. Raises NotSymbolic without `dims`."""
        if self.dims is None:
            raise NotSymbolic("size-in-routine", f"{sizes[0]} in {self.name}")
        for size in sizes:
            self._names.claim(size)
        found = next((i + 1 for i, line in enumerate(self._entry) if line.startswith(f"  {self.dims.text} =")), 0)
        self._entry[found:found] = size_registers.definitions(sizes, self.dims.text)

    # ------------------------------------------------------------------ arithmetic
    def _binary(self, op: str, a: V, c: V) -> V:
        return self.emit(a.type, f"{op} {a.type} {a.text}, {c.text}")

    def _coerce(self, a: Index, like: Index = 0) -> V:
        if isinstance(a, V):
            return a
        return const(like.type if isinstance(like, V) else "i64", a)

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

    # ------------------------------------------------------------------ conversion
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
        self._wide[found.text] = x
        return found

    def wide_of(self, a: V) -> V | None:
        """The numbers whose upper halves `cut` has returned as `a`; None if it has not. LLVM does not know that their
        lower halves are zero."""
        return self._wide.get(a.text)

    def field_of(self, a: V) -> tuple[V, V] | None:
        """The integers that `a` is a field of, and the place of its first bit in them; None if it is none."""
        return self._fields.get(a.text)

    def bitcast(self, a: V, to: str) -> V:
        return self.cast("bitcast", a, to)

    # ------------------------------------------------------------------ vectors
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
            self._entry.append(f'  {whole} = {_hidden(const("i32", -1), "r")}')
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

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Moves the code written inside the `with` (no branches) to the entry of the function. Its values can be used
        anywhere in the function."""
        lines, self._lines = self._lines, self._entry
        yield
        self._lines = lines

    def hidden(self, constant: V, register: str) -> V:
        """A constant that LLVM does not know, in a register of a kind: `r` for integers, `x` for vectors on x86."""
        if constant.text not in self._hidden:
            with self.at_entry():
                self._hidden[constant.text] = self.emit(constant.type, _hidden(constant, register))
        return self._hidden[constant.text]

    def memcpy(self, to: V, source: V, nbytes: Index) -> None:
        n = self._coerce(nbytes)
        self.call("void", "llvm.memcpy.p0.p0.i64", [to, source, n, V("i1", "false")])

    def memset(self, to: V, byte: int, nbytes: Index) -> None:
        n = self._coerce(nbytes)
        self.call("void", "llvm.memset.p0.i64", [to, const("i8", byte), n, V("i1", "false")])

    def prefetch(self, pointer: V, write: bool = False, locality: int = 3) -> None:
        self.call("void", "llvm.prefetch.p0", [pointer, i32(int(write)), i32(locality), i32(1)])

    # ------------------------------------------------------------------ calls
    def call(self, ret: str, name: str, args: Sequence[V], attributes: str = "", declare: bool = True) -> V:
        """Calls a function by name; declares it in the module unless it is (or will be) defined there."""
        if declare and name not in self.module.declarations:
            types = [re.sub(r" align \d+", "", a.type) for a in args]
            self.module.declare(name, ret, types)
        text = f"call {self.module.returned(ret, name)} @{name}({self._arguments(args, name)}){attributes}"
        if ret == "void":
            self.line(text)
            return V("void", "")
        return self.emit(ret, text)

    def _arguments(self, args: Sequence[V], function: str = "") -> str:
        passed = self.module.passed
        return ", ".join(f"{passed(a.type, function)} {a.text}" for a in args)

    def call_pointer(self, ret: str, function: V, args: Sequence[V]) -> V:
        text = f"call {self.module.returned(ret)} {function.text}({self._arguments(args)})"
        if ret == "void":
            self.line(text)
            return V("void", "")
        return self.emit(ret, text)

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

    # ------------------------------------------------------------------ control flow
    def label(self, hint: str) -> str:
        return self._names.new(hint)

    def start(self, label: str) -> None:
        """Begins a basic block."""
        self._lines.append(f"{label}:")
        self._block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: V, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    @property
    def block(self) -> str:
        """Label of the block being written."""
        return self._block

    def position(self) -> int:
        """Returns the position of the next instruction, for `fill_phi`."""
        return len(self._lines)

    def reserve(self, type: str) -> V:
        """Reserves a name for a value that `fill_phi` defines later."""
        return V(type, self._name("p"))

    def fill_phi(self, position: int, value: V, incoming: Sequence[tuple[V, str]]) -> None:
        """Defines a reserved value as a phi at the start of the block that began at `position`."""
        edges = ", ".join(f"[ {v.text}, %{label} ]" for v, label in incoming)
        self._lines.insert(position, f"  {value.text} = phi {value.type} {edges}")

    def phi(self, type: str, incoming: Sequence[tuple[V, str]]) -> V:
        return self.emit(type, f"phi {type} " + ", ".join(f"[ {v.text}, %{l} ]" for v, l in incoming))

    @contextmanager
    def loop(self, start: Index, stop: Index, step: Index = 1, hint: str = "loop") -> Iterator[V]:
        """Emits for (i = start; i < stop; i += step); the body is the code written inside the `with`."""
        with self.loop_carry(start, stop, [], step, hint) as carry:
            yield carry.index

    @staticmethod
    def _trip_count(start: V, stop: V, step: V) -> int | None:
        """Returns the trip count of a loop with literal bounds, else None."""
        a, z, k = start.literal, stop.literal, step.literal
        return None if a is None or z is None or k is None else max(0, -(-(z - a) // k))

    @contextmanager
    def loop_carry(
        self, start: Index, stop: Index, initial: Sequence[V], step: Index = 1, hint: str = "loop"
    ) -> Iterator[Carry]:
        """Emits a loop that carries values. Read `carry.values` and call `carry.next(...)` once in the body; after the
        loop `carry.values` are the final values."""
        start, stop, step = self._coerce(start), self._coerce(stop), self._coerce(step)
        if self._trip_count(start, stop, step) == 1:
            carry = Carry(start, list(initial))
            yield carry
            return
        body, exit_ = self.label(hint), self.label("end")
        before = self.block
        # The loop is written rotated (test at the bottom), so no pass has to rotate it.
        first, last = start.literal, stop.literal
        if first is not None and last is not None and first < last:
            self.branch(body)
            guarded = False
        else:
            self.branch_if(self.icmp("slt", start, stop), body, exit_)
            guarded = True
        self.start(body)
        at = len(self._lines)
        index = V(start.type, self._name("i"))
        phis = [V(v.type, self._name("c")) for v in initial]
        carry = Carry(index, phis)
        yield carry
        assert len(carry.values) == len(phis)
        following = list(carry.values)
        after = self.emit(index.type, f"add nsw {index.type} {index.text}, {step.text}")
        more = self.icmp("slt", after, stop)
        latch = self.block
        self.branch_if(more, body, exit_)
        self._lines[at:at] = [
            f"  {p.text} = phi {p.type} [ {a.text}, %{before} ], [ {z.text}, %{latch} ]"
            for p, a, z in [(index, start, after), *zip(phis, initial, following, strict=True)]
        ]
        self.start(exit_)
        carry.values = following
        if guarded:
            pairs = zip(initial, following, strict=True)
            carry.values = [self.phi(a.type, [(a, before), (z, latch)]) for a, z in pairs]

    @contextmanager
    def repeat(self, initial: Sequence[V], hint: str = "repeat") -> Iterator[Repeat]:
        """Emits do ... while: in the body read `values`, call `next(...)` with as many, and set `again`, an i1. After
        the loop `values` are the arguments of the last `next`."""
        head, done, before = self.label(hint), self.label("done"), self.block
        self.branch(head)
        self.start(head)
        at = len(self._lines)
        phis = [V(v.type, self._name("c")) for v in initial]
        iteration = Repeat(phis)
        yield iteration
        assert iteration.again is not None and len(iteration.values) == len(phis)
        self._lines[at:at] = [
            f"  {p.text} = phi {p.type} [ {a.text}, %{before} ], [ {z.text}, %{self.block} ]"
            for p, a, z in zip(phis, initial, iteration.values, strict=True)
        ]
        self.branch_if(iteration.again, head, done)
        self.start(done)

    @contextmanager
    def if_(self, condition: V, hint: str = "then") -> Iterator[None]:
        then, exit_ = self.label(hint), self.label("fi")
        self.branch_if(condition, then, exit_)
        self.start(then)
        yield
        self.branch(exit_)
        self.start(exit_)

    def if_else(self, condition: V, then: Callable[[], Sequence[V]], otherwise: Callable[[], Sequence[V]]) -> list[V]:
        """Emits both branches and joins the values that they return."""
        labels = self.label("then"), self.label("else"), self.label("fi")
        self.branch_if(condition, labels[0], labels[1])
        ends: list[tuple[Sequence[V], str]] = []
        for label, write in zip(labels, (then, otherwise), strict=False):
            self.start(label)
            values = write()
            ends.append((values, self.block))
            self.branch(labels[2])
        self.start(labels[2])
        (va, la), (vb, lb) = ends
        return [self.phi(x.type, [(x, la), (y, lb)]) for x, y in zip(va, vb, strict=True)]


def _hidden(constant: V, register: str) -> str:
    """Text of an instruction whose result is a constant, which LLVM does not see."""
    return f'call {constant.type} asm "", "={register},0"({constant.type} {constant.text}) nounwind memory(none)'


class Carry:
    """The values that a `loop_carry` carries from iteration to iteration."""

    def __init__(self, index: V, values: list[V]):
        self.index = index
        self.values: list[V] = values

    def next(self, *values: V) -> None:
        """Sets the values of the next iteration."""
        self.values = list(values)


class Repeat:
    """The values that a `repeat` carries from iteration to iteration, and whether there is another one."""

    def __init__(self, values: list[V]):
        self.values: list[V] = values
        self.again: V | None = None

    def next(self, *values: V) -> None:
        """Sets the values of the next iteration."""
        self.values = list(values)
