"""Files of a model that are written before any engine starts: the programs, weights and inputs, in a folder.

python -m benchmarks.deployed.files NAME FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ARGUMENTS, CONSTANTS, ONNX = "arguments.bin", "constants.bin", "model.onnx"
WEIGHTS, INPUTS = "weights.npz", "inputs.npz"
CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def save(path: Path, arrays: list[np.ndarray]) -> None:
    np.savez(path, *arrays)


def load(path: Path) -> list[np.ndarray]:
    """Arrays in the order in which they were saved."""
    with np.load(path) as found:
        return [found[f"arr_{i}"] for i in range(len(found.files))]


def as_onnx(x: np.ndarray) -> np.ndarray:
    """Converts an input for ONNX models: images with channels first, i8, which is not negative, as ui8."""
    x = x.view(np.uint8) if x.dtype == np.int8 else x
    return np.ascontiguousarray(x.transpose(CHANNELS_FIRST)) if x.ndim == len(CHANNELS_FIRST) else x


def from_onnx(x: np.ndarray) -> np.ndarray:
    """Converts a result to channels last."""
    return x.transpose(CHANNELS_LAST) if x.ndim == len(CHANNELS_LAST) else x


def write(name: str, folder: Path) -> None:
    """Writes all files of a model, including the ONNX file if `onnx` is installed."""
    import importlib.util

    import jax.numpy as jnp

    from benchmarks.deployed import jax_writer
    from benchmarks.deployed.catalogue import MODELS
    from benchmarks.deployed.graph import array

    (model,) = (m for m in MODELS if m.name == name)
    graph, dtype = model.graph(), jnp.bfloat16 if model.floats == "bf16" else jnp.float32
    weights, inputs = {v.name: array(v) for v in graph.weights}, [array(v) for v in graph.inputs]
    save(folder / WEIGHTS, [weights[name] for name in sorted(weights)])
    save(folder / INPUTS, inputs)
    for file, constant in ((ARGUMENTS, False), (CONSTANTS, True)):
        (folder / file).write_bytes(jax_writer.exported(graph, weights, inputs, dtype, constant=constant))
    if importlib.util.find_spec("onnx"):
        from benchmarks.deployed import onnx_writer

        (folder / ONNX).write_bytes(onnx_writer.write(graph).SerializeToString())


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
