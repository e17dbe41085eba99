"""Operating system services that a library uses, in LLVM text: memory, processor count, locks and files.

There is one class for each kind of system; `services(target)` chooses. A lock is LOCK_BYTES of the instance. On systems
with threads it is an error-checking pthread mutex: a thread that already holds it gets an error instead of a deadlock.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target

LOCK_BYTES = 128
"""pthread_mutex_t has 40 bytes on Linux and 64 on macOS."""
NULL = V("ptr", "null")
PAGE = 16 << 10
"""A multiple of the page size of every system. Allocations are a multiple of it."""
HUGE_PAGE = 2 << 20
OF_ANOTHER_SIZE = V("ptr", "inttoptr (i64 1 to ptr)")
"""Result of `map_file` for a file of unexpected size."""


class Services:
    """A system without services: no memory but the caller's, one thread, no files."""

    has_memory = False
    """Whether memory can be allocated."""
    has_files = False

    def allocate(self, b: Builder, nbytes: V) -> V:
        """Allocates zeroed memory at a multiple of 4096; null if there is none.

        From HUGE_PAGE bytes on, the address is a multiple of HUGE_PAGE if the system supports it. `nbytes` is a
        multiple of PAGE.
        """
        return NULL

    def release(self, b: Builder, memory: V, nbytes: V) -> None:
        """Releases memory of `allocate(nbytes)`."""

    def cpu_count(self, b: Builder) -> V:
        """Number of processors that this process may use; i64."""
        return i64(1)

    def make_lock(self, b: Builder, lock: V) -> None:
        b.store(i32(0), lock)

    def end_lock(self, b: Builder, lock: V) -> None:
        """Destroys a lock that no thread holds or will take."""

    def take_lock(self, b: Builder, lock: V) -> V:
        """Tries to take the lock; returns whether that succeeded (i1)."""
        pair = b.emit("{i32, i1}", f"cmpxchg ptr {lock.text}, i32 0, i32 1 acquire monotonic")
        return b.emit("i1", f"extractvalue {{i32, i1}} {pair.text}, 1")

    def give_lock(self, b: Builder, lock: V) -> None:
        b.line(f"store atomic i32 0, ptr {lock.text} release, align 4")

    def yield_(self, b: Builder) -> None:
        """Yields the processor to another thread, which may hold what this one waits for."""

    def process(self, b: Builder) -> V:
        """A number that identifies this process, not 0; i32."""
        return i32(1)

    def map_file(self, b: Builder, path: V, nbytes: V) -> V:
        """Maps a file of `nbytes` bytes for reading; null if there is none, OF_ANOTHER_SIZE if its size differs."""
        return NULL

    def unmap_file(self, b: Builder, memory: V, nbytes: V) -> None:
        """Unmaps a file that `map_file(nbytes)` returned."""

    def own_path(self, b: Builder, address: V) -> V:
        """Path of the file that contains the code at an address; null if that is unknown."""
        return NULL


