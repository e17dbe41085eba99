"""Engines that run a model: each prepares the files of a folder to be called, in a process of its own.

Engines are called with the least overhead: with bound inputs, if they support that. Each keeps its compiled code in
`cache`, if it can. Imports are those of one engine, because the start of the process is measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.deployed import files
from benchmarks.ready import Ready, listed

CONSTANT, ARGUMENT = "shlo_jit", "shlo_jit (arguments)"
XLA, ORT, OPENVINO = "XLA", "ONNX Runtime", "OpenVINO"
OURS = (CONSTANT, ARGUMENT)
"""Variants of shlo_jit: with weights in the program, and as its first arguments."""


def constant_weights(folder: Path, cache: Path, threads: int, floats: str) -> Ready:
    return _ours(folder / files.CONSTANTS, [], files.load(folder / files.INPUTS), threads)


def weights_as_arguments(folder: Path, cache: Path, threads: int, floats: str) -> Ready:
    weights, inputs = (files.load(folder / name) for name in (files.WEIGHTS, files.INPUTS))
    return _ours(folder / files.ARGUMENTS, weights, inputs, threads)


def _ours(program: Path, weights: list[np.ndarray], inputs: list[np.ndarray], threads: int) -> Ready:
    import shlo_jit
    from shlo_jit.runtime.executable import Executable

    executable = shlo_jit.compile(program, threads=threads)
    assert isinstance(executable, Executable)  # the models' shapes are known
    given = [x.astype(wanted.dtype, copy=False) for x, wanted in zip(weights, executable.inputs, strict=False)]
    return Ready(lambda: executable(*given, *inputs), listed)


def xla(folder: Path, cache: Path, threads: int, floats: str) -> Ready:
    """Runs with as many threads as the process has CPUs."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    program = jax.export.deserialize(bytearray((folder / files.ARGUMENTS).read_bytes()))
    arrays = [*files.load(folder / files.WEIGHTS), *files.load(folder / files.INPUTS)]
    placed = [jax.device_put(x.astype(wanted.dtype)) for x, wanted in zip(arrays, program.in_avals, strict=True)]
    arguments, _ = jax.tree_util.tree_unflatten(program.in_tree, placed)
    compiled = jax.jit(program.call).lower(*arguments).compile()
    return Ready(lambda: jax.block_until_ready(compiled(*arguments)), listed)


def onnx_runtime(folder: Path, cache: Path, threads: int, floats: str) -> Ready:
    import onnxruntime  # type: ignore[import-not-found]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(folder / files.ONNX), options, providers=["CPUExecutionProvider"])
    inputs = [onnxruntime.OrtValue.ortvalue_from_numpy(files.as_onnx(x)) for x in files.load(folder / files.INPUTS)]
    binding = session.io_binding()
    for port, x in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_ortvalue_input(port.name, x)
    for port in session.get_outputs():
        binding.bind_output(port.name, "cpu")

    def call(kept: object = inputs) -> None:  # the binding does not keep them alive
        session.run_with_iobinding(binding)

    return Ready(call, lambda _: _as_images(binding.copy_outputs_to_cpu()))


def openvino(folder: Path, cache: Path, threads: int, floats: str) -> Ready:
    import openvino  # type: ignore[import-not-found]

    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY",
               "INFERENCE_PRECISION_HINT": floats, "CACHE_DIR": str(cache)}  # fmt: skip
    compiled = openvino.Core().compile_model(str(folder / files.ONNX), "CPU", options)
    request = compiled.create_infer_request()
    inputs = [files.as_onnx(x) for x in files.load(folder / files.INPUTS)]
    for i, x in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(x, shared_memory=True))

    def call(kept: object = inputs) -> None:  # the tensors do not keep them alive
        request.start_async()
        request.wait()

    def arrays(_: Any) -> list[np.ndarray]:
        return _as_images([request.get_output_tensor(i).data.copy() for i in range(len(compiled.outputs))])

    return Ready(call, arrays)


def _as_images(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [files.from_onnx(x) for x in arrays]


ENGINES: Mapping[str, Callable[[Path, Path, int, str], Ready]] = {
    CONSTANT: constant_weights,
    ARGUMENT: weights_as_arguments,
    XLA: xla,
    ORT: onnx_runtime,
    OPENVINO: openvino,
}
"""Engines by name, called with the model's folder, the cache folder, the number of threads and the element type."""
NEEDS = {CONSTANT: (), ARGUMENT: (), XLA: ("jax",), ORT: ("onnx", "onnxruntime"), OPENVINO: ("onnx", "openvino")}
"""Required packages."""


def missing(engine: str) -> list[str]:
    return [package for package in NEEDS[engine] if importlib.util.find_spec(package) is None]


def can_run(engine: str, floats: str) -> bool:
    """Whether an engine supports the element type: ONNX Runtime has no products of bf16 on CPUs."""
    return (engine, floats) != (ORT, "bf16")
