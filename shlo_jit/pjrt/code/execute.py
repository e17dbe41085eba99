"""Runs a program on the caller's thread: looks up its arguments, allocates its results, and calls it.

All arguments are held while the program runs, so that their memory stays valid if another thread deletes one. An
argument that the program may take is marked as deleted first, which also detects arguments that were given twice. The
program works in its memory if there are no other references to it, else in a copy. Either way, the array is gone
afterwards.

An interrupted program returns results that are deleted: see `python.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.codegen.abi import Status
from shlo_jit.kernels.atomics import atomic_load
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.buffers import NO_MEMORY
from shlo_jit.pjrt.code.function_writer import NULL, Args, Record, Slot, check_size, error
from shlo_jit.pjrt.code.holds import TRUE, hold, is_deleted, let_go
from shlo_jit.pjrt.code.objects import READY
from shlo_jit.pjrt.code.python import answer_of, block_at_shutdown, call_python, is_interrupted, must_raise
from shlo_jit.pjrt.host_records import ARGUMENT, BUFFER, EXECUTABLE, RESULT, STORAGE, nbytes

NONE = i64(-1)


def write_execute(module: ModuleText) -> None:
    _Execute(module).write()


class _Execute:
    """Writes LoadedExecutable_Execute."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.slot = slot = Slot(module, "LoadedExecutable_Execute")
        self.b = slot.b
        self.exe = Record(self.b, EXECUTABLE, slot["executable"])

    def write(self) -> None:
        b, slot, exe = self.b, self.slot, self.exe
        self.check_call()
        self.given = b.load("ptr", slot["argument_lists"])
        self.inputs = self.array(exe["input_count"])
        self.outputs = self.array(exe["output_count"])
        self.storages = self.array(self.count)
        """Storages of the arguments that the program takes."""
        self.held = self.array(self.count)
        """The arguments' buffers that are held."""
        self.wanted = b.variable(i64(0))
        """Size of a failed allocation."""
        self.mismatch = b.variable(NULL)
        """Error of an argument that does not fit the program."""
        labels = ("gone", "mismatched", "undo_marks", "no_memory", "failed", "stopped")
        self.gone, self.mismatched, self.undo_marks, self.no_memory, self.failed, self.stopped = map(b.label, labels)
        self.hold_all()
        self.take_donated()
        self.check_others()
        self.own_donated()
        self.make_results()
        status = self.run()
        b.branch_if(b.icmp("ne", status, i32(Status.OK)), self.failed, "succeeded")
        b.start("succeeded")
        self.succeed()
        self.write_failure(status)
        b.start(self.stopped)
        b.call("void", "shlo_pjrt_interrupt", [], declare=False)
        self.succeed(deleted=True)
        b.start(self.no_memory)
        self.end_call()
        self.ret(error(self.module, b, interface.RESOURCE_EXHAUSTED, NO_MEMORY, b.load("i64", self.wanted)))
        b.start(self.gone)
        self.let_go_all()
        self.ret(self.wrong_argument("an argument has been deleted or donated"))
        b.start(self.mismatched)
        self.let_go_all()
        self.ret(b.load("ptr", self.mismatch))
        b.start(self.undo_marks)
        self.unmark()
        self.let_go_all()
        b.ret(self.wrong_argument("an array that is donated is passed a second time"))

    def check_call(self) -> None:
        """Returns early from a call that does not fit this program, or that Python runs."""
        b, slot, exe = self.b, self.slot, self.exe
        block_at_shutdown(b)
        with b.if_(b.icmp("ne", exe["is_deleted"], 0), "deleted"):
            b.ret_early(error(self.module, b, interface.FAILED_PRECONDITION, "the executable has been deleted"))
        with b.if_(b.or_(b.icmp("ne", slot["num_devices"], 1), b.icmp("eq", exe.pointer("main"), NULL)), "many"):
            b.ret_early(call_python(b, exe.pointer("run_many"), slot.address))
        self.count, given = exe["argument_count"], slot["num_args"]
        with b.if_(b.icmp("ne", given, self.count), "wrong"):
            text = "the program expects %ld arguments, got %ld"
            b.ret_early(error(self.module, b, interface.INVALID_ARGUMENT, text, self.count, given))
        check_size(self.module, b, "ExecuteOptions", slot["options"])
        asked = slot["execute_device"]
        with b.if_(b.and_(b.icmp("ne", asked, NULL), b.icmp("ne", asked, exe.pointer("device"))), "elsewhere"):
            text = "execute_device: the program was compiled for another device"
            b.ret_early(error(self.module, b, interface.UNIMPLEMENTED, text))

    def succeed(self, deleted: bool = False) -> None:
        """Writes the results and returns. `deleted`: the call was interrupted, so its results are deleted."""
        b, events = self.b, self.slot["device_complete_events"]
        self.give_results(deleted)
        self.drop_donated(lambda argument: b.icmp("eq", argument["result"], NONE))
        self.let_go_all()
        with b.if_(b.icmp("ne", events, NULL), "events"):
            b.store(READY, events)
        block_at_shutdown(b)
        b.line("ret ptr null")

    def write_failure(self, status: V) -> None:
        """Writes the end of a call without results. Ctrl-C stops the program, or a Python function that it calls."""
        b, exe = self.b, self.exe
        labels = ("interrupted", "asked", "failed_call")
        interrupted, asked, failed_call = map(b.label, labels)
        b.start(self.failed)
        b.branch_if(b.icmp("eq", status, i32(Status.INTERRUPTED)), interrupted, asked)
        b.start(interrupted)
        b.call("void", "shlo_pjrt_keep_exception", [], declare=False)
        b.branch(self.stopped)
        b.start(asked)
        answer = answer_of(b, exe.pointer("fail"), exe["number"], status)
        b.branch_if(is_interrupted(b, answer), self.stopped, failed_call)
        b.start(failed_call)
        self.end_call()
        self.ret(b.cast("inttoptr", answer, "ptr"))

    def end_call(self) -> None:
        """Ends the call of a program that returned no results."""
        self.drop_results()
        self.drop_donated(lambda argument: TRUE)
        self.let_go_all()

    def wrong_argument(self, text: str) -> V:
        return error(self.module, self.b, interface.INVALID_ARGUMENT, text)

    # ------------------------------------------------------------------ loops
    def ret(self, value: V) -> None:
        self.b.line(f"ret ptr {value.text}")

    def array(self, count: V) -> V:
        """Allocates stack space for `count` pointers, initialized to null."""
        b = self.b
        made = b.emit("ptr", f"alloca ptr, i64 {count.text}, align 16")
        b.memset(made, 0, b.mul(count, 8))
        return made

    def arguments(self, write: Callable[[V, Record, Record], None], donated: bool | None = None) -> None:
        """Writes a loop over the arguments. `write` is given the index, the ARGUMENT, and the passed buffer."""
        b, rows = self.b, self.exe.pointer("arguments")
        with b.loop(0, self.count) as i:
            argument = Record(b, ARGUMENT, b.offset(rows, b.mul(i, nbytes(ARGUMENT))))
            buffer = Record(b, BUFFER, b.load("ptr", b.element(self.given, "ptr", i)))
            if donated is None:
                write(i, argument, buffer)
            else:
                with b.if_(b.icmp("ne" if donated else "eq", argument["is_donated"], 0), "donated"):
                    write(i, argument, buffer)

    def results(self, write: Callable[[V, Record], None]) -> None:
        b, rows = self.b, self.exe.pointer("results")
        with b.loop(0, self.exe["result_count"]) as i:
            write(i, Record(b, RESULT, b.offset(rows, b.mul(i, nbytes(RESULT)))))

    def leave_if(self, condition: V, to: str) -> None:
        on = self.b.label("on")
        self.b.branch_if(condition, to, on)
        self.b.start(on)

    def take(self, size: V) -> V:
        """Allocates memory for an array, or for the program's intermediate values."""
        b = self.b
        data = b.call("ptr", "shlo_pjrt_take", [size], declare=False)
        b.store(size, self.wanted)
        self.leave_if(b.icmp("eq", data, NULL), self.no_memory)
        return data

    # ------------------------------------------------------------------ arguments
    def hold_all(self) -> None:
        b = self.b

        def look(i: V, argument: Record, buffer: Record) -> None:
            self.leave_if(b.xor(hold(b, buffer.address), TRUE), self.gone)
            b.store(buffer.address, b.element(self.held, "ptr", i))
            input = argument["input"]
            with b.if_(b.icmp("sge", input, 0), "tensor"):
                mismatch = b.call("ptr", "shlo_pjrt_mismatch", [argument.address, buffer.address, i], declare=False)
                b.store(mismatch, self.mismatch)
                self.leave_if(b.icmp("ne", mismatch, NULL), self.mismatched)
                b.store(buffer.pointer("data"), b.element(self.inputs, "ptr", input))

        self.arguments(look)

    def let_go_all(self) -> None:
        b = self.b
        with b.loop(0, self.count) as i:
            buffer = b.load("ptr", b.element(self.held, "ptr", i))
            with b.if_(b.icmp("ne", buffer, NULL), "held"):
                let_go(b, buffer)

    def is_kept(self, index: V) -> V:
        """Whether the caller wants to keep an argument that the program would take."""
        b = self.b
        options = Args(b, "ExecuteOptions", self.slot["options"])
        kept, count = options["non_donatable_input_indices"], options["num_non_donatable_input_indices"]
        with b.loop_carry(0, count, [V("i1", "false")]) as carry:
            same = b.icmp("eq", b.load("i64", b.element(kept, "i64", carry.index)), index)
            carry.next(b.or_(carry.values[0], same))
        return carry.values[0]

    def take_donated(self) -> None:
        """Marks the arguments that the program takes; their storages then belong to the call."""
        b = self.b

        def take(i: V, argument: Record, buffer: Record) -> None:
            with b.if_(b.xor(self.is_kept(i), TRUE), "taken"):
                storage = b.call("ptr", "shlo_pjrt_take_over", [buffer.address], declare=False)
                self.leave_if(b.icmp("eq", storage, NULL), self.undo_marks)
                b.store(storage, b.element(self.storages, "ptr", i))
                b.store(NULL, b.element(self.held, "ptr", i))
                let_go(b, buffer.address)

        self.arguments(take, donated=True)

    def check_others(self) -> None:
        """Checks that none of the other arguments is one that was taken."""

        def check(i: V, argument: Record, buffer: Record) -> None:
            mine = self.b.load("ptr", self.b.element(self.storages, "ptr", i))
            given_twice = self.b.and_(is_deleted(self.b, buffer), self.b.icmp("eq", mine, NULL))
            self.leave_if(given_twice, self.undo_marks)

        self.arguments(check)

    def unmark(self) -> None:
        b = self.b

        def unmark(i: V, argument: Record, buffer: Record) -> None:
            storage = b.load("ptr", b.element(self.storages, "ptr", i))
            with b.if_(b.icmp("ne", storage, NULL), "marked"):
                b.call("void", "shlo_pjrt_give_back", [buffer.address, storage], declare=False)

        self.arguments(unmark, donated=True)

    def own_donated(self) -> None:
        """Copies an argument that the program takes if others may access its memory, or if the caller keeps it."""
        b = self.b

        def own(i: V, argument: Record, buffer: Record) -> None:
            place = b.element(self.storages, "ptr", i)
            mine = b.load("ptr", place)
            storage = Record(b, STORAGE, buffer.pointer("storage"))
            alone = b.icmp("eq", atomic_load(b, "i64", storage.place("references"), "acquire"), 1)
            free = b.and_(b.and_(alone, b.icmp("ne", storage["is_own"], 0)), b.icmp("ne", mine, NULL))
            with b.if_(b.xor(free, TRUE), "shared"):
                size = buffer["nbytes"]
                data = self.take(size)
                b.memcpy(data, buffer.pointer("data"), size)
                copy = b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False)
                b.store(data, b.element(self.inputs, "ptr", argument["input"]))
                with b.if_(b.icmp("ne", mine, NULL), "given"):
                    b.call("void", "shlo_pjrt_drop", [mine], declare=False)
                b.store(copy, place)

        self.arguments(own, donated=True)

    def drop_donated(self, wanted: Callable[[Record], V]) -> None:
        b = self.b

        def drop(i: V, argument: Record, buffer: Record) -> None:
            storage = b.load("ptr", b.element(self.storages, "ptr", i))
            with b.if_(b.and_(wanted(argument), b.icmp("ne", storage, NULL)), "taken"):
                b.call("void", "shlo_pjrt_drop", [storage], declare=False)

        self.arguments(drop, donated=True)

    # ------------------------------------------------------------------ results
    def make_results(self) -> None:
        b = self.b

        def make(i: V, result: Record) -> None:
            output, argument = result["output"], result["argument"]

            def taken() -> list[V]:
                storage = Record(b, STORAGE, b.load("ptr", b.element(self.storages, "ptr", argument)))
                return [storage.pointer("data")]

            def fresh() -> list[V]:
                return [self.take(result["nbytes"])]

            with b.if_(b.icmp("sge", output, 0), "tensor"):
                (data,) = b.if_else(b.icmp("sge", argument, 0), taken, fresh)
                b.store(data, b.element(self.outputs, "ptr", output))

        self.results(make)

    def drop_results(self) -> None:
        b = self.b

        def drop(i: V, result: Record) -> None:
            with b.if_(b.and_(b.icmp("sge", result["output"], 0), b.icmp("slt", result["argument"], 0)), "fresh"):
                data = b.load("ptr", b.element(self.outputs, "ptr", result["output"]))
                with b.if_(b.icmp("ne", data, NULL), "made"):
                    b.call("void", "shlo_pjrt_give", [data, result["nbytes"]], declare=False)

        self.results(drop)

    def give_results(self, deleted: bool) -> None:
        b, exe = self.b, self.exe
        lists, device = b.load("ptr", self.slot["output_lists"]), exe.pointer("device")

        def give(i: V, result: Record) -> None:
            output, argument, size = result["output"], result["argument"], result["nbytes"]

            def token() -> list[V]:
                return [b.call("ptr", "shlo_pjrt_take", [size], declare=False)]

            def tensor() -> list[V]:
                return [b.load("ptr", b.element(self.outputs, "ptr", output))]

            (data,) = b.if_else(b.icmp("slt", output, 0), token, tensor)

            def taken() -> list[V]:
                return [b.load("ptr", b.element(self.storages, "ptr", argument))]

            def fresh() -> list[V]:
                return [b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False)]

            (storage,) = b.if_else(b.icmp("sge", argument, 0), taken, fresh)
            facts = [size, result["type"], result["rank"], result.pointer("dims"), device, result.pointer("memory")]
            made = b.call("ptr", "shlo_pjrt_buffer", [storage, data, *facts], declare=False)
            if deleted:  # except tokens, which have no contents: operations that follow them in order still can run
                with b.if_(b.icmp("sge", output, 0), "contents"):
                    b.call("void", "shlo_pjrt_delete", [made], declare=False)
            b.store(made, b.element(lists, "ptr", i))

        self.results(give)

    # ------------------------------------------------------------------ the program
    def run(self) -> V:
        """Returns the program's status."""
        b, exe = self.b, self.exe
        size = exe["arena_bytes"]

        def take() -> list[V]:
            return [self.take(size)]

        self.leave_if(must_raise(b), self.stopped)
        (arena,) = b.if_else(b.icmp("ne", size, 0), take, lambda: [NULL])
        arguments = [self.inputs, self.outputs, NULL, arena, exe.pointer("instance")]
        status = b.call_pointer("i32", exe.pointer("main"), arguments)
        with b.if_(b.icmp("ne", arena, NULL), "arena"):
            b.call("void", "shlo_pjrt_give", [arena, size], declare=False)
        return status
