"""One small function for every op that takes more than one element type, as text with the element type left open.

A case is (name, parameters, body, result): the parameters and the result are types such as `3x4xE`, where `E` is the
element type; the body uses the parameters as `%a`, `%b`, ... and defines the result as `%0`. `MOVES` only copy
elements, `ORDERED` compare them, `SUMS` compute.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from shlo_jit.ir.types import DTYPES, DType


class Case(NamedTuple):
    name: str
    parameters: str
    body: str
    result: str


def reducer(kind: str, e: str = "E") -> str:
    """Returns a region `(a, b) -> kind(a, b)`."""
    t = f"tensor<{e}>"
    return f"""({{
    ^bb0(%l: {t}, %r: {t}):
      %o = stablehlo.{kind} %l, %r : {t}
      stablehlo.return %o : {t}
    }})"""


def comparator(direction: str, more: str = "") -> str:
    """Returns a region `(a, b, ...) -> a < b`; `more` are further arguments."""
    return f"""({{
    ^bb0(%l: tensor<E>, %r: tensor<E>{more}):
      %o = stablehlo.compare {direction}, %l, %r : (tensor<E>, tensor<E>) -> tensor<i1>
      stablehlo.return %o : tensor<i1>
    }})"""


LAST = """({
    ^bb0(%l: tensor<E>, %r: tensor<E>):
      stablehlo.return %r : tensor<E>
    })"""
SCATTER = "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
GATHER = "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
WINDOW = "window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>, padding = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>"

MOVES = [
    Case("reshape", "3x4xE", "%0 = stablehlo.reshape %a : (tensor<3x4xE>) -> tensor<2x6xE>", "2x6xE"),
    Case("transpose", "3x5xE", "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x5xE>) -> tensor<5x3xE>", "5x3xE"),
    Case("large_transpose", "40x50xE", "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<40x50xE>) -> tensor<50x40xE>", "50x40xE"),
    Case("reverse", "3x37xE", "%0 = stablehlo.reverse %a, dims = [0, 1] : tensor<3x37xE>", "3x37xE"),
    Case("slice", "5x70xE", "%0 = stablehlo.slice %a [1:4, 0:70:3] : (tensor<5x70xE>) -> tensor<3x24xE>", "3x24xE"),
    Case("pad", "3x4xE xE",
         "%0 = stablehlo.pad %a, %b, low = [1, -1], high = [0, 2], interior = [1, 2] : (tensor<3x4xE>, tensor<E>) -> tensor<6x11xE>",
         "6x11xE"),
    Case("concatenate", "3x4xE 3x17xE 3x0xE",
         "%0 = stablehlo.concatenate %a, %b, %c, dim = 1 : (tensor<3x4xE>, tensor<3x17xE>, tensor<3x0xE>) -> tensor<3x21xE>", "3x21xE"),
    Case("broadcast_in_dim", "4xE", "%0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<4xE>) -> tensor<3x4x5xE>", "3x4x5xE"),
    Case("broadcast", "4xE", "%0 = stablehlo.broadcast %a, sizes = [2, 3] : (tensor<4xE>) -> tensor<2x3x4xE>", "2x3x4xE"),
    Case("dynamic_slice", "5x6xE xi32 xi32",
         "%0 = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : (tensor<5x6xE>, tensor<i32>, tensor<i32>) -> tensor<2x3xE>", "2x3xE"),
    Case("dynamic_update_slice", "5x6xE 2x3xE xi64 xi64",
         "%0 = stablehlo.dynamic_update_slice %a, %b, %c, %d : (tensor<5x6xE>, tensor<2x3xE>, tensor<i64>, tensor<i64>) -> tensor<5x6xE>",
         "5x6xE"),
    Case("gather", "5x6xE 7x1xi32",
         f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {GATHER}, slice_sizes = array<i64: 1, 6>}}> '
         ": (tensor<5x6xE>, tensor<7x1xi32>) -> tensor<7x6xE>", "7x6xE"),
    Case("gather_elements", "5x19xE 5x7x1xui8",
         '%0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], '
         "operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, "
         "slice_sizes = array<i64: 1, 1>}> : (tensor<5x19xE>, tensor<5x7x1xui8>) -> tensor<5x7xE>", "5x7xE"),
    Case("torch_index_select", "5x6xE 3xi32",
         '%0 = "stablehlo.torch_index_select"(%a, %b) <{dim = 1 : i64, batch_dims = 0 : i64}> : (tensor<5x6xE>, tensor<3xi32>) -> tensor<5x3xE>',
         "5x3xE"),
    Case("scatter_last", "5x6xE 3x1xi32 3x6xE",
         f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> {LAST} '
         ": (tensor<5x6xE>, tensor<3x1xi32>, tensor<3x6xE>) -> tensor<5x6xE>", "5x6xE"),
    Case("select", "3x21xi1 3x21xE 3x21xE", "%0 = stablehlo.select %a, %b, %c : tensor<3x21xi1>, tensor<3x21xE>", "3x21xE"),
    Case("optimization_barrier", "3xE", "%0 = stablehlo.optimization_barrier %a : tensor<3xE>", "3xE"),
    Case("while", "17xE 17xE",
         """%n = stablehlo.constant dense<3> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %w:3 = stablehlo.while(%i = %n, %x = %a, %y = %b) : tensor<i32>, tensor<17xE>, tensor<17xE>
    cond {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.subtract %i, %one : tensor<i32>
      %z = stablehlo.reverse %x, dims = [0] : tensor<17xE>
      stablehlo.return %j, %y, %z : tensor<i32>, tensor<17xE>, tensor<17xE>
    }
    %0 = stablehlo.reshape %w#1 : (tensor<17xE>) -> tensor<17x1xE>""", "17x1xE"),
    Case("case", "xi32 7xE 7xE",
         """%0 = "stablehlo.case"(%a) ({
      stablehlo.return %b : tensor<7xE>
    }, {
      stablehlo.return %c : tensor<7xE>
    }) : (tensor<i32>) -> tensor<7xE>""", "7xE"),
    Case("if", "xi1 7xE 7xE",
         """%0 = "stablehlo.if"(%a) ({
      %x = stablehlo.reverse %b, dims = [0] : tensor<7xE>
      stablehlo.return %x : tensor<7xE>
    }, {
      stablehlo.return %c : tensor<7xE>
    }) : (tensor<i1>) -> tensor<7xE>""", "7xE"),
    Case("tuple", "3xE 2xi32",
         """%t = stablehlo.tuple %a, %b : tuple<tensor<3xE>, tensor<2xi32>>
    %0 = stablehlo.get_tuple_element %t[0] : (tuple<tensor<3xE>, tensor<2xi32>>) -> tensor<3xE>""", "3xE"),
    Case("async", "3xE",
         """%f = "stablehlo.async_start"(%a) ({
    ^bb0(%x: tensor<3xE>):
      %y = stablehlo.slice %x [0:3:2] : (tensor<3xE>) -> tensor<2xE>
      stablehlo.return %y : tensor<2xE>
    }) : (tensor<3xE>) -> !stablehlo.future<tensor<2xE>>
    %0 = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<2xE>>) -> tensor<2xE>""", "2xE"),
    Case("rank_9", "1x2x1x2x3x1x2x1x2xE",
         "%0 = stablehlo.transpose %a, dims = [8, 0, 7, 1, 6, 2, 5, 3, 4] : (tensor<1x2x1x2x3x1x2x1x2xE>) -> tensor<2x1x1x2x2x1x1x2x3xE>",
         "2x1x1x2x2x1x1x2x3xE"),
    Case("rank_0", "xE", "%0 = stablehlo.reshape %a : (tensor<E>) -> tensor<1x1xE>", "1x1xE"),
    Case("nothing", "0x4xE", "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<0x4xE>) -> tensor<4x0xE>", "4x0xE"),
    Case("pad_nothing", "0x2xE xE",
         "%0 = stablehlo.pad %a, %b, low = [1, 0], high = [2, 0], interior = [0, 1] : (tensor<0x2xE>, tensor<E>) -> tensor<3x3xE>", "3x3xE"),
    Case("gather_nothing", "5x6xE 0x1xi32",
         f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {GATHER}, slice_sizes = array<i64: 1, 6>}}> '
         ": (tensor<5x6xE>, tensor<0x1xi32>) -> tensor<0x6xE>", "0x6xE"),
    Case("scatter_nothing", "5x6xE 0x1xi32 0x6xE",
         f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> {LAST} '
         ": (tensor<5x6xE>, tensor<0x1xi32>, tensor<0x6xE>) -> tensor<5x6xE>", "5x6xE"),
    Case("reduce_window_last", "4x5xE xE",
         f'%0 = "stablehlo.reduce_window"(%a, %b) <{{{WINDOW}}}> {LAST} : (tensor<4x5xE>, tensor<E>) -> tensor<4x3xE>', "4x3xE"),
]  # fmt: skip

