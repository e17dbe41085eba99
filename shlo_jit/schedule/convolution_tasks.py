"""Sizes of a convolution: the height of its register tile, parts of long lines, and the rows and columns of a task.

They depend on shape, types and target, not on the number of threads. If extents are known only at the call, the size of
a task follows from the hint.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.convolution.description import Variant
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.kernels.gemm.micro import SUMS, row_cost, row_counts
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.schedule.convolution_balance import THREADS, even_cut, even_tasks
from shlo_jit.sizes import Size, equal, hint_of


class Task(NamedTuple):
    """The part of the result that a task computes."""

    rows: int
    """See `Description.rows`."""
    columns: int = 0
    """See `Description.columns`."""


def round_up(value: int, to: int) -> int:
    return -(-value // to) * to


def work_of(g: Geometry) -> int:
    """Returns the multiply-adds of a call."""
    s = g.shape
    return s.batch * g.pixels * s.groups * s.co * g.k


def work_per_task(v: Variant) -> int:
    """Returns about how many multiply-adds a task has."""
    if v.leaf == "direct":
        return tuning.CONV_TASK // 32 if v.lanes == "pixels" else tuning.DEPTHWISE_TASK
    return tuning.CONV_TASK


# ---------------------------------------------------------------------- direct
def task_of_channels(g: Geometry) -> Task:
    """Returns a task of all channels of some lines or, if lines are few, some channels of them. Tasks have equal
    lengths if possible."""
    s = g.shape
    channels, lines = s.groups * s.ci, s.batch * g.output[0] * g.output[1]
    each, terms = g.output[2] * channels, g.k
    if isinstance(lines, Size) or isinstance(each, Size) or lines * each * terms <= tuning.PARALLEL_WORK:
        return _task_of_lines(g, lines, each)
    wanted = min(tuning.MAX_TASKS, round_up(max(1, lines * each * terms // tuning.DEPTHWISE_TASK), 4))
    vectors = -(-channels // g.plan.lanes)
    rows, columns = even_cut(lines, vectors, wanted)
    return Task(-(-lines // rows), -(-vectors // columns) * g.plan.lanes)


def task_of_planes(g: Geometry) -> Task:
    """Returns a task of some lines of single channels."""
    s = g.shape
    return _task_of_lines(g, s.batch * s.groups * s.co * g.output[0] * g.output[1], g.output[2])


def _task_of_lines(g: Geometry, lines: int, elements: int) -> Task:
    """Returns a task of whole lines, which have `elements` elements each."""
    work = max(1, elements * g.window_size)
    if not isinstance(lines, Size) and work * lines <= tuning.PARALLEL_WORK:
        return Task(max(1, lines))
    return Task(max(1, (tuning.CONV_TASK // 32) // hint_of(work)))


# ---------------------------------------------------------------------- tiles with pixels as rows
def tile_of_line(g: Geometry, width: int, calls: int) -> tuple[int, float]:
    """Returns how many pixels of a line of `width` a tile takes, and the cost of a line, in rows of the tallest tile.
    A line of 16 pixels takes two tiles of 8, since 14 and 2 take as long as 18. A 13-pixel line gets a dedicated tile
    if the work of all calls repays the extra code."""
    plan = g.plan
    if isinstance(width, Size):
        return plan.mr, row_cost(plan, hint_of(width))
    short = _short_tiles(plan, g.shape.co)

    def line(height: int, each: float) -> tuple[float, int]:
        return width // height * each + row_cost(plan, width % height) * short, -height

    heights = [n for n in {plan.mr, SUMS, SUMS - 1} & set(row_counts(plan)) if n >= SUMS - 1]
    each = [line(n, row_cost(plan, n) * (1.0 if n == plan.mr else short)) for n in heights]
    each = each or [(row_cost(plan, width), -plan.mr)]
    own = -(-width // -(-width // plan.mr))
    dedicated = plan.kind == "plain" and own * plan.nv >= SUMS
    if dedicated and hint_of(work_of(g)) * calls >= tuning.CONV_DEDICATED_TILE:
        each.append(line(own, own))
    least, height = min(each)
    return -height, least


def _short_tiles(plan: GemmPlan, features: int) -> float:
    """Returns the cost of a row of lower tiles for so many features, in rows of the tallest tile. Only the tallest tile
    (and a dedicated one) has a form one vector wide, for the last features of a panel."""
    if isinstance(features, Size) or not plan.masks or not 0 < features % plan.nr <= plan.lanes:
        return 1.0
    panels = features // plan.nr
    return (panels + 1) * plan.nr / (panels * plan.nr + plan.lanes)


def fills_tiles(g: Geometry, width: int, columns: int, calls: int) -> bool:
    """Whether lines of `width` pixels leave so few tile rows idle that gathering the pixels, for all `columns` of a
    task, would take longer."""
    wasted = tile_of_line(g, width, calls)[1] - width
    return wasted * tuning.CONV_GATHER * -(-columns // g.plan.nr) <= width


def part_of_line(g: Geometry, rows: int, columns: int, calls: int) -> int:
    """Returns the pixels of the parts into which long lines are cut, for images that have a single line, such as
    sounds; 0 if lines are not cut. Parts have about `rows` pixels, so that there are tasks for all threads. They are
    equal if possible. Otherwise a single line is cut into a multiple of four parts of whole tiles; the last is
    shorter."""
    width = g.output[2]
    if g.window[1] != 1 or g.output[1] != 1 or isinstance(width, Size):
        return 0
    wanted = -(-width // rows)
    for parts in range(wanted, 2 * wanted):
        if parts > 1 and width % parts == 0 and fills_tiles(g, width // parts, columns, calls):
            return width // parts
    if wanted > 1 and g.output[0] == 1 and equal(g.shape.batch, 1):
        each = round_up(-(-width // round_up(wanted, 4)), g.plan.mr)
        return each if fills_tiles(g, each, columns, calls) else 0
    return 0


def task_of_pixels(g: Geometry, call_k: int) -> Task:
    """Returns the pixels and features of a task before it is fitted to lines."""
    plan, k, co = g.plan, hint_of(g.k), hint_of(g.shape.co)
    kernel_bytes = plan.bytes_of(tuning.CONV_KERNEL_BYTES)
    columns = max(plan.nr, min(plan.widest, kernel_bytes // 4 // hint_of(call_k)) // plan.nr * plan.nr)
    columns = min(columns, round_up(co, plan.nr))
    if k * co * plan.unit_bytes >= kernel_bytes:
        return _task_far(g, columns)
    return Task(max(2, tuning.CONV_TASK // max(1, columns * k * plan.mr)) * plan.mr, columns)


def _task_far(g: Geometry, widest: int) -> Task:
    """Returns the pixels and features of a task if the kernel does not stay in the caches. Then each of its panels is
    read once per chunk of pixels, so a task has many pixels and few features. There is one task along the features, or
    a multiple of four equal ones."""
    plan = g.plan
    pixels = max(1, hint_of(g.shape.batch * g.pixels))
    chunks = -(-pixels // tuning.CONV_FAR_PIXELS)
    rows = round_up(-(-pixels // chunks), plan.mr)
    panels = -(-hint_of(g.shape.co) // plan.nr)
    each = min(max(2, tuning.CONV_TASK // (hint_of(g.k) * plan.nr * rows)), widest // plan.nr)
    tasks = -(-panels // each)
    tasks = round_up(tasks, 4) if tasks > 1 else 1
    return Task(rows, -(-panels // tasks) * plan.nr)


def lines_of_task(g: Geometry, lines: int, width: int, tile: int, task: Task, *, is_fixed: bool) -> Task:
    """Returns the lines and features of a task with about so many pixels and features. `is_fixed`: the features do not
    change."""
    many = hint_of(lines) * -(-hint_of(g.shape.co) // task.columns) // tuning.CONV_TASKS
    chunk = max(1, task.rows // width, min(many, tuning.CONV_LINES))
    # The part of a panel that is read for a line's last pixels serves only a few of them.
    panels = g.plan.nr if equal(width % tile, 0) else 2 * g.plan.nr
    return _even(g, lines, Task(chunk, task.columns), task.columns if is_fixed else min(panels, task.columns))


def gathered_of_task(g: Geometry, task: Task) -> Task:
    """Returns the same for gathered pixels, in whole tiles. Tasks with other features would gather the pixels again."""
    mr = g.plan.mr
    stripes = _even(g, -(-g.shape.batch * g.pixels // mr), Task(task.rows // mr, task.columns), task.columns).rows
    return Task(stripes * mr, task.columns)


def pixels_of_dot(g: Geometry) -> int:
    """Returns about how many pixels a task has whose lanes run along k."""
    return max(1, tuning.CONV_TASK // max(1, g.shape.co * hint_of(g.k) * g.plan.lanes))


def lines_of_dot(g: Geometry, lines: int, width: int) -> int:
    """Returns the lines of such a task."""
    co = g.shape.co
    chunk = max(1, tuning.CONV_TASK // max(1, hint_of(width) * co * hint_of(g.k)))
    return _even(g, lines, Task(chunk, co), co).rows


def has_small_margins(g: Geometry, tile: int, columns: int) -> bool:
    """Whether a padded copy costs more than copies by the tasks, of what windows beyond the image read (see
    `margins.py`). Tasks copy it again for each column, each stripe and each line of the output. If windows are apart,
    there are few of these copies for much input."""
    width = g.output[2]
    if isinstance(width, Size) or not width:
        return False
    ends = [(w, min(w + tile, width)) for w in range(0, width, tile)]
    margins = sum(w < g.inside[0] or end > g.inside[1] for w, end in ends)
    lines, apart = g.window[0] * g.window[1], g.stride[0] * g.stride[1] * g.stride[2]
    return margins * lines * -(-g.shape.co // columns) <= tuning.CONV_MARGINS * len(ends) * apart


def _even(g: Geometry, lines: int, task: Task, vector: int) -> Task:
    """Returns `even_tasks`, except that groups are tasks as well, all equally long."""
    s = g.shape
    work = hint_of(s.batch * g.pixels * s.co * s.ci) * g.window_size
    if s.groups > 1 or work <= tuning.GEMM_SERIAL:
        return task
    return Task(*even_tasks(hint_of(lines), task.rows, hint_of(s.co), task.columns, vector, work))


# ---------------------------------------------------------------------- tiles with features or images as rows
def pixels_of_images(g: Geometry) -> int:
    """Returns the pixels of a task whose rows are images. Every task reads all of both operands, so it computes several
    pixels if there is little work per byte."""
    images, co = g.shape.batch, g.shape.co
    return min(max(1, -(-tuning.CONV_ADJACENT_WORK * (images + co) // (images * co))), g.pixels)


def pixels_of_features(g: Geometry, call_k: int) -> int:
    """Returns the pixels of a task whose rows are features."""
    plan = g.plan
    most = plan.bytes_of(tuning.CONV_KERNEL_BYTES) // 4 // (hint_of(call_k) * plan.nr)
    most = min(tuning.CONV_TASK // max(1, hint_of(g.k) * hint_of(g.shape.co) * plan.nr), most)
    return min(max(1, most) * plan.nr, round_up(max(1, g.pixels), plan.nr))


def runs_of_call(g: Geometry, run: int, number: int, v: Variant) -> int:
    """Returns how many runs of k a call of the tile has, of `number` in a line of the window. With features as rows, a
    call may be longer for a whole line of the window, if a gathered panel of it stays in the caches (see
    `pixels_of_features`). Other calls are about equally long: each reads and writes all sums."""
    most, line = tuning.CONV_CALL_K, hint_of(run) * hint_of(number)
    if v.rows == "features" and g.window_size > 1:
        most = max(most, min(line, g.plan.bytes_of(tuning.CONV_KERNEL_BYTES) // 4 // g.plan.b_step))
    runs = max(1, most // max(hint_of(run), 1))
    if v.rows == "features" and not isinstance(number, Size) and number > runs:
        runs = -(-number // -(-number // runs))
    return min(runs, max(number, 1))


def features_of_task(g: Geometry, columns: int) -> int:
    """Returns the features of a task of so many pixels: all of them, or whole tiles of about equally many if there
    would be fewer tasks than threads. Tasks with other features gather the pixels again, so there are not more."""
    plan, co = g.plan, g.shape.co
    tasks = hint_of(g.shape.batch * g.shape.groups) * -(-hint_of(g.pixels) // columns)
    wanted = min(max(threads for threads, _ in THREADS), max(1, hint_of(work_of(g)) // tuning.CONV_TASK))
    stripes = -(-hint_of(co) // plan.mr)
    parts = min(-(-wanted // max(1, tasks)), stripes)
    return -(-stripes // max(1, parts)) * plan.mr
