"""Dimension numbers and other records that functions of the builder take, under the documents' names.

A dictionary with the same fields is accepted instead: `dimension_numbers={"offset_dims": (1,), ...}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from shlo_jit.builder.errors import wrong

Direction = Literal["EQ", "NE", "GE", "GT", "LE", "LT"]
CompareType = Literal["FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"]
Precision = Literal["DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"]
FftType = Literal["FFT", "IFFT", "RFFT", "IRFFT"]
Transpose = Literal["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]
RandomAlgorithm = Literal["DEFAULT", "THREE_FRY", "PHILOX"]
AccuracyMode = Literal["DEFAULT", "HIGHEST", "TOLERANCE"]
Padding = Literal["SAME", "VALID"]
Ints = Sequence[int]


@dataclass(frozen=True)
class DotDimensionNumbers:
    """Dimension numbers of `dot_general`: contracting dimensions and batch dimensions."""

    lhs_contracting_dimensions: Ints = ()
    rhs_contracting_dimensions: Ints = ()
    lhs_batch_dimensions: Ints = ()
    rhs_batch_dimensions: Ints = ()


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Dimension numbers of `ragged_dot`.

    They contain those of a product, the dimension of lhs that `group_sizes` divide, and the dimension of rhs with one
    matrix per group (none if the ragged dimension is a contracting or a batch dimension).
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Ints
    rhs_group_dimensions: Ints = ()


@dataclass(frozen=True)
class ConvolutionDimensionNumbers:
    """Dimension numbers of convolutions: the role of each dimension."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Ints
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: Ints
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Ints

    @staticmethod
    def default(rank: int) -> ConvolutionDimensionNumbers:
        """XlaBuilder's default: batch, features, spatial; for the kernel output features, input features, spatial."""
        spatial = tuple(range(2, rank))
        return ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @staticmethod
    def of_labels(lhs: str, rhs: str, out: str) -> ConvolutionDimensionNumbers:
        """Parses labels as JAX writes them: `("NHWC", "HWIO", "NHWC")`. Spatial dimensions have the order of rhs."""
        spatial = [c for c in rhs if c not in "IO"]
        n, c = lhs.index("N"), lhs.index("C")
        i, o = rhs.index("I"), rhs.index("O")
        places = [tuple(text.index(s) for s in spatial) for text in (lhs, rhs, out)]
        return ConvolutionDimensionNumbers(n, c, places[0], i, o, places[1], out.index("N"), out.index("C"), places[2])


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """Dimension numbers of `gather`."""

    offset_dims: Ints = ()
    collapsed_slice_dims: Ints = ()
    start_index_map: Ints = ()
    index_vector_dim: int = 0
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """Dimension numbers of `scatter`."""

    update_window_dims: Ints = ()
    inserted_window_dims: Ints = ()
    scatter_dims_to_operand_dims: Ints = ()
    index_vector_dim: int = 0
    input_batching_dims: Ints = ()
    scatter_indices_batching_dims: Ints = ()


@dataclass(frozen=True)
class PaddingConfigDimension:
    """Padding along one dimension: what `pad` adds before and after (or removes), and between elements."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True)
class ChannelHandle:
    """Identifies transfers that belong together.

    `type`: 1 from device to device, 2 device to host, 3 host to device; 0 for the operation's own type.
    """

    handle: int
    type: int = 0


@dataclass(frozen=True)
class ResultAccuracy:
    """Required accuracy of an elementary function: a mode, or tolerances with the mode TOLERANCE."""

    mode: AccuracyMode = "DEFAULT"
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


R = TypeVar("R")


def record_of(given: Any, kind: type[R], argument: str) -> R:
    """Returns a record, which is given as such or as a dictionary of its fields."""
    if isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        known = {f.name for f in fields(kind)}  # type: ignore[arg-type]  records are dataclasses
        unknown = sorted(map(str, given.keys() - known))
        if unknown:
            raise wrong(argument, f"{kind.__name__} has no field {unknown[0]!r}: expected {', '.join(sorted(known))}")
        try:
            return kind(**given)
        except TypeError as error:
            raise wrong(argument, str(error)) from None
    raise wrong(argument, f"expected a {kind.__name__} or a dictionary of its fields, got {given!r}")
