"""LLVM text of custom code: the functions that it may call, and its conversion to the text of a routine.

Code is a module with one function that we call, in one of two forms, whatever its origin:

    {i64, results...} @shlo_custom_scalar(operands...)         of scalars
    i64 @shlo_custom_kernel(ptr operands, ptr results)         of arrays: two arrays of pointers to dense buffers

The i64 is 0 on success.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import llvmlite.binding as llvm

from shlo_jit.codegen import optimize
from shlo_jit.custom.reader_process import without_target
from shlo_jit.custom.run_time import RUN_TIME, run_time_text
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason

SCALAR, KERNEL = "shlo_custom_scalar", "shlo_custom_kernel"

_DOUBLE = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
    *("erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot"),
    *("ldexp", "lgamma", "log", "log10", "log1p", "log2", "logb", "modf", "nearbyint", "nextafter", "pow"),
    *("remainder", "rint", "round", "scalbn", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
)
LIBRARY = frozenset((*_DOUBLE, *(f"{name}f" for name in _DOUBLE)))
"""Functions of libm."""
MEMORY = frozenset(("memcpy", "memmove", "memset", "memcmp", "malloc", "calloc", "realloc", "free"))
"""Functions of libc."""
_ENDS = re.compile(r"^(define [^\n]*?)(?: comdat(?:\(\$[^)]*\))?)?(?: personality [^\n{]*)? \{$", re.MULTILINE)
_COMDAT = re.compile(r"^\$[^\n]* = comdat [^\n]*\n|(?<=[\w}\]]), comdat(?:\(\$[^)]*\))?", re.MULTILINE)


class Refused(Exception):
    """Code that cannot be compiled, or lifted to ops. The reason is a phrase that follows the code's name."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)


def parse(text: str, context: llvm.ContextRef | None = None) -> llvm.ModuleRef:
    """Returns the verified module of a text, in a separate context. Raises Refused."""
    try:
        module = llvm.parse_assembly(text, context or llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise Refused("llvm-rejects", f"LLVM rejects it: {_first_line(error)}") from None
    return module


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])


def called(module: llvm.ModuleRef) -> list[str]:
    """Returns the functions that a module calls and does not define, except LLVM's intrinsics."""
    return [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]


def check_calls(names: Iterable[str], target: Target | None = None) -> None:
    """Raises Refused for a function that no program has or, if a target is given, that no program has on that
    system."""
    has_libc = target is None or target.system != "none"
    for name in names:
        if name not in LIBRARY and not (has_libc and name in MEMORY):
            raise Refused("unknown-callee", f"it calls {name}, which compiled programs do not have")


def machine_text(text: str, symbol: str, target: Target, entry: str = KERNEL) -> str:
    """Returns the text optimized for a target, with only `entry` visible and renamed to `symbol`. Raises Refused."""
    if target.pointer_bits != 64:
        raise Refused(
            "pointer-width", f"array code needs pointers of 64 bits, and {target.name} has {target.pointer_bits}"
        )
    module = parse(without_target(text))
    missing = called(module)
    if any(name in RUN_TIME for name in missing):
        module.link_in(parse(run_time_text(missing), _context_of(module)))
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and not value.name.startswith("llvm."):
            value.visibility = "default"
            value.linkage = "external" if value.name == entry else "internal"
    function = module.get_function(entry)
    function.name = symbol
    with optimize.tools(target) as tools:
        module.triple = target.triple
        module.data_layout = str(tools.machine.target_data)
        options = llvm.create_pipeline_tuning_options(3)
        builder = llvm.create_pass_builder(tools.machine, options)
        builder.getModulePassManager().run(module, builder)
    check_calls(called(module), target)
    if any(v.is_declaration for v in module.global_variables):
        raise Refused("refers-to-process", "it refers to objects of this process by their addresses")
    module.verify()
    done = _COMDAT.sub("", str(module))
    return _without_module_lines(_ENDS.sub(r"\1 {", done))


def _context_of(module: llvm.ModuleRef) -> llvm.ContextRef:
    return module._context


def _without_module_lines(text: str) -> str:
    """Returns the text without the lines that name its file and target."""
    kept = [line for line in text.splitlines() if not line.startswith(("source_filename", "target "))]
    return "\n".join([*kept, ""])
