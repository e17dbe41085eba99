"""The functions of a library that run programs, in LLVM text:

i32 @NAME.run.I(ptr args, ptr results, ptr dims, ptr arena, ptr instance)    function I, called like a program
i32 @NAME_f(ptr instance, ptr x, ..., ptr y, ...)                            the same with a parameter for each port
i32 @NAME.custom.I(ptr instance, i64 number, ptr operands, ptr results)      the custom calls of function I
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.aot import instances
from shlo_jit.aot.image import BUILT_IN, Function, Image
from shlo_jit.aot.imports import Imports
from shlo_jit.aot.services import Services
from shlo_jit.aot.sized import Sized
from shlo_jit.aot.tables import Tables
from shlo_jit.aot.writing import is_null, leave_if
from shlo_jit.codegen import abi
from shlo_jit.codegen.library_format import LibraryStatus
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64

MAY_BE_NULL = 0x80
"""Bit in a byte of a table of pointer alignments: the pointer may be null, because nothing is read or written there."""


def entry_symbol(image: Image, variant: int, function: int) -> str:
    """Symbol of a program's code in the library."""
    return f"{image.name}.entry.{variant}.{function}"


def run_symbol(image: Image, function: int) -> str:
    return f"{image.name}.run.{function}"


def custom_symbol(image: Image, function: int) -> str:
    return f"{image.name}.custom.{function}"


def alignment(port: Port, is_result: bool) -> int:
    """Required alignment of a pointer in bytes."""
    if is_result and port.nbytes >= abi.ALIGNED_RESULT_BYTES:
        return abi.ALIGNMENT
    return max(1, port.dtype.part.itemsize)


def result_alignment(image: Image, sized: Sized, output: int) -> int:
    """Required alignment of a sized function's result in bytes, over all its specializations."""
    functions = image.functions[sized.first : sized.first + len(sized.calls)]
    return max(alignment(f.outputs[output], True) for f in functions)


