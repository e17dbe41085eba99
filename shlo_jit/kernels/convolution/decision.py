"""Decisions about a convolution: its strategy, and how it is cut into tasks.

They are made here, in Python, once per convolution; the machine code reads them from a table of i64. If extents are
known only at the call, the number of tasks and the addresses follow from the call's extents, and the size of a task
from the hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shlo_jit import tuning
from shlo_jit.kernels.convolution.balance import even_cut, even_tasks
from shlo_jit.kernels.convolution.edge_tiles import edge_tiles_of_lines, has_idle_positions, line_of
from shlo_jit.kernels.convolution.shape import (
    BY_WINDOWS,
    DEPTHWISE,
    FIELDS,
    FIRST,
    GROUPED,
    IMAGES,
    LAST_GATHER,
    LAST_IN_PLACE,
    NARROW,
    PLANES,
    ConvShape,
    Three,
    conv_plan,
    three,
)
from shlo_jit.kernels.convolution.stripe import stripe
from shlo_jit.kernels.gemm.micro import row_counts
from shlo_jit.kernels.gemm.precision import GemmTypes, itemsize, storage
from shlo_jit.kernels.target import Target
from shlo_jit.sizes import Size, equal, hint_of


def conv_table(
    shape: ConvShape,
    types: GemmTypes,
    target: Target,
    is_constant: bool = False,
    calls: int = 1,
    is_finite: bool = False,
) -> list[int]:
    """Returns the parameter table of the routine, `FIELDS` in order.

    `is_constant`: the kernel is a constant; if `w_prepacked` is set, the routine expects the panels of `prepacked.py`.
    `calls`: approximate number of calls of the routine with this table. `is_finite`: the kernel has only finite
    numbers, so window positions that read only padding may be left out. Raises ValueError if neither features nor
    pixels of the output are adjacent."""
    return _Decision(shape, types, target, is_constant, calls, is_finite).table()


def kernel_blocks(shape: ConvShape, types: GemmTypes, target: Target) -> list[int]:
    """Returns the k of each part of the window of a constant kernel, in the order of the calls."""
    decision = _Decision(shape, types, target, is_constant=True)
    decision.table()
    return decision.blocks()


def conv_scratch_bytes(
    shape: ConvShape, types: GemmTypes, target: Target, threads: int, is_constant: bool = False
) -> int:
    """Returns the bytes of scratch (aligned to 64): a padded copy of the input if one is needed, packed weights, and
    memory per worker."""
    return table_scratch_bytes(conv_table(shape, types, target, is_constant), threads)


def table_scratch_bytes(table: Sequence[int], threads: int) -> int:
    """Returns the bytes of scratch of a routine with this parameter table."""
    t = dict(zip(FIELDS, table, strict=True))
    return t["scratch_workers"] + max(1, threads) * t["worker_bytes"] + 64


def _round(value: int, to: int) -> int:
    return -(-value // to) * to


@dataclass
class _Decision:
    shape: ConvShape
    types: GemmTypes
    target: Target
    is_constant: bool
    """Whether the kernel is known when the program is compiled."""
    calls: int = 1
    is_finite: bool = False
    values: dict[str, int] = field(default_factory=dict)
    copies_margins: bool = False
    """Whether tasks copy the input of windows that extend beyond the image, and read that of the others in place."""

    def table(self) -> list[int]:
        s = self.shape
        self.plan = conv_plan(self.types, self.target)
        self.window, self.output, self.input = three(s.window, 1), three(s.output, 1), three(s.input, 1)
        self.stride, self.pad = three(s.strides or (1,) * len(s.window), 1), three(s.pad_low, 0)
        self.ldil = three(s.lhs_dilation, 1)
        self.rdil = three(s.rhs_dilation, 1)
        self.window_size = self.window[0] * self.window[1] * self.window[2]
        self.pixels = self.output[0] * self.output[1] * self.output[2]
        self.images = s.batch
        self._set(batch=self.images, groups=s.groups, ci=s.ci, co=s.co)
        self._set_three("in_{}", self.input)
        self._set_three("k{}", self.window)
        self._set_three("o{}", self.output)
        self._set_three("stride_{}", self.stride)
        self._set_three("pad_{}", self.pad)
        self._set_three("ldil_{}", self.ldil)
        self._set_three("rdil_{}", self.rdil)
        size = itemsize(self.types.a)
        self._set_three("in_s{}", three(tuple(x * size for x in s.in_strides), 0))
        self._set(in_batch=s.in_batch * size, in_group=s.in_group * size, in_feature=s.in_feature * size)
        size = itemsize(self.types.b)
        self._set_three("w_s{}", three(tuple(x * size for x in s.kernel_strides), 0))
        self._set(w_in=s.kernel_in * size, w_out=s.kernel_out * size, w_group=s.kernel_group * size)
        self._set(w_offset=s.kernel_offset * size)
        size = itemsize(self.types.acc)
        self._set(o_pixel=s.pixel_stride * size, o_image=s.out_image * size)
        self._set(o_feature=s.out_feature * size, o_group=s.out_group * size)
        self._set(rows=self.images * self.pixels)
        self._inside()
        if self._depthwise():
            self._cut_channels(self._by_windows(), s.groups, self.window_size)
        elif self._grouped():
            self._cut_channels(GROUPED, s.groups * s.ci, self.window_size * s.ci)
            self._set(specialized=s.ci)
        elif self._planes():
            self._cut_lines(self.images * s.groups * s.co * self.output[0] * self.output[1], self.output[2])
            self._set(kind=PLANES)
        elif self._adjacent_images():
            self._cut_images()
        else:
            self._products()
            if self._has_small_margins():
                self.copies_margins = True
                self._set(copy_tasks=0)
                self._products()
        if 0 in (self.images, self.pixels, s.groups, s.co):
            self._set(copy_tasks=0, weight_tasks=0, main_tasks=0)
        return [self.values.get(name, 0) for name in FIELDS]

    def _set(self, **values: int) -> None:
        unknown = set(values) - set(FIELDS)
        assert not unknown, unknown
        self.values |= values

    def _set_three(self, pattern: str, values: Three) -> None:
        self._set(**{pattern.format(d): v for d, v in zip("dhw", values, strict=True)})

    # ------------------------------------------------------------------ depthwise
    def _depthwise(self) -> bool:
        """Whether there is one channel per group, and channels are adjacent in all operands."""
        s = self.shape
        adjacent = equal((s.in_group, s.kernel_group, s.out_group), (1, 1, 1))
        return s.features_last and s.ci == 1 and s.co == 1 and s.groups > 1 and adjacent and self.ldil == (1, 1, 1)

    def _grouped(self) -> bool:
        """Whether groups have a few channels that fill whole vectors, and channels are adjacent in all operands and
        stored in the type of the sums."""
        s, plan = self.shape, self.plan
        if any(isinstance(x, Size) for x in (s.ci, s.groups, *s.input)) or s.ci != s.co or 0 in self.input:
            return False
        whole = 1 < s.ci < plan.lanes and plan.lanes % s.ci == 0 and s.groups * s.ci % plan.lanes == 0
        adjacent = (s.in_feature, s.kernel_out, s.in_group, s.kernel_group, s.out_group) == (1, 1, s.ci, s.ci, s.ci)
        same = storage(self.types.a) == storage(self.types.b) == plan.unit == plan.out and plan.kind == "plain"
        return s.features_last and whole and adjacent and same and self.ldil == (1, 1, 1)

    def _by_windows(self) -> int:
        """Returns the depthwise strategy with lanes along channels that fits the window."""
        _, kh, kw = self.window
        whole = self.plan.masks or equal(self.shape.groups % self.plan.lanes, 0)
        flat = self.window[0] == 1 and kh == kw
        return BY_WINDOWS.get(kh, DEPTHWISE) if whole and flat else DEPTHWISE

    def _inside(self) -> None:
        """Sets the range of a line's pixels whose whole window lies inside the input's width."""
        stride, pad, extent = self.stride[2], self.pad[2], self.input[2]
        reach = (self.window[2] - 1) * self.rdil[2]
        first = max(0, -(-pad // stride))
        end = max(first, min(self.output[2], (extent - 1 - reach + pad) // stride + 1))
        self._set(inside0=min(first, end, self.output[2]), inside1=end if end > first else min(first, self.output[2]))

    def _planes(self) -> bool:
        """Whether there is one channel per group, and the pixels of a line are adjacent in input and output."""
        s = self.shape
        adjacent = s.out_pixel == 1 and self.values["in_sw"] == itemsize(self.types.a)
        return not s.features_last and s.ci == 1 and s.co <= 8 and adjacent and self.ldil == (1, 1, 1)

    def _cut_channels(self, kind: int, channels: int, terms: int) -> None:
        """Cuts the work into tasks of all channels of some lines or, if lines are few, some channels of them. Tasks
        have equal lengths if possible. `terms`: number of terms in a sum."""
        lines = self.images * self.output[0] * self.output[1]
        self._set(kind=kind, nc=channels, column_chunks=1)
        each = self.output[2] * channels
        if isinstance(lines, Size) or isinstance(each, Size) or lines * each * terms <= tuning.PARALLEL_WORK:
            self._cut_lines(lines, each)
            return
        wanted = min(tuning.MAX_TASKS, _round(max(1, lines * each * terms // tuning.DEPTHWISE_TASK), 4))
        vectors = -(-channels // self.plan.lanes)
        rows, columns = even_cut(lines, vectors, wanted)
        chunk, nc = -(-lines // rows), -(-vectors // columns) * self.plan.lanes
        rows, columns = -(-lines // chunk), -(-channels // nc)
        self._set(row_chunk=chunk, row_chunks=rows, nc=nc, column_chunks=columns, main_tasks=rows * columns)

    def _cut_lines(self, lines: int, elements: int) -> None:
        """Cuts the work into tasks of whole lines, which have `elements` elements each."""
        work = max(1, elements * self.window_size)
        chunk = max(1, (tuning.CONV_TASK // 32) // hint_of(work))
        if not isinstance(lines, Size) and work * lines <= tuning.PARALLEL_WORK:
            chunk = max(1, lines)
        self._set(row_chunk=chunk, main_tasks=-(-lines // chunk))

    # ------------------------------------------------------------------ images by features
    def _adjacent_images(self) -> bool:
        """Whether A and B can be read in place with images as rows: a step of k is a pixel of the window, with all
        images and all features of it."""
        s, plan = self.shape, self.plan
        if any(isinstance(x, Size) for x in (s.batch, s.ci, s.co, *s.input)) or s.groups > 1 or self.ldil != (1, 1, 1):
            return False
        if not s.features_last or (s.in_batch, s.kernel_out) != (1, 1) or not (plan.masks or s.co % plan.lanes == 0):
            return False
        if any(storage(dtype) != plan.unit for dtype in (self.types.a, self.types.b)):
            return False
        v, (_, kh, kw) = self.values, self.window
        lines = v["w_sh"] == v["w_sw"] * kw or kh == 1
        return lines and s.batch >= tuning.CONV_ADJACENT_IMAGES and kh * kw >= tuning.CONV_ADJACENT_WINDOW

    def _cut_images(self) -> None:
        """Cuts a product whose rows are images. Images and features swap their roles, so the padded copy has adjacent
        images. A task computes some pixels of the output."""
        s = self.shape
        self.shape = s = replace(s, batch=s.ci, ci=s.batch, in_batch=s.in_feature, in_feature=1)
        self.images, v = s.batch, self.values
        v["in_batch"], v["in_feature"] = v["in_feature"], v["in_batch"]
        self._set(batch=s.batch, ci=s.ci, rows=s.batch * self.pixels)
        self._padded_input()
        self._set(run=self.window[2], runs=self.window[1], run_stride=v["a_h"] * self.rdil[1])
        self._set(outer0=self.window[0], outer0_stride=v["a_d"] * self.rdil[0])
        # Every task reads all of both operands, so it computes several pixels if there is little work per byte.
        chunk = -(-tuning.CONV_ADJACENT_WORK * (s.ci + s.co) // (s.ci * s.co))
        chunk = min(max(1, chunk), self.pixels)
        self._set(kind=IMAGES, row_chunk=chunk, main_tasks=-(-self.pixels // chunk))
        self._set(scratch_workers=_round(self.copy_bytes + 256, 64))

    # ------------------------------------------------------------------ the input products read
    def _products(self) -> None:
        self._padded_input()
        self._runs()
        self._cut()

    def _is_plain(self) -> bool:
        """Whether the stored elements of the input, in their order, are what tiles read."""
        dilated = any(d > 1 and x > 1 for d, x in zip(self.ldil, self.input, strict=True))
        same = storage(self.types.a) == self.plan.unit and (self.shape.in_feature == 1 or equal(self.shape.ci, 1))
        return same and not dilated

    def _needed(self, output: Three) -> Three:
        """Returns the extents of the padded input that windows at so many output pixels read."""
        sizes = zip(output, self.stride, self.window, self.rdil, strict=True)
        depth, height, width = ((o - 1) * t + (k - 1) * r + 1 for o, t, k, r in sizes)
        return depth, height, width

    def _padded_input(self) -> None:
        """Sets up the tiles' input: in place if no pixel needs padding, or if tasks copy the few that do; else a padded
        copy [group, image, d, h, w, feature]."""
        s, unit = self.shape, self.plan.unit_bytes
        needed = self._needed(self.output)
        depth, lines, width = self.output
        whole = self._needed((depth, s.lines or lines, width))
        fits = all(n <= x for n, x in zip(whole, self.input, strict=True))
        inside = fits and self.pad == (0, 0, 0)
        if self._is_plain() and (inside or self.copies_margins):
            v = self.values
            self._set(a_d=v["in_sd"], a_h=v["in_sh"], a_w=v["in_sw"], a_batch=v["in_batch"], a_group=v["in_group"])
            self.copy_bytes = 0
            if not inside:
                reach = (v["stripe"] - 1) * self.stride[2] + (self.window[2] - 1) * self.rdil[2] + 1
                corner = sum(p * v[f"a_{x}"] for p, x in zip(self.pad, "dhw", strict=True))
                self._set(margin_line=reach * v["a_w"], a_corner=-corner)
            return
        pd, ph, pw = (max(1, x) for x in needed)
        a_w = s.ci * unit
        a_h, a_d, a_batch = a_w * pw, a_w * pw * ph, a_w * pw * ph * pd
        self._set(pd=pd, ph=ph, pw=pw, a_w=a_w, a_h=a_h, a_d=a_d, a_batch=a_batch, a_group=a_batch * self.images)
        lines = s.groups * self.images * pd * ph
        self.copy_bytes = lines * a_h
        chunk = max(1, (128 << 10) // max(hint_of(a_h), 1))
        self._set(copy_lines=lines, copy_chunk=chunk, copy_tasks=-(-lines // chunk))
        pad, dilation = self.pad[2], self.ldil[2]
        first = max(0, -(pad // dilation)) if pad < 0 else 0
        end = min(self.input[2], (pw - 1 - pad) // dilation + 1)
        self._set(copy_iw0=first, copy_count=max(0, end - first), copy_w0=(pad + first * dilation) * a_w)

    def _has_small_margins(self) -> bool:
        """Whether a padded copy costs more than copies by the tasks, of what windows beyond the image read (see
        `margins.py`). Tasks copy it again for each column, each stripe and each line of the output. If windows are
        apart, there are few of these copies for much input."""
        s, v = self.shape, self.values
        width, height = self.output[2], v.get("stripe", 0)
        plain = equal(v["in_sw"], s.ci * self.plan.unit_bytes) and self._is_plain() and three(s.output, 1)[1] != 1
        if v["kind"] != LAST_IN_PLACE or not v.get("copy_tasks") or not plain or isinstance(width, Size) or not width:
            return False
        ends = [(w, min(w + height, width)) for w in range(0, width, height)]
        margins = sum(w < v["inside0"] or end > v["inside1"] for w, end in ends)
        lines, apart = self.window[0] * self.window[1], self.stride[0] * self.stride[1] * self.stride[2]
        return margins * lines * v["column_chunks"] <= tuning.CONV_MARGINS * len(ends) * apart

    def _runs(self) -> None:
        """Sets the runs of k that are contiguous in the input: (width, feature) of the window if that is contiguous,
        else feature."""
        s, v = self.shape, self.values
        steps = [v[f"a_{d}"] * r for d, r in zip("dhw", self.rdil, strict=True)]
        kd, kh, kw = self.window
        if kw == 1 or (self.rdil[2] == 1 and equal(v["a_w"], s.ci * self.plan.unit_bytes)):
            run, runs, stride, outer = s.ci * kw, kh, steps[1], (1, 0)
            self._set(margin_lines=1)
        else:
            run, runs, stride, outer = s.ci, kw, steps[2], (kh, steps[1])
        self._set(leaves_padding=int(self.is_finite and kd == 1 and has_idle_positions(s, 1)))
        self._set(run=run, runs=runs, run_stride=stride, outer0=kd, outer0_stride=steps[0])
        self._set(
            outer1=outer[0],
            outer1_stride=outer[1],
            runs_per_call=min(max(1, tuning.CONV_CALL_K // max(hint_of(run), 1)), max(runs, 1)),
        )

    def blocks(self) -> list[int]:
        """Returns the k of each call of a stripe."""
        v = self.values
        each = v["runs_per_call"]
        line = [min(each, v["runs"] - s) * v["run"] for s in range(0, v["runs"], each)]
        return line * (v["outer0"] * v["outer1"])

    # ------------------------------------------------------------------ cutting
    def _cut(self) -> None:
        s, plan, v = self.shape, self.plan, self.values
        k = s.ci * self.window[0] * self.window[1] * self.window[2]
        call_k = max(1, v["run"] * v["runs_per_call"])
        last = s.features_last
        if not last and s.out_pixel != 1 and self.pixels > 1:
            raise ValueError("expected a convolution output with adjacent features or adjacent pixels, found neither")
        few = self._few(k)
        width = 1 if few else plan.nr if last else plan.mr
        panel = k * width * plan.unit_bytes * plan.parts
        panels = -(-s.co // width)
        # Some window positions and up to 16 panels at a time, so that the kernel is read in long contiguous runs.
        per_task = min(hint_of(panels), 16 if self.window_size > 1 else 4)
        chunks = -(-panels // max(per_task, 1))
        positions = max(1, (128 << 10) // max(1, hint_of(s.ci) * width * per_task * plan.unit_bytes))
        self._set(w_width=width, k_bytes_per_panel=panel, w_chunk=per_task, w_chunks=chunks, w_positions=positions)
        self._set(w_group_bytes=panel * panels, w_panels=panels)
        weights = workers = _round(self.copy_bytes + 256, 64)
        if self.is_constant:
            self._set(w_prepacked=1)
        else:
            self._set(weight_tasks=chunks * s.groups * -(-self.window_size // positions))
            # A store of the packer may extend beyond the panel by a vector.
            workers += _round(panel * panels * s.groups + 256, 64)
        self._set(scratch_weights=weights, scratch_workers=workers)
        if few:
            self._cut_few(hint_of(k))
        else:
            (self._cut_last if last else self._cut_first)(hint_of(k), call_k)

    def _cut_last(self, k: int, call_k: int) -> None:
        s, plan, v = self.shape, self.plan, self.values
        kernel_bytes = plan.bytes_of(tuning.CONV_KERNEL_BYTES)
        columns = max(plan.nr, min(plan.widest, kernel_bytes // 4 // hint_of(call_k)) // plan.nr * plan.nr)
        columns = min(columns, _round(hint_of(s.co), plan.nr))
        rows = max(2, tuning.CONV_TASK // max(1, columns * k * plan.mr)) * plan.mr
        if k * hint_of(s.co) * plan.unit_bytes >= kernel_bytes:
            rows, columns = self._cut_far(k, columns)
        self._split_lines(rows, columns)
        width = max(1, self.output[2])
        self._set(stripe=self._stripe(width)[0])
        if self._fills_tiles(width, columns):
            lines = self.images * self.output[0] * self.output[1]
            many = hint_of(lines) * -(-hint_of(s.co) // columns) // tuning.CONV_TASKS
            chunk = max(1, rows // width, min(many, tuning.CONV_LINES))
            # The part of a panel that is read for a line's last pixels serves only a few of them.
            panels = plan.nr if equal(width % v["stripe"], 0) else 2 * plan.nr
            chunk, columns = self._even(lines, chunk, columns, min(panels, columns))
            self._set(kind=LAST_IN_PLACE, row_chunk=chunk, row_chunks=-(-lines // chunk))
            height = self.values["stripe"]
            self._set(specialized=0 if height in row_counts(plan) else height)
            self._ends()
        else:
            # Tasks with other columns would gather the same pixels again.
            stripes, _ = self._even(-(-v["rows"] // plan.mr), rows // plan.mr, columns, columns)
            rows = stripes * plan.mr
            self._set(kind=LAST_GATHER, row_chunk=rows, row_chunks=-(-v["rows"] // rows))
        column_chunks = -(-s.co // columns)
        self._set(nc=columns, column_chunks=column_chunks)
        self._set(main_tasks=self.values["row_chunks"] * column_chunks * s.groups)
        margin = v["margin_line"] * (v["runs_per_call"] if v.get("margin_lines") else 1) if "margin_line" in v else 0
        self._set(worker_bytes=_round(max(call_k * plan.mr * plan.unit_bytes + 1024, margin), 64))

    def _even(self, lines: int, chunk: int, each: int, vector: int) -> tuple[int, int]:
        """Returns `even_tasks`, except that groups are tasks as well, all equally long."""
        s = self.shape
        work = hint_of(self.values["rows"] * s.co * s.ci) * self.window_size
        if s.groups > 1 or work <= tuning.GEMM_SERIAL:
            return chunk, each
        return even_tasks(hint_of(lines), chunk, hint_of(s.co), each, vector, work)

    def _few(self, k: int) -> bool:
        """Whether lanes run along k. A kernel is packed for that at compile time, or if stores have masks."""
        s, plan, run = self.shape, self.plan, self.values["run"]
        if isinstance(s.co, Size) or isinstance(run, Size) or plan.kind != "plain":
            return False
        fills = run >= plan.lanes if plan.masks else self.is_constant and run % plan.lanes == 0 < run
        if not fills or k < tuning.CONV_FEW_STEPS * s.co:
            return False
        return s.co <= tuning.CONV_FEW_FEATURES if s.features_last else s.co == s.groups == 1

    def _cut_few(self, k: int) -> None:
        """Cuts a skinny product: a task has lines of pixels, or parts of lines."""
        co, width = self.shape.co, max(1, self.output[2])
        self._split_lines(max(1, tuning.CONV_TASK // max(1, co * k * self.plan.lanes)), co)
        width = max(1, self.output[2])
        lines = self.images * self.output[0] * self.output[1]
        chunk = max(1, tuning.CONV_TASK // max(1, hint_of(width) * co * k))
        chunk, _ = self._even(lines, chunk, co, co)
        self._set(kind=NARROW, specialized=co, stripe=width, row_chunk=chunk, row_chunks=-(-lines // chunk))
        self._set(nc=co, column_chunks=1, main_tasks=self.values["row_chunks"] * self.shape.groups)

    def _fills_tiles(self, width: int, columns: int) -> bool:
        """Whether lines of `width` pixels leave so few tile rows idle that gathering the pixels, for all `columns` of a
        task, would take longer."""
        wasted = self._stripe(width)[1] - width
        return wasted * tuning.CONV_GATHER * -(-columns // self.plan.nr) <= width

    def _stripe(self, width: int) -> tuple[int, float]:
        return stripe(self.plan, width, self.shape.co, self._work())

    def _work(self) -> int:
        """Returns the approximate number of multiply-adds of all calls."""
        s = self.shape
        return hint_of(self.images * self.pixels * s.groups * s.co * s.ci * self.window_size) * self.calls

    def _ends(self) -> None:
        """Sets the edge tiles: window columns that read only padding are left out, if columns are part of a call."""
        s, v = self.shape, self.values
        line = line_of(s, 2)
        if not self.is_finite or line is None or line.width != self.output[2] or isinstance(s.ci, Size):
            return
        by_lines = v.get("margin_lines")
        if (by_lines or v["runs_per_call"] >= v["runs"]) and has_idle_positions(s, 2):
            steps = s.ci * (hint_of(v["runs_per_call"]) if by_lines else 1)
            ends, heights = edge_tiles_of_lines(self.plan, line, v["stripe"], v["specialized"], steps, self._work())
            self._set(ends=ends, column_heights=heights)

    def _split_lines(self, rows: int, columns: int) -> None:
        """Splits long lines of images that have a single line, such as sounds. Parts of about `rows` pixels become
        lines of their own, except for the padded copy, so that there are tasks for all threads. The parts are equal if
        possible. Otherwise a single line is cut into a multiple of four parts of whole tiles; the last is shorter."""
        width = self.output[2]
        if self.window[1] != 1 or self.output[1] != 1 or isinstance(width, Size):
            return
        wanted = -(-width // rows)
        for parts in range(wanted, 2 * wanted):
            if parts > 1 and width % parts == 0 and self._fills_tiles(width // parts, columns):
                self._split_line(width // parts, parts)
                return
        if wanted > 1 and self.output[0] == 1 and equal(self.images, 1):
            each = _round(-(-width // _round(wanted, 4)), self.plan.mr)
            if self._fills_tiles(each, columns):
                self._split_line(each, -(-width // each))

    def _split_line(self, width: int, parts: int) -> None:
        self.output = (self.output[0], parts, width)
        self._set_three("o{}", self.output)
        self._set(stride_h=1, a_h=width * self.stride[2] * self.values["a_w"])

    def _cut_far(self, k: int, widest: int) -> tuple[int, int]:
        """Returns the pixels and features of a task if the kernel does not stay in the caches. Then each of its panels
        is read once per chunk of pixels, so a task has many pixels and few features. There is one task along the
        features, or a multiple of four equal ones."""
        plan, co = self.plan, hint_of(self.shape.co)
        pixels = max(1, hint_of(self.values["rows"]))
        chunks = -(-pixels // tuning.CONV_FAR_PIXELS)
        rows = _round(-(-pixels // chunks), plan.mr)
        panels = -(-co // plan.nr)
        each = min(max(2, tuning.CONV_TASK // (k * plan.nr * rows)), widest // plan.nr)
        tasks = -(-panels // each)
        tasks = _round(tasks, 4) if tasks > 1 else 1
        return rows, -(-panels // tasks) * plan.nr

    def _cut_first(self, k: int, call_k: int) -> None:
        """Cuts a product whose rows are features and whose columns are pixels of an image."""
        s, plan = self.shape, self.plan
        most = plan.bytes_of(tuning.CONV_KERNEL_BYTES) // 4 // (hint_of(call_k) * plan.nr)
        most = min(tuning.CONV_TASK // max(1, k * hint_of(s.co) * plan.nr), most)
        columns = min(max(1, most) * plan.nr, _round(max(1, self.pixels), plan.nr))
        chunks = -(-self.pixels // columns)
        self._set(kind=FIRST, nc=columns, column_chunks=chunks, main_tasks=s.groups * self.images * chunks)
        self._set(worker_bytes=_round(columns * call_k * plan.unit_bytes + 1024, 64))
