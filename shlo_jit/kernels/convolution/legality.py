"""What the routines of convolutions can carry out: for a part of a description, the reason against it, or None."""

from __future__ import annotations

from shlo_jit.kernels.convolution.description import GATHERED, IN_PLACE, Description, Variant
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.kernels.convolution.narrow import PIXELS
from shlo_jit.kernels.convolution.table import form_of
from shlo_jit.kernels.gemm.micro import row_counts
from shlo_jit.kernels.gemm.policy import ends_whole
from shlo_jit.kernels.gemm.precision import itemsize, storage
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.reasons import FIXED, Reason
from shlo_jit.sizes import Size, equal, hint_of

MOST_ROWS = 1 << 31
"""Limit of the rows of a task, so that the index of a row does not overflow."""


def against_variant(g: Geometry, v: Variant, image: str, *, is_constant: bool) -> Reason | None:
    """Returns why a variant does not compute a convolution, whose image is read like this."""
    s = g.shape
    if g.target.reproducible and _has_own_order(g, v):
        return FIXED
    if v.rows == "images":
        text, can = "images and the kernel's features have to be contiguous, in one group", _has_image_rows(g)
    elif v.leaf == "direct" and v.lanes == "features":
        text = "channels have to be contiguous in all operands, and their groups have to divide the lanes"
        can = _has_small_groups(g) if v.has_groups else _has_single_channels(g, v.window)
    elif v.leaf == "direct":
        text = "pixels have to be contiguous in image and result, with one input channel per group"
        adjacent = s.out_pixel == 1 and g.in_strides[2] == itemsize(g.types.a)
        can = not s.features_last and s.ci == 1 and adjacent and not g.is_dilated
    elif v.leaf == "dot":
        text = f"there have to be at most {len(PIXELS)} result channels, and lines of the window that fill the lanes"
        can = _has_lanes_along_k(g, image, is_constant)
    else:
        text, can = "its channels are not contiguous, or its pixels are not", _is_stored_for(g, v.rows)
    return None if can else Reason("leaf-not-there", text)


def _has_own_order(g: Geometry, v: Variant) -> bool:
    """Whether a variant does not add terms up in the order of the window, with the features of a pixel innermost."""
    return v.leaf == "dot" or (v.rows == "images" and not equal(g.shape.ci, 1))


def _has_single_channels(g: Geometry, window: int) -> bool:
    """Whether each group has one channel in and out. `window`: see `Variant.window`."""
    s, plan = g.shape, g.plan
    adjacent = equal((s.in_group, s.kernel_group, s.out_group), (1, 1, 1))
    if not (s.features_last and s.ci == 1 and s.co == 1 and s.groups > 1 and adjacent) or g.is_dilated:
        return False
    return not window or (g.window == (1, window, window) and (plan.masks or equal(s.groups % plan.lanes, 0)))


def _has_small_groups(g: Geometry) -> bool:
    """Whether groups have a few channels that fill whole vectors and are stored in the type of the sums."""
    s, plan = g.shape, g.plan
    if any(isinstance(x, Size) for x in (s.ci, s.groups, *g.input)) or s.ci != s.co or 0 in g.input:
        return False
    whole = 1 < s.ci < plan.lanes and plan.lanes % s.ci == 0 and s.groups * s.ci % plan.lanes == 0
    adjacent = (s.in_feature, s.kernel_out, s.in_group, s.kernel_group, s.out_group) == (1, 1, s.ci, s.ci, s.ci)
    same = storage(g.types.a) == storage(g.types.b) == plan.unit == plan.out and plan.kind == "plain"
    return s.features_last and whole and adjacent and same and not g.is_dilated


def _has_image_rows(g: Geometry) -> bool:
    """Whether image and kernel can be read in place with images as rows: a step of k is a pixel of the window, with all
    images and all features of it."""
    s, plan, (_, kh, kw) = g.shape, g.plan, g.window
    if any(isinstance(x, Size) for x in (s.batch, s.ci, s.co, *s.input)) or s.groups > 1 or g.is_dilated:
        return False
    # Tiles read whole rows of the kernel: all vectors of a tile, or one.
    whole = plan.masks or ends_whole(Ints(), plan, s.co)
    if not s.features_last or (s.in_batch, s.kernel_out) != (1, 1) or not whole:
        return False
    same = storage(g.types.a) == storage(g.types.b) == plan.unit
    return same and (g.kernel_strides[1] == g.kernel_strides[2] * kw or kh == 1)


def _has_lanes_along_k(g: Geometry, image: str, is_constant: bool) -> bool:
    """Whether runs of k fill the lanes. Without masks, the kernel has to be packed when the program is compiled."""
    s, plan, run = g.shape, g.plan, g.runs(image).run
    if isinstance(s.co, Size) or isinstance(run, Size) or plan.kind != "plain" or s.co not in PIXELS:
        return False
    fills = run >= plan.lanes if plan.masks else is_constant and run % plan.lanes == 0 < run
    return fills and (s.features_last or (s.co == s.groups == 1 and _is_stored_for(g, "features")))