class Calls:
    """Writes the functions that run programs."""

    def __init__(self, module: ModuleText, image: Image, services: Services, tables: Tables, imports: Imports) -> None:
        self.module = module
        self.image = image
        self.services = services
        self.tables = tables
        self.imports = imports
        self.layout = instances.layout(image)

    def write(self) -> None:
        self._write_check()
        for i, function in enumerate(self.image.functions):
            if function.callbacks:
                self._write_custom(i, function)
            self._write_run(i, function)
            if function.c_name:
                self._write_typed(i, function)

    def _write_check(self) -> None:
        """i1 @NAME.wrong(ptr pointers, ptr alignments, i64 n): whether a pointer is null or not aligned."""
        b = self.module.function(
            f"{self.image.name}.wrong", [("ptr", "pointers"), ("ptr", "alignments"), ("i64", "n")], "i1",
            attributes="nounwind",
        )  # fmt: skip
        pointers, alignments, n = b.params
        with b.loop_carry(0, n, [V("i1", "false")]) as carry:
            address = b.cast("ptrtoint", b.load("ptr", b.element(pointers, "ptr", carry.index)), "i64")
            rule = b.cast("zext", b.load("i8", b.element(alignments, "i8", carry.index)), "i64")
            is_missing = b.and_(b.icmp("eq", address, 0), b.icmp("ult", rule, MAY_BE_NULL))
            is_misaligned = b.icmp("ne", b.and_(address, b.and_(rule, i64(MAY_BE_NULL - 1))), 0)
            carry.next(b.or_(carry.values[0], b.or_(is_missing, is_misaligned)))
        b.ret(carry.values[0])

    def _alignments(self, ports: tuple[Port, ...], results: bool, free: frozenset[int] = frozenset()) -> V:
        """Table of alignments, one byte per port. `free`: results that share an argument's memory."""
        rules = []
        for i, port in enumerate(ports):
            rule = alignment(port, results and i not in free) - 1
            rules.append(rule | (0 if port.nbytes else MAY_BE_NULL))
        type, text = self.tables.array("i8", rules)
        return V(type, text)

    def _write_run(self, i: int, function: Function) -> None:
        b = self.module.function(run_symbol(self.image, i), [*abi.PARAMETERS], "i32", attributes="nounwind noinline")
        args, results, _, _, instance = b.params
        leave_if(b, is_null(b, instance), LibraryStatus.BAD_POINTER)
        for table, ports, is_result in ((args, function.inputs, False), (results, function.outputs, True)):
            if ports:
                leave_if(b, is_null(b, table), LibraryStatus.BAD_POINTER)
                rules = self._alignments(ports, is_result, frozenset(function.aliases))
                wrong = b.call("i1", f"{self.image.name}.wrong", [table, rules, i64(len(ports))], declare=False)
                leave_if(b, wrong, LibraryStatus.BAD_POINTER)
        for result, argument in function.aliases.items():
            pair = (b.load("ptr", b.element(t, "ptr", n)) for t, n in ((args, argument), (results, result)))
            leave_if(b, b.icmp("ne", *pair), LibraryStatus.BAD_POINTER)
        leave_if(b, b.not_(self.services.take_lock(b, instance)), LibraryStatus.BUSY)
        record = b.offset(instance, self.layout.records[i])
        values = [args, results, V("ptr", "null"), instances.load(b, instance, "arena"), record]
        if len(self.image.variants) == 1:
            status = b.call("i32", entry_symbol(self.image, 0, i), values)
        else:
            entry = b.load("ptr", b.offset(instance, self.layout.entries + 8 * i))
            status = b.call_pointer("i32", entry, values)
        if function.callbacks:
            with b.if_(b.icmp("ne", status, i32(0))):
                number = b.cast("sext", b.load("i32", b.offset(record, abi.INSTANCE["error_call"].offset)), "i64")
                number = b.select(b.icmp("slt", number, 0), number, b.add(number, function.first_callback))
                instances.store(b, instance, [("failed_call", number)])
        self.services.give_lock(b, instance)
        b.ret(status)

    def _write_typed(self, i: int, function: Function) -> None:
        ports = [*function.inputs, *function.outputs]
        params = [("ptr", "instance"), *(("ptr", f"a{n}") for n in range(len(ports)))]
        b = public(self.module, f"{self.image.name}_{function.c_name}", params, self.image)
        instance, *pointers = b.params
        n = len(function.inputs)
        tables = [pack(b, "ptr", given) for given in (pointers[:n], pointers[n:])]
        null = V("ptr", "null")
        b.ret(b.call("i32", run_symbol(self.image, i), [*tables, null, null, instance], declare=False))

    def _write_custom(self, i: int, function: Function) -> None:
        params = [("ptr", "instance"), ("i64", "number"), ("ptr", "operands"), ("ptr", "results")]
        b = self.module.function(custom_symbol(self.image, i), params, "i32", attributes="nounwind")
        instance, number, operands, results = b.params
        of_host = instances.load(b, instance, "callback")
        with b.if_(b.not_(is_null(b, of_host))):
            given = [instances.load(b, instance, "context"), b.add(number, function.first_callback), operands, results]
            status = b.call_pointer("i32", of_host, given)
            b.ret_early(status)
        for n, callback in enumerate(function.callbacks):
            with b.if_(b.icmp("eq", number, n)):
                if callback.target in BUILT_IN:
                    holds = b.load("i8", b.load("ptr", operands))
                    status = b.cast("zext", b.icmp("eq", holds, V("i8", "0")), "i32")
                else:
                    named = self.imports.address(b, callback.target)
                    leave_if(b, is_null(b, named), i32(abi.Status.CALL_FAILED))
                    status = b.call_pointer("i32", named, [operands, results])
                failed = b.icmp("ne", status, i32(0))
                b.ret_early(b.select(failed, i32(abi.Status.CALL_FAILED), i32(abi.Status.OK)))
        b.ret(i32(abi.Status.CALL_FAILED))


def pack(b: Builder, type: str, values: Sequence[V]) -> V:
    """Stores values in an array on the stack and returns its address."""
    table = b.alloca(type, max(1, len(values)), align=8)
    for n, value in enumerate(values):
        b.store(value, b.element(table, type, n))
    return table


def public(module: ModuleText, name: str, params: list[tuple[str, str]], image: Image, ret: str = "i32") -> Builder:
    """Starts a function of the C interface."""
    linkage = "dllexport" if "windows" in image.variants[0].target.triple else "external"
    return module.function(name, params, ret, linkage=linkage, attributes="nounwind")
