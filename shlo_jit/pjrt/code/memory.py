"""Memory of arrays: blocks that are reused, because the first touch of fresh memory is slow (see `runtime/pool.py`).

    ptr @shlo_pjrt_take(i64 nbytes)              undefined contents; null if there is no memory
    void @shlo_pjrt_give(ptr block, i64 nbytes)
    void @shlo_pjrt_lock_memory()                no thread takes or gives large blocks until LOCK is 0 again

Small blocks come from the C library. For larger ones, each size class (four per doubling) has a list of idle blocks,
which begin with the address of the next. One lock guards all lists; it is held for a few instructions only.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import relax
from shlo_jit.pjrt.code.function_writer import NULL

ALIGNMENT = 64
SMALL_BYTES = 64 << 10
"""Maximum size of the blocks that come from the C library."""
HUGE_BYTES = 2 << 20
"""Minimum size of the blocks that begin with a huge page."""
PROTECTION, PRIVATE, HUGE_ADVICE = 3, 0x22, 14
"""Flags of mmap: read and write; private and anonymous. Advice of madvise: huge pages."""
HEADS, LOCK, IDLE = (V("ptr", f"@shlo_pjrt_{name}") for name in ("heads", "lock", "idle"))
LIMIT = V("ptr", "@shlo_pjrt_idle_limit")
"""Bytes of idle blocks that are kept."""
CLASSES = 4 * 64


def write_memory(module: ModuleText, target: Target) -> None:
    module.define_global(HEADS.text[1:], f"internal global [{CLASSES} x ptr] zeroinitializer, align 64")
    module.define_global(LOCK.text[1:], "global i32 0, align 64")
    module.define_global(IDLE.text[1:], "internal global i64 0, align 8")
    module.define_global(LIMIT.text[1:], f"global i64 {256 << 20}, align 8")
    _write_lock(module, target)
    _write_map(module)
    _write_take(module)
    _write_give(module)


def _write_lock(module: ModuleText, target: Target) -> None:
    b = module.function("shlo_pjrt_lock_memory", [], linkage="external", attributes="nounwind")
    again, got, wait = b.label("again"), b.label("got"), b.label("wait")
    b.branch(again)
    b.start(again)
    b.branch_if(exchange(b, LOCK, i32(0), i32(1)), got, wait)
    b.start(wait)
    relax(b, target)
    b.call("i32", "sched_yield", [])
    b.branch(again)
    b.start(got)
    b.ret()


def _unlock(b: Builder) -> None:
    atomic_store(b, i32(0), LOCK, "release")


def _class_of(b: Builder, nbytes: V) -> tuple[V, V]:
    """Returns the index and size of the size class of a large block."""
    below = b.sub(nbytes, 1)
    exponent = b.sub(i64(63), b.intrinsic_with_flag("ctlz", below, True))
    shift = b.sub(exponent, 2)
    steps = b.lshr(below, shift)  # 4 to 7
    return b.add(b.mul(exponent, 4), b.sub(steps, 4)), b.shl(b.add(steps, 1), shift)


def _small(b: Builder, nbytes: V) -> V:
    return b.icmp("ule", nbytes, i64(SMALL_BYTES))


def _write_take(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_take", [("i64", "nbytes")], "ptr", linkage="external", attributes="nounwind")
    (nbytes,) = b.params
    with b.if_(_small(b, nbytes), "small"):
        room = b.and_(b.add(b.max_(nbytes, 1), ALIGNMENT - 1), i64(-ALIGNMENT))
        b.ret_early(b.call("ptr", "aligned_alloc", [i64(ALIGNMENT), room]))
    with b.if_(b.icmp("ugt", nbytes, i64(1 << 46)), "absurd"):
        b.ret_early(NULL)
    index, size = _class_of(b, nbytes)
    head = b.element(HEADS, "ptr", index)
    b.call("void", "shlo_pjrt_lock_memory", [], declare=False)
    block = b.load("ptr", head)
    found, none = b.label("found"), b.label("none")
    b.branch_if(b.icmp("ne", block, NULL), found, none)
    b.start(none)
    _unlock(b)
    fresh = b.call("ptr", "shlo_pjrt_map", [size], declare=False)
    b.line(f"ret ptr {fresh.text}")
    b.start(found)
    b.store(b.load("ptr", block), head)
    b.store(b.sub(b.load("i64", IDLE), size), IDLE)
    _unlock(b)
    b.ret(block)


def _write_give(module: ModuleText) -> None:
    b = module.function(
        "shlo_pjrt_give", [("ptr", "block"), ("i64", "nbytes")], linkage="external", attributes="nounwind"
    )
    block, nbytes = b.params
    with b.if_(_small(b, nbytes), "small"):
        b.call("void", "free", [block])
        b.ret_early()
    index, size = _class_of(b, nbytes)
    head = b.element(HEADS, "ptr", index)
    b.call("void", "shlo_pjrt_lock_memory", [], declare=False)
    idle = b.add(b.load("i64", IDLE), size)
    full, keep = b.label("full"), b.label("keep")
    b.branch_if(b.icmp("ugt", idle, b.load("i64", LIMIT)), full, keep)
    b.start(full)
    _unlock(b)
    b.call("i32", "munmap", [block, size])
    b.line("ret void")
    b.start(keep)
    b.store(b.load("ptr", head), block)
    b.store(block, head)
    b.store(idle, IDLE)
    _unlock(b)
    b.ret()


def _write_map(module: ModuleText) -> None:
    """ptr @shlo_pjrt_map(i64 size): fresh pages. From HUGE_BYTES on, their address is a multiple of HUGE_BYTES."""
    b = module.function("shlo_pjrt_map", [("i64", "size")], "ptr", attributes="nounwind noinline cold")
    (size,) = b.params
    is_huge = b.icmp("uge", size, i64(HUGE_BYTES))
    room = b.add(size, b.select(is_huge, i64(HUGE_BYTES), i64(0)))
    arguments = [NULL, room, i32(PROTECTION), i32(PRIVATE), i32(-1), i64(0)]
    base = b.cast("ptrtoint", b.call("ptr", "mmap", arguments), "i64")
    with b.if_(b.icmp("eq", base, i64(-1)), "none"):
        b.ret_early(NULL)
    with b.if_(b.xor(is_huge, V("i1", "true")), "plain"):
        b.ret_early(b.cast("inttoptr", base, "ptr"))
    start = b.and_(b.add(base, HUGE_BYTES - 1), i64(-HUGE_BYTES))
    for first, last in ((base, start), (b.add(start, size), b.add(base, room))):
        with b.if_(b.icmp("ugt", last, first), "slack"):
            b.call("i32", "munmap", [b.cast("inttoptr", first, "ptr"), b.sub(last, first)])
    block = b.cast("inttoptr", start, "ptr")
    b.call("i32", "madvise", [block, size, i32(HUGE_ADVICE)])
    b.ret(block)
