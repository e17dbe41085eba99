"""Control flow, functions, tuples, custom calls."""

from __future__ import annotations

from table import CASES, Case, call, rules


def branch(arguments: str = "", result: str = "%c : tensor<f32>") -> str:
    label = f"^bb0({arguments}):\n" if arguments else ""
    return f"{{\n{label}stablehlo.return {result}\n}}"


HEAD = "%c = stablehlo.constant dense<1.0> : tensor<f32>\n%d = stablehlo.constant dense<1> : tensor<i32>\n;;"
for _op, _index, _no, _same, _results in (
    ("stablehlo.if", "i1", "C1", "C2", "C3"),
    ("stablehlo.case", "i32", "C2", "C3", "C4"),
):
    rules(
        _op, HEAD + call(_op, 1, types=f"(tensor<{_index}>) -> tensor<f32>", body=f"({branch()}, {branch()})"),
        (_no, "({\n", "({\n^bb0(%x: tensor<f32>):\n"),
        (_same, "({\nstablehlo.return %c : tensor<f32>", "({\nstablehlo.return %d : tensor<i32>"),
        (_same, "({\nstablehlo.return %c : tensor<f32>", "({\nstablehlo.return"),
        (_results, "-> tensor<f32>", "-> tensor<i32>"),
        (_results, "-> tensor<f32>", "-> ()"),
    )  # fmt: skip
rules(
    "stablehlo.case",
    HEAD + call("stablehlo.case", 1, types="(tensor<i32>) -> ()", body=f"({branch(result='')})"),
    ("C1", f" ({branch(result='')})", ""),
)
COND = (
    "{\n^bb0(%x: tensor<2xf32>):\n%p = stablehlo.constant dense<true> : tensor<i1>\nstablehlo.return %p : tensor<i1>\n}"
)
BODY = "{\n^bb0(%y: tensor<2xf32>):\nstablehlo.return %y : tensor<2xf32>\n}"
rules(
    "stablehlo.while",
    call("stablehlo.while", 1, types="(tensor<2xf32>) -> tensor<2xf32>", body=f"({COND}, {BODY})"),
    ("C1", "%x: tensor<2xf32>", "%x: tensor<3xf32>"),
    ("C1", "return %p : tensor<i1>", "return %p, %p : tensor<i1>, tensor<i1>"),
    ("C1", "return %p : tensor<i1>", "return %x : tensor<2xf32>"),
    ("C2", "%y: tensor<2xf32>", "%y: tensor<2xf32>, %z: tensor<2xf32>"),
    ("C2", "return %y : tensor<2xf32>", "return"),
    ("C3", "-> tensor<2x", "-> tensor<3x"),
)

