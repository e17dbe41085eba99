"""Functions of the host that a library calls: custom calls and LAPACK. The library keeps their addresses in a table.

The linker fills the table. In a shared library it may leave entries empty, and the host fills those with
NAME_set_symbol.

    int32_t my_op(void **operands, void **results);        a custom call: 0, or the program stops
    void spotrf_(...);                                     LAPACK and BLAS, as Fortran passes arguments
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from shlo_jit.aot.c_names import c_function, unique
from shlo_jit.aot.image import RESERVED, Image
from shlo_jit.aot.tables import Tables
from shlo_jit.aot.writing import is_null, leave_if
from shlo_jit.codegen.library_format import LibraryStatus
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.externals import LAPACK_PREFIX
from shlo_jit.kernels.llvm_values import V, i32


def custom_call_symbols(image: Image) -> dict[str, str]:
    """Maps the target of a custom call to the C function that implements it.

    Characters that C does not allow become underscores, and an underscore is appended if C or the library uses the
    name.
    """
    own = (*RESERVED, *image.c_names)
    taken = {f"{image.name}_{word}" for word in own} | {_fortran(name) for name in image.lapack}
    return {target: unique(c_function(target), taken) for target in image.custom_calls}


def _fortran(name: str) -> str:
    """Symbol of a function of LAPACK or BLAS."""
    return f"{name}_"


def import_symbols(image: Image) -> dict[str, str]:
    """Maps the targets of custom calls and the names of LAPACK functions to symbols."""
    return custom_call_symbols(image) | {LAPACK_PREFIX + name: _fortran(name) for name in image.lapack}


class Imports:
    """Writes the table of addresses and the code that reads it."""

    def __init__(self, module: ModuleText, image: Image, tables: Tables, *, may_be_missing: bool) -> None:
        """`may_be_missing`: whether the library may be linked without the symbols."""
        self.module = module
        self.image = image
        self.tables = tables
        self.symbols = import_symbols(image)
        self.names = list(self.symbols)
        # WebAssembly's linker makes imports of missing strong symbols, but not of weak ones.
        self._linkage = "extern_weak " if may_be_missing and image.variants[0].target.arch != "wasm32" else ""
        self._table = f"{image.name}.imports"

    def __bool__(self) -> bool:
        return bool(self.symbols)

    def address(self, b: Builder, name: str) -> V:
        """Loads the address of the function of a custom call or of LAPACK."""
        return b.load("ptr", b.element(V("ptr", f"@{self._table}"), "ptr", self.names.index(name)))

    def write(self, signatures: Mapping[str, str]) -> None:
        """Writes the table, and LAPACK's functions under the names that programs call them by.

        `signatures`: declarations of these functions, such as `void (ptr, ptr)`.
        """
        for name, symbol in self.symbols.items():
            ret, types = _parts(signatures[name]) if name.startswith(LAPACK_PREFIX) else ("i32", "ptr, ptr")
            self.module.declarations[symbol] = f"declare {self._linkage}{ret} @{symbol}({types})"
        table = ", ".join(f"ptr @{symbol}" for symbol in self.symbols.values())
        self.module.define_global(self._table, f"internal global [{len(self.names)} x ptr] [{table}], align 8")
        for name in self.names:
            if name.startswith(LAPACK_PREFIX):
                self._write_thunk(name, signatures[name])

    def _write_thunk(self, name: str, signature: str) -> None:
        ret, types = _parts(signature)
        params = [(t, f"a{n}") for n, t in enumerate(types.split(", "))]
        b = self.module.function(name, params, ret, linkage="hidden", attributes="nounwind")
        found = b.call_pointer(ret, self.address(b, name), b.params)
        b.ret(found if ret != "void" else None)

    def leave_unless_complete(self, b: Builder) -> None:
        """Returns MISSING_SYMBOL if LAPACK functions are missing, because calls of them cannot report a failure."""
        for name in self.names:
            if name.startswith(LAPACK_PREFIX):
                leave_if(b, is_null(b, self.address(b, name)), LibraryStatus.MISSING_SYMBOL)

    def write_set_symbol(self, b: Builder) -> None:
        """Writes the body of i32 @NAME_set_symbol(ptr symbol, ptr function)."""
        symbol, function = b.params
        leave_if(b, is_null(b, symbol), LibraryStatus.BAD_POINTER)
        _, names = self.tables.array("ptr", [self.tables.string(s)[1] for s in self.symbols.values()])
        with b.loop(0, len(self.names)) as i:
            known = b.load("ptr", b.element(V("ptr", names), "ptr", i))
            with b.if_(self._same(b, symbol, known)):
                b.store(function, b.element(V("ptr", f"@{self._table}"), "ptr", i))
                b.ret_early(i32(LibraryStatus.OK))
        b.ret(i32(LibraryStatus.MISSING_SYMBOL))

    def _same(self, b: Builder, x: V, y: V) -> V:
        """Emits a comparison of two strings; i1."""
        with b.repeat([V("i64", "0")]) as loop:
            (at,) = loop.values
            a, c = (b.load("i8", b.offset(p, at)) for p in (x, y))
            same = b.icmp("eq", a, c)
            loop.next(b.add(at, 1))
            loop.again = b.and_(same, b.icmp("ne", a, V("i8", "0")))
        return same


def _parts(signature: str) -> tuple[str, str]:
    """Return type of a function, and the types of its parameters."""
    match = re.fullmatch(r"(\S+) \((.*)\)", signature)
    assert match is not None, signature
    return match[1], match[2]


def signatures(texts: Iterable[str]) -> dict[str, str]:
    """Signatures of the LAPACK functions that LLVM texts declare."""
    pattern = rf"^declare (\S+) @({LAPACK_PREFIX}\w+)\(([^)]*)\)"
    found = (m.groups() for text in texts for m in re.finditer(pattern, text, re.MULTILINE))
    return {name: f"{ret} ({types})" for ret, name, types in found}
