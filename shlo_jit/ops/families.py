"""Table of ops by the module of this package that defines them.

A module is imported on the first access to one of its records: most programs use few families, and imports dominate
the startup time. Ops that are not in the table are searched in their dialect's module of elementwise ops, so new ops
there need no row here. `tests/ops/test_records.py` compares the table with the modules.
"""

from __future__ import annotations

_FAMILIES = {
    "choice": "compare is_finite select clamp",
    "conversion": "abs real imag complex convert reduce_precision",
    "shape": "constant iota reshape transpose reverse slice pad concatenate",
    "broadcast": "broadcast broadcast_in_dim",
    "bitcast": "bitcast_convert",
    "dynamic": """
        dynamic_broadcast_in_dim dynamic_iota dynamic_reshape dynamic_pad real_dynamic_slice get_dimension_size
        set_dimension_size compute_reshape_shape cstr_reshapable
    """,
    "contract": "dot_general dot einsum unary_einsum",
    "convolution": "convolution dynamic_conv",
    "reduce": "reduce reduce_window select_and_scatter sort map",
    "index": "dynamic_slice dynamic_update_slice gather dynamic_gather torch_index_select",
    "scatter": "scatter",
    "control": """
        if case while return func.return builtin.module func.func func.call func.call_indirect func.constant composite
        tuple get_tuple_element optimization_barrier after_all create_token trace async_start async_done
    """,
    "custom_call": "custom_call",
    "random": "rng rng_bit_generator",
    "linalg": "cholesky triangular_solve fft",
    "normalization": "batch_norm_inference batch_norm_training batch_norm_grad",
    "quantized": "uniform_quantize uniform_dequantize",
    "collective": """
        all_gather all_reduce all_to_all reduce_scatter collective_broadcast collective_reduce collective_permute
        cross-replica-sum replica_id partition_id infeed outfeed send recv
    """,
    "chlo_broadcast": """
        chlo.broadcast_add chlo.broadcast_subtract chlo.broadcast_multiply chlo.broadcast_divide
        chlo.broadcast_remainder chlo.broadcast_power chlo.broadcast_maximum chlo.broadcast_minimum
        chlo.broadcast_atan2 chlo.broadcast_and chlo.broadcast_or chlo.broadcast_xor chlo.broadcast_shift_left
        chlo.broadcast_shift_right_arithmetic chlo.broadcast_shift_right_logical chlo.broadcast_next_after
        chlo.broadcast_polygamma chlo.broadcast_zeta chlo.broadcast_compare chlo.broadcast_complex
        chlo.broadcast_select
    """,
    "chlo_structured": "chlo.top_k chlo.ragged_dot chlo.scan chlo.dynamic_reshape",
}
"""Module name -> its ops; names without a dialect belong to StableHLO."""

FAMILY_OF: dict[str, str] = {
    name if "." in name else f"stablehlo.{name}": module
    for module, names in _FAMILIES.items()
    for name in names.split()
}
"""Full name of an op -> module name."""

ELEMENTWISE = {"stablehlo": "elementwise", "chlo": "chlo"}
"""Dialect -> module of the ops that are not in `FAMILY_OF`."""


def family_of(name: str) -> str | None:
    """Returns the module that would define an op's record; None for ops of foreign dialects."""
    return FAMILY_OF.get(name) or ELEMENTWISE.get(name.partition(".")[0])
