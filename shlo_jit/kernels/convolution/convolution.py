"""Convolutions as products (implicit GEMM), with the micro-kernel of the product of the same type.

`conv_routine(types, target, form)` is one object with the symbol `shlo_conv_<input>_<kernel>_<acc>_<variant>`
(CONV_PARAMS). Extents, strides and blocking are read from a table (`table.py`), so every convolution of these types
with the same form shares it.

    1. An input that needs padding, dilation or conversion, or has no adjacent features, is copied to
       [group, image, d, h, w, feature] with its padding. After that no pixel needs a test. If images are wide, tasks
       copy only what they read at the margins instead. With adjacent output pixels, lines have one feature after the
       other instead (`feature_lines.py`).
    2. Weights are packed into panels, k in the order (window d, h, w, feature).
    3. Products. With adjacent output features, rows are pixels and columns features: 14 pixels of a line are 14 rows at
       a constant distance, read in place, and a line of the window is one run of k. If lines are too short for that,
       the pixels are gathered into a panel. With adjacent output pixels, rows are features and columns pixels,
       which tasks gather into panels. With
       images adjacent in the input, as for the gradient of a kernel, rows are images: each pixel of the window is a
       step of k, and both operands are read in place. With a few output features, which would leave most lanes idle,
       lanes run along k (`narrow.py`).

A convolution with one channel per group (depthwise) is computed directly, see `depthwise.py` and `planes.py`; so is one
with groups of a few channels, see `grouped.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.computed_kernel import COMPUTED_PARAMS, emit_computed_weights_task
from shlo_jit.kernels.convolution.depthwise import emit_depthwise_task
from shlo_jit.kernels.convolution.description import SYMBOLS, Form, Variant
from shlo_jit.kernels.convolution.feature_lines import copy_lines_symbol, emit_copy_lines, emit_gather_lines
from shlo_jit.kernels.convolution.gather import emit_gather
from shlo_jit.kernels.convolution.grouped import emit_grouped_task
from shlo_jit.kernels.convolution.input import (
    FRAME,
    TASK_PARAMS,
    Arguments,
    copy_symbols,
    emit_copy_task,
    emit_packers,
    own_packers,
)
from shlo_jit.kernels.convolution.kernel_panels import emit_weights_task
from shlo_jit.kernels.convolution.many_threads import divide_tasks
from shlo_jit.kernels.convolution.margins import emit_margin
from shlo_jit.kernels.convolution.multiply_tasks import (
    emit_first_task,
    emit_images_task,
    emit_last_task,
    emit_skinny_task,
)
from shlo_jit.kernels.convolution.padding_terms import ODD_KERNEL, PaddingTerms, find_nonfinite_kernel
from shlo_jit.kernels.convolution.planes import emit_planes_task
from shlo_jit.kernels.convolution.shape import FIELDS, conv_plan
from shlo_jit.kernels.gemm.gemm import stripe_routine, tile_routine
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import jobs

CONV_PARAMS = (
    ("ptr", "table"),
    ("ptr", "input"),
    ("ptr", "kernel"),
    ("ptr", "output"),
    ("ptr", "scratch"),
    ("ptr", "epilogue"),
    ("ptr", "frame"),
    ("ptr", "following"),
    ("i64", "following_bytes"),
    ("ptr", "job"),
    ("i64", "threads"),
)
"""Parameters of the routine. `table` is `conv_table(...)` as i64; `scratch` has `conv_scratch_bytes(...)` bytes.

`epilogue` is null or `void (ptr frame, i64 batch, i64 i0, i64 i1, i64 j0, i64 j1)`, called once for every rectangle.
The index of the output's feature f is `group * co + feature of the group`:
features last: batch = 0, i = image * pixels + pixel (row-major), j = f;
features first: batch = image, i = f, j = pixel.

With a form that computes the kernel, COMPUTED_PARAMS follow, and the address of the kernel is not read.

