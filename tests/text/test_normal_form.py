"""The Op in memory does not depend on the written form, and is the one documented in pretty.py."""

from __future__ import annotations

import corpus
import numpy as np
import pytest

from shlo_jit.ir.attributes import (
    UNIT,
    ConvDims,
    Dense,
    DenseArray,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    StructAttr,
    SymbolRef,
    TypeAttr,
)
from shlo_jit.ir.core import Op
from shlo_jit.ir.equality import difference
from shlo_jit.ir.types import DTYPES, FunctionType, QuantizedType, ScalarType, TensorType, tensor
from shlo_jit.text.parser import parse_module
from shlo_jit.text.types import type_of_text

TWO = "tensor<3x3xf32>, tensor<3x3xf32>"
PAIRS = [
    ("%0 = stablehlo.add %x, %y : tensor<3xf32>",
     '%0 = "stablehlo.add"(%x, %y) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>'),
    ("%0 = stablehlo.transpose %m, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>",
     '%0 = "stablehlo.transpose"(%m) {permutation = array<i64: 1, 0>} : (tensor<3x3xf32>) -> tensor<3x3xf32>'),
    (f"%0 = stablehlo.dot_general %m, %m, contracting_dims = [1] x [0] : ({TWO}) -> tensor<3x3xf32>",
     '%0 = "stablehlo.dot_general"(%m, %m) <{dot_dimension_numbers = #stablehlo.dot<rhs_contracting_dimensions = [0],'
     f" lhs_contracting_dimensions = [1]>}}> : ({TWO}) -> tensor<3x3xf32>"),
    ("%0 = stablehlo.compare LT, %x, %y, FLOAT : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>",
     '%0 = "stablehlo.compare"(%x, %y) {compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction ='
     " #stablehlo<comparison_direction LT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>"),
    ("%0 = stablehlo.slice %x [0:2] : (tensor<3xf32>) -> tensor<2xf32>",
     '%0 = "stablehlo.slice"(%x) {start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides ='
     " array<i64: 1>} : (tensor<3xf32>) -> tensor<2xf32>"),
    ("%0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0]"
     " : (tensor<3xf32>, tensor<f32>) -> tensor<f32>",
     '%0 = "stablehlo.reduce"(%x, %s) ({\n^bb0(%e: tensor<f32>, %f: tensor<f32>):\n  %1 = stablehlo.add %e, %f :'
     " tensor<f32>\n  stablehlo.return %1 : tensor<f32>\n}) {dimensions = array<i64: 0>}"
     " : (tensor<3xf32>, tensor<f32>) -> tensor<f32>"),
    ("%0 = stablehlo.convolution(%m, %m) dim_numbers = [b, f]x[i, o]->[b, f], window = {pad = []}"
     f" : ({TWO}) -> tensor<3x3xf32>",
     '%0 = "stablehlo.convolution"(%m, %m) {dimension_numbers = #stablehlo.conv<raw input_batch_dimension = 0,'
     " input_feature_dimension = 1, input_spatial_dimensions = [], kernel_input_feature_dimension = 0,"
     " kernel_output_feature_dimension = 1, kernel_spatial_dimensions = [], output_batch_dimension = 0,"
     " output_feature_dimension = 1, output_spatial_dimensions = []>, padding = dense<> : tensor<0x2xi64>}"
     f" : ({TWO}) -> tensor<3x3xf32>"),
    ("%0 = stablehlo.custom_call @foo(%x) : (tensor<3xf32>) -> tensor<3xf32>",
     '%0 = "stablehlo.custom_call"(%x) {call_target_name = "foo"} : (tensor<3xf32>) -> tensor<3xf32>'),
    ("%0 = stablehlo.constant dense<1.0> : tensor<2xf32>",
     '%0 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<2xf32>}> : () -> tensor<2xf32>'),
    ("%0 = call @g(%x) : (tensor<3xf32>) -> tensor<3xf32>",
     '%0 = "func.call"(%x) <{callee = @g}> : (tensor<3xf32>) -> tensor<3xf32>'),
]  # fmt: skip


@pytest.mark.parametrize(("pretty", "generic"), PAIRS)
def test_pretty_and_generic_form_are_the_same(pretty: str, generic: str) -> None:
    a, b = (parse_module(corpus.HEADER + text + corpus.FOOTER) for text in (pretty, generic))
    assert difference(a, b) is None
    assert a == b


@pytest.mark.parametrize(("pretty", "generic"), PAIRS)
def test_a_difference_is_found(pretty: str, generic: str) -> None:
    a = parse_module(corpus.HEADER + pretty + corpus.FOOTER)
    b = parse_module(corpus.HEADER + "%0 = stablehlo.abs %x : tensor<3xf32>" + corpus.FOOTER)
    assert difference(a, b) is not None
    assert a != b


def first(line: str) -> Op:
    return next(parse_module(corpus.HEADER + line + corpus.FOOTER).functions()).block().ops[0]


def snippet(part: str) -> Op:
    return first(next(text for text in corpus.SNIPPETS if part in text))


