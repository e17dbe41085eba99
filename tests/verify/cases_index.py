"""Ops that address elements by index values."""

from __future__ import annotations

from cases_reduce import body
from table import call, rules

rules(
    "stablehlo.dynamic_slice",
    call("stablehlo.dynamic_slice", 3, "slice_sizes = array<i64: 2, 1>",
         "(tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x1xf32>"),
    ("C1", "-> tensor<2x1xf32>", "-> tensor<2x1xf64>"),
    ("C2", "2, 1", "2"),
    ("C2", "(tensor<4x3x", "(tensor<4x3x1x"),
    ("C3", ", tensor<i32>)", ", tensor<i64>)"),
    ("C4", "2, 1", "2, 4"),
    ("C4", "2, 1", "2, -1"),
    ("C5", "-> tensor<2x1x", "-> tensor<2x2x"),
)  # fmt: skip
rules(
    "stablehlo.dynamic_update_slice",
    call("stablehlo.dynamic_update_slice", 4, types="(tensor<4x3xf32>, tensor<2x1xf32>, tensor<i32>, tensor<i32>) -> "
         "tensor<4x3xf32>"),
    ("C1", "-> tensor<4x3", "-> tensor<3x3"),
    ("C2", "tensor<2x1xf32>", "tensor<2x1xf64>"),
    ("C3", "tensor<2x1xf32>", "tensor<2xf32>"),
    ("C4", ", %d)", ")", ", tensor<i32>)", ")"),
    ("C5", ", tensor<i32>)", ", tensor<i64>)"),
    ("C6", "tensor<2x1xf32>", "tensor<2x4xf32>"),
)  # fmt: skip

# gather, dynamic_gather


def gather(types: str, sizes: str, **numbers: str) -> str:
    fields = ", ".join(f"{name} = {value}" for name, value in numbers.items())
    return call("stablehlo.gather", 2, f"dimension_numbers = #stablehlo.gather<{fields}>, slice_sizes = array<i64: {sizes}>",
                types)  # fmt: skip


GATHER = {
    "": gather("(tensor<3x5x7xf32>, tensor<4x2xi32>) -> tensor<2x4x7xf32>", "1, 2, 7",
               offset_dims="[0, 2]", collapsed_slice_dims="[0]", start_index_map="[1, 0]", index_vector_dim="1"),
    "batch": gather("(tensor<6x8x5xf32>, tensor<6x8x1xi32>) -> tensor<6x8x2xf32>", "1, 1, 2", offset_dims="[2]",
                    operand_batching_dims="[0, 1]", start_indices_batching_dims="[0, 1]", start_index_map="[2]",
                    index_vector_dim="2"),
    "collapsed": gather("(tensor<3x5x7xf32>, tensor<4x2xi32>) -> tensor<4x7xf32>", "1, 1, 7",
                        offset_dims="[1]", collapsed_slice_dims="[0, 1]", start_index_map="[0, 1]",
                        index_vector_dim="1"),
}  # fmt: skip
GATHER_RULES = (
    ("C1", "offset_dims = [0, 2]", "offset_dims = [0]"),
    ("C2", "index_vector_dim = 1", "index_vector_dim = 3"),
    ("C2", "index_vector_dim = 1", "index_vector_dim = -1"),
    ("C3", "start_index_map = [1, 0]", "start_index_map = [1]"),
    ("C4", "offset_dims = [0, 2]", "offset_dims = [2, 0]"),
    ("C4", "offset_dims = [0, 2]", "offset_dims = [0, 0]"),
    ("C5", "offset_dims = [0, 2]", "offset_dims = [0, 3]"),
    ("C6 collapsed", "collapsed_slice_dims = [0, 1]", "collapsed_slice_dims = [0, 0]"),
    ("C7 collapsed", "collapsed_slice_dims = [0, 1]", "collapsed_slice_dims = [1, 0]"),
    ("C8", "collapsed_slice_dims = [0]", "collapsed_slice_dims = [3]"),
    ("C10 batch", "operand_batching_dims = [0, 1]", "operand_batching_dims = [1, 0]"),
    ("C11 batch", "operand_batching_dims = [0, 1]", "operand_batching_dims = [0, 3]"),
    ("C13 batch", "start_indices_batching_dims = [0, 1]", "start_indices_batching_dims = [0, 0]"),
    ("C14 batch", "start_indices_batching_dims = [0, 1]", "start_indices_batching_dims = [0, 3]"),
    ("C15 batch", "start_indices_batching_dims = [0, 1]", "start_indices_batching_dims = [0, 2]"),
    ("C16 batch", "start_indices_batching_dims = [0, 1]", "start_indices_batching_dims = [0]"),
    ("C17 batch", "tensor<6x8x1xi32>", "tensor<7x8x1xi32>"),
    ("C18", "start_index_map = [1, 0]", "start_index_map = [0, 0]"),
    ("C18 batch", "start_index_map = [2]", "start_index_map = [1]"),
    ("C19", "start_index_map = [1, 0]", "start_index_map = [1, 3]"),
    ("C22", "-> tensor<2x4x7", "-> tensor<2x7x4"),
    ("C23", "-> tensor<2x4x7xf32>", "-> tensor<2x4x7xf64>"),
)
rules(
    "stablehlo.gather", GATHER, *GATHER_RULES,
    ("C9", "array<i64: 1, 2, 7>", "array<i64: 2, 2, 7>"),
    ("C12 batch", "array<i64: 1, 1, 2>", "array<i64: 1, 2, 2>"),
    ("C20", "array<i64: 1, 2, 7>", "array<i64: 1, 2>"),
    ("C21", "array<i64: 1, 2, 7>", "array<i64: 1, 2, 8>"),
    ("C21", "array<i64: 1, 2, 7>", "array<i64: 1, -2, 7>"),
)  # fmt: skip