COMPOSITE = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.composite"(%a) {name = "my.op", decomposition = @impl, version = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
func.func private @impl(%x: tensor<2xf32>) -> tensor<2xf32> { func.return %x : tensor<2xf32> }"""
for _label, _old, _new in (
    ("C1", '"my.op"', '"my op"'),
    ("C1", '"my.op"', '"op"'),
    ("C2", "= @impl", "= @other"),
    ("C3", "@impl(%x: tensor<2xf32>) -> tensor<2xf32> { func.return %x : tensor<2xf32>",
     "@impl(%x: tensor<3xf32>) -> tensor<2xf32> { %0 = stablehlo.constant dense<0.0> : tensor<2xf32>\n"
     "func.return %0 : tensor<2xf32>"),
    ("C3", "@impl(%x: tensor<2xf32>)", "@impl(%x: tensor<2xf32>, %y: tensor<f32>)"),
    ("C4", "@impl(%x: tensor<2xf32>) -> tensor<2xf32> { func.return %x : tensor<2xf32>",
     "@impl(%x: tensor<2xf32>) { func.return"),
):  # fmt: skip
    assert _old in COMPOSITE
    CASES.append(Case("stablehlo.composite", _label, COMPOSITE, COMPOSITE.replace(_old, _new)))

rules(
    "stablehlo.tuple", call("stablehlo.tuple", 2, types="(tensor<f32>, tensor<i32>) -> tuple<tensor<f32>, tensor<i32>>"),
    ("C1", "tuple<tensor<f32>, ", "tuple<"),
)  # fmt: skip
rules(
    "stablehlo.get_tuple_element",
    call("stablehlo.get_tuple_element", 1, "index = 1 : i32", "(tuple<tensor<f32>, tensor<i32>>) -> tensor<i32>"),
    ("C1", "= 1", "= 2"),
    ("C1", "= 1", "= -1"),
    ("C2", "-> tensor<i32>", "-> tensor<f32>"),
)
rules(
    "stablehlo.optimization_barrier",
    call("stablehlo.optimization_barrier", 2, types="(tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)"),
    ("C1", "-> (tensor<f32>", "-> (tensor<f64>"),
)
PART = "%z = stablehlo.slice %x [0:2] : (tensor<2xf32>) -> tensor<2xf32>\n"
START = f"({{\n^bb0(%x: tensor<2xf32>):\n{PART}stablehlo.return %z : tensor<2xf32>\n}})"
rules(
    "stablehlo.async_start",
    call("stablehlo.async_start", 1, types="(tensor<2xf32>) -> !stablehlo.future<tensor<2xf32>>", body=START),
    ("C1", "(tensor<2xf32>) -> !", "(tensor<3xf32>) -> !"),
    ("C1", "%x: tensor<2xf32>", "%x: tensor<2xf32>, %y: tensor<2xf32>"),
    ("C2", "future<tensor<2x", "future<tensor<3x"),
    ("C3", PART, "", "return %z", "return %x"),
    ("C3", PART, PART + PART.replace("%z", "%y")),
    ("C3", "stablehlo.slice %x [0:2] : (tensor<2xf32>) -> tensor<2xf32>", "stablehlo.negate %x : tensor<2xf32>"),
)
rules(
    "stablehlo.async_done",
    call("stablehlo.async_done", 1, types="(!stablehlo.future<tensor<2xf32>>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)

# custom_call


def custom(attributes: str, types: str, operands: int = 1, name: str = "f") -> str:
    return call("stablehlo.custom_call", operands, f'call_target_name = "{name}", {attributes}', types)


LAYOUT = "dense<[1, 0]> : tensor<2xindex>"
ALIAS = "#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>"
rules(
    "stablehlo.custom_call",
    {
        "": custom('backend_config = "x", api_version = 2 : i32', "(tensor<2xf32>) -> tensor<2xf32>"),
        "typed": custom("backend_config = {a = 1 : i32}, api_version = 4 : i32", "(tensor<2xf32>) -> tensor<2xf32>"),
        "layout": custom(f"operand_layouts = [{LAYOUT}], result_layouts = [{LAYOUT}]",
                         "(tensor<2x3xf32>) -> tensor<2x3xf32>"),
        "alias": custom(f"output_operand_aliases = [{ALIAS}]", "(tensor<2xf32>) -> tensor<2xf32>"),
        "pin": custom("api_version = 1 : i32", "(tensor<2xf32>) -> memref<2xf32>", name="Pin"),
        "sparse": custom("api_version = 4 : i32", "(tensor<5xf32>, tensor<4xi32>, tensor<5xi32>, tensor<6xf32>) -> tensor<3xf32>",
                         operands=4, name="cpu_csr_sparse_dense_ffi"),
        "create": custom("api_version = 1 : i32", "() -> memref<2xf32>", operands=0, name="CreateBuffer"),
    },
    ("api_version", "= 2 : i32", "= 5 : i32"),
    ("backend_config", '"x"', "{a = 1 : i32}"),
    ("backend_config typed", "{a = 1 : i32}", '"x"'),
    ("layout layout", f"operand_layouts = [{LAYOUT}], ", ""),
    ("layout layout", f"operand_layouts = [{LAYOUT}]", "operand_layouts = []"),
    ("layout layout", "operand_layouts = [dense<[1, 0]>", "operand_layouts = [dense<[1, 1]>"),
    ("alias alias", "operand_index = 0", "operand_index = 1"),
    ("alias alias", "output_tuple_indices = []", "output_tuple_indices = [0]"),
    ("alias alias", "-> tensor<2x", "-> tensor<3x"),
    ("buffer pin", "memref<2xf32>", "memref<3xf32>"),
    ("buffer pin", "memref<2xf32>", "tensor<2xf32>"),
    ("buffer create", "memref<2xf32>", "tensor<2xf32>"),
    ("target sparse", "-> tensor<3x", "-> tensor<4x"),
    ("target sparse", "tensor<4xi32>, ", "tensor<4xf32>, "),
)  # fmt: skip
