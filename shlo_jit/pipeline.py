"""The stages, once, in order: text to Module to Plan to Program to machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shlo_jit.codegen import routines
from shlo_jit.codegen.background import Background
from shlo_jit.deep import deeply
from shlo_jit.errors import Diagnostic, InternalError, StableHLOError, UnsupportedError, VerifyError, diagnose
from shlo_jit.forking import compiling, pause
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Module, is_declaration
from shlo_jit.kernels.target import Target
from shlo_jit.log import LOG, stage
from shlo_jit.options import CompileOptions, OptionError, check_donated
from shlo_jit.runtime import build
from shlo_jit.runtime.cache import program_key
from shlo_jit.runtime.callbacks import is_known
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.executable import Executable
from shlo_jit.sources import Text
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module

if TYPE_CHECKING:
    from shlo_jit.codegen.program import Program
    from shlo_jit.fuse.plan import PlanBlock
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


def compile_source(source: Text | Module, options: CompileOptions) -> Executable:
    """Program to an Executable, from the object cache where it knows the program. Raises OptionError for options that
    the program cannot have."""
    stages = _stages(source, options)
    key = None
    if options.cache:
        key = program_key(_text_of(source), options)
        found = build.from_cache(
            key,
            options.target,
            threads=options.threads,
            custom_calls=options.implementations,
            stages=stages,
        )
        LOG.debug("%s: %s the object cache (%s)", _name_of(source), "in" if found is not None else "not in", key[:12])
        if found is not None:
            return found
    cpus = usable_cpus()
    with Background(cpus - 1) as background:
        store = build.resolve_cache(options.cache)
        starting = routines.Starting(options.target, store, background, PARTS_PER_CPU * cpus)
        for routine in routines.own_routines().values():
            starting.start(routine)
        try:
            lowered = lower(parsed(source), options, starting.start)
        except (StableHLOError, MemoryError, OptionError):
            raise
        except Exception as error:  # whatever went wrong, the caller gets one documented exception
            what = f"{type(error).__name__}: {error}"
            raise InternalError(f"shlo_jit failed on this program ({what}); please report it") from error
        return build.build(
            lowered.program,
            options.target,
            threads=options.threads,
            custom_calls=options.implementations,
            key=key,
            cache=options.cache,
            stages=stages,
            starting=starting,
        )


def program_of(text: str, name: str, target: Target, calls: Iterable[str] = ()) -> Program:
    """Text to LLVM text, for a machine that need not be this one; `calls` as in CompileOptions."""
    return lower(parsed(Text(text, name)), CompileOptions(target, calls=frozenset(calls))).program


def parsed(source: Text | Module) -> Module:
    """The Module of a text; one that is given as such, as it is. Raises ParseError."""
    if isinstance(source, Module):
        return source
    with stage("parse"):
        return parse_module(source.text, source.name)


def _text_of(source: Text | Module) -> str:
    """What the cache knows a program by. A Module is printed for this only."""
    return str(source) if isinstance(source, Module) else source.text


def _name_of(source: Text | Module) -> str:
    return source.source.name if isinstance(source, Module) else source.name


@deeply
@paused_collector()
def lower(
    module: Module,
    options: CompileOptions,
    on_routine: Callable[[Routine], None] = lambda routine: None,
) -> Lowered:
    """A Module to a Program, with what was made on the way. `on_routine` hears early of every routine it calls."""
    from shlo_jit.fuse.group import group_block
    from shlo_jit.lower.program import FunctionPlan, ProgramLowering
    from shlo_jit.passes import core_functions

    entry, is_registered = options.entry, options.calls.__contains__
    pause()
    with stage("verify"):
        diagnostics = verify_module(module, is_registered=is_registered)
    if diagnostics:
        raise VerifyError(diagnostics)
    pause()
    function = module.function(entry)
    if function is None:
        known = ", ".join("@" + f.attributes["sym_name"] for f in module.functions())
        raise StableHLOError(Diagnostic(f"no function @{entry}; the program has {known or 'none'}", module.source.name))
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

    check_donated(options.donate, len(functions[-1].arguments))
    with stage("lower"):
        known_call = partial(is_known, calls=options.calls)
        lowering = ProgramLowering(functions, options.target, known_call, frozenset(options.donate), on_routine)
        program = lowering.run()
    return Lowered(module, functions, program)


def _stages(source: Text | Module, options: CompileOptions) -> dict[str, Callable[[], str]]:
    """What `exe.text(stage)` shows, lowered again when asked: an executable does not keep its program."""

    @compiling()
    def again() -> Lowered:
        return lower(parsed(source), options)

    @compiling()
    def plan() -> str:
        from shlo_jit.fuse.show import show_plan

        *callees, entry = [(f.name, show_plan(f.plan, f.memory)) for f in again().functions if f.memory is not None]
        return "\n\n".join([entry[1], *(f"@{name}: {text}" for name, text in callees)])

    @compiling()
    def optimized(emit: str) -> str:
        from shlo_jit.codegen import optimize

        module = optimize.optimize(again().program.text, options.target)
        return str(module) if emit == "llvm" else optimize.emit_assembly(module, options.target)

    return {
        "module": lambda: str(again().module),
        "plan": plan,
        "llvm": lambda: optimized("llvm"),
        "asm": lambda: optimized("asm"),
    }
