"""Machine code of the fast call: one built-in function (METH_FASTCALL | METH_KEYWORDS) for all executables.

    PyObject *shlo_fastcall(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)

`self` is a tuple: the address of a `Record` in a bytes object, the callable of the slow path, and the objects that must
stay alive. If every argument is exactly an ndarray of the expected dtype, shape and flags, or a scalar of numpy's own
for a shape without dimensions, and the arena is free, it creates the result arrays (by numpy's own C function; large
ones by a Python callable, from the pool) and calls `shlo_main`. Donated arrays that a caller owns are returned
themselves. Otherwise it calls the slow path with the same arguments. Keywords take the slow path too.

The GIL is released during the program's run, unless the program is known to take microseconds (`Program.is_short`):
getting the GIL back from a busy thread may take milliseconds.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial

from shlo_jit.codegen.abi import AT_CALL, Status
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.runtime import layout, pool, signals

_FIELDS = (
    *("main", "instance", "inputs", "outputs", "arena", "needs_arena"),
    *("array_type", "new_array", "input_ports", "output_ports", "is_short", "fail", "donates", "lease"),
    *("sizes", "threads", "low", "high", "numbers", "arena_bytes"),
)
_NUMBERS = ("inputs", "outputs", "threads", "low", "high", "numbers", "arena_bytes")
_PORT_FIELDS = ("dtype", "kind", "rank", "dimensions", "allocate", "nbytes", "donated", "scalar")
_PORT_NUMBERS = ("kind", "rank", "nbytes", "donated")
NULL = V("ptr", "null")
SIZED = "shlo_fastcall_sized"


class Record(ctypes.Structure):
    """Facts about an executable for the machine code; all fields have 64 bits. `fail` is a callable that raises the
    error of a status, for programs that must not be called again; else 0. `donates`: whether the program writes to
    memory of arguments; `lease`: the type of the pool's leases. The last line of fields is for programs
    with a size that is known only at the call: the function `abi.SIZES`, its number of threads, the minimum and
    maximum size, the count of numbers that the function writes, and the size of the arena in bytes."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


class PortRecord(ctypes.Structure):
    """An argument or result: address of its dtype object, the value that all dtype objects of the type share
    (`layout.kind_of`), rank, address of the extents, and of the callable that creates it (results from the pool; else
    0). The size in bytes, of programs with fixed sizes. `donated`: of an argument, 1 if the program writes
    to its memory; of a result, 1 + the index of the argument that is returned as this result; else 0. `scalar` is the
    type of numpy's scalars that an argument of rank 0 may be; else 0."""

    _fields_ = [(name, ctypes.c_uint64) for name in _PORT_FIELDS]


