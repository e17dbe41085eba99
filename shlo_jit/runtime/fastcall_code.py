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

from shlo_jit.codegen.abi import Status
from shlo_jit.kernels.builder import ModuleText, V, i32
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.runtime import layout, signals

_FIELDS = (
    *("main", "instance", "inputs", "outputs", "arena", "needs_arena"),
    *("array_type", "new_array", "input_ports", "output_ports", "is_short"),
)
_PORT_FIELDS = ("dtype", "kind", "rank", "dimensions", "allocate")
NULL = V("ptr", "null")


class Record(ctypes.Structure):
    """What the machine code knows of an executable; all fields are 64 bits."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


class PortRecord(ctypes.Structure):
    """An argument or result: address of its dtype object, what other dtype objects of the type have (`layout.kind_of`),
    rank, address of the extents, and of the callable that makes it (results from the pool; else 0)."""

    _fields_ = [(name, ctypes.c_uint64) for name in _PORT_FIELDS]


class _Writer:
    """Writes shlo_fastcall."""

    def __init__(self, module: ModuleText) -> None:
        params = [("ptr", "self"), ("ptr", "args"), ("i64", "count"), ("ptr", "keywords")]
        self.b = b = module.function("shlo_fastcall", params, "ptr", linkage="external", attributes="nounwind")
        self.self, self.args, self.count, self.keywords = b.params
        self.slow, self.undo, self.fail = b.label("slow"), b.label("undo"), b.label("fail")

    def field(self, name: str) -> V:
        return self.b.load("i64" if name in ("inputs", "outputs") else "ptr", self.place(name))

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
        self.write_checks()
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
        self.drop_results(outputs)
        b.line("ret ptr null")

        b.start(self.undo)
        self.drop_results(outputs)
        interrupted = b.label("interrupted")  # the exception is set; another status the slow way finds out about
        b.branch_if(b.icmp("eq", status, i32(Status.INTERRUPTED)), interrupted, self.slow)
        b.start(interrupted)
        b.line("ret ptr null")

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
                same = b.icmp(
                    "eq", b.load("i64", b.element(extents, "i64", d)), b.load("i64", b.element(expected, "i64", d))
                )
                self.need(same, self.slow)
            b.store(b.load("ptr", b.offset(value, layout.DATA)), b.element(self.inputs, "ptr", i))

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
        with b.loop(0, outputs) as i:
            make = self.port_field(ports, i, "allocate")

            def pooled(make: V = make) -> list[V]:
                return [b.call("ptr", "PyObject_CallNoArgs", [make])]

            def plain(i: V = i) -> list[V]:
                dtype = self.port_field(ports, i, "dtype")
                b.call("void", "Py_IncRef", [dtype])  # the new array takes this reference
                rank = b.cast("trunc", self.port_field(ports, i, "rank"), "i32")
                dimensions = self.port_field(ports, i, "dimensions")
                args = [array_type, dtype, rank, dimensions, NULL, NULL, i32(0), NULL]
                return [b.call_pointer("ptr", new_array, args)]

            (made,) = b.if_else(b.icmp("ne", make, NULL), pooled, plain)
            self.need(b.icmp("ne", made, NULL), self.fail)
            b.store(made, b.element(self.objects, "ptr", i))
            b.store(b.load("ptr", b.offset(made, layout.DATA)), b.element(self.results, "ptr", i))

    def write_run(self, arena: V) -> V:
        """Call shlo_main, with or without the GIL; its status."""
        b = self.b
        arguments = [self.inputs, self.results, NULL, arena, self.field("instance")]
        main = self.field("main")

        def keep() -> list[V]:
            return [b.call_pointer("i32", main, arguments)]

        def release() -> list[V]:
            thread = b.call("ptr", "PyEval_SaveThread", [])
            status = b.call_pointer("i32", main, arguments)
            b.call("void", "PyEval_RestoreThread", [thread])
            return [status]

        (status,) = b.if_else(b.icmp("ne", self.field("is_short"), NULL), keep, release)
        return status

    def write_return(self, outputs: V) -> None:
        """One result by itself, else a tuple."""
        b = self.b
        with b.if_(b.icmp("eq", outputs, 1)):
            b.line(f"ret ptr {b.load('ptr', self.objects).text}")
            b.start(b.label("several"))
        result = b.call("ptr", "PyTuple_New", [outputs])
        self.need(b.icmp("ne", result, NULL), self.fail)
        with b.loop(0, outputs) as i:
            b.call("i32", "PyTuple_SetItem", [result, i, b.load("ptr", b.element(self.objects, "ptr", i))])
        b.line(f"ret ptr {result.text}")

    def drop_results(self, outputs: V) -> None:
        b = self.b
        with b.loop(0, outputs) as i:
            b.call("void", "Py_DecRef", [b.load("ptr", b.element(self.objects, "ptr", i))])  # null is allowed


def build(module: ModuleText, target: Target) -> None:
    """Write `shlo_fastcall` and the functions of `runtime/signals.py` into `module`."""
    _Writer(module).write()
    signals.build(module, target)


FASTCALL = Routine(f"fastcall_{sys.implementation.cache_tag}", ("shlo_fastcall", *signals.SYMBOLS), build)
