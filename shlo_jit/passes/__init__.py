"""Passes from functions as parsed to functions that can be fused and lowered. `PASSES` is the pipeline, in order.

A pass is a file of this package with a function named after it, `(function, context) -> function`. It does not change
its input. Its docstring says what it needs and what it guarantees, and shows an example before and after. Guarantees
that can be expressed as rules are checked after that pass and all later ones (`verify/core.py`).

The folders follow the order of the pipeline; their other files are helpers of the passes:

    refine      programs with unknown dimensions, made static for given shapes, before all passes
    frontend    frontend constructs that are not tensor ops: calls, custom calls, platforms, shardings, host, tuples
    quantized   quantized arithmetic lowered to arithmetic on storage types
    regions     loops and region bodies that can be rewritten without regions
    expand      compound ops rewritten as core ops; one file of rules per family
    states      updates of parts of tensors under conditions and in sums, such that they can be in place
    canonical   products, convolutions, linear algebra and collective ops in the forms that the kernels take

Helpers in this folder that passes of several folders use: `finite_sources`, `grouped`, `intervals`, `magnitudes`,
`masked_weights`, `one_hot`, `pairs`, `rows`.

`inline` runs before all of them. It splits a module into several functions, which then run through the passes one at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shlo_jit import environment
from shlo_jit.caches import PLAIN, Caches
from shlo_jit.errors import InternalError, StableHLOError
from shlo_jit.forking import pause
from shlo_jit.ir.core import Module, Op
from shlo_jit.passes.canonical.batch_blocking import batch_blocking
from shlo_jit.passes.canonical.byte_convolutions import byte_convolutions
from shlo_jit.passes.canonical.byte_products import byte_products
from shlo_jit.passes.canonical.canonical_convolutions import canonical_convolutions
from shlo_jit.passes.canonical.canonical_dots import canonical_dots
from shlo_jit.passes.canonical.canonical_linalg import canonical_linalg
from shlo_jit.passes.canonical.collective_layouts import collective_layouts
from shlo_jit.passes.canonical.combine_collectives import combine_collectives
from shlo_jit.passes.canonical.dilated_convolutions import dilated_convolutions
from shlo_jit.passes.canonical.distant_windows import distant_windows
from shlo_jit.passes.canonical.explicit_layouts import explicit_layouts
from shlo_jit.passes.canonical.features_last import features_last
from shlo_jit.passes.canonical.flat_concatenates import flat_concatenates
from shlo_jit.passes.canonical.fold_scales import fold_scales
from shlo_jit.passes.canonical.gated_products import gated_products
from shlo_jit.passes.canonical.grouped_products import grouped_products
from shlo_jit.passes.canonical.hoist_products import hoist_products
from shlo_jit.passes.canonical.key_ranges import key_ranges
from shlo_jit.passes.canonical.long_products import long_products
from shlo_jit.passes.canonical.masked_products import masked_products
from shlo_jit.passes.canonical.moved_transposes import moved_transposes
from shlo_jit.passes.canonical.narrow_constants import narrow_constants
from shlo_jit.passes.canonical.narrow_products import narrow_products
from shlo_jit.passes.canonical.one_hot_products import one_hot_products
from shlo_jit.passes.canonical.own_operands import own_operands
from shlo_jit.passes.canonical.pointwise_convolutions import pointwise_convolutions
from shlo_jit.passes.canonical.recompute_weights import recompute_weights
from shlo_jit.passes.canonical.round_activations import round_activations
from shlo_jit.passes.canonical.selected_products import selected_products
from shlo_jit.passes.canonical.short_lanes import short_lanes
from shlo_jit.passes.canonical.transposed_gathers import transposed_gathers
from shlo_jit.passes.canonical.window_scatters import window_scatters
from shlo_jit.passes.context import (
    NO_CHANNELS,
    NO_CODE,
    Channels,
    Code,
    Context,
    Outlined,
    Registered,
    nothing_registered,
)
from shlo_jit.passes.expand.expand import EXPANDED, expand
from shlo_jit.passes.factorizations.own_factorizations import own_factorizations
from shlo_jit.passes.frontend.custom_code import custom_code
from shlo_jit.passes.frontend.dynamic_calls import dynamic_calls
from shlo_jit.passes.frontend.exact_top_k import exact_top_k
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.flatten import flatten
from shlo_jit.passes.frontend.host_calls import host_calls
from shlo_jit.passes.frontend.inline import inline
from shlo_jit.passes.frontend.known_calls import known_calls
from shlo_jit.passes.frontend.process_grid import process_grid
from shlo_jit.passes.frontend.without_shape_operands import without_shape_operands
from shlo_jit.passes.frontend.without_shardings import without_shardings
from shlo_jit.passes.pack_constants import pack_constants
from shlo_jit.passes.packed_fields import packed_fields
from shlo_jit.passes.quantized.lower_quantized import lower_quantized
from shlo_jit.passes.refuse_contradictions import may_contradict, refuse_contradictions
from shlo_jit.passes.regions.elementwise_bodies import elementwise_bodies
from shlo_jit.passes.regions.promote import promote
from shlo_jit.passes.regions.unroll import unroll
from shlo_jit.passes.require_addressable import require_addressable
from shlo_jit.passes.require_static import require_static
from shlo_jit.passes.simplify import simplify
from shlo_jit.passes.states.added_slices import added_slices
from shlo_jit.passes.states.forwarded_reads import forwarded_reads
from shlo_jit.passes.states.known_comparisons import known_comparisons
from shlo_jit.passes.states.masked_updates import masked_updates
from shlo_jit.passes.states.scalar_conjuncts import scalar_conjuncts
from shlo_jit.passes.states.single_updates import single_updates
from shlo_jit.passes.states.stacked_rows import stacked_rows
from shlo_jit.passes.states.uniform_conditions import uniform_conditions
from shlo_jit.verify import core
from shlo_jit.verify.core import Rule, check_level


class Pass(NamedTuple):
    """One step of the pipeline."""

    run: Callable[[Op, Context], Op]
    establishes: tuple[Rule, ...] = ()
    """Rules that hold from here on."""

    @property
    def name(self) -> str:
        return self.run.__name__


INLINED = (core.CALLS, core.CALLERS)
"""Rules that hold of the functions that `inline` returns."""

PASSES = (
    # frontend
    Pass(without_shape_operands),
    Pass(exact_top_k),
    Pass(dynamic_calls),
    Pass(known_calls),
    Pass(require_addressable),
    Pass(first_platform),
    Pass(without_shardings, (core.SHARDINGS,)),
    Pass(host_calls, (core.HOST_TRANSFERS,)),
    Pass(flatten, (core.TOKENS,)),
    Pass(custom_code),
    Pass(process_grid, (core.COLLECTIVES,)),
    # quantized
    Pass(lower_quantized, (core.UNQUANTIZED,)),
    # regions
    Pass(promote, (core.ONE_ELEMENT_TYPE,)),
    Pass(simplify),
    Pass(unroll),
    Pass(elementwise_bodies, (core.SCALAR_BODIES,)),
    # expand
    Pass(expand),
    Pass(refuse_contradictions),
    Pass(require_static, (core.STATIC, EXPANDED)),
    Pass(require_addressable),
    # canonical
    Pass(explicit_layouts, (core.ROW_MAJOR,)),
    Pass(own_factorizations),
    Pass(canonical_linalg, (core.LINALG,)),
    Pass(features_last),
    Pass(moved_transposes),
    Pass(fold_scales),
    Pass(narrow_constants),
    Pass(round_activations),
    Pass(one_hot_products),
    Pass(masked_products),
    Pass(selected_products),
    Pass(gated_products),
    Pass(distant_windows),
    Pass(byte_products),
    Pass(byte_convolutions),
    Pass(dilated_convolutions),
    Pass(batch_blocking),
    Pass(pointwise_convolutions),
    Pass(flat_concatenates),
    Pass(window_scatters),
    Pass(single_updates),
    Pass(known_comparisons),
    Pass(forwarded_reads),
    Pass(masked_updates),
    Pass(stacked_rows),
    Pass(added_slices),
    Pass(scalar_conjuncts),
    Pass(uniform_conditions),
    Pass(transposed_gathers),
    Pass(grouped_products),
    Pass(hoist_products),
    Pass(narrow_products),
    Pass(canonical_dots, (core.DOTS,)),
    Pass(long_products),
    Pass(canonical_convolutions, (core.CONVOLUTIONS,)),
    Pass(collective_layouts, (core.COLLECTIVE_LAYOUTS,)),
    Pass(short_lanes),
    Pass(simplify, (core.NO_DEAD_OPS,)),
    Pass(recompute_weights),
    Pass(own_operands),
    Pass(key_ranges),
    Pass(combine_collectives),
    Pass(packed_fields),
    Pass(pack_constants),
)
"""Passes that run on each function after inlining, in order."""

CANONICAL = (*INLINED, *(rule for step in PASSES for rule in step.establishes))
"""Rules that hold of a function after all passes."""

CHECK = "SHLO_JIT_CHECK_PASSES"
"""Environment variable: verify the function, and the rules that hold so far, after every pass (the tests set it)."""

OnPass = Callable[[str, Op], None]
"""Observer that is called for every function after every pass, with the name of the pass and the function, which it
must not change."""


def ignore_pass(name: str, function: Op) -> None:
    """Ignores the notification: the default observer."""


def core_functions(
    module: Module,
    entry: Op,
    is_registered: Registered = nothing_registered,
    on_pass: OnPass = ignore_pass,
    *,
    num_replicas: int = 1,
    num_partitions: int = 1,
    channels: Channels = NO_CHANNELS,
    same_program: bool = True,
    code: Code = NO_CODE,
    fold_scales: bool = False,
    rounded: str | None = None,
    assume_finite: bool = False,
    reproducible: bool = False,
    caches: Caches = PLAIN,
    has_lapack: Callable[[], bool] = lambda: True,
) -> list[Op]:
    """Returns a verified module's functions in canonical form: callees first, the entry function last. Functions that
    are inlined everywhere are left out.

    `is_registered` says which custom calls the user has implemented. `on_pass` is called for each function after
    `inline` and after every pass. The other parameters are as in `Context`. Raises VerifyError and UnsupportedError."""
    as_written = {f.attributes["sym_name"]: f for f in module.functions()} if may_contradict(module) else {}
    context = Context(module, is_registered, None, num_replicas, num_partitions, channels, same_program, code)
    context = context._replace(fold_scales=fold_scales, round_activations=rounded, assume_finite=assume_finite)
    context = context._replace(reproducible=reproducible, caches=caches, has_lapack=has_lapack)
    return [
        core
        for function in inline(module, entry, is_registered)
        for core in _with_outlined(
            function, context._replace(as_written=as_written.get(function.attributes["sym_name"])), on_pass
        )
    ]


def _with_outlined(function: Op, context: Context, on_pass: OnPass) -> list[Op]:
    """Returns a function in canonical form, preceded by the functions that passes outline from its regions."""
    made = Outlined(function.attributes["sym_name"])
    core = run_passes(function, context._replace(functions=made), on_pass)
    inner = context._replace(as_written=None)
    return [*(found for other in made.functions for found in _with_outlined(other, inner, on_pass)), core]


def run_passes(function: Op, context: Context, on_pass: OnPass = ignore_pass) -> Op:
    """Returns a function whose calls have been inlined in canonical form."""
    checking = environment.flag(CHECK)
    rules = list(INLINED)
    on_pass(inline.__name__, function)
    for step in PASSES:
        before, function = function, step.run(function, context)
        rules += step.establishes
        pause()
        # what a pass returns as it was, and promises nothing new about, has been checked already
        if checking and (function is not before or step.establishes or step is PASSES[-1]):
            check(function, rules, step.name, context.is_registered)
        on_pass(step.name, function)
    if not checking:  # with `checking`, the last pass has been checked already
        check_level(function, CANONICAL, PASSES[-1].name)
    return function


def check(function: Op, rules: list[Rule], after: str, is_registered: Registered) -> None:
    """Raises InternalError unless a function is valid on its own and the rules hold of it."""
    from shlo_jit.ops.known_calls import CALLED
    from shlo_jit.verify.verifier import verify_function

    # the callees of some calls are not available here
    found = verify_function(function, is_registered=lambda target: target in CALLED or is_registered(target))
    if found:
        raise InternalError(f"after {after}:\n{StableHLOError(found)}")
    check_level(function, rules, after)