class _Writer:
    """Writes shlo_fastcall, or its variant for programs with a size that is known only at the call."""

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
            "i64" if name in _PORT_NUMBERS else "ptr", self.b.offset(at, 8 * _PORT_FIELDS.index(name))
        )

    def need(self, condition: V, otherwise: str) -> None:
        """Continues if the condition holds, else branches to `otherwise`."""
        ok = self.b.label("ok")
        self.b.branch_if(condition, ok, otherwise)
        self.b.start(ok)

    def need_dtype(self, dtype: V, ports: V, index: V) -> None:
        """Checks for the port's dtype object, or another one of the same type, as pickled arrays have."""
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
        else:
            self.write_donations()
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
        interrupted, failed = (
            b.label("interrupted"),
            b.label("failed"),
        )  # the exception is set, or not yet
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
        """Allocates stack space for `count` pointers."""
        return self.b.emit("ptr", f"alloca ptr, i64 {count.text}, align 16")

    def write_checks(self) -> None:
        """Checks that every argument fits its port. Its data pointer goes into `inputs`."""
        b, ports = self.b, self.field("input_ports")
        with b.loop(0, self.count) as i:
            value = b.load("ptr", b.element(self.args, "ptr", i))
            kind = b.load("ptr", b.offset(value, layout.TYPE))
            is_scalar = b.icmp("eq", kind, self.port_field(ports, i, "scalar"))
            of_array = partial(self.data_of_array, value, kind, ports, i)
            (data,) = b.if_else(is_scalar, partial(self.data_of_scalar, value), of_array)
            b.store(data, b.element(self.inputs, "ptr", i))

    def data_of_scalar(self, value: V) -> list[V]:
        return [self.b.offset(value, layout.SCALAR)]

    def data_of_array(self, value: V, kind: V, ports: V, i: V) -> list[V]:
        """Checks that an argument is an array that fits its port. Returns its data pointer."""
        b = self.b
        self.need(b.icmp("eq", kind, self.field("array_type")), self.slow)
        dtype = b.load("ptr", b.offset(value, layout.DTYPE))
        self.need_dtype(dtype, ports, i)
        rank = b.cast("sext", b.load("i32", b.offset(value, layout.RANK)), "i64")
        self.need(b.icmp("eq", rank, self.port_field(ports, i, "rank")), self.slow)
        flags = b.and_(b.load("i32", b.offset(value, layout.FLAGS)), i32(layout.READY))
        self.need(b.icmp("eq", flags, i32(layout.READY)), self.slow)
        extents, expected = b.load("ptr", b.offset(value, layout.DIMENSIONS)), self.port_field(ports, i, "dimensions")
        with b.loop(0, rank) as d:
            extent, wanted = (b.load("i64", b.element(table, "i64", d)) for table in (extents, expected))
            if self.has_sizes:
                self.need_size(extent, wanted)
            else:
                self.need(b.icmp("eq", extent, wanted), self.slow)
        return [b.load("ptr", b.offset(value, layout.DATA))]

    def write_donations(self) -> None:
        """Checks that memory that is written to is a caller's own, and that no other argument overlaps it, as
        `front.py` does."""
        b, ports = self.b, self.field("input_ports")
        is_any = b.icmp("ne", self.field("donates"), NULL)
        with b.if_(is_any), b.loop(0, self.count) as i, b.if_(b.icmp("ne", self.port_field(ports, i, "donated"), 0)):
            self.need_own(b.load("ptr", b.element(self.args, "ptr", i)))
            first = b.load("i64", b.element(self.inputs, "ptr", i))
            end = b.add(first, self.port_field(ports, i, "nbytes"))
            with b.loop(0, self.count) as j:
                other = b.load("i64", b.element(self.inputs, "ptr", j))
                other_end = b.add(other, self.port_field(ports, j, "nbytes"))
                is_before = b.or_(b.icmp("ule", end, other), b.icmp("ule", other_end, first))
                self.need(b.or_(b.icmp("eq", i, j), is_before), self.slow)

    def need_own(self, array: V) -> None:
        """Checks that an array is writeable, and owns its memory or has it from the pool."""
        b = self.b
        flags = b.load("i32", b.offset(array, layout.FLAGS))
        self.need(b.icmp("ne", b.and_(flags, i32(layout.WRITEABLE)), i32(0)), self.slow)
        with b.if_(b.icmp("eq", b.and_(flags, i32(layout.OWN)), i32(0))):
            base = b.load("ptr", b.offset(array, layout.BASE))
            self.need(b.icmp("ne", base, NULL), self.slow)
            kind = b.load("ptr", b.offset(base, layout.TYPE))
            is_lease = b.call("i32", "PyType_IsSubtype", [kind, self.field("lease")])
            self.need(b.icmp("ne", is_lease, i32(0)), self.slow)

    def need_size(self, extent: V, wanted: V) -> None:
        """Checks for the expected extent, or the size of this call, which the first such extent determines."""
        b = self.b
        known = b.load("i64", self.dims)
        size = b.select(b.icmp("eq", known, AT_CALL), extent, known)
        at_call = b.icmp("eq", wanted, AT_CALL)
        b.store(b.select(at_call, size, known), self.dims)
        self.need(b.icmp("eq", extent, b.select(at_call, size, wanted)), self.slow)

    def write_sizes(self) -> None:
        """Computes the numbers that depend on the size of this call. A size that is out of range, or an arena that is
        too small, takes the slow path."""
        b = self.b
        size = b.load("i64", self.dims)
        self.need(b.icmp("sge", size, self.field("low")), self.slow)
        self.need(b.icmp("sle", size, self.field("high")), self.slow)
        self.numbers = b.emit("ptr", f"alloca i64, i64 {self.field('numbers').text}, align 16")
        b.call_pointer("void", self.field("sizes"), [self.dims, self.field("threads"), self.numbers])
        self.need(b.icmp("ule", b.load("i64", self.numbers), self.field("arena_bytes")), self.slow)

    def take_arena(self) -> V:
        """Takes the arena out of the record, so that another thread's call takes the slow path. The GIL orders these
        accesses."""
        b = self.b
        arena, needed = self.field("arena"), self.field("needs_arena")
        free = b.or_(b.icmp("ne", arena, NULL), b.icmp("eq", needed, NULL))
        self.need(free, self.slow)
        b.store(NULL, self.place("arena"))
        return arena

    def give_arena(self, arena: V) -> None:
        self.b.store(arena, self.place("arena"))

    def write_allocation(self, outputs: V) -> None:
        """Creates the result arrays."""
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

            donated = self.port_field(ports, i, "donated")

            def taken(donated: V = donated) -> list[V]:
                array = b.load("ptr", b.element(self.args, "ptr", b.sub(donated, 1)))
                b.call("void", "Py_IncRef", [array])
                return [array]

            (made,) = b.if_else(b.icmp("ne", donated, 0), taken, partial(b.if_else, is_large, pooled, plain))
            self.need(b.icmp("ne", made, NULL), self.fail)
            b.store(made, b.element(self.objects, "ptr", i))
            b.store(b.load("ptr", b.offset(made, layout.DATA)), b.element(self.results, "ptr", i))

    def write_run(self, arena: V) -> V:
        """Calls shlo_main, with or without the GIL. Returns its status."""
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
        """Lets `fail` raise the error of the status; `leave` is the label that only returns."""
        b = self.b
        argument = b.alloca("ptr", align=8)
        number = b.call("ptr", "PyLong_FromLong", [b.cast("sext", status, "i64")])
        self.need(b.icmp("ne", number, NULL), leave)
        b.store(number, argument)
        result = b.call("ptr", "PyObject_Vectorcall", [fail, argument, i64(1), NULL])
        b.call("void", "Py_DecRef", [number])
        b.line(f"ret ptr {result.text}")

    def write_return(self, outputs: V) -> None:
        """Returns a single result as it is, several as a tuple."""
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
    """Writes `shlo_fastcall` and the functions of `runtime/signals.py` into `module`."""
    _Writer(module, has_sizes=False).write()
    signals.build(module, target)


def build_sized(module: ModuleText, target: Target) -> None:
    """Writes the variant for programs with a size that is known only at the call into `module`."""
    _Writer(module, has_sizes=True).write()


FASTCALL = Routine(f"fastcall_{sys.implementation.cache_tag}", ("shlo_fastcall", *signals.SYMBOLS), build)
FASTCALL_SIZED = Routine(f"fastcall_sized_{sys.implementation.cache_tag}", (SIZED,), build_sized, (FASTCALL,))
