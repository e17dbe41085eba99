"""The function that is being written: its builder, its parameters, known addresses, and the ways out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.kernels.threads import jobs


@dataclass(eq=False)
class Scope:
    """A function that runs steps: the program's entry, a function it calls, or a part of one. Its parameters begin with
    those of `codegen/abi.py`."""

    b: Builder
    moved: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that loops around the current place swap."""
    work: int = 0
    """Work on the path to the current place, since the last check for signals or the head of the loop around it; see
    `interrupts.py`."""
    addresses: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that do not change, loaded at the function's entry."""
    budget: V | None = None
    """Stack slot with the budget of work between checks for signals in its loops."""
    records: V | None = None
    """Memory for the tasks of a parallel region. Its regions run one after the other, and share it."""
    may_fail: bool = False
    """Whether the function may return another status than 0."""
    before_failing: list[Callable[[], object]] = field(default_factory=list)
    """What to emit where the function returns early, the last first."""

    @property
    def args(self) -> V:
        return self.b.params[0]

    @property
    def results(self) -> V:
        return self.b.params[1]

    @property
    def dims(self) -> V:
        return self.b.params[2]

    @property
    def arena(self) -> V:
        return self.b.params[3]

    @property
    def instance(self) -> V:
        return self.b.params[4]

    def field(self, name: str) -> V:
        """Loads a field of the instance."""
        return abi.load(self.b, self.instance, name)

    def jobs(self) -> V:
        """The address of the records of a parallel region."""
        if self.records is None:
            self.records = self.b.alloca("i8", tuning.REGION_STEPS * jobs.JOB_BYTES)
        return self.records

    def constant(self, index: int) -> V:
        """The address of one of the program's constants."""
        return abi.load_constant(self.b, self.instance, index)

    def call_steps(self, name: str, arguments: list[V], may_fail: bool) -> None:
        """Emits a call of a function that runs steps."""
        status = self.b.call("i32", name, arguments, declare=False)
        if may_fail:
            self.leave_unless_ok(status)

    def leave_unless_ok(self, status: V, origin: int | None = None) -> None:
        """Emits a return from the function if `status` is not OK. If the status comes from the host, `origin` is the
        number of the custom call or NO_CALL, for the error record."""
        b = self.b
        fail, go_on = b.label("fail"), b.label("on")
        b.branch_if(b.icmp("ne", status, i32(abi.Status.OK)), fail, go_on)
        b.start(fail)
        for emit in reversed(self.before_failing):
            emit()
        if origin is not None:
            abi.store_error(b, self.instance, status, origin)
        b.line(f"ret i32 {status.text}")
        b.start(go_on)
        self.may_fail = True
