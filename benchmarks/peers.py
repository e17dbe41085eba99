"""The systems that are timed: each peer prepares a case to be called, or reports that it cannot."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.names import OURS, REFERENCE
from benchmarks.ready import Ready, listed

Peer = Callable[[Case, Any, list[np.ndarray]], Ready | None]
"""Called with a case, its `jax.stages.Lowered` and its inputs; returns None if it does not support the case."""


def shlo_jit(case: Case, lowered: Any, inputs: list[np.ndarray]) -> Ready:
    import shlo_jit

    text = lowered.as_text()
    start = time.perf_counter()
    executable = shlo_jit.compile(text, cache=False)
    seconds = time.perf_counter() - start
    return Ready(lambda: executable(*inputs), listed, seconds)


def xla(case: Case, lowered: Any, inputs: list[np.ndarray]) -> Ready:
    import jax

    start = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - start
    placed = [jax.device_put(x) for x in inputs]

    def arrays(results: Any) -> list[np.ndarray]:
        return [np.asarray(r) for r in jax.tree_util.tree_leaves(results)]

    return Ready(lambda: jax.block_until_ready(compiled(*placed)), arrays, seconds)


def numpy(case: Case, lowered: Any, inputs: list[np.ndarray]) -> Ready | None:
    function = case.numpy
    if function is None:
        return None
    return Ready(lambda: function(*inputs), listed, None)


def iree(case: Case, lowered: Any, inputs: list[np.ndarray]) -> Ready | None:
    """IREE on the threads of its local-task driver, for this CPU."""
    if not has_iree():
        return None
    from iree import compiler, runtime  # type: ignore[import-not-found]

    start = time.perf_counter()
    code = compiler.compile_str(
        lowered.as_text(),
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=[
            "--iree-llvmcpu-target-cpu=host",
            "--iree-opt-level=O3",
            "--iree-input-demote-f64-to-f32=false",
            "--iree-input-demote-i64-to-i32=false",
        ],
    )
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, code), config)
    seconds = time.perf_counter() - start
    placed = [runtime.asdevicearray(config.device, x) for x in inputs]

    def arrays(results: Any) -> list[np.ndarray]:
        return [r.to_host() for r in (results if isinstance(results, tuple | list) else [results])]

    return Ready(lambda: module.main(*placed), arrays, seconds)


def has_iree() -> bool:
    try:
        return all(importlib.util.find_spec(f"iree.{part}") is not None for part in ("compiler", "runtime"))
    except ModuleNotFoundError:
        return False


PEERS: dict[str, Peer] = {OURS: shlo_jit, REFERENCE: xla, "NumPy": numpy, "IREE": iree}
