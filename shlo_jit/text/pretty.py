"""The operations' own ("pretty") syntaxes: one table from op name to how it is parsed and printed.

The `Op` in memory does not depend on the form in which it was written. `op.attributes` has StableHLO's names as keys,
in the order written, inherent and discardable attributes alike. An attribute that was not written is absent.

    attribute                              in memory
    -------------------------------------  --------------------------------------------------------------------------
    broadcast_dimensions, permutation,     DenseArray("i64", (0, 1))
      slice_sizes, fft_length, window_...
    dimension, iota_dimension, ..._count   IntegerAttr(0, "i64")
    exponent_bits, mantissa_bits, index    IntegerAttr(5, "i32")
    epsilon                                FloatAttr(0.001, "f32")
    lower, is_stable, has_side_effect      bool
    use_global_device_ids                  UNIT
    window_reversal                        DenseArray("i1", (False, True))
    padding (convolution, reduce_window)   Dense, shape (n, 2), i64
    replica_groups, source_target_pairs    Dense, rank 2, i64
    value (constant)                       Dense
    comparison_direction, compare_type,    EnumAttr("stablehlo", "comparison_direction", "LT"), ("comparison_type"),
      fft_type, transpose_a,                 ("fft_type"), ("transpose"),
      rng_algorithm, rng_distribution        ("rng_algorithm"), ("rng_distribution")
    precision_config                       tuple of EnumAttr("stablehlo", "precision", "HIGH")
    dot_dimension_numbers                  StructAttr("stablehlo.dot"), all four fields, tuples of int
    dimension_numbers (gather)             StructAttr("stablehlo.gather"), all fields; index_vector_dim is an int
    scatter_dimension_numbers              StructAttr("stablehlo.scatter"), likewise
    dimension_numbers (convolution)        ConvDims
    algorithm                              StructAttr("stablehlo.dot_algorithm"); types are TypeAttr(ScalarType("f32"))
    channel_handle                         StructAttr("stablehlo.channel_handle"), ints
    result_accuracy                        StructAttr("stablehlo.result_accuracy"), floats, int, EnumAttr
    output_operand_aliases                 tuple of StructAttr("stablehlo.output_operand_alias")
    call_target_name, einsum_config        str
    callee (func.call), decomposition      SymbolRef
    called_computations                    tuple of SymbolRef
    func.func: sym_name, sym_visibility    str
      function_type                        TypeAttr(FunctionType)
      arg_attrs, res_attrs                 tuple of DictAttr, one per argument or result; absent when all are empty

`reduce ... applies op` is expanded to the region that it abbreviates. The block arguments of a `reduce` are all
left-hand ones, then all right-hand ones, even if the text has pairs. A missing `window = {...}` entry of a convolution
is a missing attribute.
"""

from __future__ import annotations

from shlo_jit.text import (
    pretty_chlo,
    pretty_clauses,
    pretty_contract,
    pretty_control,
    pretty_data,
    pretty_foreign,
    pretty_func,
)
from shlo_jit.text.syntax import Parse, Print

ISOLATED = frozenset({"builtin.module", "func.func"})
"""Ops whose regions do not see values from outside."""

PRETTY: dict[str, Parse] = {}
PRINT: dict[str, Print] = {}

for _family in (pretty_clauses, pretty_data, pretty_contract, pretty_control, pretty_func, pretty_chlo, pretty_foreign):
    for _name, _syntax in _family.SYNTAX.items():
        PRETTY[_name] = _syntax.parse
        PRINT[_name] = _syntax.print

PRETTY["module"] = PRETTY["builtin.module"]
PRETTY["return"] = PRETTY["func.return"]
PRETTY["call"] = PRETTY["func.call"]
PRETTY["call_indirect"] = PRETTY["func.call_indirect"]
PRETTY["constant"] = PRETTY["func.constant"]
PRETTY[""] = pretty_foreign.parse_unknown

SHORT = {"builtin.module": "module", "func.return": "return", "func.call": "call"}
"""Ops that are printed without their dialect."""
