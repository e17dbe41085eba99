"""Shape of a convolution (extents and strides), and the slots of its parameter table."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target

_FIELDS = (
    "kind copy_tasks copy_lines copy_chunk weight_tasks main_tasks "
    "batch groups ci co k_bytes_per_panel scratch_weights scratch_workers worker_bytes "
    "in_d in_h in_w kd kh kw od oh ow rows "
    "stride_d stride_h stride_w pad_d pad_h pad_w ldil_d ldil_h ldil_w rdil_d rdil_h rdil_w "
    "in_batch in_group in_sd in_sh in_sw in_feature "
    "w_sd w_sh w_sw w_in w_out w_group w_offset w_width w_panels w_chunk w_chunks w_positions "
    "w_group_bytes w_prepacked w_adjacent "
    "o_pixel o_image o_feature o_group "
    "pd ph pw copy_iw0 copy_count copy_w0 "
    "a_group a_batch a_d a_h a_w "
    "run runs run_stride runs_per_call outer0 outer0_stride outer1 outer1_stride "
    "row_chunk row_chunks stripe specialized nc column_chunks inside0 inside1 "
    "margin_line margin_lines a_corner leaves_padding ends column_heights "
    "a_feature k_feature k_tap phases phase_step phase_bytes copy_sd copy_sh copy_line copy_zeros"
)
FIELDS = tuple(_FIELDS.split())
"""Slots of the parameter table, 8 bytes each. All strides are in bytes."""

Three = tuple[int, int, int]


def three(values: tuple[int, ...], fill: int) -> Three:
    """Returns up to three spatial values as (depth, height, width), filled up in front with `fill`."""
    a, b, c = (fill,) * (3 - len(values)) + tuple(values)
    return a, b, c


@dataclass(frozen=True)
class ConvShape:
    """Shape of a convolution over up to three spatial dimensions, in order; missing ones are prepended with extent 1.

    Strides are in elements, of any size and sign for input and kernel (a reversed window has negative kernel strides,
    and its `kernel_offset` is that of its last element). The `groups` are independent products. Feature groups
    advance the input by `ci` features, batch groups by their share of the batch.

    The output has one of two dense layouts. Features last: `out_feature == 1`, with the pixels of an image, and then
    the images, `out_pixel` apart. Features first: `out_pixel == 1`, with features `out_feature` apart.
    """

    batch: int
    """Images per group."""
    groups: int
    ci: int
    """Input features per group."""
    co: int
    """Output features per group."""
    input: tuple[int, ...]
    window: tuple[int, ...]
    output: tuple[int, ...]
    in_strides: tuple[int, ...]
    in_batch: int
    in_feature: int
    in_group: int
    kernel_strides: tuple[int, ...]
    kernel_in: int
    kernel_out: int
    kernel_group: int
    out_pixel: int
    out_image: int
    out_feature: int
    out_group: int
    strides: tuple[int, ...] = ()
    pad_low: tuple[int, ...] = ()
    """Padding at the low end, possibly negative. The padding at the high end follows from the output."""
    lhs_dilation: tuple[int, ...] = ()
    rhs_dilation: tuple[int, ...] = ()
    kernel_offset: int = 0
    lines: int = 0
    """Lines of a whole output image if a call computes only some of them, at most as many as `output` has; else 0."""

    @property
    def pixel_stride(self) -> int:
        """`out_pixel`; the distance between images if an image is one pixel."""
        one = all(extent == 1 for extent in self.output)
        return self.out_image if one and self.batch > 1 else self.out_pixel

    @property
    def features_last(self) -> bool:
        """Whether rectangles are reported to the epilogue with features last (see `convolution.CONV_PARAMS`). Decides
        where both readings fit."""
        return self.out_feature == 1 if self.co > 1 else self.pixel_stride != 1


def conv_plan(types: GemmTypes, target: Target) -> GemmPlan:
    """Returns the plan of the product that computes a convolution: operands are converted to the sums' type first."""
    return gemm_plan(GemmTypes(types.acc, types.acc, types.acc), target)
