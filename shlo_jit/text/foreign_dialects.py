"""MLIR dialects that are not compiled: what they are, and how to convert their programs to StableHLO."""

from __future__ import annotations

_AGAIN = "export the model as StableHLO from its framework, before it is lowered"
DIALECTS = {
    "vhlo": "VHLO, the form of portable artifacts: convert it with `stablehlo-opt --vhlo-to-version=target=current "
    "--vhlo-legalize-to-stablehlo FILE`, or give the artifact itself (.mlirbc)",
    "mhlo": "MHLO: convert it with `mlir-hlo-opt --hlo-legalize-to-stablehlo FILE`",
    "lmhlo": f"LMHLO, which XLA lowers programs to: {_AGAIN}",
    "tosa": f"TOSA: {_AGAIN} (in JAX .lower(...).as_text(), in PyTorch torch.export)",
    "torch": "the Torch dialect: convert it with `torch-mlir-opt --torch-backend-to-stablehlo-backend-pipeline FILE`",
    "tf": "TensorFlow's dialect: export the function as StableHLO, as docs/tensorflow.md shows",
    "tfl": f"TensorFlow Lite's dialect: {_AGAIN}",
    "onnx": "the ONNX dialect: convert it with `onnx-mlir-opt --convert-onnx-to-stablehlo FILE`",
    **dict.fromkeys(
        ("linalg", "memref", "scf", "affine", "vector", "bufferization", "cf", "gpu", "llvm", "nvgpu", "nvvm", "spirv",
         "amdgpu", "rocdl", "xla", "triton", "tt", "ttg", "stream", "hal", "flow", "util", "vm", "emitc"),
        f"a dialect that compilers lower StableHLO to: {_AGAIN}",
    ),
    **dict.fromkeys(
        ("math", "arith", "tensor", "shape", "complex", "index"),
        "a dialect of scalars and of MLIR's own tensors",
    ),
}  # fmt: skip
"""Dialect -> description of its programs and what to do."""


def dialect_hint(name: str) -> str:
    """Returns what to do about an op of another dialect; empty if the dialect is unknown."""
    from shlo_jit.ops.name_hints import hint_for

    dialect, dot, _ = name.partition(".")
    about = DIALECTS.get(dialect) if dot else None
    if about is None:
        return ""
    if dialect in ("math", "arith", "mhlo", "complex", "tosa"):
        meant = hint_for(name)
        if meant:
            return f"this is {about}; {meant}"
    return f"this is {about}"
