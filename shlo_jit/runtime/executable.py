"""A compiled program that can be called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from shlo_jit.codegen.abi import AT_CALL
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.arguments import port_names
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.fastcall import fast_call
from shlo_jit.runtime.front import Front, Signature
from shlo_jit.runtime.host import Channel, Host, Infeed, Outfeed
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.ports import DynamicSignature
from shlo_jit.sizes import Symbol

if TYPE_CHECKING:
    import inspect
    import os

    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.options import CompileOptions, GivenMoves
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.trace import Trace


class Memory(NamedTuple):
    """Memory that an executable holds and needs, in bytes."""

    arena: int
    """Scratch memory of one call."""
    constants: int
    outputs: int
    """Memory of the results of one call."""


class MemoryAnalysis(NamedTuple):
    """The memory of a program, in bytes, by the names of `jax.stages.Compiled.memory_analysis`."""

    generated_code_size_in_bytes: int
    """Machine code and its tables; excludes routines that programs share."""
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    """Results that are computed in donated arguments' memory; counted among arguments and results too."""
    temp_size_in_bytes: int
    """Scratch memory of one call."""
    constant_size_in_bytes: int = 0
    """Weights in the text, as they are kept for calls."""
    host_generated_code_size_in_bytes: int = 0
    """Memory of a host besides the device, like all fields with this prefix. Here the host is the device."""
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0

    @property
    def peak_memory_in_bytes(self) -> int:
        """Peak memory of one call, without code and constants."""
        passed = self.argument_size_in_bytes + self.output_size_in_bytes - self.alias_size_in_bytes
        return passed + self.temp_size_in_bytes


class _CallSignature:
    """`__signature__` of an executable, for `inspect.signature` and editors; the class has none."""

    def __get__(self, exe: InProcess | None, owner: type) -> inspect.Signature:
        import inspect

        if exe is None:
            raise AttributeError("__signature__")
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, annotation=str(port))
            for name, port in zip(port_names(exe.inputs), exe.inputs, strict=True)
        ]
        results = ", ".join(map(str, exe.outputs))
        return inspect.Signature(parameters, return_annotation=results if len(exe.outputs) == 1 else f"({results})")


class InProcess:
    """An object that is called with arrays, and is machine code in this process."""

    __signature__ = _CallSignature()
    __slots__ = ("__weakref__", "inputs", "outputs")
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """Returns the decisions on the programs that run one after the other in a call: the prefix of the labels of
        steps, and the functions, callees first. The stages run again for that. Raises ValueError for a loaded library.
        """
        raise NotImplementedError

    def cost_analysis(self, *, per_step: bool = False) -> Any:
        """Returns lower bounds of a call's computations and memory traffic: a dictionary by JAX's names (`flops`,
        `transcendentals`, `bytes accessed`, ...). With `per_step`, returns a list of those, for each step as in the
        printed plan. See `lower/costs.py`. Raises ValueError for a loaded library, whose steps are not known."""
        from shlo_jit.lower.costs import added, cost_analysis, step_analysis

        programs = self.planned()
        if per_step:
            return [step for label, functions in programs for step in step_analysis(functions, label)]
        return added([cost_analysis(functions) for _, functions in programs])

    def _repr_html_(self) -> str:
        """Returns the representation in notebooks, drawn by a package above this one."""
        return import_module("shlo_jit.pictures.summary").executable_html(self)

    def __copy__(self) -> InProcess:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> InProcess:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{_with_article(type(self).__name__)} is machine code in this process and cannot be pickled: send the "
            f"program's text and compile it there, which the object cache makes quick"
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<{type(self).__name__} ({inputs}) -> ({outputs})>"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


class Tunable(NamedTuple):
    """A program that is compiled with several schedules."""

    options: CompileOptions
    identity: bytes
    """Identifies the program in every process."""
    variant: Callable[[GivenMoves], Executable]
    """Builds the program with a schedule; it goes into the object cache. Raises OptionError for an illegal schedule."""
    timed: Callable[[GivenMoves], Executable]
    """Builds the variant that records how long its steps take. Raises as `variant`."""
    planned: Callable[[GivenMoves], list[PlannedFunction]]
    """Returns all decisions before lowering with a schedule, callees first. Raises as `variant`."""


class Remake(NamedTuple):
    """Functions that compile an executable's program again: it does not keep it."""

    texts: Mapping[str, Callable[[], str]]
    """Functions that return the program's text at a stage, by the name of the stage."""
    timed: Callable[[Host], Executable]
    """Builds the variant that records how long its steps take, with queues that it shares."""
    planned: Callable[[], list[PlannedFunction]]
    """Returns all decisions before lowering, callees first."""
    tunable: Callable[[], Tunable] | None = None
    """Parses the program for compiling it with several schedules."""


