"""The stages, once, in order: text to Module to Plan to Program to machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shlo_jit.codegen import routines
from shlo_jit.codegen.background import Background
from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.deep import deeply
from shlo_jit.errors import Diagnostic, InternalError, StableHLOError, UnsupportedError, VerifyError, diagnose
from shlo_jit.forking import compiling, pause
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import is_declaration
from shlo_jit.kernels.target import Target
from shlo_jit.log import LOG, stage
from shlo_jit.options import OptionError, check_donated
from shlo_jit.runtime import build
from shlo_jit.runtime.cache import program_key
from shlo_jit.runtime.callbacks import find_custom_call, registered
from shlo_jit.runtime.cpus import thread_count, usable_cpus
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.host import HOST_CALLS
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module

if TYPE_CHECKING:
    from shlo_jit.codegen.program import Program
    from shlo_jit.fuse.plan import PlanBlock
    from shlo_jit.ir.core import Module
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.lower.program import FunctionPlan
    from shlo_jit.memory.storage import MemoryPlan


PARTS_PER_CPU = 2
"""Parts that large texts are cut into for LLVM: more than one, since they take different times."""


@dataclass
class Lowered:
    """A program at every stage before machine code."""

    module: Module
    """As parsed and verified."""
    functions: list[FunctionPlan]
    """Those that are called and not written out, callees first, and the entry function."""
    program: Program

    @property
    def plan(self) -> PlanBlock:
        """The steps of the entry function."""
        return self.functions[-1].plan

    @property
    def memory(self) -> MemoryPlan:
        """Where the values of the entry function live."""
        memory = self.functions[-1].memory
        assert memory is not None
        return memory


@compiling()
def compile_text(
    text: str,
    name: str,
    entry: str,
    *,
    threads: int | None,
    target: str,
    custom_calls: Mapping[str, Callable[..., Any]] | None,
    cache: bool,
    donate: tuple[int, ...],
) -> Executable:
    """Text to an Executable, from the object cache where it knows the program. Raises ValueError for options that the
    machine or the program cannot have."""
    machine = resolve(target)
    check_runs_here(machine)
    threads = thread_count(threads)
    calls = custom_calls or {}
    options = {"entry": entry, "calls": sorted(registered(calls)), "donate": donate}
    key = program_key(text, options, machine)
    stages = _stages(text, name, entry, machine, calls, donate)
    if cache:
        found = build.from_cache(key, machine, threads=threads, custom_calls=calls, stages=stages)
        LOG.debug("%s: %s the object cache (%s)", name, "in" if found is not None else "not in", key[:12])
        if found is not None:
            return found
    cpus = usable_cpus()
    with Background(cpus - 1) as background:
        starting = routines.Starting(machine, build.resolve_cache(cache), background, PARTS_PER_CPU * cpus)
        for routine in routines.own_routines().values():
            starting.start(routine)
        try:
            lowered = lower(text, name, entry, machine, calls, donate, starting.start)
        except (StableHLOError, MemoryError, OptionError):
            raise
        except Exception as error:  # whatever went wrong, the caller gets one documented exception
            what = f"{type(error).__name__}: {error}"
            raise InternalError(f"shlo_jit failed on this program ({what}); please report it") from error
        return build.build(
            lowered.program,
            machine,
            threads=threads,
            custom_calls=calls,
            key=key,
            cache=cache,
            stages=stages,
            starting=starting,
        )


@deeply
@paused_collector()
def lower(
    text: str,
    name: str,
    entry: str,
    machine: Target,
    calls: Mapping[str, Any],
    donate: tuple[int, ...] = (),
    on_routine: Callable[[Routine], None] = lambda routine: None,
) -> Lowered:
    """Text to a Program, with what was made on the way. `on_routine` hears early of every routine it calls."""
    from shlo_jit.fuse.group import group_block
    from shlo_jit.lower.program import FunctionPlan, ProgramLowering
    from shlo_jit.passes import core_functions

    is_registered = registered(calls).__contains__
    with stage("parse"):
        module = parse_module(text, name)
    pause()
    with stage("verify"):
        diagnostics = verify_module(module, is_registered=is_registered)
    if diagnostics:
        raise VerifyError(diagnostics)
    pause()
    function = module.function(entry)
    if function is None:
        known = ", ".join("@" + f.attributes["sym_name"] for f in module.functions())
        raise StableHLOError(Diagnostic(f"no function @{entry}; the program has {known or 'none'}", name))
    if is_declaration(function):
        raise UnsupportedError(diagnose(f"function @{entry} has no body", function.span))
    with stage("passes"):
        cores = core_functions(module, function, is_registered)
    with stage("fuse"):
        blocks = [core.block() for core in cores]
        names = [core.attributes["sym_name"] for core in cores]
        functions = [
            FunctionPlan(name, block.arguments, group_block(block)) for name, block in zip(names, blocks, strict=True)
        ]
    pause()

    def known_call(target: str) -> bool:
        return target in HOST_CALLS or find_custom_call(target, calls) is not None

    check_donated(donate, len(functions[-1].arguments))
    with stage("lower"):
        lowering = ProgramLowering(functions, machine, known_call, frozenset(donate), on_routine)
        program = lowering.run()
    return Lowered(module, functions, program)


def _stages(
    text: str,
    name: str,
    entry: str,
    machine: Target,
    calls: Mapping[str, Any],
    donate: tuple[int, ...],
) -> dict[str, Callable[[], str]]:
    """What `exe.text(stage)` shows, lowered again when asked: an executable does not keep its program."""

    @compiling()
    def again() -> Lowered:
        return lower(text, name, entry, machine, calls, donate)

    @compiling()
    def plan() -> str:
        from shlo_jit.fuse.show import show_plan

        *callees, entry = [(f.name, show_plan(f.plan, f.memory)) for f in again().functions if f.memory is not None]
        return "\n\n".join([entry[1], *(f"@{name}: {text}" for name, text in callees)])

    @compiling()
    def optimized(emit: str) -> str:
        from shlo_jit.codegen import optimize

        module = optimize.optimize(again().program.text, machine)
        return str(module) if emit == "llvm" else optimize.emit_assembly(module, machine)

    return {
        "module": lambda: str(again().module),
        "plan": plan,
        "llvm": lambda: optimized("llvm"),
        "asm": lambda: optimized("asm"),
    }
