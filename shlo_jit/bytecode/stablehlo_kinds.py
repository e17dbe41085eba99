"""StableHLO's own attributes and types (its `StablehloBytecode.cpp`), used by modules and Shardy ops. In files, other
ops have attributes and types of VHLO."""

from __future__ import annotations

from typing import Any

from shlo_jit.bytecode.fields import BYTE_FLAGGED_ATTRIBUTE, EXTENTS, F64, SIGNED, SIGNEDS, STRING, of
from shlo_jit.bytecode.kinds import Dialect, Kind, constant
from shlo_jit.bytecode.vhlo_kinds import (
    axis,
    axis_parts,
    bounds,
    bounds_parts,
    enum,
    name_of_kind_in_vhlo,
    struct,
)  # fmt: skip
from shlo_jit.ir.attributes import ConvDims, EnumAttr
from shlo_jit.ir.structs import CONV_FIELDS, DIMS
from shlo_jit.ir.types import TOKEN


def _conv_parts(value: ConvDims) -> tuple[Any, ...]:
    return tuple(getattr(value, field) for field, _ in CONV_FIELDS)


DIMENSIONS = (*[SIGNEDS] * 5, SIGNED)
STABLEHLO = Dialect(
    "stablehlo",
    (
        struct(1, "stablehlo.channel_handle", (SIGNED, SIGNED)),
        enum(2, "comparison_direction"),
        enum(3, "comparison_type"),
        Kind(4, "conv", tuple(SIGNEDS if kind == DIMS else SIGNED for _, kind in CONV_FIELDS), ConvDims, _conv_parts),
        struct(5, "stablehlo.dot", (SIGNEDS,) * 4),
        enum(6, "fft_type"),
        struct(7, "stablehlo.gather", DIMENSIONS),
        enum(8, "precision"),
        enum(9, "rng_algorithm"),
        enum(10, "rng_distribution", first=1),
        struct(11, "stablehlo.scatter", DIMENSIONS),
        enum(12, "transpose"),
        Kind(13, "bounds", (EXTENTS,), bounds, bounds_parts),
        struct(14, "stablehlo.output_operand_alias", (SIGNEDS, SIGNED, SIGNEDS)),
        enum(16, "result_accuracy_mode"),
        struct(17, "stablehlo.result_accuracy", (F64, F64, SIGNED, of(EnumAttr))),
        struct(19, "stablehlo.sub_axis_info", (SIGNED, SIGNED)),
        Kind(20, "axis_ref", (STRING, BYTE_FLAGGED_ATTRIBUTE), axis, axis_parts),
    ),
    (Kind(0, "token", (), *constant(TOKEN)),),
)


def name_of_kind(value: Any) -> str:
    """Returns the kind name of an attribute. Raises ValueError."""
    return "conv" if isinstance(value, ConvDims) else name_of_kind_in_vhlo(value)