ORDERED = [
    Case("maximum", "3x17xE 3x17xE", "%0 = stablehlo.maximum %a, %b : tensor<3x17xE>", "3x17xE"),
    Case("clamp", "xE 3x17xE xE", "%0 = stablehlo.clamp %a, %b, %c : (tensor<E>, tensor<3x17xE>, tensor<E>) -> tensor<3x17xE>", "3x17xE"),
    Case("reduce_max", "5x33xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> {reducer("maximum")} : (tensor<5x33xE>, tensor<E>) -> tensor<5xE>',
         "5xE"),
    Case("reduce_min_rows", "5x33xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 0>}}> {reducer("minimum")} : (tensor<5x33xE>, tensor<E>) -> tensor<33xE>',
         "33xE"),
    Case("reduce_nothing", "5x0xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> {reducer("maximum")} : (tensor<5x0xE>, tensor<E>) -> tensor<5xE>',
         "5xE"),
    Case("reduce_window_max", "4x5xE xE",
         f'%0 = "stablehlo.reduce_window"(%a, %b) <{{{WINDOW}}}> {reducer("maximum")} : (tensor<4x5xE>, tensor<E>) -> tensor<4x3xE>', "4x3xE"),
    Case("cumulative_max", "3x35xE xE",
         '%0 = "stablehlo.reduce_window"(%a, %b) <{window_dimensions = array<i64: 1, 35>, padding = dense<[[0, 0], [34, 0]]> : tensor<2x2xi64>}> '
         f'{reducer("maximum")} : (tensor<3x35xE>, tensor<E>) -> tensor<3x35xE>', "3x35xE"),
    Case("scatter_max", "5x6xE 9x1xi32 9x6xE",
         f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> {reducer("maximum")} '
         ": (tensor<5x6xE>, tensor<9x1xi32>, tensor<9x6xE>) -> tensor<5x6xE>", "5x6xE"),
    Case("map_minimum", "3x17xE 3x17xE",
         f'%0 = "stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> {reducer("minimum")} : (tensor<3x17xE>, tensor<3x17xE>) -> tensor<3x17xE>',
         "3x17xE"),
    Case("sort", "3x37xE",
         f'%0 = "stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> {comparator("LT")} : (tensor<3x37xE>) -> tensor<3x37xE>',
         "3x37xE"),
    Case("sort_with_payload", "19x2xE 19x2xi16",
         '%x, %0 = "stablehlo.sort"(%a, %b) <{dimension = 0 : i64, is_stable = true}> '
         f'{comparator("GT", ", %p: tensor<i16>, %q: tensor<i16>")} : (tensor<19x2xE>, tensor<19x2xi16>) -> (tensor<19x2xE>, tensor<19x2xi16>)',
         "19x2xi16"),
    Case("sort_as_payload", "19xi32 19xE",
         """%x, %0 = "stablehlo.sort"(%a, %b) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%l: tensor<i32>, %r: tensor<i32>, %p: tensor<E>, %q: tensor<E>):
      %o = stablehlo.compare LT, %l, %r : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %o : tensor<i1>
    }) : (tensor<19xi32>, tensor<19xE>) -> (tensor<19xi32>, tensor<19xE>)""", "19xE"),
    Case("sort_nothing", "3x0xE",
         f'%0 = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = true}}> {comparator("LT")} : (tensor<3x0xE>) -> tensor<3x0xE>', "3x0xE"),
    Case("argmax", "5x33xE xE",
         """%i = stablehlo.iota dim = 1 : tensor<5x33xi32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %x, %0 = "stablehlo.reduce"(%a, %i, %b, %zero) <{dimensions = array<i64: 1>}> ({
    ^bb0(%l: tensor<E>, %p: tensor<i32>, %r: tensor<E>, %q: tensor<i32>):
      %o = stablehlo.compare GE, %l, %r : (tensor<E>, tensor<E>) -> tensor<i1>
      %u = stablehlo.select %o, %l, %r : tensor<i1>, tensor<E>
      %v = stablehlo.select %o, %p, %q : tensor<i1>, tensor<i32>
      stablehlo.return %u, %v : tensor<E>, tensor<i32>
    }) : (tensor<5x33xE>, tensor<5x33xi32>, tensor<E>, tensor<i32>) -> (tensor<5xE>, tensor<5xi32>)""", "5xi32"),
    Case("select_and_scatter", "4x6xE 2x3xE xE",
         f'%0 = "stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}}> '
         f'({comparator("GE")[1:-1]}, {reducer("maximum")[1:-1]}) : (tensor<4x6xE>, tensor<2x3xE>, tensor<E>) -> tensor<4x6xE>', "4x6xE"),
    Case("compare", "3x17xE 3x17xE", "%0 = stablehlo.compare LE, %a, %b : (tensor<3x17xE>, tensor<3x17xE>) -> tensor<3x17xi1>", "3x17xi1"),
]  # fmt: skip
"""Cases for types with an order; sort, argmax and compare of booleans too."""

