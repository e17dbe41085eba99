"""Elementwise ops, including those of CHLO."""

from __future__ import annotations

from table import call, rules

from shlo_jit.ops import OPS

Q = "!quant.uniform<i8:f32, 0.5:3>"


def axis(scales: str = "{0.5:3, 0.25}", dim: int = 1, storage: str = "i8", expressed: str = "f32") -> str:
    return f"tensor<2x2x!quant.uniform<{storage}:{expressed}:{dim}, {scales}>>"


def element(op: str, operand: int = 0) -> str:
    """Returns an element type that the op accepts."""
    words = OPS[op].operand_kinds[operand].elements
    for word, name in (("float", "f32"), ("sint", "i32"), ("f32", "f32"), ("complex", "complex<f32>"), ("pred", "i1")):
        if word in words:
            return name
    raise AssertionError(op)


def same_type(name: str, operands: int) -> None:
    """Adds the cases of C1: all types are equal."""
    t = f"tensor<2x{element(name)}>"
    good = call(name, operands, types=f"({', '.join([t] * operands)}) -> {t}")
    rules(name, good, ("C1", f"-> {t}", f"-> tensor<3x{element(name)}>"))
    if operands > 1:
        rules(name, good, ("C1", f"({t}, ", f"({t.replace('<2', '<3')}, "))


for _name, _record in OPS.items():
    if "unary" in _record.rules:
        same_type(_name, 1)
    if "binary" in _record.rules:
        same_type(_name, 2)
    if "accurate" in _record.rules:
        _mode = "mode = #stablehlo.result_accuracy_mode<TOLERANCE>>"
        rules(
            _name,
            call(_name, 1, f"result_accuracy = #stablehlo.result_accuracy<atol = 1.0, rtol = 0.0, ulps = 2, {_mode}",
                 "(tensor<2xf32>) -> tensor<2xf32>"),
            ("result_accuracy", "<TOLERANCE>", "<HIGHEST>"),
            ("result_accuracy", "atol = 1.0", "atol = 0.0", "ulps = 2", "ulps = 0"),
        )  # fmt: skip

same_type("stablehlo.abs", 1)
same_type("stablehlo.add", 2)
rules(
    "stablehlo.add",
    {
        "": call("stablehlo.add", 2, types=f"(tensor<2x{Q}>, tensor<2x{Q}>) -> tensor<2x{Q}>"),
        "axis": call("stablehlo.add", 2, types=f"({axis()}, {axis()}) -> {axis()}"),
        "lhs": call("stablehlo.add", 2, types=f"({axis()}, tensor<2x2x{Q}>) -> {axis()}"),
        "rhs": call("stablehlo.add", 2, types=f"(tensor<2x2x{Q}>, {axis()}) -> {axis()}"),
    },
    ("C2", f"-> tensor<2x{Q}>", "-> tensor<2xf32>"),
    ("C3", f"(tensor<2x{Q}>", "(tensor<2x!quant.uniform<i4:f32, 0.5:3>>"),
    ("C4", f"(tensor<2x{Q}>", "(tensor<2x!quant.uniform<i8:f16, 0.5:3>>"),
    ("C5 axis", f"-> {axis()}", f"-> tensor<2x2x{Q}>"),
    ("C6 lhs", f"({axis()}", f"({axis(dim=0)}"),
    ("C7 rhs", f", {axis()})", f", {axis(dim=0)})"),
)
for _name in ("abs", "real", "imag"):
    _t = "tensor<2xcomplex<f32>>"
    rules(
        f"stablehlo.{_name}", call(f"stablehlo.{_name}", 1, types=f"({_t}) -> tensor<2xf32>"),
        ("C1", "-> tensor<2xf32>", "-> tensor<3xf32>"), ("C2", "-> tensor<2xf32>", "-> tensor<2xf64>"),
    )  # fmt: skip
