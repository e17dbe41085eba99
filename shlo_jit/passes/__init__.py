"""Passes: functions from module or function to function. `run_passes` names them in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from shlo_jit.errors import StableHLOError
from shlo_jit.forking import pause
from shlo_jit.ir.core import Module, Op
from shlo_jit.passes.canonical.byte_convolutions import byte_convolutions
from shlo_jit.passes.canonical.canonical_convolutions import canonical_convolutions
from shlo_jit.passes.canonical.canonical_dots import canonical_dots
from shlo_jit.passes.canonical.canonical_linalg import canonical_linalg
from shlo_jit.passes.canonical.explicit_layouts import explicit_layouts
from shlo_jit.passes.contradictions import may_contradict, module_of, refuse_contradictions
from shlo_jit.passes.expand.expand import expand
from shlo_jit.passes.frontend.dynamic_calls import dynamic_calls
from shlo_jit.passes.frontend.exact_top_k import exact_top_k
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.flatten import flatten
from shlo_jit.passes.frontend.host_calls import host_calls
from shlo_jit.passes.frontend.inline import Registered, inlined
from shlo_jit.passes.frontend.known_calls import known_calls
from shlo_jit.passes.frontend.single_process import single_process
from shlo_jit.passes.frontend.without_shardings import without_shardings
from shlo_jit.passes.quantized.lower_quantized import lower_quantized
from shlo_jit.passes.regions.elementwise_bodies import elementwise_bodies
from shlo_jit.passes.regions.promote import promote
from shlo_jit.passes.regions.unroll import unroll
from shlo_jit.passes.simplify import simplify
from shlo_jit.passes.static import require_addressable, require_static

Pass = Callable[[Op], Op]

PASSES: tuple[Pass, ...] = (
    require_addressable,
    first_platform,
    without_shardings,
    host_calls,
    single_process,
    flatten,
    lower_quantized,
    promote,
    simplify,
    unroll,
    elementwise_bodies,
    expand,
    require_static,
    canonical_linalg,
    explicit_layouts,
    byte_convolutions,
    canonical_dots,
    canonical_convolutions,
    simplify,
)
"""What runs on each function after inlining, in order."""

CHECK = "SHLO_JIT_CHECK_PASSES"
"""Environment variable: verify the function after every pass (the tests set it)."""


def core_functions(module: Module, entry: Op, is_registered: Registered = lambda target: False) -> list[Op]:
    """A verified module's entry function, last, and the functions that it still calls, callees first: in core ops and
    simplified. `is_registered` says which custom calls the user has implementations of."""
    as_written = {f.attributes["sym_name"]: f for f in module.functions()} if may_contradict(module) else {}
    return [
        run_passes(module, function, is_registered, as_written.get(function.attributes["sym_name"]))
        for function in inlined(module, entry, is_registered)
    ]


def run_passes(
    module: Module, function: Op, is_registered: Registered = lambda target: False, as_written: Op | None = None
) -> Op:
    """A function whose calls have been written out, brought to core ops and simplified. `as_written`: the function
    before, where it may contradict itself."""
    checking = bool(os.environ.get(CHECK))
    first: list[Pass] = [
        partial(exact_top_k, module, is_registered=is_registered),
        partial(dynamic_calls, module, is_registered=is_registered),
        partial(known_calls, is_registered=is_registered),
    ]
    for run in (*first, *PASSES):
        function = run(function)
        if run is expand and as_written is not None:
            refuse_contradictions(as_written, function)
        pause()
        if checking:
            check(function, getattr(run, "__name__", str(run)), is_registered)
    return function


def check(function: Op, after: str, is_registered: Callable[[str], bool] = lambda target: False) -> None:
    """Verify a function by itself. Raises AssertionError: a pass has broken a rule."""
    from shlo_jit.ops.known_calls import CALLED
    from shlo_jit.verify.verifier import verify_module

    # the functions that some calls name are not in this module
    found = verify_module(module_of(function), is_registered=lambda target: target in CALLED or is_registered(target))
    assert not found, f"after {after}:\n{StableHLOError(found)}"