def dynamic_gather(text: str) -> str:
    """Returns the same op with an operand for the sizes."""
    head, sizes = text.split(", slice_sizes = array<i64: ")
    values, types = sizes.split(">}", 1)
    text = f"{head}}}{types}".replace('stablehlo.gather"', 'stablehlo.dynamic_gather"').replace("%b)", "%b, %c)")
    return f"%c = stablehlo.constant dense<[{values}]> : tensor<3xi64>\n;;" + text.replace(
        ") ->", ", tensor<3xi64>) ->"
    )


rules(
    "stablehlo.dynamic_gather", {name: dynamic_gather(text) for name, text in GATHER.items()}, *GATHER_RULES,
    ("C9", "dense<[1, 2, 7]>", "dense<[2, 2, 7]>"),
    ("C12 batch", "dense<[1, 1, 2]>", "dense<[1, 2, 2]>"),
    ("C20", "dense<[1, 2, 7]> : tensor<3xi64>", "dense<[1, 2]> : tensor<2xi64>", ", tensor<3xi64>)", ", tensor<2xi64>)"),
    ("C21", "dense<[1, 2, 7]>", "dense<[1, 2, 8]>"),
    ("C21", "dense<[1, 2, 7]>", "dense<[1, -2, 7]>"),
)  # fmt: skip

# scatter


def scatter(types: str, region: str = "", operands: int = 3, **numbers: str) -> str:
    fields = ", ".join(f"{name} = {value}" for name, value in numbers.items())
    return call("stablehlo.scatter", operands, f"scatter_dimension_numbers = #stablehlo.scatter<{fields}>", types,
                region or body())  # fmt: skip


TWO = body(arguments="%x: tensor<f32>, %i: tensor<i32>, %y: tensor<f32>, %j: tensor<i32>",
           result="%x, %i : tensor<f32>, tensor<i32>")  # fmt: skip
WIDE = body(arguments="%x: tensor<f64>, %y: tensor<f64>", result="%x : tensor<f64>")
LINES = {"update_window_dims": "[1]", "inserted_window_dims": "[0]", "scatter_dims_to_operand_dims": "[0]",
         "index_vector_dim": "1"}  # fmt: skip
