"""The C interface of a library that `header.py` declares, in LLVM text, compiled for the baseline of the processor
family."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.aot import instances
from shlo_jit.aot.description import Description, library_symbol
from shlo_jit.aot.entry_points import Calls, custom_symbol, entry_symbol, public, run_symbol
from shlo_jit.aot.image import INTERFACE, Image, arena_terms
from shlo_jit.aot.imports import Imports
from shlo_jit.aot.services import PAGE, services
from shlo_jit.aot.sized_calls import SizedCalls
from shlo_jit.aot.sized_words import calls_text
from shlo_jit.aot.tables import Tables
from shlo_jit.aot.weights_code import WeightsCode
from shlo_jit.aot.writing import NULL, field, is_null, leave_if
from shlo_jit.codegen import abi
from shlo_jit.codegen.cpu_check import write_cpu_check
from shlo_jit.codegen.library_format import LibraryStatus
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.state import MAX_WORKERS
from shlo_jit.schedule.scratch import ALIGN

OPTIONS = "{i32, i32, ptr, ptr, i64, ptr, i64}"
"""shlo_options: bytes, threads, weights_path, weights, weights_bytes, memory, memory_bytes."""
OPTIONS_WORDS = ("bytes", "threads", "weights_path", "weights", "weights_bytes", "memory", "memory_bytes")
MOST_THREADS = MAX_WORKERS + 1
FLOATS_USED = "_fltused"
"""Symbol that objects for Windows refer to. C's start files define it if they are linked."""


def public_symbols(image: Image) -> list[str]:
    """Names of the functions that C calls."""
    own = (f"{image.name}_{name}" for name in (*INTERFACE, *image.c_names))
    return [*own, library_symbol(image.name)]


