"""Cases such as those of `element_cases.py` for a given innermost extent, which test the tails of vectors.

Where the computation of a value matters, it is converted from a wider type (LLVM may merge the conversion and the
store), and its rows lie between other elements, which must not change.
"""

from __future__ import annotations

from element_cases import GATHER, LAST, SCATTER, Case, comparator, reducer

from shlo_jit.ir.types import DType


def conversions(n: int) -> list[Case]:
    """Returns plain rows of other types, and of E in other types."""
    made = [
        Case(
            f"from_{t}", f"3x{n}x{t}", f"%0 = stablehlo.convert %a : (tensor<3x{n}x{t}>) -> tensor<3x{n}xE>", f"3x{n}xE"
        )
        for t in ("i32", "i64", "f32")
    ]
    return made + [
        Case(f"to_{t}", f"3x{n}xE", f"%0 = stablehlo.convert %a : (tensor<3x{n}xE>) -> tensor<3x{n}x{t}>", f"3x{n}x{t}")
        for t in ("i8", "i16", "bf16", "f64")
    ]


def rows_between(n: int) -> list[Case]:
    """Returns converted rows whose neighbours belong to other values."""
    row, wide = f"tensor<3x{n}xE>", f"tensor<5x{n + 5}xE>"
    convert = f"%x = stablehlo.convert %b : (tensor<3x{n}xi64>) -> {row}"
    return [
        Case("updated", f"5x{n + 5}xE 3x{n}xi64 xi32",
             f"{convert}\n%0 = stablehlo.dynamic_update_slice %a, %x, %c, %c : ({wide}, {row}, tensor<i32>, tensor<i32>) -> {wide}", f"5x{n + 5}xE"),
        Case("updated_run", f"{n + 7}xE {n}xi64 xi32",
             f"%x = stablehlo.convert %b : (tensor<{n}xi64>) -> tensor<{n}xE>\n"
             f"%0 = stablehlo.dynamic_update_slice %a, %x, %c : (tensor<{n + 7}xE>, tensor<{n}xE>, tensor<i32>) -> tensor<{n + 7}xE>", f"{n + 7}xE"),
        Case("concatenated", f"3x2xE 3x{n}xi64 3x3xE",
             f"{convert}\n%0 = stablehlo.concatenate %a, %x, %c, %x, dim = 1 : (tensor<3x2xE>, {row}, tensor<3x3xE>, {row}) -> tensor<3x{2 * n + 5}xE>",
             f"3x{2 * n + 5}xE"),
        Case("padded", f"xE 3x{n}xi64",
             f"{convert}\n%0 = stablehlo.pad %x, %a, low = [1, 3], high = [0, 2], interior = [1, 0] : ({row}, tensor<E>) -> tensor<6x{n + 5}xE>",
             f"6x{n + 5}xE"),
        Case("cut", f"xE 3x{n}xi64",
             f"{convert}\n%0 = stablehlo.pad %x, %a, low = [0, -1], high = [0, 0], interior = [0, 0] : ({row}, tensor<E>) -> tensor<3x{n - 1}xE>",
             f"3x{n - 1}xE"),
        Case("scattered", f"5x{n}xE 3x{n}xi64 3x1xi32",
             f'{convert}\n%0 = "stablehlo.scatter"(%a, %c, %x) <{{scatter_dimension_numbers = {SCATTER}}}> {LAST} '
             f": (tensor<5x{n}xE>, tensor<3x1xi32>, {row}) -> tensor<5x{n}xE>", f"5x{n}xE"),
        Case("transposed", f"xE 3x{n}xi64",
             f"{convert}\n%0 = stablehlo.transpose %x, dims = [1, 0] : ({row}) -> tensor<{n}x3xE>", f"{n}x3xE"),
        Case("rows_transposed", f"{n}x3xE", f"%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<{n}x3xE>) -> {row}", f"3x{n}xE"),
        Case("squares_transposed", f"{n}x{n + 1}xE",
             f"%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<{n}x{n + 1}xE>) -> tensor<{n + 1}x{n}xE>", f"{n + 1}x{n}xE"),
    ]  # fmt: skip


