"""Linear algebra, normalization, random numbers, CHLO's top_k and scan."""

from __future__ import annotations

from cases_reduce import body
from table import call, rules

rules(
    "stablehlo.cholesky", call("stablehlo.cholesky", 1, "lower = true", "(tensor<2x3x3xf32>) -> tensor<2x3x3xf32>"),
    ("C1", "-> tensor<2x3x3x", "-> tensor<3x3x3x"),
    ("C2", "tensor<2x3x3xf32>", "tensor<3xf32>"),
    ("C3", "tensor<2x3x3xf32>", "tensor<2x3x4xf32>"),
)  # fmt: skip
rules(
    "stablehlo.triangular_solve",
    call("stablehlo.triangular_solve", 2, "left_side = true, lower = true, unit_diagonal = false, "
         "transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
         "(tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>"),
    ("C1", "(tensor<2x3x3xf32>", "(tensor<2x3x3xf64>"),
    ("C2", "(tensor<2x3x3x", "(tensor<3x3x"),
    ("C2", "(tensor<2x3x3x", "(tensor<3x"),
    ("C3", "(tensor<2x3x3x", "(tensor<2x3x4x"),
    ("C3", "left_side = true", "left_side = false"),
    ("C3", "(tensor<2x3x3x", "(tensor<3x3x3x"),
    ("C4", "-> tensor<2x3x4x", "-> tensor<2x4x3x"),
    ("transpose_a", "NO_TRANSPOSE", "TRANSPOSE_INVALID"),
)  # fmt: skip


def fft(kind: str, length: str, types: str) -> str:
    return call("stablehlo.fft", 1, f"fft_type = #stablehlo<fft_type {kind}>, fft_length = array<i64: {length}>", types)


rules(
    "stablehlo.fft",
    {
        "": fft("FFT", "4, 8", "(tensor<2x4x8xcomplex<f32>>) -> tensor<2x4x8xcomplex<f32>>"),
        "real": fft("RFFT", "8", "(tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>>"),
        "inverse": fft("IRFFT", "8", "(tensor<2x5xcomplex<f32>>) -> tensor<2x8xf32>"),
    },
    ("C1", "4, 8", "2, 4, 8", "tensor<2x4x8x", "tensor<4x8x"),
    ("C2 real", "(tensor<2x8xf32>", "(tensor<2x8xcomplex<f32>>"),
    ("C2 inverse", "(tensor<2x5xcomplex<f32>>", "(tensor<2x5xf32>"),
    ("C2 real", "complex<f32>", "complex<f64>"),
    ("C3", "array<i64: 4, 8>", "array<i64: 1, 2, 4, 8>"),
    ("C3", "array<i64: 4, 8>", "array<i64>"),
    ("C4", "4, 8", "4, 7"),
    ("C4", "4, 8", "3, 8"),
    ("C4 real", "i64: 8", "i64: 7"),
    ("C4 inverse", "i64: 8", "i64: 6"),
    ("C5", "-> tensor<2x4x8x", "-> tensor<2x8x4x"),
    ("C5 real", "-> tensor<2x5x", "-> tensor<2x8x"),
)

# normalization

NORM = "epsilon = 0.5 : f32, feature_index = 1 : i64"


def norm(name: str, whole: int, vectors: int, results: str) -> str:
    types = ["tensor<2x3xf32>"] * whole + ["tensor<3xf32>"] * vectors
    if name.endswith("grad"):
        types.append("tensor<2x3xf32>")
    return call(f"stablehlo.batch_norm_{name}", len(types), NORM, f"({', '.join(types)}) -> {results}")


THREE = "(tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)"
INDEX = (("C1", "= 1 :", "= 2 :"), ("C1", "= 1 :", "= -1 :"))
OPERANDS = "(tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)"


def vector(position: int, count: int, old: str = "tensor<3xf32>", new: str = "tensor<4xf32>") -> tuple[str, str]:
    """Returns the edit that changes one of the vector operands."""
    before = "(tensor<2x3xf32>" + f", {old}" * position
    after = f", {old}" * (count - position - 1)
    return f"{before}, {old}{after}", f"{before}, {new}{after}"


