"""Translation of an image to one LLVM module: programs and routines, the interface and the thread pool.

Programs and routines are the same as in the JIT, once for each target. Everything that is not part of the interface is
internal, so the object does not export it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import llvmlite.binding as llvm

from shlo_jit.aot.entry_points import entry_symbol
from shlo_jit.aot.image import Image, Variant
from shlo_jit.aot.imports import signatures
from shlo_jit.aot.interface import FLOATS_USED, Interface, public_symbols
from shlo_jit.aot.weights import define_placeholder
from shlo_jit.codegen import abi, optimize
from shlo_jit.codegen.objects import routine_text, uses_pool_functions
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.compiler_helpers import HELPERS, write_helpers
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.pool import OF_LIBRARY, SERIAL, THREADS

_DEFINITION = re.compile(r"^(define .*) \{$", re.MULTILINE)


def emit(image: Image, *, threads: bool = True, may_miss_symbols: bool = False) -> bytes:
    """Returns the object code of a library, with a placeholder for its weights.

    `threads`: whether to include the thread pool. `may_miss_symbols`: whether it can be linked without the functions it
    imports.
    """
    lowest = _baseline(image.variants[0].target)
    context = llvm.create_context()
    texts = [_texts(variant) for variant in image.variants]
    uses_pool = any(uses_pool_functions(text) for variant in texts for text in variant)
    interface = Interface(image, lowest, uses_pool=uses_pool, may_miss_symbols=may_miss_symbols)
    if image.weights.nbytes and not image.weights_in_file:
        define_placeholder(interface.module, image, lowest.is_elf, lowest.is_x86)
    text = interface.text(signatures(text for variant in texts for text in variant))
    module = optimize.optimize(text, lowest, context=context)
    if uses_pool:
        pool = routine_text(OF_LIBRARY if threads else SERIAL, lowest)
        module.link_in(optimize.optimize(pool, lowest, context=context))
    for number, variant in enumerate(image.variants):
        module.link_in(_variant(image, number, texts[number], variant.target, context))
    _internalize(module, [*public_symbols(image), FLOATS_USED])
    with optimize.tools(lowest) as tools:
        tools.pipeline(0).run(module, tools.builder)
    module.verify()
    code = optimize.emit_object(module.clone(), lowest)
    missing = _missing_helpers(code, lowest)
    if not missing:
        return code
    helpers = ModuleText(lowest)
    write_helpers(helpers, missing, lowest)
    module.link_in(optimize.optimize(helpers.text(), lowest, context=context))
    return optimize.emit_object(module, lowest)


def _missing_helpers(code: bytes, target: Target) -> list[str]:
    """Names of compiler helper functions that an object refers to and that a linker may not have.

    LLVM adds them only in code generation. Extra names in the list do no harm.
    """
    has_libc = target.system != "none"
    wanted = [name for name in HELPERS if name.startswith("__") or not has_libc]
    return sorted(name for name in wanted if _names(code, name.encode()))


def _names(code: bytes, name: bytes) -> bool:
    """Whether a symbol of that name may be in an object, of any format. Formats end the name with a zero byte, store
    its length before it, or have room for just 8 letters."""
    return name + b"\0" in code or bytes([len(name)]) + name in code or (len(name) == 8 and name in code)


def _baseline(target: Target) -> Target:
    """Minimum machine of an architecture.

    The code that decides whether the code for a target can run must run on any machine. WebAssembly cannot test for
    features, and has one set of features per module.
    """
    if target.arch == "wasm32":
        return target
    return replace(resolve("x86-64" if target.is_x86 else target.arch), triple=target.triple, system=target.system)


def _texts(variant: Variant) -> list[str]:
    """LLVM texts of the programs, in their order, and of the routines they need."""
    return [p.text for p in variant.programs] + [routine_text(r, variant.target) for r in _routines(variant)]


def _routines(variant: Variant) -> list[Routine]:
    """Routines of all programs, including those that these routines need."""
    found: dict[str, Routine] = {}

    def add(routines: Iterable[Routine]) -> None:
        for routine in routines:
            add(routine.needs)
            found.setdefault(routine.name, routine)

    for program in variant.programs:
        add(program.routines)
    return [routine for name, routine in found.items() if name != THREADS.name]


def _variant(image: Image, number: int, texts: list[str], target: Target, context: llvm.ContextRef) -> llvm.ModuleRef:
    """Links the programs and routines of a target into one module that exports only the entries."""
    modules = [optimize.optimize(_with_target(text, target), target, context=context) for text in texts]
    entries = [entry_symbol(image, number, function) for function in range(len(image.functions))]
    for module, entry in zip(modules, entries, strict=False):
        module.get_function(abi.ENTRY).name = entry
    first, *others = modules
    for module in others:
        first.link_in(module)
    _internalize(first, entries)
    return first


def _with_target(text: str, target: Target) -> str:
    """Adds the target's attributes to every function, so that functions for several targets can be in one module."""
    note = f'"target-cpu"="{target.cpu}" "target-features"="{target.features}"'
    return _DEFINITION.sub(lambda m: f"{m[1]} {note} {{", text)


def _internalize(module: llvm.ModuleRef, kept: Iterable[str]) -> None:
    """Makes all definitions internal except those in `kept` and LLVM's own."""
    names = set(kept)
    for value in (*module.functions, *module.global_variables):
        stays = value.is_declaration or value.name in names or value.name.startswith("llvm.")
        if not stays and value.linkage != llvm.Linkage.private:
            value.visibility = "default"
            value.linkage = "internal"