class Posix(Services):
    """Linux, with any C library, and macOS."""

    has_memory = has_files = True

    def __init__(self, target: Target) -> None:
        self.is_linux = "linux" in target.triple
        self.anonymous = 0x22 if self.is_linux else 0x1002
        """MAP_PRIVATE and MAP_ANONYMOUS."""

    def _mapped(self, b: Builder, nbytes: V, flags: int, file: V) -> V:
        protection = i32(3 if file.text == "-1" else 1)
        memory = b.call("ptr", "mmap", [NULL, nbytes, protection, i32(flags), file, i64(0)])
        failed = b.icmp("eq", b.cast("ptrtoint", memory, "i64"), i64(-1))
        return b.select(failed, NULL, memory)

    def allocate(self, b: Builder, nbytes: V) -> V:
        # Allocate room for alignment; pages that are never touched take no memory.
        is_large = b.icmp("sge", nbytes, HUGE_PAGE)
        room = b.add(nbytes, b.select(is_large, i64(HUGE_PAGE), i64(0)))
        memory = self._mapped(b, room, self.anonymous, i32(-1))
        usable = b.and_(is_large, b.icmp("ne", memory, NULL))
        return b.if_else(usable, lambda: [self._aligned(b, memory, nbytes)], lambda: [memory])[0]

    def _aligned(self, b: Builder, memory: V, nbytes: V) -> V:
        """Aligns memory with HUGE_PAGE spare bytes to the next multiple of HUGE_PAGE; the rest is released."""
        start = b.cast("ptrtoint", memory, "i64")
        before = b.and_(b.sub(i64(0), start), i64(HUGE_PAGE - 1))
        aligned = b.offset(memory, before)
        with b.if_(b.icmp("ne", before, 0)):
            b.call("i32", "munmap", [memory, before])
        after = b.sub(i64(HUGE_PAGE), before)
        with b.if_(b.icmp("ne", after, 0)):
            b.call("i32", "munmap", [b.offset(aligned, nbytes), after])
        if self.is_linux:
            b.call("i32", "madvise", [aligned, nbytes, i32(14)])  # MADV_HUGEPAGE
        return aligned

    def release(self, b: Builder, memory: V, nbytes: V) -> None:
        b.call("i32", "munmap", [memory, nbytes])

    def cpu_count(self, b: Builder) -> V:
        if not self.is_linux:
            return b.max_(b.call("i64", "sysconf", [i32(58)]), 1)  # _SC_NPROCESSORS_ONLN
        words = 16
        mask = b.alloca("i64", words)
        b.memset(mask, 0, 8 * words)
        b.call("i32", "sched_getaffinity", [i32(0), i64(8 * words), mask])
        with b.loop_carry(0, words, [i64(0)]) as carry:
            word = b.load("i64", b.element(mask, "i64", carry.index))
            carry.next(b.add(carry.values[0], b.intrinsic("ctpop", "i64", [word])))
        return b.max_(carry.values[0], 1)

    def make_lock(self, b: Builder, lock: V) -> None:
        attributes = b.alloca("i8", 64)
        b.call("i32", "pthread_mutexattr_init", [attributes])
        error_checking = i32(2 if self.is_linux else 1)
        b.call("i32", "pthread_mutexattr_settype", [attributes, error_checking])
        b.call("i32", "pthread_mutex_init", [lock, attributes])
        b.call("i32", "pthread_mutexattr_destroy", [attributes])

    def end_lock(self, b: Builder, lock: V) -> None:
        b.call("i32", "pthread_mutex_destroy", [lock])

    def take_lock(self, b: Builder, lock: V) -> V:
        return b.icmp("eq", b.call("i32", "pthread_mutex_lock", [lock]), i32(0))

    def give_lock(self, b: Builder, lock: V) -> None:
        b.call("i32", "pthread_mutex_unlock", [lock])

    def yield_(self, b: Builder) -> None:
        b.call("i32", "sched_yield", [])

    def process(self, b: Builder) -> V:
        return b.call("i32", "getpid", [])

    def map_file(self, b: Builder, path: V, nbytes: V) -> V:
        read_and_close_on_exec = i32(0x80000 if self.is_linux else 0x1000000)
        b.module.declarations.setdefault("open", "declare i32 @open(ptr, i32, ...)")
        file = b.call_pointer("i32", V("ptr", "(ptr, i32, ...) @open"), [path, read_and_close_on_exec])

        def opened() -> list[V]:
            size = b.call("i64", "lseek", [file, i64(0), i32(2)])
            fits = b.icmp("eq", size, nbytes)
            found = b.if_else(fits, lambda: [self._mapped(b, nbytes, 1, file)], lambda: [OF_ANOTHER_SIZE])
            b.call("i32", "close", [file])
            return found

        return b.if_else(b.icmp("sge", file, i32(0)), opened, lambda: [NULL])[0]

    def unmap_file(self, b: Builder, memory: V, nbytes: V) -> None:
        b.call("i32", "munmap", [memory, nbytes])

    def own_path(self, b: Builder, address: V) -> V:
        found = b.alloca("ptr", 4)  # Dl_info; the file's name is its first field
        b.store(NULL, found)
        b.call("i32", "dladdr", [address, found])
        return b.load("ptr", found)


class Windows(Services):
    """Windows: memory only."""

    has_memory = True

    def allocate(self, b: Builder, nbytes: V) -> V:
        reserve_and_commit, read_and_write = i32(0x3000), i32(4)
        return b.call("ptr", "VirtualAlloc", [NULL, nbytes, reserve_and_commit, read_and_write])

    def release(self, b: Builder, memory: V, nbytes: V) -> None:
        b.call("i32", "VirtualFree", [memory, i64(0), i32(0x8000)])


def services(target: Target) -> Services:
    """Services of the target's system."""
    if "windows" in target.triple:
        return Windows()
    if any(word in target.triple for word in ("linux", "macos", "darwin")):
        return Posix(target)
    return Services()