rules(
    "stablehlo.complex",
    call("stablehlo.complex", 2, types="(tensor<2xf32>, tensor<2xf32>) -> tensor<2xcomplex<f32>>"),
    ("C1", "(tensor<2xf32>", "(tensor<2xf64>"),
    ("C2", "-> tensor<2x", "-> tensor<3x"),
    ("C3", "complex<f32>", "complex<f64>"),
)
rules(
    "stablehlo.compare",
    call("stablehlo.compare", 2, "comparison_direction = #stablehlo<comparison_direction LT>, "
         "compare_type = #stablehlo<comparison_type FLOAT>", "(tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>"),
    ("C1", "(tensor<2xf32>", "(tensor<2xf64>"),
    ("C2", "(tensor<2xf32>", "(tensor<3xf32>"),
    ("C2", "-> tensor<2x", "-> tensor<3x"),
    ("C3", "FLOAT", "SIGNED"),
    ("C3", "tensor<2xf32>", "tensor<2xi32>"),
)  # fmt: skip
for _name in ("stablehlo.is_finite", "chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf"):
    rules(_name, call(_name, 1, types="(tensor<2xf32>) -> tensor<2xi1>"), ("C1", "-> tensor<2x", "-> tensor<3x"))
rules(
    "stablehlo.select",
    call("stablehlo.select", 3, types="(tensor<2xi1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "tensor<2xi1>", "tensor<3xi1>"),
    ("C2", ", tensor<2xf32>)", ", tensor<2xf64>)"),
    ("C2", "-> tensor<2x", "-> tensor<3x"),
)
rules(
    "stablehlo.clamp",
    call("stablehlo.clamp", 3, types="(tensor<f32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "tensor<f32>", "tensor<3xf32>"),
    ("C2", ", tensor<2xf32>)", ", tensor<3xf32>)"),
    ("C3", "tensor<f32>", "tensor<f64>"),
    ("C4", "-> tensor<2x", "-> tensor<3x"),
)
rules(
    "stablehlo.convert", call("stablehlo.convert", 1, types="(tensor<2xf32>) -> tensor<2xi32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "stablehlo.reduce_precision",
    call("stablehlo.reduce_precision", 1, "exponent_bits = 5 : i32, mantissa_bits = 2 : i32",
         "(tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
    ("C2", "exponent_bits = 5", "exponent_bits = 0"),
    ("C3", "mantissa_bits = 2", "mantissa_bits = -1"),
)  # fmt: skip
rules(
    "stablehlo.uniform_quantize", call("stablehlo.uniform_quantize", 1, types=f"(tensor<2xf32>) -> tensor<2x{Q}>"),
    ("C1", f"-> tensor<2x{Q}", f"-> tensor<3x{Q}"), ("C2", "(tensor<2xf32>", "(tensor<2xf64>"),
)  # fmt: skip
rules(
    "stablehlo.uniform_dequantize", call("stablehlo.uniform_dequantize", 1, types=f"(tensor<2x{Q}>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"), ("C2", "-> tensor<2xf32>", "-> tensor<2xf64>"),
)  # fmt: skip

# CHLO with broadcasting

for _name in [n for n in OPS if n.startswith("chlo.broadcast_")]:
    _short = _name.removeprefix("chlo.broadcast_")
    _e = "i32" if _short in ("and", "or", "xor") or _short.startswith("shift") else "f32"
    _one, _two = f"tensor<1x{_e}>", f"tensor<2x{_e}>"
    _result = {"compare": "tensor<2xi1>", "complex": "tensor<2xcomplex<f32>>"}.get(_short, _two)
    _attributes = "comparison_direction = #stablehlo<comparison_direction LT>" if _short == "compare" else ""
    _types = f"({_one}, {_two}) -> {_result}"
    if _short == "select":
        _types = f"(tensor<1xi1>, {_one}, {_two}) -> {_result}"
    rules(
        _name, call(_name, 3 if _short == "select" else 2, _attributes, _types),
        ("C1", f", {_two})", f", tensor<2x{'f64' if _e == 'f32' else 'i64'}>)"),
        ("C2", f"{_one}, ", f"tensor<3x{_e}>, "),
        ("C2", "-> tensor<2x", "-> tensor<3x"),
    )  # fmt: skip
rules(
    "chlo.constant", '"chlo.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>',
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "chlo.constant_like", call("chlo.constant_like", 1, "value = 1.0 : f32", "(tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