rules(
    "stablehlo.batch_norm_inference", norm("inference", 1, 4, "tensor<2x3xf32>"), *INDEX,
    ("C2", *vector(0, 4, new="tensor<3xf64>")),
    ("C3", *vector(0, 4)), ("C4", *vector(1, 4)), ("C5", *vector(2, 4)), ("C6", *vector(3, 4)),
    ("C7", "-> tensor<2x3x", "-> tensor<3x3x"),
)  # fmt: skip
rules(
    "stablehlo.batch_norm_training", norm("training", 1, 2, THREE), *INDEX,
    ("C2", ", tensor<3xf32>) ->", ", tensor<3xf64>) ->"),
    ("C3", "tensor<3xf32>, tensor<3xf32>) ->", "tensor<4xf32>, tensor<3xf32>) ->"),
    ("C4", "tensor<3xf32>, tensor<3xf32>) ->", "tensor<3xf32>, tensor<4xf32>) ->"),
    ("C5", "-> (tensor<2x3xf32>, tensor<3x", "-> (tensor<2x3xf32>, tensor<4x"),
    ("C6", "-> (tensor<2x3xf32>, tensor<3xf32>, tensor<3x", "-> (tensor<2x3xf32>, tensor<3xf32>, tensor<4x"),
    ("C7", "-> (tensor<2x3x", "-> (tensor<3x3x"),
)  # fmt: skip
rules(
    "stablehlo.batch_norm_grad", norm("grad", 1, 3, THREE), *INDEX,
    ("C2", *vector(0, 3, new="tensor<3xf64>")),
    ("C3", ", tensor<2x3xf32>) ->", ", tensor<3x3xf32>) ->"),
    ("C3", "-> (tensor<2x3x", "-> (tensor<3x3x"),
    ("C4", *vector(1, 3)),
    ("C4", "-> (tensor<2x3xf32>, tensor<3x", "-> (tensor<2x3xf32>, tensor<4x"),
    ("C5", "tensor<3xf32>, tensor<3xf32>, tensor<3xf32>", "tensor<4xf32>, tensor<4xf32>, tensor<4xf32>"),
)  # fmt: skip

# random numbers

RNG = call("stablehlo.rng", 3, "rng_distribution = #stablehlo<rng_distribution UNIFORM>",
           "(tensor<i32>, tensor<i32>, tensor<2xi64>) -> tensor<?x3xi32>")  # fmt: skip
rules(
    "stablehlo.rng",
    {
        "": RNG,
        "normal": RNG.replace("i32", "f32").replace("UNIFORM", "NORMAL"),
        "known": "%c = stablehlo.constant dense<[2, 3]> : tensor<2xi64>\n;;" + RNG,
    },
    ("C1", "(tensor<i32>", "(tensor<i8>"),
    ("C1", "x3xi32>", "x3xi8>"),
    ("C2 normal", "f32", "i32"),
    ("C3", "tensor<2xi64>", "tensor<3xi64>"),
    ("C3 known", "[2, 3]", "[2, 4]"),
    ("C3 known", "[2, 3]", "[-2, 3]"),
)
rules(
    "stablehlo.rng_bit_generator",
    call("stablehlo.rng_bit_generator", 1, "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>",
         "(tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)"),
    ("C1", "-> (tensor<2x", "-> (tensor<3x"),
    ("C2", "tensor<2xui64>", "tensor<3xui64>"),
)  # fmt: skip

# CHLO

rules(
    "chlo.top_k",
    call("chlo.top_k", 1, "k = 3 : i64", "(tensor<2x5xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)"),
    ("C1", "(tensor<2x5x", "(tensor<"),
    ("C2", "k = 3", "k = 6"),
    ("C2", "k = 3", "k = -1"),
    ("C3", "-> (tensor<2x3x", "-> (tensor<2x4x"),
)
SCAN = call("chlo.scan", 2, "dimension = 0 : i64, scan_dim_size = 5 : i64, operandSegmentSizes = array<i32: 1, 1>, "
            "resultSegmentSizes = array<i32: 1, 1>",
            "(tensor<5x2xf32>, tensor<2xf32>) -> (tensor<5x2xf32>, tensor<2xf32>)",
            body(arguments="%x: tensor<2xf32>, %y: tensor<2xf32>", result="%x, %y : tensor<2xf32>, tensor<2xf32>"),
            )  # fmt: skip
rules(
    "chlo.scan", SCAN,
    ("C1", ", %y: tensor<2xf32>", ", %y: tensor<2xf32>, %z: tensor<2xf32>"),
    ("C2", "dimension = 0", "dimension = 2"),
    ("C2", "dimension = 0", "dimension = -1"),
    ("C3", "scan_dim_size = 5", "scan_dim_size = 4"),
    ("C4", "%x: tensor<2xf32>", "%x: tensor<3xf32>", "%x, %y : tensor<2xf32>,", "%y, %y : tensor<2xf32>,"),
    ("C5", "return %x, %y : tensor<2xf32>, tensor<2xf32>", "return"),
    ("C6", "-> (tensor<5x2x", "-> (tensor<2x5x"),
)  # fmt: skip
