"""The stages of compilation in order: text to Module to Plan to Program to machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from shlo_jit import tuning
from shlo_jit.deep import deeply
from shlo_jit.errors import Diagnostic, StableHLOError, UnsupportedError, VerifyError, diagnose
from shlo_jit.failed import defects
from shlo_jit.forking import compiling, pause
from shlo_jit.ir.collector import paused_collector
from shlo_jit.log import debug, stage
from shlo_jit.options import CompileOptions, GivenMoves, OptionError, check_donated
from shlo_jit.runtime import build, lapack, routines, stored_schedules
from shlo_jit.runtime.cache import derived_key, program_key, text_digest
from shlo_jit.runtime.callbacks import is_known
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.executable import Executable, Remake, Tunable
from shlo_jit.sources import Artifact, Check, Derived, ProgramSource, Text, content, unchecked
from shlo_jit.stages import texts

if TYPE_CHECKING:
    from shlo_jit.codegen.objects import Compiled
    from shlo_jit.codegen.program import Program
    from shlo_jit.fuse.plan import PlanBlock
    from shlo_jit.ir.core import Module, Op
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.planned import Lowered, PlannedFunction
    from shlo_jit.memory.storage import MemoryPlan
    from shlo_jit.passes.context import Code
    from shlo_jit.runtime.host import Host
    from shlo_jit.schedule.moves import Move
    from shlo_jit.schedule.schedule import Schedule
    from shlo_jit.text.literals import Literal

T = TypeVar("T")


def compile_static(source: ProgramSource, options: CompileOptions) -> Executable:
    """Compiles a program to an Executable, or loads it from the object cache.

    Raises OptionError for options that are invalid for the program.
    """

    def compiled(options: CompileOptions) -> Executable:
        key = key_of(source, options)
        found = cached(source, options, key)
        return compile_new(source, options, key) if found is None else found

    return with_schedule(source, options, compiled)


def with_schedule(source: ProgramSource, options: CompileOptions, made: Callable[[CompileOptions], T]) -> T:
    """Calls `made` with the schedule of the options: given moves, none, or the stored schedule if there is one. A
    stored schedule that the program refuses does not count."""
    kind = options.schedule
    if not isinstance(kind, str):
        return made(options)
    cache = build.resolve_cache(options.cache)
    found = None if cache is None else stored_schedules.find(identity_of(source), options, kind, cache)
    debug("%s: %s", _name_of(source), "no stored schedule" if found is None else "with the stored schedule")
    if found is not None:
        try:
            return made(replace(options, schedule=found))
        except OptionError as error:
            debug("%s: the stored schedule is refused: %s", _name_of(source), error)
    return made(replace(options, schedule=()))


def cached(source: ProgramSource, options: CompileOptions, key: str | None) -> Executable | None:
    """Looks up a program in the object cache; None without a key."""
    if key is None:
        return None
    found = build.from_cache(
        key,
        options.target,
        threads=options.threads,
        custom_calls=options.implementations,
        host=options.host,
        remake=_remake(source, options),
        literals=_literals(source),
    )
    debug("%s: %s the object cache (%s)", _name_of(source), "in" if found is not None else "not in", key[:12])
    return found


def _literals(source: ProgramSource) -> Sequence[Literal]:
    if isinstance(source, Derived):
        return source.literals
    return [cut.literal for cut in source.cuts] if isinstance(source, Text) else []


def compile_new(
    source: ProgramSource, options: CompileOptions, key: str | None, module: Module | None = None
) -> Executable:
    """Compiles a program to an Executable, and stores it in the object cache if there is a key.

    `module`: the Module of the source, if it exists already.
    """
    given = source if module is None else module
    return _compile(given, options, key, _remake(source, options), check_of(source))


def _remake(source: ProgramSource, options: CompileOptions) -> Remake:
    def timed(host: Host) -> Executable:
        return _compile(source, replace(options, profile=True, host=host), None, None)

    @compiling()
    def planned() -> list[PlannedFunction]:
        _, functions = plan(parsed(source), options)
        return functions

    made = texts(lambda: lower(parsed(source), options), options.target)
    return Remake(made, timed, planned, partial(_tunable, source, options))


def _tunable(source: ProgramSource, options: CompileOptions) -> Tunable:
    """A program as tuning sees it. It is parsed once."""
    module = parsed(source)

    def variant(moves: GivenMoves) -> Executable:
        changed = replace(options, schedule=moves)
        key = key_of(source, changed)
        found = cached(source, changed, key)
        return compile_new(source, changed, key, module) if found is None else found

    def timed(moves: GivenMoves) -> Executable:
        return _compile(module, replace(options, schedule=moves, profile=True), None, None)

    @compiling()
    def planned(moves: GivenMoves) -> list[PlannedFunction]:
        _, functions = plan(module, replace(options, schedule=moves))
        return functions

    return Tunable(options, identity_of(source), variant, timed, planned)


def compile_code(source: ProgramSource, options: CompileOptions) -> Compiled:
    """Compiles a program to machine code that is not loaded. It may come from the object cache, with its routines."""
    assert not isinstance(options.schedule, str)
    key = key_of(source, options)
    store = build.resolve_cache(options.cache)
    found = None if key is None else build.find(key, options.target, store)
    if found is not None and routines.all_found(found.routines, options.target, store):
        return found
    made = partial(build.generate, target=options.target, key=key, cache=options.cache)
    return _through(source, options, made, check_of(source))


def check_of(source: ProgramSource) -> Check:
    """Returns the function that raises OSError if data that the program was made of has changed."""
    return source.check if isinstance(source, Derived) else unchecked


def _compile(
    source: ProgramSource, options: CompileOptions, key: str | None, remake: Remake | None, check: Check = unchecked
) -> Executable:
    made = partial(
        build.build,
        target=options.target,
        threads=options.threads,
        custom_calls=options.implementations,
        host=options.host,
        key=key,
        cache=options.cache,
        remake=remake,
    )
    return _through(source, options, made, check)


@compiling()
def _through(source: ProgramSource, options: CompileOptions, made: Callable[..., T], check: Check) -> T:
    """Runs all stages. `made` converts the lowered program and the routines being compiled to the result, which may go
    into the object cache. `check` raises OSError if data that the program was made of has changed."""
    from shlo_jit.codegen.background import Background

    cpus = usable_cpus()
    with Background(cpus - 1) as background:
        store = build.resolve_cache(options.cache)
        starting = routines.Starting(options.target, store, background, tuning.PARTS_PER_CPU * cpus)
        for routine in routines.common_routines():
            starting.start(routine)
        with defects(lambda: parsed(source), options.entry):
            lowered = lower(parsed(source), options, starting.start)
        check()
        with defects(lambda: parsed(source), options.entry):
            return made(lowered.program, starting=starting)


def program_of(text: str, name: str, target: Target, calls: Iterable[str] = ()) -> Program:
    """Compiles a text to LLVM text, for any machine; `calls` as in CompileOptions."""
    return lower(parsed(Text(text, name)), CompileOptions(target, calls=frozenset(calls))).program


def parsed(source: ProgramSource) -> Module:
    """Parses a text or an artifact; a Module is returned unchanged. Raises ParseError."""
    if isinstance(source, Text):
        from shlo_jit.text.literals import read_all
        from shlo_jit.text.parser import parse_module

        with stage("parse"):
            read_all((c.literal for c in source.cuts), usable_cpus())
            return parse_module(source.text, source.name, source.cuts)
    if isinstance(source, Artifact):
        from shlo_jit.bytecode.reader import read_artifact
        from shlo_jit.text.literals import read_all

        with stage("parse"):
            read_all(source.literals.values(), usable_cpus())
            return read_artifact(source.data, source.name, source.literals)
    return source.make() if isinstance(source, Derived) else source


def key_of(source: ProgramSource, options: CompileOptions) -> str | None:
    """Key of a program in the object cache; None if the cache is not used. A Module is printed only for this."""
    if not options.cache:
        return None
    if isinstance(source, Derived):
        return derived_key(source.identity(), options)
    return program_key(content(source), options)


def identity_of(source: ProgramSource) -> bytes:
    """Identifies a program in every process, for the key of its tuned schedule."""
    return source.identity() if isinstance(source, Derived) else text_digest(content(source))


def _name_of(source: ProgramSource) -> str:
    return source.name if isinstance(source, Text | Artifact | Derived) else source.source.name


@deeply
@paused_collector()
def lower(
    module: Module,
    options: CompileOptions,
    on_routine: Callable[[Routine], None] = lambda routine: None,
    on_pass: Callable[[str, Op], None] = lambda name, function: None,
) -> Lowered:
    """Lowers a Module to a Program; also returns intermediate results.

    `on_routine` is called for every routine that the program calls, as early as possible; `on_pass` for every function
    after every pass. Each stage is a function whose result can be printed: see `shlo_jit/stages.py`.
    """
    from shlo_jit.lower.planned import Lowered
    from shlo_jit.lower.program import lower_program

    function, functions = plan(module, options, on_routine, on_pass)
    with stage("lower"):
        program = lower_program(functions, options.target, timed=options.profile)
    _name_ports(program, function)
    return Lowered(module, functions, program)


@deeply
@paused_collector()
def plan(
    module: Module,
    options: CompileOptions,
    on_routine: Callable[[Routine], None] = lambda routine: None,
    on_pass: Callable[[str, Op], None] = lambda name, function: None,
) -> tuple[Op, list[PlannedFunction]]:
    """Runs the stages before lowering, which make all decisions.

    Returns the original entry function, and the functions to lower, callees first.
    """
    with stage("verify"):
        function = verified(module, options)
    # Do this before importing the stages, which takes as long as compiling a small program.
    from shlo_jit.schedule.precompile import routines_to_precompile

    for routine in routines_to_precompile(module, options.target):
        on_routine(routine)

    from shlo_jit.fuse.fuse import fuse
    from shlo_jit.ir.dynamic_values import has_dynamic_shapes
    from shlo_jit.passes.refine.elementwise_calls import elementwise_calls
    from shlo_jit.passes.refine.refine import refine_module
    from shlo_jit.traits import Traits

    if has_dynamic_shapes(module):
        with stage("refine"):
            types = [argument.type for argument in function.block().arguments]
            refined = refine_module(elementwise_calls(module, options.elementwise_code), options.entry, types)
            function = refined.function(options.entry) or function
    else:
        refined = module
    with stage("passes"):
        cores = _cores(refined, function, options, on_pass)
    pause()
    if options.reproducible:
        from shlo_jit.schedule.sum_order import refuse_unordered

        refuse_unordered(cores)
    given_up = _given_up(function, cores[-1]) if options.donate == "program" else options.donate
    check_donated(given_up, len(cores[-1].block().arguments))
    with stage("fuse"):
        # Which steps run together may change orders of sums: reproducible results must not depend on an instruction.
        traits = Traits(options.target.caches, options.target.sums_bytes and not options.reproducible)
        plans = [fuse(core, traits) for core in cores]
    pause()
    with stage("schedule"):
        schedules = _schedules(cores, plans, options, on_routine)
    pause()
    with stage("memory"):
        functions = _with_memory(cores, plans, schedules, given_up)
    pause()
    return function, functions


def _cores(module: Module, function: Op, options: CompileOptions, on_pass: Callable[[str, Op], None]) -> list[Op]:
    """The functions of the program in canonical form, callees first."""
    from shlo_jit.passes import core_functions

    return core_functions(
        module,
        function,
        options.calls.__contains__,
        on_pass,
        num_replicas=options.num_replicas,
        num_partitions=options.num_partitions,
        channels=dict(options.channels),
        same_program=options.same_program,
        code=_code(options),
        fold_scales=options.fold_scales,
        rounded=options.round_activations,
        assume_finite=options.assume_finite,
        reproducible=options.reproducible,
        caches=options.target.caches,
        has_lapack=_has_lapack(options),
    )


def _has_lapack(options: CompileOptions) -> Callable[[], bool]:
    return lapack.is_available if options.has_lapack is None else lambda: bool(options.has_lapack)


def _schedules(
    cores: list[Op], plans: list[PlanBlock], options: CompileOptions, on_routine: Callable[[Routine], None]
) -> list[Schedule]:
    """How the steps of each function run. Raises OptionError for a given move that is illegal."""
    from shlo_jit.schedule.moves import IllegalMove
    from shlo_jit.schedule.schedule import Context, schedule

    context = Context(
        options.target,
        partial(is_known, calls=options.calls),
        has_lapack=_has_lapack(options),
        processes=options.processes,
        reaches=options.reaches and options.same_program,
        on_routine=on_routine,
    )
    context = context._replace(given=_given_moves(options, cores, plans))
    try:
        return [schedule(plan, context) for plan in plans]
    except IllegalMove as error:
        raise OptionError(f"schedule: {error}") from None


def _with_memory(
    cores: Sequence[Op], plans: Sequence[PlanBlock], schedules: Sequence[Schedule], given_up: Iterable[int]
) -> list[PlannedFunction]:
    """Plans the memory of functions, callees first, and makes the decisions that depend on it. The last function may
    reuse the memory of the arguments `given_up`."""
    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.memory.parts import Parts
    from shlo_jit.memory.planner import plan_memory
    from shlo_jit.memory.scalars import stack_scalars
    from shlo_jit.memory.streaming import with_streams
    from shlo_jit.memory.temporal_tiling import with_time_blocks

    functions: list[PlannedFunction] = []
    memories: dict[str, MemoryPlan] = {}
    for core, plan, scheduled in zip(cores, plans, schedules, strict=True):
        donated = frozenset(given_up if core is cores[-1] else ())
        memory = memories[core.attributes["sym_name"]] = plan_memory(plan, scheduled, donated, memories)
        settled = with_streams(with_time_blocks(plan, scheduled, memory), memory)
        parts = Parts(plan, memory, scheduled.regions)
        functions.append(PlannedFunction(core, plan, settled, memory, parts, stack_scalars(plan, memory, parts)))
    return functions


def _given_moves(
    options: CompileOptions, cores: Sequence[Op], plans: Sequence[PlanBlock]
) -> dict[int, tuple[Move, ...]]:
    """The moves that the caller gave, by id() of the step."""
    assert not isinstance(options.schedule, str), "stored schedules are looked up before"
    if not options.schedule:
        return {}
    from shlo_jit.schedule.schedule import steps_with_moves

    steps = {}
    for core, plan in zip(cores, plans, strict=True):
        prefix = "" if core is cores[-1] else f"@{core.attributes['sym_name']}:"
        steps |= {prefix + label: step for label, step in steps_with_moves(plan).items()}
    for label, _ in options.schedule:
        if label not in steps:
            known = ", ".join(steps) or "none"
            what = "is no loop nest, product, convolution, row blocks or line tiles of this program"
            raise OptionError(f"schedule: step {label} {what}; those it has: {known}")
    return {id(steps[label]): moves for label, moves in options.schedule}


def _code(options: CompileOptions) -> Code:
    """Code that is compiled with the program and replaces custom calls."""
    if not options.code:
        return {}
    from shlo_jit.custom.replace import replace as replaced

    return {name: partial(replaced, code, options.target) for name, code in options.code}


def _given_up(function: Op, core: Op) -> tuple[int, ...]:
    """Arguments of the core function whose memory the program allows results to reuse."""
    from shlo_jit.text.argument_names import donated_arguments

    arguments = function.block().arguments
    names = {arguments[i].name for i in donated_arguments(function)}
    return tuple(i for i, a in enumerate(core.block().arguments) if a.name in names)


def _name_ports(program: Program, function: Op) -> None:
    """Gives inputs and outputs the names that callers of the function see."""
    from shlo_jit.ir.core import function_type
    from shlo_jit.passes.frontend.flatten import leaves
    from shlo_jit.text.argument_names import argument_names, result_names

    names = {a.name: n for a, n in zip(function.block().arguments, argument_names(function), strict=True) if a.name}
    program.inputs = tuple(p._replace(name=names.get(p.name, p.name)) for p in program.inputs)
    results = zip(result_names(function), function_type(function).results, strict=True)
    said = [name for name, type in results for _ in leaves(type)]
    if len(said) == len(program.outputs):
        program.outputs = tuple(p._replace(name=n or p.name) for p, n in zip(program.outputs, said, strict=True))


def _no_entry(module: Module, entry: str) -> Diagnostic:
    from shlo_jit.suggest import closest

    names = [f.attributes["sym_name"] for f in module.functions()]
    shown = ", ".join("@" + name for name in names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    message = f"no function @{entry}; the program has {shown or 'none'}"
    if names:
        meant = closest(entry, names) or names[0]
        hint = f"name the function to compile: entry={meant!r} (on the command line --entry {meant})"
    else:
        hint = "the program is empty: it needs func.func @main(...) { ... }"
    return Diagnostic(message, module.source.name, label="entry", hint=hint, code="program.entry")


MOST_NAMES = 20
"""Maximum number of functions that a message names."""


def verified(module: Module, options: CompileOptions) -> Op:
    """Returns the entry function of a valid module. Raises VerifyError, and StableHLOError if there is no such
    function."""
    from shlo_jit.ir.core import is_declaration
    from shlo_jit.verify.verifier import verify_module

    diagnostics = verify_module(module, is_registered=options.calls.__contains__)
    if diagnostics:
        raise VerifyError(diagnostics)
    entry = options.entry
    function = module.function(entry)
    if function is None:
        raise StableHLOError(_no_entry(module, entry))
    if is_declaration(function):
        raise UnsupportedError(diagnose(f"function @{entry} has no body", function.span, label="no-body"))
    return function
