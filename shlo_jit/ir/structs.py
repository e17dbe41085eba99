"""Fields of the structs of StableHLO and CHLO (dimension numbers, channel handles, algorithms), and text of some."""

from __future__ import annotations

from typing import Any

from shlo_jit.ir.attributes import ConvDims

DIMS, INT, BOOL, TYPE, FLOAT, SUB_AXIS, ANY = "dims", "int", "bool", "type", "float", "sub axis", "any"

STRUCTS: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "stablehlo.dot": (
        ("lhs_batching_dimensions", DIMS, ()),
        ("rhs_batching_dimensions", DIMS, ()),
        ("lhs_contracting_dimensions", DIMS, ()),
        ("rhs_contracting_dimensions", DIMS, ()),
    ),
    "stablehlo.gather": (
        ("offset_dims", DIMS, ()),
        ("collapsed_slice_dims", DIMS, ()),
        ("operand_batching_dims", DIMS, ()),
        ("start_indices_batching_dims", DIMS, ()),
        ("start_index_map", DIMS, ()),
        ("index_vector_dim", INT, 0),
    ),
    "stablehlo.scatter": (
        ("update_window_dims", DIMS, ()),
        ("inserted_window_dims", DIMS, ()),
        ("input_batching_dims", DIMS, ()),
        ("scatter_indices_batching_dims", DIMS, ()),
        ("scatter_dims_to_operand_dims", DIMS, ()),
        ("index_vector_dim", INT, 0),
    ),
    "stablehlo.channel_handle": (("handle", INT, None), ("type", INT, None)),
    "stablehlo.output_operand_alias": (
        ("output_tuple_indices", DIMS, None),
        ("operand_index", INT, None),
        ("operand_tuple_indices", DIMS, None),
    ),
    "stablehlo.dot_algorithm": (
        ("lhs_precision_type", TYPE, None),
        ("rhs_precision_type", TYPE, None),
        ("accumulation_type", TYPE, None),
        ("lhs_component_count", INT, None),
        ("rhs_component_count", INT, None),
        ("num_primitive_operations", INT, None),
        ("allow_imprecise_accumulation", BOOL, None),
    ),
    "stablehlo.result_accuracy": (
        ("atol", FLOAT, 0.0),
        ("rtol", FLOAT, 0.0),
        ("ulps", INT, 0),
        ("mode", ANY, None),
    ),
    "stablehlo.axis_ref": (("name", ANY, None), ("sub_axis_info", SUB_AXIS, ())),
    "stablehlo.sub_axis_info": (("pre_size", INT, None), ("size", INT, None)),
    "stablehlo.replica_group_mesh_axes": (("mesh", ANY, None), ("axes", ANY, ())),
    "chlo.ragged_dot": (
        ("lhs_batching_dimensions", DIMS, ()),
        ("rhs_batching_dimensions", DIMS, ()),
        ("lhs_contracting_dimensions", DIMS, ()),
        ("rhs_contracting_dimensions", DIMS, ()),
        ("lhs_ragged_dimensions", DIMS, ()),
        ("rhs_group_dimensions", DIMS, ()),
    ),
}
"""Fields of the known structs: name, kind and default. None as default means that the field is mandatory."""

ENUMS_WITH_OWN_NAME = ("result_accuracy_mode",)
"""Enums written as `#stablehlo.result_accuracy_mode<HIGHEST>` rather than `#stablehlo<... HIGHEST>`."""

CONV_FIELDS = (
    ("input_batch_dimension", INT),
    ("input_feature_dimension", INT),
    ("input_spatial_dimensions", DIMS),
    ("kernel_input_feature_dimension", INT),
    ("kernel_output_feature_dimension", INT),
    ("kernel_spatial_dimensions", DIMS),
    ("output_batch_dimension", INT),
    ("output_feature_dimension", INT),
    ("output_spatial_dimensions", DIMS),
)
"""Fields of `ConvDims` and their kinds."""


def conv_dims_text(dims: ConvDims) -> str | None:
    """Returns `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`; None if the dimension numbers are not a permutation."""
    parts = (
        (dims.input_batch_dimension, "b", dims.input_feature_dimension, "f", dims.input_spatial_dimensions),
        (
            dims.kernel_input_feature_dimension,
            "i",
            dims.kernel_output_feature_dimension,
            "o",
            dims.kernel_spatial_dimensions,
        ),
        (dims.output_batch_dimension, "b", dims.output_feature_dimension, "f", dims.output_spatial_dimensions),
    )
    lists = [_label_list(*part) for part in parts]
    return None if None in lists else f"{lists[0]}x{lists[1]}->{lists[2]}"


def _label_list(first: int, first_label: str, second: int, second_label: str, spatial: tuple[int, ...]) -> str | None:
    places = {first: first_label, second: second_label}
    places.update({place: str(n) for n, place in enumerate(spatial)})
    if len(places) != 2 + len(spatial) or min(places) < 0 or max(places) > 1000:
        return None
    return "[" + ", ".join(places.get(place, "?") for place in range(max(places) + 1)) + "]"


def int_list(values: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"