def moves(n: int) -> list[Case]:
    """Returns copies of rows, or of parts of them."""
    row = f"tensor<3x{n}xE>"
    return [
        Case("reversed", f"3x{n}xE", f"%0 = stablehlo.reverse %a, dims = [1] : {row}", f"3x{n}xE"),
        Case("sliced", f"3x{2 * n + 1}xE", f"%0 = stablehlo.slice %a [0:3, 1:{2 * n + 1}:2] : (tensor<3x{2 * n + 1}xE>) -> {row}", f"3x{n}xE"),
        Case("run_sliced", f"3x{n + 3}xE", f"%0 = stablehlo.slice %a [0:3, 3:{n + 3}] : (tensor<3x{n + 3}xE>) -> {row}", f"3x{n}xE"),
        Case("sliced_at", f"4x{n + 3}xE xi32",
             f"%0 = stablehlo.dynamic_slice %a, %b, %b, sizes = [3, {n}] : (tensor<4x{n + 3}xE>, tensor<i32>, tensor<i32>) -> {row}", f"3x{n}xE"),
        Case("gathered", f"5x{n}xE 3x1xi32",
             f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {GATHER}, slice_sizes = array<i64: 1, {n}>}}> '
             f": (tensor<5x{n}xE>, tensor<3x1xi32>) -> {row}", f"3x{n}xE"),
        Case("elements_gathered", f"3x5xE 3x{n}x1xui8",
             '%0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], '
             "operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, "
             f"slice_sizes = array<i64: 1, 1>}}> : (tensor<3x5xE>, tensor<3x{n}x1xui8>) -> {row}", f"3x{n}xE"),
        Case("columns_gathered", f"3x{n}xE 4x1xi32",
             '%0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], '
             f"start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 3, 1>}}> : ({row}, tensor<4x1xi32>) -> tensor<3x4xE>", "3x4xE"),
        Case("broadcast_rows", f"{n}xE", f"%0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<{n}xE>) -> {row}", f"3x{n}xE"),
        Case("broadcast_elements", "3xE", f"%0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<3xE>) -> {row}", f"3x{n}xE"),
        Case("selected", f"3x{n}xi1 3x{n}xE 3x{n}xE", f"%0 = stablehlo.select %a, %b, %c : tensor<3x{n}xi1>, {row}", f"3x{n}xE"),
        Case("equal", f"3x{n}xE 3x{n}xE", f"%0 = stablehlo.compare EQ, %a, %b : ({row}, {row}) -> tensor<3x{n}xi1>", f"3x{n}xi1"),
        Case("carried", f"3x{n}xE 3x{n}xi64",
             f"""%n = stablehlo.constant dense<3> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %w:3 = stablehlo.while(%i = %n, %x = %a, %y = %b) : tensor<i32>, {row}, tensor<3x{n}xi64>
    cond {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %j = stablehlo.subtract %i, %one : tensor<i32>
      %z = stablehlo.convert %y : (tensor<3x{n}xi64>) -> {row}
      %v = stablehlo.reverse %y, dims = [0] : tensor<3x{n}xi64>
      stablehlo.return %j, %z, %v : tensor<i32>, {row}, tensor<3x{n}xi64>
    }}
    %0 = stablehlo.reshape %w#1 : ({row}) -> tensor<{3 * n}xE>""", f"{3 * n}xE"),
    ]  # fmt: skip


def ordered(n: int) -> list[Case]:
    """Returns kernels that compare."""
    row = f"tensor<3x{n}xE>"
    reduce = '%0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: '
    window = '%0 = "stablehlo.reduce_window"(%a, %b) <{window_dimensions = array<i64: '
    sort = '"stablehlo.sort"(%a'
    return [
        Case("rows_reduced", f"3x{n}xE xE", f"{reduce}1>}}> {reducer('maximum')} : ({row}, tensor<E>) -> tensor<3xE>", "3xE"),
        Case("columns_reduced", f"3x{n}xE xE", f"{reduce}0>}}> {reducer('minimum')} : ({row}, tensor<E>) -> tensor<{n}xE>", f"{n}xE"),
        Case("windows", f"3x{n}xE xE",
             f"{window}2, 3>, padding = dense<[[0, 1], [1, 1]]> : tensor<2x2xi64>}}> {reducer('maximum')} : ({row}, tensor<E>) -> {row}", f"3x{n}xE"),
        Case("strided_windows", f"3x{2 * n}xE xE",
             f"{window}1, 2>, window_strides = array<i64: 1, 2>}}> {reducer('maximum')} : (tensor<3x{2 * n}xE>, tensor<E>) -> {row}", f"3x{n}xE"),
        Case("cumulative", f"3x{n}xE xE",
             f"{window}1, {n}>, padding = dense<[[0, 0], [{n - 1}, 0]]> : tensor<2x2xi64>}}> {reducer('maximum')} : ({row}, tensor<E>) -> {row}",
             f"3x{n}xE"),
        Case("sorted", f"3x{n}xE", f"%0 = {sort}) <{{dimension = 1 : i64, is_stable = true}}> {comparator('LT')} : ({row}) -> {row}", f"3x{n}xE"),
        Case("columns_sorted", f"{n}x3xE xE",
             f"%0 = {sort}) <{{dimension = 0 : i64, is_stable = false}}> {comparator('GT')} : (tensor<{n}x3xE>) -> tensor<{n}x3xE>", f"{n}x3xE"),
        Case("sorted_with", f"3x{n}xE 3x{n}xi16",
             f"%x, %0 = {sort}, %b) <{{dimension = 1 : i64, is_stable = true}}> {comparator('GT', ', %p: tensor<i16>, %q: tensor<i16>')} "
             f": ({row}, tensor<3x{n}xi16>) -> ({row}, tensor<3x{n}xi16>)", f"3x{n}xi16"),
        Case("scattered_back", f"3x{2 * n}xE 3x{n}xE xE",
             f'%0 = "stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}}> '
             f'({comparator("GE")[1:-1]}, {reducer("maximum")[1:-1]}) : (tensor<3x{2 * n}xE>, {row}, tensor<E>) -> tensor<3x{2 * n}xE>',
             f"3x{2 * n}xE"),
        Case("clamped", f"xE 3x{n}xE xE", f"%0 = stablehlo.clamp %a, %b, %c : (tensor<E>, {row}, tensor<E>) -> {row}", f"3x{n}xE"),
    ]  # fmt: skip