rules(
    "stablehlo.scatter",
    {
        "": scatter("(tensor<3x5x7xf32>, tensor<4x2xi32>, tensor<2x4x7xf32>) -> tensor<3x5x7xf32>",
                    update_window_dims="[0, 2]", inserted_window_dims="[0]", scatter_dims_to_operand_dims="[1, 0]",
                    index_vector_dim="1"),
        "batch": scatter("(tensor<6x8x5xf32>, tensor<6x8x1xi32>, tensor<6x8x2xf32>) -> tensor<6x8x5xf32>",
                         update_window_dims="[2]", input_batching_dims="[0, 1]",
                         scatter_indices_batching_dims="[0, 1]", scatter_dims_to_operand_dims="[2]",
                         index_vector_dim="2"),
        "inserted": scatter("(tensor<3x5x7xf32>, tensor<4x2xi32>, tensor<4x7xf32>) -> tensor<3x5x7xf32>",
                            update_window_dims="[1]", inserted_window_dims="[0, 1]",
                            scatter_dims_to_operand_dims="[0, 1]", index_vector_dim="1"),
        "two": scatter("(tensor<3x5xf32>, tensor<3x5xi32>, tensor<4x1xi32>, tensor<4x5xf32>, tensor<4x5xi32>) -> "
                       "(tensor<3x5xf32>, tensor<3x5xi32>)", TWO, 5, **LINES),
        "wide": scatter("(tensor<3x5xf32>, tensor<4x1xi32>, tensor<4x5xf32>) -> tensor<3x5xf64>", WIDE, **LINES),
    },
    ("C1 two", "tensor<3x5xi32>, tensor<4x1", "tensor<2x5xi32>, tensor<4x1"),
    ("C2", "inserted_window_dims = [0]", "inserted_window_dims = []"),
    ("C3 two", ", tensor<4x5xi32>)", ", tensor<4x4xi32>)"),
    ("C4", "tensor<2x4x7xf32>", "tensor<2x4x8xf32>"),
    ("C4", "tensor<2x4x7xf32>", "tensor<2x3x7xf32>"),
    ("C4", "tensor<2x4x7xf32>", "tensor<2x4xf32>"),
    ("C5 two", "%e)", "%e, %f)", "tensor<4x5xi32>) ->", "tensor<4x5xi32>, tensor<4x5xi32>) ->"),
    ("C6 wide", "tensor<4x5xf32>", "tensor<4x5xf64>"),
    ("C7", "update_window_dims = [0, 2]", "update_window_dims = [2, 0]"),
    ("C7", "update_window_dims = [0, 2]", "update_window_dims = [0, 0]"),
    ("C8", "update_window_dims = [0, 2]", "update_window_dims = [0, 3]"),
    ("C9 inserted", "inserted_window_dims = [0, 1]", "inserted_window_dims = [0, 0]"),
    ("C10 inserted", "inserted_window_dims = [0, 1]", "inserted_window_dims = [1, 0]"),
    ("C11", "inserted_window_dims = [0]", "inserted_window_dims = [3]"),
    ("C12 batch", "input_batching_dims = [0, 1]", "input_batching_dims = [1, 0]"),
    ("C13 batch", "input_batching_dims = [0, 1]", "input_batching_dims = [0, 3]"),
    ("C14 batch", "scatter_indices_batching_dims = [0, 1]", "scatter_indices_batching_dims = [0, 0]"),
    ("C15 batch", "scatter_indices_batching_dims = [0, 1]", "scatter_indices_batching_dims = [0, 3]"),
    ("C16 batch", "scatter_indices_batching_dims = [0, 1]", "scatter_indices_batching_dims = [0, 2]"),
    ("C17 batch", "scatter_indices_batching_dims = [0, 1]", "scatter_indices_batching_dims = [0]"),
    ("C18 batch", "(tensor<6x8x5x", "(tensor<7x8x5x"),
    ("C19", "scatter_dims_to_operand_dims = [1, 0]", "scatter_dims_to_operand_dims = [1]"),
    ("C20", "scatter_dims_to_operand_dims = [1, 0]", "scatter_dims_to_operand_dims = [0, 0]"),
    ("C20 batch", "scatter_dims_to_operand_dims = [2]", "scatter_dims_to_operand_dims = [1]"),
    ("C21", "scatter_dims_to_operand_dims = [1, 0]", "scatter_dims_to_operand_dims = [1, 3]"),
    ("C22", "index_vector_dim = 1", "index_vector_dim = 3"),
    ("C22", "index_vector_dim = 1", "index_vector_dim = -1"),
    ("C23", ", %y: tensor<f32>", ""),
    ("C23", "%y: tensor<f32>", "%y: tensor<f64>"),
    ("C24", "-> tensor<3x5x7x", "-> tensor<3x5x8x"),
    ("C25 wide", "-> tensor<3x5xf64>", "-> tensor<3x5xf32>"),
)  # fmt: skip
rules(
    "stablehlo.torch_index_select",
    call("stablehlo.torch_index_select", 2, "dim = 1 : i64, batch_dims = 1 : i64",
         "(tensor<2x3xf32>, tensor<2x4xi32>) -> tensor<2x4xf32>"),
    ("C1", "dim = 1", "dim = 2"),
    ("C1", "dim = 1", "dim = -3"),
    ("C2", "batch_dims = 1", "batch_dims = 2"),
    ("C2", "batch_dims = 1", "batch_dims = -1"),
    ("C3", "-> tensor<2x4x", "-> tensor<2x3x"),
    ("C4", "tensor<2x4xi32>", "tensor<3x4xi32>"),
    ("C5", "(tensor<2x3x", "(tensor<2x0x"),
)  # fmt: skip
