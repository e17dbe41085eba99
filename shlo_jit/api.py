"""The public functions: parse, verify, infer, compile, export, load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shlo_jit import check_options, pipeline
from shlo_jit.check_options import compile_options
from shlo_jit.distributed.grid import mpi_processes, wanted_grid
from shlo_jit.errors import Diagnostic, StableHLOError
from shlo_jit.forking import compiling
from shlo_jit.runtime.callbacks import registered
from shlo_jit.sources import may_be_unknown, read_source, with_own_weights

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.aot.export import Exported
    from shlo_jit.autotune.result import TuneResult
    from shlo_jit.ir.core import Module, Region
    from shlo_jit.ir.types import Type
    from shlo_jit.options import CompileOptions
    from shlo_jit.runtime.distributed import DistributedExecutable
    from shlo_jit.runtime.dynamic import DynamicExecutable
    from shlo_jit.runtime.executable import Executable
    from shlo_jit.runtime.given_arrays import GivenArray
    from shlo_jit.sources import Given, ProgramSource

    Shapes = Sequence[Sequence[int] | str | np.ndarray]
    """Shapes of all arguments of a call: extents, a type as text, or an array."""
    Schedule = Mapping[str, Sequence[Mapping[str, Any]]]
    """Moves by the label of the step, as in JSON."""
    Constants = Mapping[int, Any] | Mapping[str, Any] | Mapping[int | str, Any]
    """Arrays by the index or the name of their argument."""


@compiling()
def parse(source: object) -> Module:
    """Parses a program to a Module.

    `source`: a text, a portable artifact, a file with one of these, or an object with `mlir_module()` or `as_text()`; a
    Module is returned unchanged. Raises ParseError (a StableHLOError) with the location of the first error, OSError for
    a file that cannot be read, and TypeError for a `source` of another kind.
    """
    return pipeline.parsed(read_source(source))


@compiling()
def verify(source: object, *, warnings: bool = False) -> list[Diagnostic]:
    """Returns the errors of a program, in the order of the text; the list is empty for a valid program.

    Custom calls registered with `register_custom_call` are not checked; others are checked if their target is known.
    For computations on parts (`sdy.manual_computation` and similar), shardings are checked too, if everything else is
    valid.

    With `warnings`, the list includes findings of severity `warning` about valid programs that are probably mistakes:
    attributes that the specification does not define for their op and that have no dialect's prefix (`jax.`, `mhlo.`).
    """
    from shlo_jit.distributed.check import sharding_errors
    from shlo_jit.verify.verifier import verify_module, warnings_of

    try:
        module = parse(source)
    except StableHLOError as error:
        return error.diagnostics
    found = verify_module(module, is_registered=registered().__contains__) or sharding_errors(module)
    if warnings:
        found = sorted([*found, *warnings_of(module)], key=lambda d: (d.line, d.column))
    return found


@compiling()
def infer(
    op_name: str,
    operand_types: Sequence[Type | str],
    attributes: Mapping[str, Any] | None = None,
    regions: Sequence[Region] = (),
    *,
    result_types: Sequence[Type | str] | None = None,
) -> list[Type]:
    """Result types of an op: `infer("transpose", ["tensor<2x3xf32>"], {"permutation": [1, 0]})`.

    Types may be written as text. See `verify/infer.py`.
    """
    from shlo_jit.text.types import type_of_text
    from shlo_jit.verify import infer as inference

    def read(types: Sequence[Type | str]) -> list[Type]:
        return [type_of_text(t) if isinstance(t, str) else t for t in types]

    inference.check_arguments(op_name, operand_types, attributes, regions, result_types)
    stated = None if result_types is None else read(result_types)
    return inference.infer(op_name, read(operand_types), attributes, regions, result_types=stated)


def compile(
    source: object,
    entry: str = "main",
    *,
    threads: int | None = None,
    target: str = "native",
    custom_calls: Mapping[str, Any] | None = None,
    composites: Mapping[str, Callable[..., Any]] | None = None,
    cache: bool = True,
    donate: Iterable[int] | str = (),
    dynamic: str = "specialize",
    fold_scales: bool = False,
    round_activations: str | None = None,
    assume_finite: bool = False,
    reproducible: bool = False,
    schedule: Schedule | str | None = None,
    constants: Constants | None = None,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    programs: Sequence[Sequence[str]] | None = None,
    transport: str | None = None,
    time_out: float = 60.0,
) -> Executable | DynamicExecutable | DistributedExecutable:
    """Compiles a program to machine code.

    `source`: a text, a portable artifact, a path, a Module, or an object with `mlir_module()` or `as_text()`, such as
    JAX's `Exported` and `Lowered`.

    `entry` is the function to run. `threads`: maximum threads of a call, by default `SHLO_JIT_NUM_THREADS` or the CPUs
    of this process. `target`: `native`, or a CPU whose code this machine can run. `custom_calls` maps
    `stablehlo.custom_call` targets to implementations, as `register_custom_call` takes them. `composites` maps
    `stablehlo.composite` ops to implementations that replace their decompositions; they are called alike, with the
    composite's attributes as keywords. `cache`: use the object cache. `donate`: indices of arguments whose memory
    results may reuse, or `program` for those that the program marks (`tf.aliasing_output`, `jax.buffer_donor`).
    `dynamic`: for a program with unknown dimensions, whether code is compiled for the shapes of each call
    (`specialize`), or once for all sizes of the leading dimension, the batch (`symbolic`), if the program allows it.
    `fold_scales`: multiply factors of channels, such as those of a batch norm, into constant weights if that changes
    results only by rounding; see `docs/accuracy.md`. `round_activations`: `int8` to round the activations of products
    with low-bit weights to 8 bits, so that these are products of integers; by default they are exact. `assume_finite`:
    leave out products of numbers with zeros that a mask by position inserts, without a check that these numbers are
    finite; see `docs/accuracy.md`. `reproducible`: give each row of a result the same bits whatever the other rows are,
    and on every target; see `docs/accuracy.md`. `schedule`: the moves that decide how steps run (loop nests, products,
    convolutions, ...), by the label of the step, as `json.loads(exe.text("moves"))` gives them; see
    `docs/schedules.md`. Or `tuned`: those that `tune` has stored for this program and machine, if there are any, and
    `tuned-any-rounding` also those that change the last bits of results. `constants`: arrays for arguments, by index or
    name, which become constants of the program; the executable takes the other arguments. See `docs/constants.md`.

    `num_replicas` and `num_partitions`: the grid of processes that run the program, by default that of the module, if
    it is written for several. `programs`: for each replica, the entries of its partitions, if these differ.
    `transport`: how the processes run and communicate, `processes`, `threads` or `mpi`, by default `SHLO_JIT_TRANSPORT`
    or `processes`. `mpi` runs any program by the processes that mpiexec has started, by default with as many
    partitions, and needs the extra `mpi` (mpi4py). `time_out`: seconds without progress after which a process that
    others wait for counts as lost. See `docs/distributed.md`.

    Raises StableHLOError (ParseError, VerifyError, UnsupportedError) with the locations of errors in the program,
    OSError for a file that cannot be read or changes meanwhile, TypeError for a `source` or option of the wrong kind,
    ValueError for an invalid value (an unknown target, an argument to donate or a constant for an argument that does
    not exist, a grid of more or fewer processes than MPI has started), ImportError for the transport `mpi` without
    mpi4py or an MPI library, and InternalError for a defect of the compiler.
    """
    source, constants = with_own_weights(source, constants)
    given = read_source(source, known=cache is True)
    with compiling():
        options = compile_options(
            entry,
            threads=threads,
            target=target,
            custom_calls=custom_calls,
            composites=composites,
            cache=cache,
            donate=donate,
            dynamic=dynamic,
            fold_scales=fold_scales,
            round_activations=round_activations,
            assume_finite=assume_finite,
            reproducible=reproducible,
            schedule=schedule,
        )
        arrays = check_options.constants(constants, options.cache)
        given_grid = check_options.grid(num_replicas, num_partitions, programs)
        how = check_options.transport(transport), check_options.time_out(time_out)
        grid = wanted_grid(given, given_grid, mpi_processes() if transport == "mpi" else 1)
        if grid != (1, 1) or programs is not None or transport not in (None, "processes"):
            from shlo_jit.distributed.compile import compile_distributed

            if isinstance(options.schedule, str):
                message = f"schedule: {schedule!r}: programs of several processes have no stored schedules"
                raise check_options.wrong_value(message)
            options = replace(options, num_replicas=grid[0], num_partitions=grid[1])
            return compile_distributed(*_bound(given, options, arrays), programs, *how, threads)
        is_unknown = may_be_unknown(given)
        program, options = _bound(given, options, arrays)
        if is_unknown:
            from shlo_jit.specialize import compile_unknown

            return compile_unknown(program, options)
        return pipeline.compile_static(program, options)


def _bound(
    source: Given, options: CompileOptions, constants: tuple[GivenArray, ...]
) -> tuple[ProgramSource, CompileOptions]:
    """Returns the program with these constants, and the options for it."""
    if not constants:
        return source, options
    from shlo_jit.bind_constants import bind_constants

    return bind_constants(source, options, constants)


def tune(
    source: object,
    *arrays: Any,
    seconds: float = 60.0,
    any_rounding: bool = False,
    progress: Callable[[str, float, float], None] | None = None,
    entry: str = "main",
    threads: int | None = None,
    target: str = "native",
    custom_calls: Mapping[str, Any] | None = None,
    composites: Mapping[str, Callable[..., Any]] | None = None,
    cache: bool = True,
    donate: Iterable[int] | str = (),
    dynamic: str = "specialize",
    fold_scales: bool = False,
    round_activations: str | None = None,
    assume_finite: bool = False,
    constants: Constants | None = None,
) -> TuneResult:
    """Searches for faster schedules of a program's steps, by measuring calls with some arrays on this machine.

    The result has the executable, its schedule, and a table of what was won. The search takes about `seconds`, or less
    if nothing is left to try; Ctrl-C ends it with what was won until then. A schedule counts as faster only if it wins
    by more than the noise, and everything is dropped if the program is not faster as a whole in a final run. The
    program is called many times, and so are its custom calls. Arrays that it may overwrite are copied.

    `source` and the other options are those of `compile`. `any_rounding`: also try schedules that add up in another
    order, which changes the last bits of results; without it, results have the same bits. `progress`: called with the
    current activity, the seconds that have passed, and `seconds`.

    The schedule is stored in the object cache, for this program and its options, this processor and the number of
    threads. A later search starts from it, and `compile(..., schedule="tuned")` uses it. See `docs/autotuning.md`.

    Raises the errors of `compile` and of a call, and ValueError for programs whose code cannot be tuned: those of
    several processes, those that wait for data of the host, and those with sizes that depend on data.
    """
    from shlo_jit.autotune.tune import tune_executable

    limit = check_options.search_seconds(seconds)
    is_rounded = check_options.flag("any_rounding", any_rounding)
    made = compile(
        source,
        entry,
        threads=threads,
        target=target,
        custom_calls=custom_calls,
        composites=composites,
        cache=cache,
        donate=donate,
        dynamic=dynamic,
        fold_scales=fold_scales,
        round_activations=round_activations,
        assume_finite=assume_finite,
        constants=constants,
    )
    return tune_executable(made, arrays, limit, is_rounded, progress or (lambda *_: None))


def load(
    path: str | os.PathLike[str],
    entry: str | None = None,
    *,
    threads: int | None = None,
    custom_calls: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Executable | DynamicExecutable:
    """Loads an exported library (`.so`, or `.o`) as an Executable, which is called like a compiled program.

    A function that was exported for several shapes is a DynamicExecutable. It takes arrays of these shapes; others
    raise a ValueError that lists them.

    `entry`: the function, by default `main` or the only one. `threads` and `custom_calls` as in `compile`. `weights`:
    path of the file of weights, by default beside the library.

    Raises LibraryError (a ValueError) for a file that is not a library of shlo_jit, is damaged, of another version, for
    another machine, or lacks the function; OSError for a file that cannot be read; ExecutionError for a custom call
    without an implementation.
    """
    from shlo_jit.check_options import load_options
    from shlo_jit.runtime.library import load_library

    return load_library(path, entry, **load_options(threads, custom_calls, weights))


def export(
    source: object,
    path: str | os.PathLike[str],
    *,
    header: str | os.PathLike[str] | None = None,
    target: str = "native",
    name: str | None = None,
    entry: str | Sequence[str] = "main",
    weights: str = "embedded",
    threads: bool = True,
    custom_calls: Iterable[str] | Mapping[str, Any] = (),
    composites: Mapping[str, Any] | None = None,
    donate: Iterable[int] | str = (),
    linker: str | None = None,
    shapes: Sequence[Shapes] | Mapping[str, Sequence[Shapes]] | None = None,
    fold_scales: bool = False,
    round_activations: str | None = None,
    assume_finite: bool = False,
    reproducible: bool = False,
    schedule: Schedule | None = None,
    constants: Constants | Mapping[str, Constants] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Exported:
    """Writes a program (as for `compile`) as a library that C can call: see `docs/export.md`.

    path: files ending in `.so` (`.dylib`, `.dll`, `.wasm`) are linked; `.o` and `.a` need no linker. header: where to
    write the C header. target: what `compile` takes, and other machines, such as `aarch64:neoverse-n1`, `riscv64` or
    `wasm32`; or several of   one architecture, separated by commas. The library uses the best one for the processor it
    runs on. name: prefix of the library's symbols, by default the file's name. entry: a function, or several. weights:
    `embedded`, or `file` for a file beside the library, which processes share. threads: whether calls may use several
    threads. custom_calls: targets of custom calls that are C functions of the host, as names; or a dictionary of code
    that is   compiled into the library (`elementwise`, `array_function`, `LLVMFunction`), and None for functions of the
    host.   Registered code is also compiled into it. composites: code that is compiled into the library in place of
    decompositions. donate: indices of arguments whose memory results may reuse, as in `compile`. linker: the command to
    link with, by default the first linker found. shapes: for a program with unknown dimensions, the calls to compile
    code for: a list, each the shapes of all arguments   as `refine` takes them, or a dictionary of such lists by
    function. fold_scales, round_activations, assume_finite, reproducible: as in `compile`. schedule: moves of the
    function's steps, as in `compile`. constants: arrays for arguments, as in `compile`, or a dictionary of such
    dictionaries by function; they become part of the library. progress: called with the current activity, the bytes
    written, and the total bytes.

    Raises StableHLOError if the program is refused, TypeError and ValueError for options, ExportError if no linker can
    link it, and OSError for files.
    """
    from shlo_jit.aot.export import export_module
    from shlo_jit.check_options import export_options

    source, constants = with_own_weights(source, constants)
    given = read_source(source)
    given_calls = custom_calls, composites
    options = export_options(
        path,
        header,
        target,
        name,
        entry,
        weights,
        threads,
        given_calls,
        donate,
        linker,
        shapes,
        fold_scales,
        round_activations,
        assume_finite,
        schedule,
        constants,
        reproducible,
    )
    return export_module(pipeline.parsed(given), options, progress or (lambda *_: None))


def refine(source: object, shapes: Shapes, entry: str = "main") -> Module:
    """Makes a program with unknown dimensions static, for the shapes of its arguments.

    Returns a Module that can be printed, verified and compiled.

    shapes: for each argument of `entry` its extents, its type as text (`8x16xf32`), or an array of that shape. Arrays
    of integers also give the values that the program may compute shapes from.

    Raises StableHLOError, with locations, if shapes contradict each other, the program's types, or its assertions;
    TypeError and ValueError for arguments of the wrong kind or number.
    """
    from shlo_jit.specialize import refined_for

    given = read_source(source)
    with compiling():
        return refined_for(pipeline.parsed(given), entry, shapes)
