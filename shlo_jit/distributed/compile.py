"""Compilation for a grid of processes: the options of each program, and the endpoints of its channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_jit import pipeline
from shlo_jit.codegen.objects import CompiledRoutine
from shlo_jit.codegen.program import Port
from shlo_jit.distributed.arrays import GlobalArrays
from shlo_jit.distributed.global_arrays import Cuts, LocalProgram, local_program
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Module, Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.collective.routine import COLLECTIVE
from shlo_jit.lower.ports import port
from shlo_jit.ops.collective import channel_id
from shlo_jit.options import CompileOptions
from shlo_jit.runtime import build, routines
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.distributed import DistributedExecutable, Remakes
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.transport.team import Crew
from shlo_jit.runtime.transport.world import world
from shlo_jit.sources import Derived, ProgramSource
from shlo_jit.stages import texts
from shlo_jit.text.argument_names import argument_names, result_names

if TYPE_CHECKING:
    from shlo_jit.lower.planned import PlannedFunction

Programs = Sequence[Sequence[str]]
"""Entries of the partitions of each replica."""


def compile_distributed(
    source: ProgramSource,
    options: CompileOptions,
    programs: Programs | None,
    transport: str,
    time_out: float,
    threads: int | None,
) -> DistributedExecutable:
    """Compiles a program that `options.num_replicas` x `options.num_partitions` processes run: `options.entry`, or the
    entries that `programs` names. `threads` is the number per process; by default, the CPUs are divided among the
    processes. Raises as `api.compile`."""
    near = options.processes
    if transport == "mpi":
        processes = world()
        processes.check(options.num_replicas, options.num_partitions)
        near = processes.near
    module = pipeline.parsed(source)
    arrays = None
    if programs is None:
        function = pipeline.verified(module, options)
        local = local_program(module, options.entry, options.num_partitions)
        if local is not None:
            if options.num_replicas > 1:
                what = f"a program on global arrays has one replica, not {options.num_replicas}"
                raise UnsupportedError(diagnose(what, function.span, label="several-replicas"))
            arrays = _global_arrays(function, local, options)
            module = local.module
            source = _local(source, module)
    grid = options.num_replicas, options.num_partitions
    entries = [options.entry] * options.processes if programs is None else [name for row in programs for name in row]
    channels = tuple(sorted(_channels(module, entries).items()))
    same_program = len(set(entries)) == 1
    options = replace(options, channels=channels, same_program=same_program, reaches=transport != "mpi")
    code = _collectives(options)
    hosts = tuple(Host() for _ in entries)

    def crew(options: CompileOptions) -> Crew:
        made = {name: pipeline.compile_code(source, replace(options, entry=name)) for name in dict.fromkeys(entries)}
        return Crew(
            programs=tuple(made[name] for name in entries),
            target=options.target,
            code=code,
            threads=max(1, usable_cpus() // near) if threads is None else options.threads,
            time_out=time_out,
            custom_calls=options.implementations,
            hosts=hosts,
        )

    def timed() -> Crew:
        return crew(replace(options, profile=True, cache=False))

    def stages(rank: int) -> Mapping[str, Callable[[], str]]:
        own = replace(options, entry=entries[rank])
        return texts(lambda: pipeline.lower(pipeline.parsed(source), own), options.target)

    def planned(rank: int) -> list[PlannedFunction]:
        _, functions = pipeline.plan(pipeline.parsed(source), replace(options, entry=entries[rank]))
        return functions

    return DistributedExecutable(crew(options), transport, grid, arrays, Remakes(stages, timed, planned))


def _collectives(options: CompileOptions) -> CompiledRoutine:
    """The code of the collectives for the target, compiled if the cache does not have it."""
    store = build.resolve_cache(options.cache)
    routines.prepare([COLLECTIVE], options.target, store)
    code = routines.find(COLLECTIVE.name, options.target, store)
    assert code is not None
    return code


def _local(source: ProgramSource, module: Module) -> Derived:
    """Returns the program of one process, which `local_program` has derived from the source. It is not printed for its
    key."""
    name, check = module.source.name, pipeline.check_of(source)
    return Derived(name, lambda: pipeline.identity_of(source) + b"|local", lambda: module, (), check)


def _global_arrays(function: Op, local: LocalProgram, options: CompileOptions) -> GlobalArrays:
    """Returns the global arrays of the tensors among arguments and results. Tokens belong to no array."""
    block = function.block()
    inputs = _ports(argument_names(function), block.arguments, local.inputs)
    outputs = _ports(result_names(function), block.terminator.operands, local.outputs)
    grid = options.num_replicas, options.num_partitions
    return GlobalArrays((inputs[0], outputs[0]), (inputs[1], outputs[1]), grid)


def _ports(names: Sequence[str], values: Sequence[Value], cuts: Cuts) -> tuple[list[Port], Cuts]:
    rows = [row for row in zip(names, values, cuts, strict=True) if isinstance(row[1].type, TensorType)]
    return [port(v)._replace(name=name or v.name) for name, v, _ in rows], tuple(cut for _, _, cut in rows)


def _channels(module: Module, entries: Sequence[str]) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Returns sender and receiver of the channels whose ops do not name them. If the program of one process sends and
    that of one other process receives, these two are the endpoints."""
    ends: dict[int, tuple[set[int], set[int]]] = {}
    for rank, entry in enumerate(entries):
        for op in _ops_of(module, entry):
            if op.name in ("stablehlo.send", "stablehlo.recv") and "source_target_pairs" not in op.attributes:
                ends.setdefault(channel_id(op), (set(), set()))[op.name == "stablehlo.recv"].add(rank)
    pairs = {}
    for handle, (senders, receivers) in ends.items():
        if len(senders) == len(receivers) == 1 and senders != receivers:
            pairs[handle] = ((*senders, *receivers),)
    return pairs


def _ops_of(module: Module, entry: str) -> Iterator[Op]:
    """Yields the ops of a function and of those it calls."""
    left, seen = [entry], set()
    while left:
        name = left.pop()
        function = module.function(name)
        if name in seen or function is None or not function.regions:
            continue
        seen.add(name)
        for op in walk(function.block()):
            yield op
            if op.name == "func.call":
                left.append(op.attributes["callee"].name)