class Executable(InProcess):
    """A compiled program. Call it with arrays, in the order of `inputs` or by their names: `exe(x, y)`, `exe(x, w=y)`.
    One result is an array, several are a tuple. Threads may share it; copies are the executable itself, and other
    processes compile their own."""

    __slots__ = ("__call__", "_fast", "_front", "_own_call", "_remake")
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]

    def __init__(
        self,
        instance: Instance,
        target: Target,
        cache: ObjectCache | None = None,
        remake: Remake | None = None,
    ) -> None:
        self._front = front = Front(instance)
        self._remake = remake
        self.inputs = tuple(_signature(p) for p in front.program.inputs)
        self.outputs = tuple(_signature(p) for p in front.program.outputs)
        self._fast = fast_call(front, target, cache)
        self.__call__ = self._own_call = front.call if self._fast is None else self._fast.function()

    def before(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call function that tries this code, and calls `otherwise` for arguments that its machine code
        rejects."""
        return otherwise if self._fast is None else self._fast.function(otherwise)

    @property
    def memory(self) -> Memory:
        """Memory of the executable. A program for any batch size has that of the size it was tuned for."""
        instance = self._front.instance
        symbol, outputs = self.symbol, self._front.program.outputs
        if symbol is not None:
            shapes = instance.sizes_for(symbol.hint).shapes
            outputs = [port._replace(shape=shape) for port, shape in zip(outputs, shapes, strict=True)]
        return Memory(instance.memory_bytes, instance.loaded.constant_bytes, sum(port.nbytes for port in outputs))

    def memory_analysis(self) -> MemoryAnalysis:
        """Returns the memory use of the program, by JAX's names. A program for any batch size has that of the size it
        was tuned for."""
        instance, program = self._front.instance, self._front.program
        symbol, memory = self.symbol, self.memory
        inputs = [port if symbol is None else port.at(symbol.hint) for port in program.inputs]
        return MemoryAnalysis(
            instance.loaded.code_bytes,
            sum(port.nbytes for port in inputs),
            memory.outputs,
            sum(inputs[i].nbytes for i in program.output_aliases.values()),
            memory.arena,
            memory.constants,
        )

    @property
    def symbol(self) -> Symbol | None:
        """Range of the program's batch size if that is known only at the call."""
        return self._front.program.symbol

    @property
    def overwritten(self) -> tuple[int, ...]:
        """Donated arguments whose memory a call writes to."""
        program = self._front.program
        return tuple(sorted({*program.output_aliases.values(), *program.overwritten}))

    @property
    def threads(self) -> int:
        """Maximum number of threads of a call."""
        return self._front.instance.threads

    @property
    def infeed(self) -> Infeed:
        """Queue of the program's infeeds: `exe.infeed.put(x)`; see `runtime/host.py`."""
        return self._front.instance.host.infeed

    @property
    def outfeed(self) -> Outfeed:
        """Queue of the program's outfeeds: `exe.outfeed.get(time_out=5)`."""
        return self._front.instance.host.outfeed

    def channel(self, handle: int) -> Channel:
        """Returns the channel of host transfers with that handle: `put` for the program's recv, `get` from its send."""
        return self._front.instance.host.channel(handle)

    def profile(self) -> Profile:
        """Profiles where the time goes, step by step: `with exe.profile() as p:`, calls of the executable, and
        `print(p)`. The program is compiled again for it, with clock reads; see `runtime/profile.py`. Raises ValueError
        for a loaded library; the `with` raises RuntimeError within another profile or trace."""
        from shlo_jit.runtime.profile import Profile

        return Profile(self.parts())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Traces when each step ran, to a file for trace viewers: `with exe.trace("t.json"):` and calls of the
        executable; see `runtime/trace.py`. Raises as `profile`. The `with` raises OSError before it begins if the file
        cannot be written, and ValueError at its end if no call was made."""
        from shlo_jit.runtime.trace import Trace

        return Trace(self.parts(), path)

    def parts(self) -> list[tuple[str, Executable, Executable]]:
        """Returns the parts that profiles and traces consist of: see `runtime/measured.py`. Raises ValueError for a
        loaded library."""
        if self._remake is None:
            raise ValueError("only programs that were compiled from StableHLO here can be profiled or traced")
        return [("", self, self._remake.timed(self._front.instance.host))]

    def planned(self) -> list[tuple[str, list[PlannedFunction]]]:
        """See `InProcess.planned`."""
        if self._remake is None:
            raise ValueError("only programs that were compiled from StableHLO here can be inspected")
        return [("", self._remake.planned())]

    def tunable(self) -> Tunable:
        """Returns the program for a search over schedules. Raises ValueError for a loaded library."""
        if self._remake is None or self._remake.tunable is None:
            raise ValueError("only programs that were compiled from StableHLO here can be tuned")
        return self._remake.tunable()

    def run_variant(self, variant: Executable) -> None:
        """Makes calls run a variant of the program, until `run_original`. Raises RuntimeError if they run one
        already."""
        if self.__call__ is not self._own_call:
            raise RuntimeError("this executable is being profiled or traced already")
        self.__call__ = variant.__call__

    def run_original(self) -> None:
        self.__call__ = self._own_call

    def text(self, stage: str) -> str:
        """Returns the program at a stage of its compilation: one of `shlo_jit.stages.STAGES`, such as `plan` or `asm`.
        Raises ValueError for another name, and for a loaded library, which has no text."""
        if self._remake is None:
            raise ValueError("only programs that were compiled from StableHLO here have texts")
        texts = self._remake.texts
        if not isinstance(stage, str) or stage not in texts:
            raise ValueError(f"unknown stage {stage!r}: expected one of {', '.join(texts)}")
        return texts[stage]()


def _signature(port: Port) -> Any:
    if AT_CALL in port.shape:
        return DynamicSignature(port.name, tuple(None if n == AT_CALL else n for n in port.shape), port.dtype.numpy)
    return Signature(port.name, port.shape, port.dtype.numpy)