class Interface:
    """Writes the interface of one image.

    `baseline`: the target of its code. `uses_pool`: whether programs run tasks in several threads.
    """

    def __init__(self, image: Image, baseline: Target, *, uses_pool: bool, may_miss_symbols: bool) -> None:
        self.image = image
        self.module = ModuleText(baseline)
        self.uses_pool = uses_pool
        self.services = services(baseline)
        self.layout = instances.layout(image)
        self.tables = Tables(self.module, image.name)
        self.imports = Imports(self.module, image, self.tables, may_be_missing=may_miss_symbols)
        self.weights = WeightsCode(self.module, image, self.services)
        self.count = V("ptr", f"@{image.name}.count")
        self.guard = V("ptr", f"@{image.name}.guard")

    def text(self, signatures: Mapping[str, str]) -> str:
        """Returns the LLVM text. `signatures`: as `Imports.write` takes them."""
        if self.imports:
            self.imports.write(signatures)
        self.module.define_global(self.count.text[1:], "internal global i32 0, align 4")
        self.module.define_global(self.guard.text[1:], "internal global i32 0, align 4")
        if self.image.variants[0].target.system == "windows":
            self.module.define_global(FLOATS_USED, "weak_odr constant i32 39029, align 4")
        for number, variant in enumerate(self.image.variants):
            write_cpu_check(self.module, self._check(number), variant.target)
        Calls(self.module, self.image, self.services, self.tables, self.imports).write()
        self.weights.write()
        self._write_pick()
        self._write_arena_bytes()
        self._write_bind()
        self._write_no_pause()
        self._write_use_pool()
        self._write_leave_pool()
        self._write_memory_bytes()
        self._write_create()
        self._write_destroy()
        self._write_set_threads()
        self._write_call()
        self._write_status_text()
        self._write_setters()
        SizedCalls(self.module, self.image, self.tables).write()
        Description(self.module, self.image, self.tables).write()
        return self.module.text()

    def _public(self, name: str, params: list[tuple[str, str]], ret: str = "i32") -> Builder:
        return public(self.module, f"{self.image.name}_{name}", params, self.image, ret)

    def _own(self, name: str, params: list[tuple[str, str]], ret: str = "void") -> Builder:
        return self.module.function(f"{self.image.name}.{name}", params, ret, attributes="nounwind")

    def _ask(self, b: Builder, ret: str, name: str, args: list[V]) -> V:
        """Emits a call of one of the library's own functions."""
        return b.call(ret, f"{self.image.name}.{name}", args, declare=False)

    def _check(self, variant: int) -> str:
        return f"{self.image.name}.check.{variant}"

    # ------------------------------------------------------------------ which code, and what it needs
    def _write_pick(self) -> None:
        """i64 @NAME.pick(): the first variant whose features the processor has, or -1 if there is none."""
        b = self._own("pick", [], "i64")
        for number in range(len(self.image.variants)):
            with b.if_(b.call("i1", self._check(number), [], declare=False)):
                b.ret_early(i64(number))
        b.ret(i64(-1))

    def _write_arena_bytes(self) -> None:
        """i64 @NAME.arena_bytes(i64 variant, i64 threads): see `abi.arena_bytes`."""
        b = self._own("arena_bytes", [("i64", "variant"), ("i64", "threads")], "i64")
        variant, threads = b.params
        for number, found in enumerate(self.image.variants):
            with b.if_(b.icmp("eq", variant, number)):
                most = i64(0)
                for fixed, per_thread in arena_terms(found):
                    nbytes = b.and_(b.add(b.mul(threads, per_thread), fixed + ALIGN - 1), i64(-ALIGN))
                    most = b.max_(most, nbytes)
                b.ret_early(most)
        b.ret(i64(0))

    def _write_memory_bytes(self) -> None:
        b = self._public("memory_bytes", [("i32", "threads")], "i64")
        (threads,) = b.params
        variant = self._ask(b, "i64", "pick", [])
        wrong = b.or_(b.icmp("slt", threads, i32(1)), b.icmp("sgt", threads, i32(MOST_THREADS)))
        with b.if_(b.or_(b.icmp("slt", variant, 0), wrong)):
            b.ret_early(i64(0))
        arena = self._ask(b, "i64", "arena_bytes", [variant, b.cast("sext", threads, "i64")])
        b.ret(b.add(arena, self.layout.nbytes))

    # ------------------------------------------------------------------ filling an instance
    def _write_bind(self) -> None:
        """void @NAME.bind(ptr instance, i64 variant, ptr weights): stores the entries, and the records with their
        constants."""
        b = self._own("bind", [("ptr", "instance"), ("i64", "variant"), ("ptr", "weights")])
        instance, variant, weights = b.params
        for number, found in enumerate(self.image.variants):
            with b.if_(b.icmp("eq", variant, number)):
                for i, offsets in enumerate(found.constants):
                    record = b.offset(instance, self.layout.records[i])
                    symbol = entry_symbol(self.image, number, i)
                    self.module.declare(symbol, "i32", [t for t, _ in abi.PARAMETERS])
                    b.store(V("ptr", f"@{symbol}"), b.offset(instance, self.layout.entries + 8 * i))
                    self._bind_record(b, i, instance, record)
                    self._bind_constants(b, record, weights, offsets)
        b.ret()

    def _bind_record(self, b: Builder, function: int, instance: V, record: V) -> None:
        callbacks = self.image.functions[function].callbacks
        values = {
            "callback": V("ptr", f"@{custom_symbol(self.image, function)}") if callbacks else NULL,
            "handle": instance,
            "pause": V("ptr", f"@{self.image.name}.no_pause"),
            "error_call": i32(abi.NO_CALL),
        }
        for name, value in values.items():
            b.store(value, b.offset(record, abi.INSTANCE[name].offset))

    def _bind_constants(self, b: Builder, record: V, weights: V, offsets: tuple[int, ...]) -> None:
        if not offsets:
            return
        table = V(*self.tables.array("i64", offsets))
        with b.loop(0, len(offsets)) as n:
            address = b.offset(weights, b.load("i64", b.element(table, "i64", n)))
            b.store(address, b.offset(record, b.add(b.mul(n, 8), abi.CONSTANTS)))

    def _store_threads(self, b: Builder, instance: V, threads: V) -> None:
        instances.store(b, instance, [("threads", threads)])
        for record in self.layout.records:
            b.store(threads, b.offset(instance, record + abi.INSTANCE["threads"].offset))

    def _write_no_pause(self) -> None:
        b = self._own("no_pause", [], "i32")
        b.ret(i32(abi.Status.OK))

    # ------------------------------------------------------------------ the pool's life
    def _take_guard(self, b: Builder) -> None:
        """Waits until no other thread runs the code between this and `_give_guard`.

        The holder is identified by process id, because in a forked child no thread would release what a thread of the
        parent held.
        """
        own = self.services.process(b)
        with b.repeat([i32(0)]) as loop:
            (expected,) = loop.values
            words = f"cmpxchg ptr {self.guard.text}, i32 {expected.text}, i32 {own.text} acquire monotonic"
            pair = b.emit("{i32, i1}", words)
            loop.again = b.not_(b.emit("i1", f"extractvalue {{i32, i1}} {pair.text}, 1"))
            seen = b.emit("i32", f"extractvalue {{i32, i1}} {pair.text}, 0")
            with b.if_(loop.again):
                self.services.yield_(b)
            loop.next(b.select(b.icmp("eq", seen, own), i32(0), seen))

    def _give_guard(self, b: Builder) -> None:
        b.line(f"store atomic i32 0, ptr {self.guard.text} release, align 4")

    def _write_use_pool(self) -> None:
        """void @NAME.use_pool(i64 threads, i32 more): adds `more` instances and starts workers for `threads`
        threads."""
        b = self._own("use_pool", [("i64", "threads"), ("i32", "more")])
        threads, more = b.params
        self._take_guard(b)
        if self.uses_pool:
            b.call("i32", "shlo_pool_prepare", [threads])
        # Only now: a child that is forked earlier does not have this instance.
        b.store(b.add(b.load("i32", self.count), more), self.count)
        self._give_guard(b)
        b.ret()

    def _write_leave_pool(self) -> None:
        """void @NAME.leave_pool(): removes an instance; the workers end with the last one."""
        b = self._own("leave_pool", [])
        self._take_guard(b)
        left = b.sub(b.load("i32", self.count), i32(1))
        b.store(left, self.count)
        if self.uses_pool:
            with b.if_(b.icmp("eq", left, i32(0))):
                b.call("void", "shlo_pool_end", [])
        self._give_guard(b)
        b.ret()

    # ------------------------------------------------------------------ create and destroy
    def _option(self, b: Builder, options: V, word: str) -> V:
        index = OPTIONS_WORDS.index(word)
        type = OPTIONS[1:-1].split(", ")[index]
        return b.load(type, field(b, OPTIONS, options, index))

    def _options(self, b: Builder, options: V) -> list[V]:
        """Returns the fields of OPTIONS, or the defaults if `options` is null."""
        defaults = [V(t, "null" if t == "ptr" else "0") for t in OPTIONS[1:-1].split(", ")]
        return b.if_else(
            is_null(b, options), lambda: defaults, lambda: [self._option(b, options, word) for word in OPTIONS_WORDS]
        )

    def _leave_if_cut(self, b: Builder, nbytes: V) -> None:
        """Returns BAD_ARGUMENT if the options are shorter than in the first version. A length of 0 means that
        version's."""
        least = b.cast("ptrtoint", b.emit("ptr", f"getelementptr {OPTIONS}, ptr null, i32 1"), "i32")
        is_cut = b.and_(b.icmp("ne", nbytes, i32(0)), b.icmp("ult", nbytes, least))
        leave_if(b, is_cut, LibraryStatus.BAD_ARGUMENT)

    def _write_create(self) -> None:
        b = self._public("create", [("ptr", "created"), ("ptr", "options")])
        created, options = b.params
        leave_if(b, is_null(b, created), LibraryStatus.BAD_POINTER)
        b.store(NULL, created)
        variant = self._ask(b, "i64", "pick", [])
        leave_if(b, b.icmp("slt", variant, 0), LibraryStatus.UNSUPPORTED_CPU)
        nbytes, threads, path, data, data_bytes, memory, memory_bytes = self._options(b, options)
        self._leave_if_cut(b, nbytes)
        wrong = b.or_(b.icmp("slt", threads, i32(0)), b.icmp("sgt", threads, i32(MOST_THREADS)))
        leave_if(b, wrong, LibraryStatus.BAD_ARGUMENT)
        if self.imports:
            self.imports.leave_unless_complete(b)
        (threads,) = b.if_else(
            b.icmp("eq", threads, i32(0)),
            lambda: [b.min_(self.services.cpu_count(b), MOST_THREADS)],
            lambda: [b.cast("sext", threads, "i64")],
        )
        found = b.alloca("i64", 2)
        status = self.weights.find(b, path, data, data_bytes, found)
        leave_if(b, b.icmp("ne", status, i32(0)), status)
        weights, mapped_bytes = b.load("ptr", found), b.load("i64", b.offset(found, 8))
        arena_bytes = self._ask(b, "i64", "arena_bytes", [variant, threads])

        place = b.alloca("ptr", 2, align=8)
        (status,) = b.if_else(
            is_null(b, memory),
            lambda: [self._allocate(b, place, arena_bytes)],
            lambda: [self._divide(b, place, memory, memory_bytes, arena_bytes)],
        )
        with b.if_(b.icmp("ne", status, i32(0))):
            self._unmap(b, weights, mapped_bytes)
            b.ret_early(status)
        instance, arena = b.load("ptr", place), b.load("ptr", b.element(place, "ptr", 1))
        b.memset(instance, 0, self.layout.nbytes)
        self.services.make_lock(b, instance)
        values = {
            "variant": variant,
            "arena": arena,
            "arena_bytes": arena_bytes,
            "owns_memory": b.cast("zext", is_null(b, memory), "i64"),
            "weights": weights,
            "mapped_bytes": mapped_bytes,
            "failed_call": i64(abi.NO_CALL),
        }
        instances.store(b, instance, list(values.items()))
        self._ask(b, "void", "bind", [instance, variant, weights])
        self._store_threads(b, instance, threads)
        self._ask(b, "void", "use_pool", [threads, i32(1)])
        b.store(instance, created)
        b.ret(i32(LibraryStatus.OK))

    @property
    def _head_bytes(self) -> int:
        return -(-self.layout.nbytes // PAGE) * PAGE

    def _whole_pages(self, b: Builder, nbytes: V) -> V:
        return b.and_(b.add(nbytes, PAGE - 1), i64(-PAGE))

    def _allocate(self, b: Builder, place: V, arena_bytes: V) -> V:
        """Allocates an instance and its arena from the system, stores their addresses at `place` and returns a
        status."""
        head = self.services.allocate(b, i64(self._head_bytes))

        def with_head() -> list[V]:
            b.store(head, place)
            arena = self._allocate_arena(b, arena_bytes)
            b.store(arena, b.element(place, "ptr", 1))
            failed = b.and_(is_null(b, arena), b.icmp("ne", arena_bytes, 0))
            with b.if_(failed):
                self.services.release(b, head, i64(self._head_bytes))
            return [b.select(failed, i32(LibraryStatus.NO_MEMORY), i32(LibraryStatus.OK))]

        return b.if_else(is_null(b, head), lambda: [i32(LibraryStatus.NO_MEMORY)], with_head)[0]

    def _allocate_arena(self, b: Builder, nbytes: V) -> V:
        def allocated() -> list[V]:
            return [self.services.allocate(b, self._whole_pages(b, nbytes))]

        return b.if_else(b.icmp("eq", nbytes, 0), lambda: [NULL], allocated)[0]

    def _divide(self, b: Builder, place: V, memory: V, memory_bytes: V, arena_bytes: V) -> V:
        """Places an instance and its arena in the host's memory, stores their addresses at `place` and returns a
        status."""
        b.store(memory, place)
        b.store(b.offset(memory, self.layout.nbytes), b.element(place, "ptr", 1))
        is_small = b.icmp("ult", memory_bytes, b.add(arena_bytes, self.layout.nbytes))
        is_misaligned = b.icmp("ne", b.and_(b.cast("ptrtoint", memory, "i64"), i64(ALIGN - 1)), 0)
        status = b.select(is_small, i32(LibraryStatus.NO_MEMORY), i32(LibraryStatus.OK))
        return b.select(is_misaligned, i32(LibraryStatus.BAD_POINTER), status)

    def _unmap(self, b: Builder, weights: V, mapped_bytes: V) -> None:
        if self.services.has_files and self.image.weights_in_file:
            with b.if_(b.icmp("ne", mapped_bytes, 0)):
                self.services.unmap_file(b, b.offset(weights, -64), mapped_bytes)

    def _release_arena(self, b: Builder, instance: V) -> None:
        nbytes = instances.load(b, instance, "arena_bytes")
        with b.if_(b.icmp("ne", nbytes, 0)):
            self.services.release(b, instances.load(b, instance, "arena"), self._whole_pages(b, nbytes))

    def _write_destroy(self) -> None:
        b = self._public("destroy", [("ptr", "instance")], "void")
        (instance,) = b.params
        with b.if_(is_null(b, instance)):
            b.ret_early()
        self._ask(b, "void", "leave_pool", [])
        weights, mapped = (instances.load(b, instance, n) for n in ("weights", "mapped_bytes"))
        self._unmap(b, weights, mapped)
        self.services.end_lock(b, instance)
        if self.services.has_memory:
            with b.if_(b.icmp("ne", instances.load(b, instance, "owns_memory"), 0)):
                self._release_arena(b, instance)
                self.services.release(b, instance, i64(self._head_bytes))
        b.ret()

    def _write_set_threads(self) -> None:
        b = self._public("set_threads", [("ptr", "instance"), ("i32", "threads")])
        instance, given = b.params
        leave_if(b, is_null(b, instance), LibraryStatus.BAD_POINTER)
        wrong = b.or_(b.icmp("slt", given, i32(1)), b.icmp("sgt", given, i32(MOST_THREADS)))
        leave_if(b, wrong, LibraryStatus.BAD_ARGUMENT)
        threads = b.cast("sext", given, "i64")
        leave_if(b, b.not_(self.services.take_lock(b, instance)), LibraryStatus.BUSY)
        need = self._ask(b, "i64", "arena_bytes", [instances.load(b, instance, "variant"), threads])
        has = instances.load(b, instance, "arena_bytes")
        (status,) = b.if_else(
            b.icmp("sgt", need, has), lambda: [self._grow(b, instance, need)], lambda: [i32(LibraryStatus.OK)]
        )
        with b.if_(b.icmp("eq", status, i32(LibraryStatus.OK))):
            self._store_threads(b, instance, threads)
            self._ask(b, "void", "use_pool", [threads, i32(0)])
        self.services.give_lock(b, instance)
        b.ret(status)

    def _grow(self, b: Builder, instance: V, need: V) -> V:
        """Allocates a larger arena and returns a status."""
        if not self.services.has_memory:
            return i32(LibraryStatus.NO_MEMORY)
        owns = b.icmp("ne", instances.load(b, instance, "owns_memory"), 0)
        (arena,) = b.if_else(owns, lambda: [self._allocate_arena(b, need)], lambda: [NULL])
        failed = is_null(b, arena)
        with b.if_(b.not_(failed)):
            self._release_arena(b, instance)
            instances.store(b, instance, [("arena", arena), ("arena_bytes", need)])
        return b.select(failed, i32(LibraryStatus.NO_MEMORY), i32(LibraryStatus.OK))

    # ------------------------------------------------------------------ calls, texts and setters
    def _write_call(self) -> None:
        params = [("ptr", "instance"), ("i32", "function"), ("ptr", "inputs"), ("ptr", "outputs")]
        b = self._public("call", params)
        instance, function, inputs, outputs = b.params
        for i in range(len(self.image.functions)):
            with b.if_(b.icmp("eq", function, i32(i))):
                args = [inputs, outputs, NULL, NULL, instance]
                b.ret_early(b.call("i32", run_symbol(self.image, i), args, declare=False))
        b.ret(i32(LibraryStatus.BAD_ARGUMENT))

    def _write_status_text(self) -> None:
        b = self._public("status_text", [("i32", "status")], "ptr")
        (status,) = b.params
        texts = V(*self.tables.array("ptr", [self.tables.string(self._text(s))[1] for s in LibraryStatus]))
        with b.if_(b.icmp("ult", status, i32(len(LibraryStatus)))):
            b.ret_early(b.load("ptr", b.element(texts, "ptr", b.cast("sext", status, "i64"))))
        b.ret(V(*self.tables.string("unknown status")))

    def _text(self, status: LibraryStatus) -> str:
        """Text of a status. If sizes are unknown to the library, it lists those that the library has code for."""
        if status == LibraryStatus.UNKNOWN_SHAPES and self.image.sized:
            return f"{status.text}: {'; '.join(map(calls_text, self.image.sized))}"
        return status.text

    def _write_setters(self) -> None:
        b = self._public("set_pause", [("ptr", "instance"), ("ptr", "pause")])
        instance, pause = b.params
        leave_if(b, is_null(b, instance), LibraryStatus.BAD_POINTER)
        pause = b.select(is_null(b, pause), V("ptr", f"@{self.image.name}.no_pause"), pause)
        for record in self.layout.records:
            b.store(pause, b.offset(instance, record + abi.INSTANCE["pause"].offset))
        b.ret(i32(LibraryStatus.OK))

        b = self._public("set_callback", [("ptr", "instance"), ("ptr", "callback"), ("ptr", "context")])
        instance, callback, context = b.params
        leave_if(b, is_null(b, instance), LibraryStatus.BAD_POINTER)
        instances.store(b, instance, [("callback", callback), ("context", context)])
        b.ret(i32(LibraryStatus.OK))

        b = self._public("failed_call", [("ptr", "instance")])
        (instance,) = b.params
        leave_if(b, is_null(b, instance), i32(abi.NO_CALL))
        b.ret(b.cast("trunc", instances.load(b, instance, "failed_call"), "i32"))

        b = self._public("set_symbol", [("ptr", "symbol"), ("ptr", "function")])
        if self.imports:
            self.imports.write_set_symbol(b)
        else:
            b.ret(i32(LibraryStatus.MISSING_SYMBOL))