def _is_stored_for(g: Geometry, rows: str) -> bool:
    """Whether the result is stored such that tiles can have these rows."""
    s = g.shape
    return s.features_last if rows == "pixels" else not s.features_last and (s.out_pixel == 1 or g.pixels <= 1)


def against_field(g: Geometry, d: Description, field: str, *, is_constant: bool, is_finite: bool) -> Reason | None:
    """Returns why the routine of a description's variant does not carry out one of its fields. `is_finite`: the kernel
    is known to have only finite numbers."""
    if field == "image":
        return against_image(g, d)
    if field == "kernel":
        # Without masks, stores of the packer extend beyond a panel of one feature.
        packed = {"ahead": is_constant, "shared": d.variant.leaf != "dot" or g.plan.masks}
        if not (packed.get(d.kernel, False) if d.variant.rows in ("pixels", "features") else d.kernel == "in_place"):
            text = "register tiles read panels of the kernel, and other sums read it in place; only constants are ahead"
            return Reason("operand-not-packed-there", text)
    elif field == "tile" and d.variant == IN_PLACE and not _is_height(g, d.tile):
        return Reason("tile-out-of-range", f"a register tile has 1 to {g.plan.mr} pixels")
    elif field == "edge":
        return against_edge(g, d, is_finite=is_finite)
    elif field == "part":
        return _against_part(g, d.part) if d.part else None
    elif field in ("rows", "columns"):
        return _against_task(g, d)
    elif field == "runs" and d.runs > max(1, most := g.runs(d.image, d.variant.lanes).number):
        return Reason("split-out-of-range", f"a call has at most {most} runs of k")
    return None


def against_image(g: Geometry, d: Description) -> Reason | None:
    """Returns why the image is not read as described."""
    g, v = g.with_images_as_channels if d.variant.rows == "images" else g, d.variant
    by_lines = v == IN_PLACE or v.leaf == "dot"
    margins = by_lines and g.is_plain and g.needs_padding and g.has_adjacent_pixels and g.output[1] != 1
    in_place = g.reads_lines_in_place if v.rows == "features" else g.reads_in_place
    can = {"in_place": in_place, "shared": True, "margins": margins}
    if d.image == "in_place" if v.leaf == "direct" else can.get(d.image, False):
        return None
    text = "windows reach beyond the image, its elements are converted or not contiguous, or the leaf reads it in place"
    return Reason("operand-not-packed-there", text)


def _is_height(g: Geometry, rows: int) -> bool:
    return rows in row_counts(g.plan) or (g.plan.kind == "plain" and rows <= g.plan.mr)


def _against_part(g: Geometry, part: int) -> Reason | None:
    width = g.output[2]
    single = g.window[1] == 1 == g.output[1] and not isinstance(width, Size)
    if single and part < width and (width % part == 0 or (g.output[0] == 1 and equal(g.shape.batch, 1))):
        return None
    return Reason("line-not-cut", "only single lines are cut, into equal parts if there are several images")


def _against_task(g: Geometry, d: Description) -> Reason | None:
    """Returns why a task does not have these rows and columns."""
    v, s, plan = d.variant, g.shape, g.plan
    unit, whole = (plan.lanes, s.groups * s.ci) if v.leaf == "direct" else (plan.nr, s.co)
    whole = -(-hint_of(g.pixels if v.rows == "features" else whole) // unit) * unit
    if v.rows == "features" and (d.rows < 1 or d.rows > -(-hint_of(s.co) // plan.mr) * plan.mr):
        return Reason("split-out-of-range", f"a task has at most {s.co} features, in whole tiles of {plan.mr}")
    if v.leaf != "dot" and (d.columns % unit or d.columns > max(whole, unit)):
        return Reason("split-out-of-range", f"the columns of a task are a multiple of {unit}, at most {whole}")
    whole_tiles = v == GATHERED or v.rows == "features"
    if d.rows > MOST_ROWS or (whole_tiles and d.rows % plan.mr):
        return Reason("split-out-of-range", f"a task has up to {MOST_ROWS:,} rows, a multiple of {plan.mr} for panels")
    return None


def against_edge(g: Geometry, d: Description, *, is_finite: bool) -> Reason | None:
    """Returns why columns of the window are not left out at the ends of lines."""
    _, number, are_lines = g.runs(d.image)
    ci = g.shape.ci
    if g.target.reproducible:  # columns that not all pixels of a tile need come last
        return FIXED
    can = is_finite and g.line(2) is not None and not d.part and not isinstance(ci, Size) and ci > 0
    if d.variant != IN_PLACE or not can or not (are_lines or d.runs >= number) or not g.has_idle_positions(2):
        return Reason("padding-not-skipped", "no column reads only padding, or the kernel may not be finite")
    own = form_of(g, d).specialized
    is_new = g.plan.kind == "plain" and d.edge < d.tile and d.edge not in (own, *row_counts(g.plan))
    if d.edge in (0, 1) or is_new:
        return None
    text = f"an edge tile is lower than {d.tile} pixels, and no other tile has its height"
    return Reason("tile-out-of-range", text)
