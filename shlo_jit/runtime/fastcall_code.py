"""The machine code of the fast call: one built-in function (METH_FASTCALL | METH_KEYWORDS) for all executables.

    PyObject *shlo_fastcall(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)

`self` is a tuple: the address of a `Record` in a bytes object, the callable for the slow way, and whatever must stay
alive. Where every argument is exactly an ndarray of the expected dtype, shape and flags and the arena is free, it makes
the result arrays (numpy's own C function; large ones by a Python callable, from the pool) and calls `shlo_main`;
otherwise it calls the slow way with the same arguments, and keywords, which that refuses.

The GIL is released for the program's run, except where the program is known to take microseconds (`Program.is_short`):
getting the GIL back from a busy thread may take milliseconds.
"""

from __future__ import annotations

import ctypes
import sys

from shlo_jit.codegen.abi import AT_CALL, Status
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.runtime import layout, pool, signals

_FIELDS = (
    *("main", "instance", "inputs", "outputs", "arena", "needs_arena"),
    *("array_type", "new_array", "input_ports", "output_ports", "is_short", "fail"),
    *("sizes", "threads", "low", "high", "numbers", "arena_bytes"),
)
_NUMBERS = ("inputs", "outputs", "threads", "low", "high", "numbers", "arena_bytes")
_PORT_FIELDS = ("dtype", "kind", "rank", "dimensions", "allocate")
NULL = V("ptr", "null")
SIZED = "shlo_fastcall_sized"