`following` is the address of data that is read after this convolution, `following_bytes` its size. If the kernel is
prepacked, the data is prefetched beside the last products.
"""


def _task_of(v: Variant) -> Callable[..., str]:
    """Returns the emitter of the task that computes the output."""
    if v.leaf == "direct" and v.has_groups:
        return emit_grouped_task
    if v.leaf == "direct":
        return emit_planes_task if v.lanes == "pixels" else partial(emit_depthwise_task, size=v.window)
    if v.leaf == "dot":
        return emit_skinny_task
    if v.rows == "pixels":
        return partial(emit_last_task, gathers=v.gathers)
    return emit_images_task if v.rows == "images" else emit_first_task


def leaves_padding(v: Variant) -> bool:
    """Whether window positions in the padding are left out, for any kernel."""
    return v.leaf == "direct" and not v.has_groups


def conv_symbol(types: GemmTypes, form: Form, tests_kernel: bool = False) -> str:
    """Returns the symbol of `conv_routine` with these arguments."""
    with_ends = f"_ends{form.edge}" if form.edge else ""
    with_ends += f"_{form.computes}" if form.computes else ""
    variant = f"{SYMBOLS[form.variant]}{form.specialized or ''}"
    return f"shlo_conv_{types.name}_{variant}{with_ends}{'_tested' if tests_kernel else ''}"


@cache
def conv_routine(types: GemmTypes, target: Target, form: Form, tests_kernel: bool = False) -> Routine:
    """Returns the routine for these types of input, kernel and sums (= output).

    `tests_kernel`: for variants that leave out padding, the routine checks whether the kernel is finite; see
    `padding_terms.py`. Raises ValueError for complex numbers."""
    if "complex" in types.name:
        raise ValueError(f"expected real element types, found {types.name}: split complex convolutions into real ones")
    products = GemmTypes(types.acc, types.acc, types.acc)
    product = tile_routine(products, target)
    symbols = (*copy_symbols(types), *own_packers(types, target))
    copies = Routine(f"shlo_conv_{types.name}_copies", symbols, partial(_build_copies, types), (product,))
    symbol = conv_symbol(types, form, tests_kernel)
    reads_lines = form.variant.leaf == "tiles" and not form.variant.gathers
    heights = [height for height in (form.specialized, form.edge) if height > 1 and reads_lines]
    own = [stripe_routine(products, target, height) for height in heights]
    return Routine(symbol, (symbol,), partial(_build, types, form, tests_kernel), (copies, product, *own))


def _build_copies(types: GemmTypes, module: ModuleText, target: Target) -> None:
    emit_packers(module, types, target)
    emit_copy_task(module, types, target)
    emit_weights_task(module, types, target)


def _build(types: GemmTypes, form: Form, tests_kernel: bool, module: ModuleText, target: Target) -> None:
    v = form.variant
    if v.rows == "features":
        emit_copy_lines(module, types, target)
        emit_gather_lines(module, types, target)
    elif v.gathers:
        emit_gather(module, types, target)
    if v.rows == "pixels" and not v.gathers:
        emit_margin(module, types, target)
    terms = {"terms": PaddingTerms(module, types, target)} if tests_kernel else {}
    sizes = (form.specialized, form.edge) if form.edge else (form.specialized,) if form.specialized else ()
    main = _task_of(v)(module, types, target, *sizes, **terms)
    symbol = conv_symbol(types, form, tests_kernel)
    own = COMPUTED_PARAMS if form.computes else ()
    b = module.function(symbol, [*CONV_PARAMS, *own], linkage="", attributes=attributes(target))
    job, threads = b.params[len(CONV_PARAMS) - 2 : len(CONV_PARAMS)]
    words = len(FRAME) + len(own) + tests_kernel
    frame = jobs.frame_memory(b, job, words + len(FIELDS))
    for i, value in enumerate([*b.params[: len(FRAME)], *b.params[len(CONV_PARAMS) :]]):
        b.store(value, b.offset(frame, 8 * i), align=8)
    g = Arguments(b, frame)
    if tests_kernel:
        b.store(find_nonfinite_kernel(module, types, target, b, g), b.offset(frame, 8 * ODD_KERNEL), align=8)
    work = b.mul(b.mul(b.mul(g.get("rows"), g.get("groups")), b.mul(g.get("co"), g.get("ci"))), _window_size(b, g))
    if v.rows == "pixels" and v.leaf == "tiles":
        divide_tasks(b, conv_plan(types, target), frame, b.offset(frame, 8 * words), threads, work, gathers=v.gathers)
        g = Arguments(b, frame)
    for task in copy_symbols(types):
        module.declare(task, "void", [type for type, _ in TASK_PARAMS])
    copy, weights = copy_symbols(types)
    copy = copy_lines_symbol(types) if v.rows == "features" else copy
    if form.computes:
        weights = emit_computed_weights_task(module, types, target, v, form.computes)
    is_small = b.icmp("sle", work, form.serial)
    for count, task, record in (("copy_tasks", copy, jobs.NULL), ("weight_tasks", weights, jobs.NULL),
                                ("main_tasks", main, job)):  # fmt: skip
        _parallel(b, V("ptr", f"@{task}"), frame, g.get(count), record, threads, is_small)
    b.ret()


def _window_size(b: Builder, g: Arguments) -> V:
    kd, kh, kw = g.ints("kd kh kw")
    return b.mul(b.mul(kd, kh), kw)


def _parallel(b: Builder, task: V, frame: V, tasks: V, job: V, threads: V, is_small: V) -> None:
    """Runs the tasks, or describes them if there is a record. Runs little work or a single task on the caller, without
    waking a thread. Other tasks go through the pool even with one thread, since the pool can stop them when the program
    is interrupted."""

    def here() -> list[V]:
        with b.loop(0, tasks, hint="task") as i:
            b.call_pointer("void", task, [frame, i, i64(0)])
        return []

    def spread() -> list[V]:
        jobs.spread(b, job, task, frame, tasks, threads)
        return []

    alone = b.or_(is_small, b.icmp("sle", tasks, 1))
    b.if_else(b.and_(alone, b.not_(jobs.is_wanted(b, job))), here, spread)
