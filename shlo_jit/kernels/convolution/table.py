"""The table of a convolution's routine: what a description means in bytes, for a shape.

Nothing is decided here. If extents are known only at the call, the number of tasks and the addresses follow from the
call's extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shlo_jit import tuning
from shlo_jit.kernels.convolution.computed_kernel import kernel_box, panel_width
from shlo_jit.kernels.convolution.description import BY_ROWS, NUMBERS, Description, Form
from shlo_jit.kernels.convolution.edge_tiles import edge_heights
from shlo_jit.kernels.convolution.geometry import Geometry, Runs
from shlo_jit.kernels.convolution.shape import FIELDS, Three, three
from shlo_jit.kernels.gemm.micro import row_counts
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.sizes import Size, equal, hint_of


def conv_table(geometry: Geometry, d: Description) -> tuple[int, ...]:
    """Returns the parameter table of the routine, `FIELDS` in order."""
    values = _Table(geometry, d).values
    unknown = set(values) - set(FIELDS)
    assert not unknown, unknown
    return tuple(values.get(name, 0) for name in FIELDS)


def kernel_blocks(table: Sequence[int]) -> list[int]:
    """Returns the k of each part of the window, in the order of the calls: the blocks of a kernel packed ahead."""
    t = dict(zip(FIELDS, table, strict=True))
    line = Runs(t["run"], t["runs"], False).per_call(t["runs_per_call"])
    return line * (t["outer0"] * t["outer1"])


def number_of_tasks(table: Sequence[int]) -> int:
    """Returns the number of tasks that compute the output."""
    return table[FIELDS.index("main_tasks")]


def conv_scratch_bytes(table: Sequence[int], threads: int) -> int:
    """Returns the bytes of scratch (aligned to 64): a padded copy of the input if one is needed, packed weights, and
    memory per worker."""
    t = dict(zip(FIELDS, table, strict=True))
    return t["scratch_workers"] + max(1, threads) * t["worker_bytes"] + 64


def form_of(g: Geometry, d: Description) -> Form:
    """Returns what the code of the routine depends on."""
    v, specialized = d.variant, 0
    if v.leaf == "dot":
        specialized = g.shape.co
    elif v.has_groups:
        specialized = g.shape.ci
    elif v.rows == "pixels" and not v.gathers and d.tile not in row_counts(g.plan):
        specialized = d.tile
    return Form(v, specialized, d.edge, d.serial, d.computes)


def _round(value: int, to: int) -> int:
    return -(-value // to) * to


def adjacent_positions(g: Geometry, width: int) -> int:
    """Returns the number of window positions if those of a feature of the kernel are adjacent, and those of the next
    input or output feature follow them, negative if they are reversed; else 0. Also 0 if that does not help to pack
    panels of so many features."""
    s, positions, signs = g.shape, 1, set[bool]()
    for extent, stride in zip(reversed(g.window), reversed(three(s.kernel_strides, 0)), strict=True):
        if equal(extent, 1):
            continue
        if isinstance(extent, Size) or isinstance(stride, Size) or abs(stride) != positions:
            return 0
        positions *= extent
        signs.add(stride > 0)
    follow = equal(s.kernel_in, positions) or equal(s.kernel_out, positions)
    lanes, fits = g.plan.lanes, positions * width * g.plan.lanes * g.plan.unit_bytes <= tuning.CONV_TRANSPOSED_BYTES
    # Without masks, whole vectors are written.
    pays = width > 1 if g.plan.masks else width % lanes == 0
    if len(signs) != 1 or not (follow and fits and pays):
        return 0
    return positions if signs.pop() else -positions


class _Table:
    """The values of the table, by name."""

    def __init__(self, geometry: Geometry, d: Description):
        self.g = g = geometry if d.variant.rows != "images" else geometry.with_images_as_channels
        self.d, self.plan, self.values = d, g.plan, dict[str, int]()
        self._set(kind=NUMBERS[d.variant], specialized=form_of(g, d).specialized)
        self._shape(geometry)
        if d.variant.leaf == "direct":
            (self._planes if d.variant.lanes == "pixels" else self._channels)()
        else:
            if d.variant.lanes == "pixels":
                self._lines_of_features()
            else:
                self._image()
            self._runs()
            self._part()
            (self._images if d.variant.rows == "images" else self._product)()
        if 0 in (g.shape.batch, g.pixels, g.shape.groups, g.shape.co):
            self._set(copy_tasks=0, weight_tasks=0, main_tasks=0)

    def _set(self, **values: int) -> None:
        self.values |= values

    def _set_three(self, pattern: str, values: Three) -> None:
        self._set(**{pattern.format(d): v for d, v in zip("dhw", values, strict=True)})

    def _shape(self, given: Geometry) -> None:
        """Sets extents and distances. `given`: the geometry with images and features in their own places."""
        g, s = self.g, self.g.shape
        self._set(batch=s.batch, groups=s.groups, ci=s.ci, co=s.co, rows=s.batch * g.pixels)
        for pattern, values in (
            ("in_{}", g.input), ("k{}", g.window), ("o{}", g.output), ("stride_{}", g.stride), ("pad_{}", g.pad),
            ("ldil_{}", g.ldil), ("rdil_{}", g.rdil), ("in_s{}", g.in_strides), ("w_s{}", g.kernel_strides),
        ):  # fmt: skip
            self._set_three(pattern, values)
        size = itemsize(g.types.a)
        self._set(in_batch=s.in_batch * size, in_group=s.in_group * size, in_feature=s.in_feature * size)
        size = itemsize(g.types.b)
        self._set(w_in=s.kernel_in * size, w_out=s.kernel_out * size, w_group=s.kernel_group * size)
        self._set(w_offset=s.kernel_offset * size)
        size = itemsize(g.types.acc)
        self._set(o_pixel=given.shape.pixel_stride * size, o_image=s.out_image * size)
        self._set(o_feature=s.out_feature * size, o_group=s.out_group * size)
        self._set(inside0=g.inside[0], inside1=g.inside[1])

    # ------------------------------------------------------------------ direct
    def _channels(self) -> None:
        """Tasks of all channels of some lines, or some channels of them."""
        d, s = self.d, self.g.shape
        channels = s.groups * s.ci
        lines = s.batch * self.g.output[0] * self.g.output[1]
        rows, columns = -(-lines // d.rows), -(-channels // d.columns) if d.columns else 1
        self._set(row_chunk=d.rows, nc=d.columns or channels, column_chunks=columns, main_tasks=rows * columns)
        if d.columns:
            self._set(row_chunks=rows)

    def _planes(self) -> None:
        """Tasks of some lines of single channels."""
        s = self.g.shape
        lines = s.batch * s.groups * s.co * self.g.output[0] * self.g.output[1]
        self._set(row_chunk=self.d.rows, main_tasks=-(-lines // self.d.rows))

    # ------------------------------------------------------------------ the input that products read
    def _image(self) -> None:
        """Sets up the tiles' input: in place, or a padded copy [group, image, d, h, w, feature]."""
        g, v, image = self.g, self.values, self.d.image
        self.copy_bytes = 0
        if image != "in_place":
            self._copy()
        if image == "shared":
            return
        self._set(a_d=v["in_sd"], a_h=v["in_sh"], a_w=v["in_sw"], a_batch=v["in_batch"], a_group=v["in_group"])
        if image == "margins":
            reach = (self.d.tile - 1) * g.stride[2] + (g.window[2] - 1) * g.rdil[2] + 1
            corner = sum(p * v[f"a_{x}"] for p, x in zip(g.pad, "dhw", strict=True))
            self._set(margin_line=reach * v["a_w"], a_corner=-corner, copy_tasks=0)

    def _copy(self) -> None:
        g, s = self.g, self.g.shape
        pd, ph, pw = (max(1, x) for x in g.read_by(g.output))
        a_w = s.ci * g.plan.unit_bytes
        a_h, a_d, a_batch = a_w * pw, a_w * pw * ph, a_w * pw * ph * pd
        self._set(pd=pd, ph=ph, pw=pw, a_w=a_w, a_h=a_h, a_d=a_d, a_batch=a_batch, a_group=a_batch * s.batch)
        lines = s.groups * s.batch * pd * ph
        self.copy_bytes = lines * a_h if self.d.image == "shared" else 0
        chunk = max(1, self.d.copy_bytes // max(hint_of(a_h), 1))
        self._set(copy_lines=lines, copy_chunk=chunk, copy_tasks=-(-lines // chunk))
        pad, dilation = g.pad[2], g.ldil[2]
        first = max(0, -(pad // dilation)) if pad < 0 else 0
        end = min(g.input[2], (pw - 1 - pad) // dilation + 1)
        self._set(copy_iw0=first, copy_count=max(0, end - first), copy_w0=(pad + first * dilation) * a_w)

    def _lines_of_features(self) -> None:
        """Sets up the input of tiles whose lanes run along pixels: in place, or a padded copy (`feature_lines.py`)."""
        g, s, v, (kd, kh, kw) = self.g, self.g.shape, self.values, self.g.window
        self.copy_bytes = 0
        unit = g.plan.unit_bytes
        self._set(k_feature=1, k_tap=s.ci, phase_step=1, a_w=unit)
        if self.d.image == "in_place":
            self._set(a_d=v["in_sd"], a_h=v["in_sh"], a_batch=v["in_batch"], a_group=v["in_group"])
            self._set(a_feature=v["in_feature"])
            if g.is_flat:
                self._set_three("o{}", (1, 1, g.pixels))
            return
        (od, oh, ow), (sd, sh, sw), reads = g.output, g.stride, g.read_by(g.output)
        # Lines between windows are not copied.
        pd, ph = (od if kd == 1 else reads[0], oh if kh == 1 else reads[1])
        self._set(copy_sd=sd if kd == 1 else 1, copy_sh=sh if kh == 1 else 1)
        self._set_three("stride_{}", (1 if kd == 1 else sd, 1 if kh == 1 else sh, 1))
        pd, ph, reach = max(1, pd), max(1, ph), max(0, kw - 1) * g.rdil[2]
        phases, pw = min(sw, reach + 1), max(1, ow + reach // sw)
        row, phase = pw * unit, s.ci * pw * unit
        line = phases * phase
        self._set(pd=pd, ph=ph, pw=pw, phases=phases, phase_step=sw, phase_bytes=phase, a_feature=row)
        self._set(a_h=line, a_d=line * ph, a_batch=line * ph * pd, a_group=line * ph * pd * s.batch)
        # Phases without padding have all of their columns in the input.
        ends = (phases - 1 + (pw - 1) * sw - g.pad[2]) // g.ldil[2]
        self._set(copy_line=line, copy_zeros=int(g.ldil[2] > 1 or g.pad[2] > 0 or not ends < g.input[2]))
        lines = s.groups * s.batch * pd * ph
        self.copy_bytes = lines * line
        chunk = max(1, self.d.copy_bytes // max(hint_of(line), 1))
        self._set(copy_lines=lines, copy_chunk=chunk, copy_tasks=-(-lines // chunk))

    def _runs(self) -> None:
        """Sets the loops over the window around the runs of k."""
        g, v = self.g, self.values
        steps = [v[f"a_{d}"] * r for d, r in zip("dhw", g.rdil, strict=True)]
        kd, kh, kw = g.window
        self._set(outer0=kd, outer0_stride=steps[0])
        if self.d.variant.rows == "images":
            self._set(run=kw, runs=kh, run_stride=steps[1])
            return
        run, number, are_lines = g.runs(self.d.image, self.d.variant.lanes)
        self._set(run=run, runs=number, runs_per_call=self.d.runs, leaves_padding=int(self.d.skips_lines))
        if are_lines:
            self._set(margin_lines=1, run_stride=steps[1], outer1=1, outer1_stride=0)
        elif self.d.variant.lanes == "pixels" and g.window_size == 1:
            self._set(run_stride=v["a_feature"], outer1=1, outer1_stride=0)
        else:
            self._set(run_stride=steps[2], outer1=kh, outer1_stride=steps[1])

    def _part(self) -> None:
        """Cuts lines into parts, which are lines of their own, except for the padded copy."""
        g, part = self.g, self.d.part
        if part:
            self._set_three("o{}", (g.output[0], -(-g.output[2] // part), part))
            self._set(stride_h=1, a_h=part * g.stride[2] * self.values["a_w"])

    # ------------------------------------------------------------------ products
    def _images(self) -> None:
        """Tasks of some pixels of all images."""
        self._set(row_chunk=self.d.rows, main_tasks=-(-self.g.pixels // self.d.rows))
        self._set(scratch_workers=_round(self.copy_bytes + 256, 64))

    def _product(self) -> None:
        self._weights()
        if self.d.variant.rows == "features":
            self._features()
        else:
            self._pixels()
        v, d = self.values, self.d
        call = max(1, v["run"] * v["runs_per_call"]) * self.plan.unit_bytes
        gathered = {"pixels": self.plan.mr * call, "features": d.columns * call}[d.variant.rows] + 1024
        margin = v.get("margin_line", 0) * (v["runs_per_call"] if v.get("margin_lines") else 1)
        # Rows of input features are transposed in the worker's memory, see `kernel_panels.py`.
        rows = abs(v["w_adjacent"]) * v["w_width"] * self.plan.lanes * self.plan.unit_bytes
        if d.computes:
            rows = prod(kernel_box(self.plan, d.variant, d.computes, self.g.window_size)) * itemsize(self.g.types.b)
        self._set(worker_bytes=_round(max(0 if d.variant.leaf == "dot" else gathered, margin, rows), 64))

    def _weights(self) -> None:
        """Sets the panels of the kernel, and the tasks that pack it: some window positions and panels at a time, so
        that the kernel is read in long contiguous runs."""
        g, s, d, plan = self.g, self.g.shape, self.d, self.plan
        width = panel_width(plan, d.variant)
        panel = g.k * width * plan.unit_bytes * plan.parts
        panels = -(-s.co // width)
        per_task = min(hint_of(panels), d.panels)
        positions = max(1, d.copy_bytes // max(1, hint_of(s.ci) * width * per_task * plan.unit_bytes))
        adjacent = 0 if d.kernel == "ahead" else adjacent_positions(g, width)
        if d.computes:
            adjacent = g.window_size if d.computes == BY_ROWS else 0
        if adjacent:
            per_task, positions = min(per_task, max(1, d.copy_bytes // max(1, hint_of(panel)))), abs(adjacent)
        chunks = -(-panels // max(per_task, 1))
        self._set(w_adjacent=adjacent)
        self._set(w_width=width, k_bytes_per_panel=panel, w_chunk=per_task, w_chunks=chunks, w_positions=positions)
        self._set(w_group_bytes=panel * panels, w_panels=panels)
        weights = workers = _round(self.copy_bytes + 256, 64)
        if d.kernel == "ahead":
            self._set(w_prepacked=1)
        else:
            self._set(weight_tasks=chunks * s.groups * -(-g.window_size // positions))
            # A store of the packer may extend beyond the panel by a vector.
            workers += _round(panel * panels * s.groups + 256, 64)
        self._set(scratch_weights=weights, scratch_workers=workers)

    def _pixels(self) -> None:
        """Tasks of some lines of pixels, or some pixels if they are gathered, and some features."""
        d, s, v, variant = self.d, self.g.shape, self.values, self.d.variant
        count = v["rows"] if variant.gathers else s.batch * v["od"] * v["oh"]
        rows, columns = -(-count // d.rows), -(-s.co // d.columns)
        self._set(stripe=d.tile, row_chunk=d.rows, row_chunks=rows, nc=d.columns, column_chunks=columns)
        self._set(main_tasks=rows * columns * s.groups)
        if d.edge:
            heights = edge_heights(self.plan, v["specialized"], d.edge, d.tile)
            self._set(ends=d.edge, column_heights=heights)

    def _features(self) -> None:
        """Tasks of some features of some pixels of an image."""
        s, d = self.g.shape, self.d
        rows, columns = -(-s.co // d.rows), -(-self.g.pixels // d.columns)
        self._set(row_chunk=d.rows, row_chunks=rows, nc=d.columns, column_chunks=columns)
        self._set(main_tasks=s.groups * s.batch * rows * columns)