def top(n: int) -> list[Case]:
    k = min(n, 17)
    return [
        Case("top_k", f"3x{n}xE", f"%0, %x = chlo.top_k(%a, k = {k}) : tensor<3x{n}xE> -> (tensor<3x{k}xE>, tensor<3x{k}xi32>)", f"3x{k}xE"),
    ]  # fmt: skip


def sums(n: int) -> list[Case]:
    """Returns kernels that multiply and add few numbers, so that every type can represent the sums."""
    row = f"tensor<3x{n}xE>"
    return [
        Case("sum_of_rows", f"3x{n}xE 3x{n}xE", f"%0 = stablehlo.add %a, %b : {row}", f"3x{n}xE"),
        Case("sum_of_columns", f"2x{n}xE xE",
             f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 0>}}> {reducer("add")} : (tensor<2x{n}xE>, tensor<E>) -> tensor<{n}xE>', f"{n}xE"),
        Case("dot", f"3x2xE 2x{n}xE",
             f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<3x2xE>, tensor<2x{n}xE>) -> {row}", f"3x{n}xE"),
        Case("dot_tall", f"2x{n}xE 2x3xE",
             f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<2x{n}xE>, tensor<2x3xE>) -> tensor<{n}x3xE>", f"{n}x3xE"),
        Case("dot_square", f"{n}x2xE {n}x2xE",
             f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<{n}x2xE>, tensor<{n}x2xE>) -> tensor<{n}x{n}xE>", f"{n}x{n}xE"),
        Case("convolution", f"1x{n}x2xE 1x2x3xE",
             "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
             f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x{n}x2xE>, tensor<1x2x3xE>) -> tensor<1x{n}x3xE>", f"1x{n}x3xE"),
        Case("convolution_features", f"1x3x2xE 1x2x{n}xE",
             "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
             f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x3x2xE>, tensor<1x2x{n}xE>) -> tensor<1x3x{n}xE>", f"1x3x{n}xE"),
        Case("depthwise_sum", f"1x4x{n}xE 2x1x{n}xE",
             "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
             f"{{batch_group_count = 1 : i64, feature_group_count = {n} : i64}} : (tensor<1x4x{n}xE>, tensor<2x1x{n}xE>) -> tensor<1x3x{n}xE>",
             f"1x3x{n}xE"),
        Case("scatter_sum", f"5x{n}xE 2x1xi32 2x{n}xE",
             f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> {reducer("add")} '
             f": (tensor<5x{n}xE>, tensor<2x1xi32>, tensor<2x{n}xE>) -> tensor<5x{n}xE>", f"5x{n}xE"),
    ]  # fmt: skip


def sized(n: int, dtype: DType) -> list[Case]:
    """Returns the cases that the element type allows."""
    found = [*conversions(n), *rows_between(n), *moves(n)]
    if not dtype.is_complex:
        found += ordered(n)
    if dtype.kind in "iuf" and dtype.name != "f8E8M0FNU":
        found += top(n)
    return found + sums(n)
