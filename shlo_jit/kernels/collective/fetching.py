"""Reads from the memory of the calling process. Arguments that only collectives need stay in the caller's memory, and
each rank reads the parts that it needs from there, without a copy in between.

Such an address is as far from this rank's `base` as the argument is from the caller's. So it lies outside the `reach`
bytes after `base`, which hold all other data that ranks post. The caller's own rank reaches everything.

    void @shlo_fetch(ptr communicator, ptr target, ptr source, i64 nbytes)

copies from such an address. If that fails, all ranks are asked to stop, and the rank's next `shlo_leave` returns the
status.

    i32 @shlo_read_caller(ptr communicator, ptr target, i64 address, i64 nbytes)

copies from an address in the caller's memory, and returns whether that was possible. Some systems do not allow it: the
host asks once.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.collective.waiting import field, stop_all
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target

READ_CALLS = {"x86_64": 310, "aarch64": 270}
"""Numbers of the system call process_vm_readv on Linux."""


def write_fetching(module: ModuleText, target: Target) -> None:
    _write_read_caller(module, target)
    _write_fetch(module)


def is_far(b: Builder, communicator: V, address: V) -> V:
    """Returns whether an address is in the caller's memory, which this rank does not reach."""
    base, at = field(b, communicator, "base"), b.cast("ptrtoint", address, "i64")
    return b.icmp("uge", b.sub(at, base), field(b, communicator, "reach"))


def fetch(b: Builder, communicator: V, target: V, source: V, nbytes: V) -> None:
    """Emits a copy from an address that is far."""
    b.call_pointer("void", field(b, communicator, "fetch", "ptr"), [communicator, target, source, nbytes])


def _write_read_caller(module: ModuleText, target: Target) -> None:
    params = [("ptr", "communicator"), ("ptr", "target"), ("i64", "address"), ("i64", "nbytes")]
    b = module.function("shlo_read_caller", params, "i32", linkage="external", attributes="nounwind")
    communicator, to, address, nbytes = b.params
    number = READ_CALLS.get(target.arch)
    if target.system != "linux" or number is None:
        b.ret(i32(0))
        return
    here, there, done = b.alloca("i64", 2, 8), b.alloca("i64", 2, 8), b.variable(i64(0))
    b.store(i64(0), done)
    again, read, more, end = (b.label(n) for n in ("again", "read", "more", "end"))
    b.branch(again)
    b.start(again)
    at = b.load("i64", done)
    left = b.sub(nbytes, at)
    b.branch_if(b.icmp("sgt", left, 0), read, end)
    b.start(read)
    for record, start in ((here, b.cast("ptrtoint", to, "i64")), (there, address)):
        b.store(b.add(start, at), record)
        b.store(left, b.offset(record, 8))
    caller = field(b, communicator, "caller")
    got = b.call("i64", "syscall", [i64(number), caller, here, i64(1), there, i64(1), i64(0)])
    b.branch_if(b.icmp("sgt", got, 0), more, end)
    b.start(more)
    b.store(b.add(at, got), done)
    b.branch(again)
    b.start(end)
    b.ret(b.cast("zext", b.icmp("sge", b.load("i64", done), nbytes), "i32"))


def _write_fetch(module: ModuleText) -> None:
    params = [("ptr", "communicator"), ("ptr", "target"), ("ptr", "source"), ("i64", "nbytes")]
    b = module.function("shlo_fetch", params, linkage="external", attributes="nounwind")
    communicator, to, source, nbytes = b.params
    shift = b.sub(b.cast("ptrtoint", source, "i64"), field(b, communicator, "base"))
    address = b.add(field(b, communicator, "caller_base"), shift)
    found = b.call("i32", "shlo_read_caller", [communicator, to, address, nbytes], declare=False)
    with b.if_(b.icmp("eq", found, i32(0)), "failed"):
        b.store(i64(board.UNREADABLE), field(b, communicator, "unread", "ptr"))
        stop_all(b, communicator, i32(board.UNREADABLE))
    b.ret()
