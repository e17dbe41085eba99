"""The functions of a library that take sizes, in LLVM text:

i64 @NAME.find.S(ptr args, ptr sizes)                 the call of sized function S whose code matches; -1 for none
i32 @NAME.sized.S(ptr args, ptr results, ptr dims, ptr arena, ptr instance)      runs that code, like a program
i32 @NAME.shapes.S(ptr args, ptr sizes, ptr shapes)   writes the shapes of its results
i32 @NAME_f(ptr instance, ptr x, i64 x_dim0, ..., ptr y, ...)     @NAME.sized.S with a parameter for everything
i32 @NAME_f_shapes(ptr n, i64 x_dim0, ..., ptr y_shape, ...)      @NAME.shapes.S likewise: with pointers to arguments
                                                                  that select by value, and to the unknown shapes
"""

from __future__ import annotations

from shlo_jit.aot.description import shapes_symbol, sized_symbol
from shlo_jit.aot.entry_points import pack, public, run_symbol
from shlo_jit.aot.image import Image
from shlo_jit.aot.sized import Sized
from shlo_jit.aot.tables import Tables, text_bytes
from shlo_jit.aot.writing import NULL, is_null, leave_if
from shlo_jit.codegen import abi
from shlo_jit.codegen.library_format import LibraryStatus
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64

FIND = [("ptr", "args"), ("ptr", "sizes")]
NONE = i64(-1)


