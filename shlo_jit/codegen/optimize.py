"""Optimizes LLVM text, and emits object code or assembly.

Our text comes out of lowering vectorized, with rotated loops and invariant work outside of them, so the pipeline is
short. LLVM's own O1 pipeline inlines every kernel that is called once into `shlo_main`. This makes it quadratic in the
number of kernels: 400 ms for 100 kernels and 36 s for 1000, while the passes below take 28 ms and 290 ms.

Of those 28 ms, instruction combining takes 12 and value numbering 10; both pay off in code with index arithmetic.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm

from shlo_jit.codegen import unlocked, value_numbering
from shlo_jit.codegen.target import target_machine
from shlo_jit.errors import InternalError
from shlo_jit.forking import compiling
from shlo_jit.kernels.routine import GLUE
from shlo_jit.kernels.target import Target

SIMPLIFY = '"shlo-simplify"'
"""A function attribute: the function's loops carry values through memory (a `while` on scalars, for example). So it
also gets LLVM's function simplification pipeline, above all loop-invariant code motion with its promotion of loads and
stores to registers. That costs about 1 ms per function, so only functions that gain from it are marked."""

DEFAULT_LEVEL = 1
"""0: no optimization (inlining only); 1: the short pipeline; 2: also function simplification everywhere."""


class Tools:
    """LLVM's objects for one target: expensive to create (1 ms), and not thread-safe."""

    def __init__(self, target: Target) -> None:
        self.machine = target_machine(target)
        self.builder = _pass_builder(self.machine)
        self.inline = llvm.create_new_module_pass_manager()
        self.inline.add_always_inliner_pass()
        self.simplify = self.builder.getFunctionPassManager()
        self._pipelines: dict[tuple[int, bool], llvm.ModulePassManager] = {}

    def pipeline(self, level: int, is_numbered: bool = True) -> llvm.ModulePassManager:
        """The passes of a level, with or without value numbering."""
        key = level, is_numbered
        if key not in self._pipelines:
            self._pipelines[key] = _passes(*key)
        return self._pipelines[key]


_idle: dict[Target, deque[Tools]] = {}
"""Tools that are not in use. They are kept, so there are as many as were ever in use simultaneously. llvmlite 0.50
never disposes of pass managers (7 KB per pipeline), nor completely of pass builders."""


@contextmanager
def tools(target: Target) -> Iterator[Tools]:
    """Tools for `target`, reserved for the caller inside the `with` block."""
    idle = _idle.setdefault(target, deque())
    try:
        taken = idle.pop()
    except IndexError:
        taken = Tools(target)
    try:
        yield taken
    finally:
        idle.append(taken)


def parse(
    text: str, target: Target, machine: llvm.TargetMachine, verify: bool = True, context: llvm.ContextRef | None = None
) -> llvm.ModuleRef:
    """Parses `text`, in a separate LLVM context unless one is given, so that its types and constants are freed with it.

    Raises InternalError if the text is not valid or (with `verify`) breaks LLVM's rules: code generation would end the
    process on such a module instead of raising.
    """
    try:
        module = llvm.parse_assembly(text, context or llvm.create_context())
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        if verify:
            module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the generated code: {error}") from None
    return module


@compiling()
def optimize(
    text: str,
    target: Target,
    level: int = DEFAULT_LEVEL,
    verify: bool = True,
    context: llvm.ContextRef | None = None,
) -> llvm.ModuleRef:
    """Returns the module of `text` after the passes of `level`. Raises InternalError as `parse` does. `context`: the
    context that modules to be linked together share."""
    with tools(target) as t:
        is_numbered = value_numbering.suits(text)
        module = parse(value_numbering.guarded(text) if is_numbered else text, target, t.machine, verify, context)
        unlocked.run_passes(t.pipeline(level, is_numbered), module, t.builder)
        _simplify(module, t, text, level)
        _mark_glue(module, text)
    return module


def _pass_builder(machine: llvm.TargetMachine) -> llvm.PassBuilder:
    """A pass builder without LLVM's own vectorizers and unrolling."""
    options = llvm.create_pipeline_tuning_options(1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    return llvm.create_pass_builder(machine, options)


def _passes(level: int, is_numbered: bool) -> llvm.ModulePassManager:
    """The pipeline of a level."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    if level > 0:
        passes.add_sroa_pass()
        if is_numbered:
            value_numbering.add_pass(passes)
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_dead_code_elimination_pass()
    passes.add_global_dead_code_eliminate_pass()
    return passes


def _simplify(module: llvm.ModuleRef, tools: Tools, text: str, level: int) -> None:
    """Runs LLVM's function simplification pipeline over the functions marked with SIMPLIFY (all, at level 2)."""
    if level <= 0 or (level == 1 and SIMPLIFY not in text):
        return
    tools.inline.run(module, tools.builder)
    if level >= 2:
        names = [f.name for f in module.functions if not f.is_declaration]
    else:
        names = _marked(text, SIMPLIFY)
    left = {f.name: f for f in module.functions if not f.is_declaration}
    for name in names:
        if name in left:
            tools.simplify.run(left[name], tools.builder)


def _mark_glue(module: llvm.ModuleRef, text: str) -> None:
    """Disables optimization in code generation for the functions marked with GLUE."""
    for name in _marked(text, GLUE):
        for attribute in ("noinline", "optnone"):
            module.get_function(name).add_function_attribute(attribute)


def _marked(text: str, attribute: str) -> list[str]:
    """Names of the functions that have one of our attributes."""
    return re.findall(rf"^define [^\n@]*@([\w.$]+)\([^\n]*{attribute}", text, re.MULTILINE)


class _StrengthReduction:
    """Switch for LLVM's loop strength reduction, which is disabled while we emit code. It took a quarter of that time,
    two thirds for loops that read many operands side by side, and our loops address memory best without it. In LLVM it
    is an option of the process, so it is restored for other users of LLVM such as Numba. (Running it earlier, as a pass
    of the pipeline, ends the process at some nested loops: LLVM 22 asserts a form that it does not preserve.)"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._emitting = 0

    @contextmanager
    def off(self) -> Iterator[None]:
        with self._lock:
            self._emitting += 1
            if self._emitting == 1:
                llvm.set_option("", "-disable-lsr=true")
        try:
            yield
        finally:
            with self._lock:
                self._emitting -= 1
                if self._emitting == 0:
                    llvm.set_option("", "-disable-lsr=false")


_strength_reduction = _StrengthReduction()


@compiling()
def emit_object(module: llvm.ModuleRef, target: Target) -> bytes:
    """Emits position-independent object code of an optimized module, for our linker and for `ld` alike."""
    try:
        with tools(target) as t, _strength_reduction.off():
            return unlocked.emit_object(t.machine, module)
    except RuntimeError as error:
        raise InternalError(f"LLVM cannot generate code: {error}") from None


@compiling()
def emit_assembly(module: llvm.ModuleRef, target: Target) -> str:
    """Emits assembly text of an optimized module, for inspection."""
    try:
        with tools(target) as t, _strength_reduction.off():
            return t.machine.emit_assembly(module)
    except RuntimeError as error:
        raise InternalError(f"LLVM cannot generate code: {error}") from None