class Record(ctypes.Structure):
    """What the machine code knows of an executable; all fields are 64 bits. `fail` is a callable that raises what the
    status says, of programs that must not be called again for it; else 0. The last line of fields is for programs
    with a size that is known at the call only: the function `abi.SIZES`, the threads it is asked for, the least and the
    greatest size, how many numbers it writes, and the bytes that the arena has."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


class PortRecord(ctypes.Structure):
    """An argument or result: address of its dtype object, what other dtype objects of the type have (`layout.kind_of`),
    rank, address of the extents, and of the callable that makes it (results from the pool; else 0)."""

    _fields_ = [(name, ctypes.c_uint64) for name in _PORT_FIELDS]


class _Writer:
    """Writes shlo_fastcall, or its variant for programs with a size that is known at the call only."""

    def __init__(self, module: ModuleText, has_sizes: bool) -> None:
        params = [("ptr", "self"), ("ptr", "args"), ("i64", "count"), ("ptr", "keywords")]
        name = SIZED if has_sizes else "shlo_fastcall"
        self.b = b = module.function(name, params, "ptr", linkage="external", attributes="nounwind")
        self.has_sizes = has_sizes
        self.self, self.args, self.count, self.keywords = b.params
        self.slow, self.undo = b.label("slow"), b.label("undo")
        self.fail, self.failed = b.label("fail"), b.label("failed")

    def field(self, name: str) -> V:
        return self.b.load("i64" if name in _NUMBERS else "ptr", self.place(name))

    def place(self, name: str) -> V:
        return self.b.offset(self.record, 8 * _FIELDS.index(name))

    def port_field(self, ports: V, index: V, name: str) -> V:
        at = self.b.offset(ports, self.b.mul(index, 8 * len(_PORT_FIELDS)))
        return self.b.load(
            "i64" if name in ("kind", "rank") else "ptr", self.b.offset(at, 8 * _PORT_FIELDS.index(name))
        )

    def need(self, condition: V, otherwise: str) -> None:
        """Go on where the condition holds."""
        ok = self.b.label("ok")
        self.b.branch_if(condition, ok, otherwise)
        self.b.start(ok)

    def need_dtype(self, dtype: V, ports: V, index: V) -> None:
        """The port's dtype object, or, as of arrays that were pickled, another one of the type."""
        b = self.b
        other, ok = b.label("other"), b.label("ok")
        b.branch_if(b.icmp("eq", dtype, self.port_field(ports, index, "dtype")), ok, other)
        b.start(other)
        kind = b.load("i64", b.offset(dtype, layout.KIND))
        b.branch_if(b.icmp("eq", kind, self.port_field(ports, index, "kind")), ok, self.slow)
        b.start(ok)

    def write(self) -> None:
        b = self.b
        self.record = b.load("ptr", b.offset(b.load("ptr", b.offset(self.self, layout.ITEMS)), layout.PAYLOAD))
        self.need(b.icmp("eq", self.keywords, NULL), self.slow)
        self.need(b.icmp("eq", self.count, self.field("inputs")), self.slow)
        outputs = self.field("outputs")
        self.inputs = self.array(self.count)
        self.objects, self.results = self.array(outputs), self.array(outputs)
        self.dims = b.alloca("i64", 1) if self.has_sizes else NULL
        if self.has_sizes:
            b.store(i64(AT_CALL), self.dims)
        self.write_checks()
        if self.has_sizes:
            self.write_sizes()
        arena = self.take_arena()
        with b.loop(0, outputs) as i:
            b.store(NULL, b.element(self.objects, "ptr", i))
        self.write_allocation(outputs)
        status = self.write_run(arena)
        self.give_arena(arena)
        self.need(b.icmp("eq", status, i32(Status.OK)), self.undo)
        self.write_return(outputs)

        b.start(self.fail)  # no memory for a result
        self.give_arena(arena)
        b.branch(self.failed)
        b.start(self.failed)
        self.drop_results(outputs)
        b.line("ret ptr null")

        b.start(self.undo)
        self.drop_results(outputs)
        interrupted, failed = b.label("interrupted"), b.label("failed")  # the exception is set; or is to be found out
        b.branch_if(b.icmp("eq", status, i32(Status.INTERRUPTED)), interrupted, failed)
        b.start(interrupted)
        b.line("ret ptr null")

        b.start(failed)
        fail = self.field("fail")
        raises = b.label("raises")
        b.branch_if(b.icmp("ne", fail, NULL), raises, self.slow)
        b.start(raises)
        self.write_raise(fail, status, interrupted)

        b.start(self.slow)
        slow = b.load("ptr", b.offset(self.self, layout.ITEMS + 8))
        b.ret(b.call("ptr", "PyObject_Vectorcall", [slow, self.args, self.count, self.keywords]))

    def array(self, count: V) -> V:
        """Stack space for that many pointers."""
        return self.b.emit("ptr", f"alloca ptr, i64 {count.text}, align 16")

    def write_checks(self) -> None:
        """Every argument must be as its port says; its data pointer goes into `inputs`."""
        b = self.b
        array_type, ports = self.field("array_type"), self.field("input_ports")
        with b.loop(0, self.count) as i:
            value = b.load("ptr", b.element(self.args, "ptr", i))
            kind = b.load("ptr", b.offset(value, layout.TYPE))
            self.need(b.icmp("eq", kind, array_type), self.slow)
            dtype = b.load("ptr", b.offset(value, layout.DTYPE))
            self.need_dtype(dtype, ports, i)
            rank = b.cast("sext", b.load("i32", b.offset(value, layout.RANK)), "i64")
            self.need(b.icmp("eq", rank, self.port_field(ports, i, "rank")), self.slow)
            flags = b.and_(b.load("i32", b.offset(value, layout.FLAGS)), i32(layout.READY))
            self.need(b.icmp("eq", flags, i32(layout.READY)), self.slow)
            extents, expected = (
                b.load("ptr", b.offset(value, layout.DIMENSIONS)),
                self.port_field(ports, i, "dimensions"),
            )
            with b.loop(0, rank) as d:
                extent, wanted = (b.load("i64", b.element(table, "i64", d)) for table in (extents, expected))
                if self.has_sizes:
                    self.need_size(extent, wanted)
                else:
                    self.need(b.icmp("eq", extent, wanted), self.slow)
            b.store(b.load("ptr", b.offset(value, layout.DATA)), b.element(self.inputs, "ptr", i))

    def need_size(self, extent: V, wanted: V) -> None:
        """The extent that is wanted, or the size of this call, which the first such extent says."""
        b = self.b
        known = b.load("i64", self.dims)
        size = b.select(b.icmp("eq", known, AT_CALL), extent, known)
        at_call = b.icmp("eq", wanted, AT_CALL)
        b.store(b.select(at_call, size, known), self.dims)
        self.need(b.icmp("eq", extent, b.select(at_call, size, wanted)), self.slow)

    def write_sizes(self) -> None:
        """Ask what follows from the size of this call. One that is out of range, and an arena that is too small, go the
        slow way."""
        b = self.b
        size = b.load("i64", self.dims)
        self.need(b.icmp("sge", size, self.field("low")), self.slow)
        self.need(b.icmp("sle", size, self.field("high")), self.slow)
        self.numbers = b.emit("ptr", f"alloca i64, i64 {self.field('numbers').text}, align 16")
        b.call_pointer("void", self.field("sizes"), [self.dims, self.field("threads"), self.numbers])
        self.need(b.icmp("ule", b.load("i64", self.numbers), self.field("arena_bytes")), self.slow)

    def take_arena(self) -> V:
        """The arena, which is then not in its place: another thread's call goes the slow way. The GIL orders these."""
        b = self.b
        arena, needed = self.field("arena"), self.field("needs_arena")
        free = b.or_(b.icmp("ne", arena, NULL), b.icmp("eq", needed, NULL))
        self.need(free, self.slow)
        b.store(NULL, self.place("arena"))
        return arena

    def give_arena(self, arena: V) -> None:
        self.b.store(arena, self.place("arena"))

    def write_allocation(self, outputs: V) -> None:
        """Make the result arrays."""
        b = self.b
        array_type, new_array, ports = self.field("array_type"), self.field("new_array"), self.field("output_ports")
        place, argument = b.alloca("ptr", 1), b.alloca("ptr", 1)
        if self.has_sizes:
            b.store(b.element(self.numbers, "i64", 1), place)
        with b.loop(0, outputs) as i:
            make, rank = self.port_field(ports, i, "allocate"), self.port_field(ports, i, "rank")
            dimensions, is_large = self.port_field(ports, i, "dimensions"), b.icmp("ne", make, NULL)
            if self.has_sizes:
                numbers = b.load("ptr", place)
                dimensions = b.element(numbers, "i64", 1)
                is_large = b.icmp("uge", b.load("i64", numbers), pool.POOLED_BYTES)
                b.store(b.element(dimensions, "i64", rank), place)

            def pooled(make: V = make, dimensions: V = dimensions) -> list[V]:
                if not self.has_sizes:
                    return [b.call("ptr", "PyObject_CallNoArgs", [make])]
                where = b.call("ptr", "PyLong_FromVoidPtr", [dimensions])
                self.need(b.icmp("ne", where, NULL), self.fail)
                b.store(where, argument)
                array = b.call("ptr", "PyObject_Vectorcall", [make, argument, i64(1), NULL])
                b.call("void", "Py_DecRef", [where])
                return [array]

            def plain(i: V = i, rank: V = rank, dimensions: V = dimensions) -> list[V]:
                dtype = self.port_field(ports, i, "dtype")
                b.call("void", "Py_IncRef", [dtype])  # the new array takes this reference
                args = [array_type, dtype, b.cast("trunc", rank, "i32"), dimensions, NULL, NULL, i32(0), NULL]
                return [b.call_pointer("ptr", new_array, args)]

            (made,) = b.if_else(is_large, pooled, plain)
            self.need(b.icmp("ne", made, NULL), self.fail)
            b.store(made, b.element(self.objects, "ptr", i))
            b.store(b.load("ptr", b.offset(made, layout.DATA)), b.element(self.results, "ptr", i))

    def write_run(self, arena: V) -> V:
        """Call shlo_main, with or without the GIL; its status."""
        b = self.b
        arguments = [self.inputs, self.results, self.dims, arena, self.field("instance")]
        main = self.field("main")

        def keep() -> list[V]:
            return [b.call_pointer("i32", main, arguments)]

        def release() -> list[V]:
            thread = b.call("ptr", "PyEval_SaveThread", [])
            status = b.call_pointer("i32", main, arguments)
            b.call("void", "PyEval_RestoreThread", [thread])
            return [status]

        (status,) = b.if_else(b.icmp("ne", self.field("is_short"), NULL), keep, release)
        return signals.settled(b, status, declare=self.has_sizes)

    def write_raise(self, fail: V, status: V, leave: str) -> None:
        """Let `fail` raise what the status says; `leave` is where nothing is left to do but to return."""
        b = self.b
        argument = b.alloca("ptr", align=8)
        number = b.call("ptr", "PyLong_FromLong", [b.cast("sext", status, "i64")])
        self.need(b.icmp("ne", number, NULL), leave)
        b.store(number, argument)
        result = b.call("ptr", "PyObject_Vectorcall", [fail, argument, i64(1), NULL])
        b.call("void", "Py_DecRef", [number])
        b.line(f"ret ptr {result.text}")

    def write_return(self, outputs: V) -> None:
        """One result by itself, else a tuple."""
        b = self.b
        with b.if_(b.icmp("eq", outputs, 1)):
            b.line(f"ret ptr {b.load('ptr', self.objects).text}")
            b.start(b.label("several"))
        result = b.call("ptr", "PyTuple_New", [outputs])
        self.need(b.icmp("ne", result, NULL), self.failed)  # another call may have the arena by now
        with b.loop(0, outputs) as i:
            b.call("i32", "PyTuple_SetItem", [result, i, b.load("ptr", b.element(self.objects, "ptr", i))])
        b.line(f"ret ptr {result.text}")

    def drop_results(self, outputs: V) -> None:
        b = self.b
        with b.loop(0, outputs) as i:
            b.call("void", "Py_DecRef", [b.load("ptr", b.element(self.objects, "ptr", i))])  # null is allowed


def build(module: ModuleText, target: Target) -> None:
    """Write `shlo_fastcall` and the functions of `runtime/signals.py` into `module`."""
    _Writer(module, has_sizes=False).write()
    signals.build(module, target)


def build_sized(module: ModuleText, target: Target) -> None:
    """Write the variant for programs with a size that is known at the call only into `module`."""
    _Writer(module, has_sizes=True).write()


FASTCALL = Routine(f"fastcall_{sys.implementation.cache_tag}", ("shlo_fastcall", *signals.SYMBOLS), build)
FASTCALL_SIZED = Routine(f"fastcall_sized_{sys.implementation.cache_tag}", (SIZED,), build_sized, (FASTCALL,))