class SizedCalls:
    """Writes the functions that take sizes."""

    def __init__(self, module: ModuleText, image: Image, tables: Tables) -> None:
        self.module = module
        self.image = image
        self.tables = tables

    def write(self) -> None:
        for number, sized in enumerate(self.image.sized):
            self._write_find(number, sized)
            self._write_run(number, sized)
            self._write_shapes(number, sized)
            self._write_typed(number, sized)
            self._write_typed_shapes(number, sized)

    def _own(self, symbol: str, params: list[tuple[str, str]], ret: str) -> Builder:
        return self.module.function(symbol, params, ret, attributes="nounwind noinline")

    def _symbol(self, what: str, number: int) -> str:
        return f"{self.image.name}.{what}.{number}"

    def _find(self, b: Builder, number: int, args: V, sizes: V) -> V:
        return b.call("i64", self._symbol("find", number), [args, sizes], declare=False)

    def _write_find(self, number: int, sized: Sized) -> None:
        """Compares each call in order: its sizes, and the bytes of its values."""
        b = self._own(self._symbol("find", number), FIND, "i64")
        args, given = b.params
        sizes = [n for call in sized.calls for n in call.sizes]
        values = b"".join(data for call in sized.calls for data in call.values)
        lengths = [len(data) for data in sized.calls[0].values]
        size_table = V(*self.tables.array("i64", sizes))
        value_table = V("ptr", self._bytes(number, values))
        with b.loop_carry(0, len(sized.calls), [NONE]) as carry:
            is_same = V("i1", "true")
            if sized.unknown:
                row = b.element(size_table, "i64", b.mul(carry.index, len(sized.unknown)))
                is_same = self._same(b, "i64", row, given, len(sized.unknown))
            at = 0
            for argument, length in zip(sized.by_value, lengths, strict=True):
                if length:
                    row = b.offset(value_table, b.add(b.mul(carry.index, sum(lengths)), at))
                    value = b.load("ptr", b.element(args, "ptr", argument))
                    is_same = b.and_(is_same, self._same(b, "i8", row, value, length))
                    at += length
            carry.next(b.select(is_same, carry.index, carry.values[0]))
        b.ret(carry.values[0])

    def _bytes(self, number: int, data: bytes) -> str:
        """Address of a table of bytes."""
        if not data:
            return "null"
        name = self._symbol("values", number)
        self.module.define_global(name, f"internal constant [{len(data)} x i8] {text_bytes(data)}, align 1")
        return f"@{name}"

    def _same(self, b: Builder, element: str, x: V, y: V, n: int) -> V:
        """Whether two arrays are equal."""
        with b.loop_carry(0, n, [V("i1", "true")]) as carry:
            pair = (b.load(element, b.element(p, element, carry.index), align=1 if element == "i8" else 8)
                    for p in (x, y))  # fmt: skip
            carry.next(b.and_(carry.values[0], b.icmp("eq", *pair)))
        return carry.values[0]

    def _is_missing(self, b: Builder, sized: Sized, args: V, sizes: V) -> V:
        """Whether a pointer that `find` dereferences is null. `args` is only read if it is not null itself."""
        missing = is_null(b, sizes) if sized.unknown else V("i1", "false")
        selecting = [i for i, data in zip(sized.by_value, sized.calls[0].values, strict=True) if data]
        if not selecting:
            return missing

        def any_null() -> list[V]:
            found = missing
            for argument in selecting:
                found = b.or_(found, is_null(b, b.load("ptr", b.element(args, "ptr", argument))))
            return [found]

        return b.if_else(is_null(b, args), lambda: [V("i1", "true")], any_null)[0]

    def _write_run(self, number: int, sized: Sized) -> None:
        b = self._own(sized_symbol(self.image, number), [*abi.PARAMETERS], "i32")
        args, results, dims, _, instance = b.params
        is_wrong = b.or_(is_null(b, instance), self._is_missing(b, sized, args, dims))
        leave_if(b, is_wrong, LibraryStatus.BAD_POINTER)
        found = self._find(b, number, args, dims)
        leave_if(b, b.icmp("slt", found, 0), LibraryStatus.UNKNOWN_SHAPES)
        symbols = [f"@{run_symbol(self.image, sized.first + n)}" for n in range(len(sized.calls))]
        table = V(*self.tables.array("ptr", symbols))
        run = b.load("ptr", b.element(table, "ptr", found))
        b.ret(b.call_pointer("i32", run, [args, results, NULL, NULL, instance]))

    def _write_shapes(self, number: int, sized: Sized) -> None:
        b = self._own(shapes_symbol(self.image, number), [*FIND, ("ptr", "shapes")], "i32")
        args, sizes, shapes = b.params
        is_wrong = b.or_(is_null(b, shapes), self._is_missing(b, sized, args, sizes))
        leave_if(b, is_wrong, LibraryStatus.BAD_POINTER)
        found = self._find(b, number, args, sizes)
        leave_if(b, b.icmp("slt", found, 0), LibraryStatus.UNKNOWN_SHAPES)
        functions = self.image.functions[sized.first : sized.first + len(sized.calls)]
        for i, port in enumerate(sized.outputs):
            rank = len(port.shape)
            table = V(*self.tables.array("i64", [n for f in functions for n in f.outputs[i].shape]))
            shape = b.load("ptr", b.element(shapes, "ptr", i))
            with b.if_(b.not_(is_null(b, shape))):
                row = b.element(table, "i64", b.mul(found, rank))
                with b.loop(0, rank) as d:
                    b.store(b.load("i64", b.element(row, "i64", d)), b.element(shape, "i64", d))
        b.ret(i32(LibraryStatus.OK))

    def _write_typed(self, number: int, sized: Sized) -> None:
        pointers = [("ptr", f"a{n}") for n in range(len(sized.inputs))]
        params = [("ptr", "instance")]
        for i, pointer in enumerate(pointers):
            params += [pointer, *(("i64", f"s{i}.{d}") for argument, d in sized.unknown if argument == i)]
        params += [("ptr", f"r{n}") for n in range(len(sized.outputs))]
        b = public(self.module, f"{self.image.name}_{sized.c_name}", params, self.image)
        given = dict(zip((name for _, name in params), b.params, strict=True))
        args, sizes, results = (
            [value for name, value in given.items() if name[0] == kind and name != "instance"] for kind in "asr"
        )
        arguments = [pack(b, "ptr", args), pack(b, "ptr", results), pack(b, "i64", sizes), NULL, given["instance"]]
        b.ret(b.call("i32", sized_symbol(self.image, number), arguments, declare=False))

    def _write_typed_shapes(self, number: int, sized: Sized) -> None:
        params = []
        for i in range(len(sized.inputs)):
            params += [("ptr", f"a{i}")] if i in sized.by_value else []
            params += [("i64", f"s{i}.{d}") for argument, d in sized.unknown if argument == i]
        params += [("ptr", f"r{i}") for i, port in enumerate(sized.outputs) if not port.is_static]
        b = public(self.module, f"{self.image.name}_{sized.shapes_name}", params, self.image)
        given = dict(zip((name for _, name in params), b.params, strict=True))
        args, shapes = (
            [given.get(f"{kind}{i}", NULL) for i in range(len(ports))]
            for kind, ports in (("a", sized.inputs), ("r", sized.outputs))
        )
        sizes = [value for name, value in given.items() if name[0] == "s"]
        arguments = [pack(b, "ptr", args), pack(b, "i64", sizes), pack(b, "ptr", shapes)]
        b.ret(b.call("i32", shapes_symbol(self.image, number), arguments, declare=False))
