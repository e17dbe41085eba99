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
from shlo_jit.sources import may_be_unknown, read_source

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.aot.export import Exported
    from shlo_jit.ir.core import Module, Region
    from shlo_jit.ir.types import Type
    from shlo_jit.runtime.distributed import DistributedExecutable
    from shlo_jit.runtime.dynamic import DynamicExecutable
    from shlo_jit.runtime.executable import Executable

    Shapes = Sequence[Sequence[int] | str | np.ndarray]
    """Of all arguments of a call: extents, a type's text, or an array."""


@compiling()
def parse(source: object) -> Module:
    """The Module of a text, a portable artifact, a file with one of these, or an object with `mlir_module()` or
    `as_text()`. Raises ParseError (a StableHLOError) with the place of the first error, OSError for a file that cannot
    be read, TypeError for a `source` of another kind. A Module is what it is given as."""
    return pipeline.parsed(read_source(source))


@compiling()
def verify(source: object, *, warnings: bool = False) -> list[Diagnostic]:
    """What is wrong with a program, in the order of the text; empty when it is valid. Custom calls registered with
    `register_custom_call` may be anything; others are held against what their targets mean, where they mean something.
    Of computations on parts (`sdy.manual_computation` and its like), shardings are checked too, once all else is valid.

    With `warnings`, also what a valid program may have but hardly on purpose, of severity `warning`: attributes that
    the specification does not know on their op and that no dialect's prefix (`jax.`, `mhlo.`) explains.
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
    schedule: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    programs: Sequence[Sequence[str]] | None = None,
    transport: str | None = None,
    time_out: float = 60.0,
) -> Executable | DynamicExecutable | DistributedExecutable:
    """Compile a program to machine code: a text, a portable artifact, a path, a Module, or an object with
    `mlir_module()` or `as_text()`, as JAX's `Exported` and `Lowered` are.

    `entry` is the function to run. `threads`: how many a call may use, by default `SHLO_JIT_NUM_THREADS` or the CPUs of
    this process. `target`: `native`, or a CPU this machine can run the code of. `custom_calls` names implementations
    of `stablehlo.custom_call` targets, as `register_custom_call` takes them; `composites` names implementations that
    stand in for the decompositions of `stablehlo.composite` ops, called alike, with the composite's attributes as
    keywords. `cache`: use the object cache. `donate`: indices of arguments whose memory results may take over, or
    `program` for those that the program says (`tf.aliasing_output`, `jax.buffer_donor`). `dynamic`: of a program with
    unknown dimensions, whether code is made for the shapes of each call (`specialize`), or once for all sizes of the
    leading one, the batch (`symbolic`), where the program allows that. `fold_scales`: factors of channels, as of a
    batch norm, go into constant weights where that changes results by roundings only; see `docs/accuracy.md`.
    `schedule`: for steps that are loop nests, the moves that say how they run, by the label of the step, in the form
    that `json.loads(exe.text("moves"))` gives; other steps are scheduled as ever.

    `num_replicas` and `num_partitions`: the grid of processes that run the program, by default what the module says,
    where it is written for several. `programs`: of each replica, the entries of its partitions, where these differ.
    `transport`: how the processes run and meet, `processes`, `threads` or `mpi`, by default `SHLO_JIT_TRANSPORT` or
    `processes`; `mpi` runs any program by the processes that mpiexec has started, by default as many partitions as
    there are, and needs the extra `mpi` (mpi4py). `time_out`: seconds without progress
    after which one that others wait for counts as lost. See `docs/distributed.md`.

    Raises StableHLOError (ParseError, VerifyError, UnsupportedError) with the places where the program is refused,
    OSError for a file that cannot be read, TypeError for a `source` or option of another kind, ValueError for one that
    cannot be (an unknown target, an argument to donate that there is none of, a grid of more or fewer processes than
    MPI has started), ImportError for the transport `mpi` without mpi4py or an MPI library, InternalError for a defect
    of ours.
    """
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
            schedule=schedule,
        )
        given_grid = check_options.grid(num_replicas, num_partitions, programs)
        how = check_options.transport(transport), check_options.time_out(time_out)
        grid = wanted_grid(given, given_grid, mpi_processes() if transport == "mpi" else 1)
        if grid != (1, 1) or programs is not None or transport not in (None, "processes"):
            from shlo_jit.distributed.compile import compile_distributed

            options = replace(options, num_replicas=grid[0], num_partitions=grid[1])
            return compile_distributed(given, options, programs, *how, threads)
        if may_be_unknown(given):
            from shlo_jit.specialize import compile_unknown

            return compile_unknown(given, options)
        return pipeline.compile_static(given, options)


def load(
    path: str | os.PathLike[str],
    entry: str | None = None,
    *,
    threads: int | None = None,
    custom_calls: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Executable | DynamicExecutable:
    """An exported library (`.so`, or `.o`) as an Executable, which is called like a compiled program. A function that
    was exported for several shapes is a DynamicExecutable, which takes arrays of these; any others are a ValueError
    that names them.

    `entry`: the function, by default `main` or the only one. `threads` and `custom_calls` as in `compile`. `weights`:
    where the file of weights is, by default beside the library.

    Raises LibraryError (a ValueError) for a file that is no library of ours, damaged, of another version, for another
    machine, or without that function; OSError for a file that cannot be read; ExecutionError for a custom call without
    an implementation.
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
    progress: Callable[[str, int, int], None] | None = None,
) -> Exported:
    """Write a program (as for `compile`) as a library that C can call: see `docs/export.md`.

    path: what ends in `.so` (`.dylib`, `.dll`, `.wasm`) is linked; `.o` and `.a` need no linker.
    header: where to write the C header.
    target: what `compile` takes, and other machines, such as `aarch64:neoverse-n1`, `riscv64` or `wasm32`; several
      with commas between them, of one architecture, of which the library picks the best for the processor it runs on.
    name: what the library's symbols begin with, by default the file's name.
    entry: a function, or several.
    weights: `embedded`, or `file` for a file beside the library, which processes share.
    threads: whether calls may use several threads.
    custom_calls: targets of custom calls that are C functions of the host's, as names; or a dictionary of code that is
      compiled into the library (`elementwise`, `array_function`, `LLVMFunction`), and None for functions of the host's.
      Registered code is compiled into it too.
    composites: code that is compiled into it in the place of decompositions.
    donate: indices of arguments whose memory results take over, as in `compile`.
    linker: the command to link with, by default what is found.
    shapes: of a program with unknown dimensions, the calls there shall be code for: a list, each the shapes of all
      arguments as `refine` takes them, or a dictionary of such lists by function.
    fold_scales: as in `compile`.
    progress: called with what is being done, and how many bytes of how many are written.

    Raises StableHLOError where the program is refused, TypeError and ValueError for options, ExportError where no
    linker can link it, and OSError for files.
    """
    from shlo_jit.aot.export import export_module
    from shlo_jit.check_options import export_options

    given = read_source(source)
    given_calls = custom_calls, composites
    options = export_options(
        path, header, target, name, entry, weights, threads, given_calls, donate, linker, shapes, fold_scales
    )
    return export_module(pipeline.parsed(given), options, progress or (lambda *_: None))


def refine(source: object, shapes: Shapes, entry: str = "main") -> Module:
    """The static program of one with unknown dimensions, for the shapes of its arguments: a Module that can be printed,
    verified and compiled.

    shapes: for each argument of `entry` its extents, its type as text (`8x16xf32`), or an array that has them; arrays
    of integers also say the values that the program may compute shapes from.

    Raises StableHLOError where shapes contradict each other, the program's types, or an assertion of it, with the
    places; TypeError and ValueError for arguments of another kind or number.
    """
    from shlo_jit.specialize import refined_for

    given = read_source(source)
    with compiling():
        return refined_for(pipeline.parsed(given), entry, shapes)
