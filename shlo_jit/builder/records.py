"""Dimension numbers and other records that functions of the builder take, under the documents' names.

A dictionary with the same fields will do in their place: `dimension_numbers={"offset_dims": (1,), ...}`.
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
    """Of `dot_general`: dimensions that are summed over, and those that both operands go along together."""

    lhs_contracting_dimensions: Ints = ()
    rhs_contracting_dimensions: Ints = ()
    lhs_batch_dimensions: Ints = ()
    rhs_batch_dimensions: Ints = ()


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Of `ragged_dot`: those of a product, the dimension of lhs that `group_sizes` cut, and that of rhs which has a
    matrix a group (none where the ragged dimension is summed over, or a batch dimension)."""

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Ints
    rhs_group_dimensions: Ints = ()


@dataclass(frozen=True)
class ConvolutionDimensionNumbers:
    """Of convolutions: which dimension is what."""

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
        """XlaBuilder's: batch, features, spatial; of the kernel output features, input features, spatial."""
        spatial = tuple(range(2, rank))
        return ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @staticmethod
    def of_labels(lhs: str, rhs: str, out: str) -> ConvolutionDimensionNumbers:
        """Of labels as JAX writes them: `("NHWC", "HWIO", "NHWC")`; spatial dimensions in the order of rhs."""
        spatial = [c for c in rhs if c not in "IO"]
        n, c = lhs.index("N"), lhs.index("C")
        i, o = rhs.index("I"), rhs.index("O")
        places = [tuple(text.index(s) for s in spatial) for text in (lhs, rhs, out)]
        return ConvolutionDimensionNumbers(n, c, places[0], i, o, places[1], out.index("N"), out.index("C"), places[2])


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """Of `gather`."""

    offset_dims: Ints = ()
    collapsed_slice_dims: Ints = ()
    start_index_map: Ints = ()
    index_vector_dim: int = 0
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """Of `scatter`."""

    update_window_dims: Ints = ()
    inserted_window_dims: Ints = ()
    scatter_dims_to_operand_dims: Ints = ()
    index_vector_dim: int = 0
    input_batching_dims: Ints = ()
    scatter_indices_batching_dims: Ints = ()


@dataclass(frozen=True)
class PaddingConfigDimension:
    """Of `pad`, along one dimension: what is added before and after (or taken away), and between elements."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True)
class ChannelHandle:
    """Which transfers belong together. `type`: 1 from device to device, 2 device to host, 3 host to device; 0, what the
    operation is by itself."""

    handle: int
    type: int = 0


@dataclass(frozen=True)
class ResultAccuracy:
    """How exact an elementary function has to be: a mode, or tolerances with the mode TOLERANCE."""

    mode: AccuracyMode = "DEFAULT"
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


R = TypeVar("R")


def record_of(given: Any, kind: type[R], argument: str) -> R:
    """A record, of itself or of a dictionary of its fields."""
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