def test_attributes() -> None:
    assert snippet("dims = [1, 0]").attributes["permutation"] == DenseArray("i64", (1, 0))
    assert snippet("iota dim = 1").attributes["iota_dimension"] == IntegerAttr(1, "i64")
    assert snippet("get_tuple_element").attributes["index"] == IntegerAttr(1, "i32")
    assert snippet("e5m10").attributes["exponent_bits"] == IntegerAttr(5, "i32")
    assert snippet("PHILOX").attributes["rng_algorithm"] == EnumAttr("stablehlo", "rng_algorithm", "PHILOX")
    assert snippet("lower = true").attributes["lower"] is True
    assert snippet("all_reduce").attributes["use_global_device_ids"] is UNIT
    assert snippet("constant_like").attributes["value"] == FloatAttr(1.0, "f32")
    assert snippet("%0 = call @g(%x)").attributes["callee"] == SymbolRef(("g",))
    assert snippet('@"odd name"').attributes["call_target_name"] == "odd name"
    assert snippet('@"odd name"').attributes["backend_config"] == DictAttr((("a", IntegerAttr(1)),))
    assert snippet("foo = [1, 2.5").attributes["foo"] == (
        IntegerAttr(1), FloatAttr(2.5), 'a"b', SymbolRef(("g", "h")), UNIT,
    )  # fmt: skip


def test_structs() -> None:
    gather = snippet("stablehlo.gather").attributes["dimension_numbers"]
    assert gather == StructAttr(
        "stablehlo.gather",
        (
            ("offset_dims", (1,)),
            ("collapsed_slice_dims", (0,)),
            ("operand_batching_dims", ()),
            ("start_indices_batching_dims", ()),
            ("start_index_map", (0,)),
            ("index_vector_dim", 1),
        ),
    )
    dot = snippet("allow_imprecise").attributes
    assert dot["precision_config"] == (
        EnumAttr("stablehlo", "precision", "DEFAULT"),
        EnumAttr("stablehlo", "precision", "HIGHEST"),
    )
    assert dot["algorithm"].get("lhs_precision_type") == TypeAttr(ScalarType("tf32"))
    assert dot["algorithm"].get("allow_imprecise_accumulation") is False


def test_convolution() -> None:
    op = snippet("[b, 0, 1, f]")
    assert op.attributes["dimension_numbers"] == ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    padding = op.attributes["padding"]
    assert isinstance(padding, Dense)
    np.testing.assert_array_equal(padding.array, [[1, 1], [0, 1]])
    assert op.attributes["window_reversal"] == DenseArray("i1", (False, True))
    assert op.ints("window_strides") == (2, 2)


def test_reduce_arguments_are_left_then_right() -> None:
    block = snippet("reducer(").block()
    assert [value.name for value in block.arguments] == ["e", "g", "f", "h"]


def test_function() -> None:
    text = "func.func private @f(%a: tensor<f32> {x.y}, %b: tensor<2xi8>)"
    text += ' -> (tensor<f32> {r = "s"}) attributes {k = 1 : i8} {\n'
    op = next(parse_module(text + "  return %a : tensor<f32>\n}").functions())
    f32, i8 = tensor((), DTYPES["f32"]), tensor((2,), DTYPES["i8"])
    assert op.attributes == {
        "sym_name": "f",
        "sym_visibility": "private",
        "function_type": TypeAttr(FunctionType((f32, i8), (f32,))),
        "arg_attrs": (DictAttr((("x.y", UNIT),)), DictAttr(())),
        "res_attrs": (DictAttr((("r", "s"),)),),
        "k": IntegerAttr(1, "i8"),
    }


def test_types() -> None:
    op = snippet("uniform_quantize")
    dtype = op.result.tensor.dtype
    assert dtype == QuantizedType(DTYPES["i8"], DTYPES["f32"], -100, 100, (1.0, 2.0), (0, 3), 0)
    assert snippet("set_dimension_size").result.type == TensorType((None,), DTYPES["f32"], (3,))
    assert snippet("shape.shape_of").result.type == tensor((2,), DTYPES["index"])
    extensions = "%0 = stablehlo.set_dimension_size %x, %i, dim = 0 : (tensor<3xf32>, tensor<i32>)"
    op = first(extensions + " -> tensor<?x?xf32, #stablehlo.type_extensions<bounds = [3, -1]>>")
    assert op.result.type == TensorType((None, None), DTYPES["f32"], (3, None))


def test_types_of_quantized_numbers_print_alike_whatever_came_before() -> None:
    """Scales are compared as numbers, however they are written; `u8` and `ui8` are different types."""
    spelled = [f"!quant.uniform<{storage}:f32, {scale}:3>" for storage in ("u8", "ui8") for scale in ("2.0", "2.00")]
    for element in (*spelled, *reversed(spelled)):
        text = str(parse_module(f"func.func private @f(%a: tensor<2x{element}>)"))
        assert f"tensor<2x{element.split()[0]} 2.000000e+00:3>>" in text
    u8, other, ui8, _ = (type_of_text(f"tensor<2x{element}>") for element in spelled)
    assert u8 is other
    assert u8 != ui8


def test_a_value_of_a_later_block() -> None:
    text = 'func.func @f() {\n  "cf.br"()[^b] : () -> ()\n^a:\n  "a.b"(%0) : (tensor<f32>) -> ()\n  return\n^b:\n'
    text += '  %0 = "a.c"() : () -> tensor<f32>\n  "cf.br"()[^a] : () -> ()\n}'
    entry, a, b = next(parse_module(text).functions()).regions[0].blocks
    assert a.ops[0].operands[0] is b.ops[0].results[0]
    assert a.ops[0].operands[0].op is b.ops[0]
    assert entry.ops[0].attributes["successors"][0].text == "^b"