EQUAL = [
    Case("compare_eq", "3x17xE 3x17xE", "%0 = stablehlo.compare EQ, %a, %b : (tensor<3x17xE>, tensor<3x17xE>) -> tensor<3x17xi1>", "3x17xi1"),
]  # fmt: skip

SUMS = [
    Case("add", "3x17xE 3x17xE", "%0 = stablehlo.add %a, %b : tensor<3x17xE>", "3x17xE"),
    Case("reduce_add", "4x2xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> {reducer("add")} : (tensor<4x2xE>, tensor<E>) -> tensor<4xE>', "4xE"),
    Case("reduce_all", "2x2xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> {reducer("add")} : (tensor<2x2xE>, tensor<E>) -> tensor<E>', "xE"),
    Case("reduce_window_add", "4x5xE xE",
         f'%0 = "stablehlo.reduce_window"(%a, %b) <{{{WINDOW}}}> {reducer("add")} : (tensor<4x5xE>, tensor<E>) -> tensor<4x3xE>', "4x3xE"),
    Case("cumulative_sum", "2x4xE xE",
         '%0 = "stablehlo.reduce_window"(%a, %b) <{window_dimensions = array<i64: 1, 4>, padding = dense<[[0, 0], [3, 0]]> : tensor<2x2xi64>}> '
         f'{reducer("add")} : (tensor<2x4xE>, tensor<E>) -> tensor<2x4xE>', "2x4xE"),
    Case("scatter_add", "5x6xE 3x1xi32 3x6xE",
         f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> {reducer("add")} '
         ": (tensor<5x6xE>, tensor<3x1xi32>, tensor<3x6xE>) -> tensor<5x6xE>", "5x6xE"),
    Case("dot_general", "2x3x4xE 2x4x5xE",
         "%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x4xE>, tensor<2x4x5xE>) -> tensor<2x3x5xE>",
         "2x3x5xE"),
    Case("dot", "4xE 4x3xE", '%0 = "stablehlo.dot"(%a, %b) : (tensor<4xE>, tensor<4x3xE>) -> tensor<3xE>', "3xE"),
    Case("dot_nothing", "3x0xE 0x5xE",
         "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<3x0xE>, tensor<0x5xE>) -> tensor<3x5xE>", "3x5xE"),
    Case("outer", "3xE 5xE", "%0 = stablehlo.dot_general %a, %b, contracting_dims = [] x [] : (tensor<3xE>, tensor<5xE>) -> tensor<3x5xE>", "3x5xE"),
    Case("einsum", "2x4xE 4x3xE", '%0 = "stablehlo.einsum"(%a, %b) <{einsum_config = "ij,jk->ik"}> : (tensor<2x4xE>, tensor<4x3xE>) -> tensor<2x3xE>', "2x3xE"),
    Case("unary_einsum", "2x2xE", '%0 = "stablehlo.unary_einsum"(%a) <{einsum_config = "ij->ji"}> : (tensor<2x2xE>) -> tensor<2x2xE>', "2x2xE"),
    Case("convolution", "1x4x4x2xE 2x1x2x3xE",
         "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 2], pad = [[0, 1], [1, 0]], "
         "rhs_dilate = [2, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xE>, tensor<2x1x2x3xE>) -> tensor<1x3x3x3xE>",
         "1x3x3x3xE"),
    Case("grouped_convolution", "2x5x4xE 2x2x4xE",
         "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
         "{batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x5x4xE>, tensor<2x2x4xE>) -> tensor<2x4x4xE>", "2x4x4xE"),
    Case("reduce_multiply", "4x2xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> {reducer("multiply")} : (tensor<4x2xE>, tensor<E>) -> tensor<4xE>', "4xE"),
    Case("select_and_scatter_add", "4x6xE 3x5xE xE",
         f'%0 = "stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = array<i64: 2, 2>}}> '
         f'({comparator("GE")[1:-1]}, {reducer("add")[1:-1]}) : (tensor<4x6xE>, tensor<3x5xE>, tensor<E>) -> tensor<4x6xE>', "4x6xE"),
]  # fmt: skip

BITS = [
    Case(f"{name}", "3x17xE 3x17xE", f"%0 = stablehlo.{name} %a, %b : tensor<3x17xE>", "3x17xE") for name in ("and", "or", "xor")
] + [
    Case("reduce_xor", "5x33xE xE",
         f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> {reducer("xor")} : (tensor<5x33xE>, tensor<E>) -> tensor<5xE>', "5xE"),
]  # fmt: skip

NUMBERS = [
    Case("iota", "", "%0 = stablehlo.iota dim = 1 : tensor<3x2xE>", "3x2xE"),
    Case("subtract", "3x17xE 3x17xE", "%0 = stablehlo.subtract %a, %b : tensor<3x17xE>", "3x17xE"),
    Case("broadcast_add", "4x3xE 3xE", "%0 = chlo.broadcast_add %a, %b : (tensor<4x3xE>, tensor<3xE>) -> tensor<4x3xE>", "4x3xE"),
]  # fmt: skip


def cases(dtype: DType) -> list[Case]:
    """Returns the cases that the element type allows."""
    found = [*MOVES, *EQUAL]
    if dtype.kind == "c":
        return [*found, *(c for c in SUMS if not c.name.startswith("select_and_scatter")), *NUMBERS]
    if dtype.name == "f8E8M0FNU":  # has no zero, which an empty sum would be
        return [*found, *ORDERED, *(c for c in SUMS if c.name not in ("convolution", "dot_nothing")), *NUMBERS[1:]]
    if dtype.kind == "b":
        return [*found, *ORDERED, *SUMS, *BITS]
    return [*found, *ORDERED, *SUMS, *NUMBERS, *(BITS if dtype.is_integer else [])]


def filled(text: str, dtype: DType) -> str:
    """Returns the text with the element type filled in."""
    return re.sub(r"(?<=[x<])E(?=>)", dtype.name, text)


def types(text: str, dtype: DType) -> list[tuple[str, tuple[int, ...], DType]]:
    """Parses `3x4xE xi32` as (type text, shape, element type)."""
    found = []
    for word in text.split():
        *dims, element = word.split("x") if not word.startswith("x") else ["", word[1:]]
        shape = tuple(int(n) for n in dims if n)
        name = dtype.name if element == "E" else element
        found.append((f"tensor<{''.join(f'{n}x' for n in shape)}{name}>", shape, DTYPES[name]))
    return found


def program(chosen: list[Case], dtype: DType) -> str:
    """Returns a module whose entry calls one function per case, and returns all results."""
    functions, calls, parameters, names, results = [], [], [], [], []
    for k, case in enumerate(chosen):
        inputs = [t for t, _, _ in types(case.parameters, dtype)]
        output, _, _ = types(case.result, dtype)[0]
        declared = ", ".join(f"%{'abcdefg'[i]}: {t}" for i, t in enumerate(inputs))
        functions.append(
            f"func.func private @{case.name}({declared}) -> {output} {{\n    {filled(case.body, dtype)}\n    return %0 : {output}\n}}"
        )
        given = [f"%p{len(parameters) + i}" for i in range(len(inputs))]
        parameters += [f"{name}: {t}" for name, t in zip(given, inputs, strict=True)]
        calls.append(f"  %r{k} = func.call @{case.name}({', '.join(given)}) : ({', '.join(inputs)}) -> {output}")
        names.append(f"%r{k}")
        results.append(output)
    head = f"func.func @main({', '.join(parameters)}) -> ({', '.join(results)}) {{\n"
    tail = f"\n  return {', '.join(names)} : {', '.join(results)}\n}}\n"
    return head + "\n".join(calls) + tail + "\n".join(functions)
