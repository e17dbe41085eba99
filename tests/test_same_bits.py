"""The bits of results depend neither on the number of threads nor on whether a program was exported.

Every conformance case and real program next to the checkout runs with one thread, with eight, and as a library. Slow,
and skipped if there is no folder `shared`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import shlo_jit

SHARED = Path(__file__).resolve().parents[2] / "shared"
FOLDERS = ("testdata", "quantized", "interpret")
PROGRAMS = sorted(path.stem for path in (SHARED / "models" / "programs").glob("*.json"))
VARIANTS = ("one thread", "eight threads", "exported")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.is_dir(), reason="no folder 'shared' next to the checkout"),
]


class Recorder:
    """Replaces `shlo_jit` while a program runs, and records a digest of everything the program computes.

    That includes results of executables and arguments of custom calls.
    """

    StableHLOError = shlo_jit.StableHLOError

    def __init__(self, variant: str, folder: Path):
        self.variant = variant
        self.folder = folder
        """Folder of libraries."""
        self.digests: list[str] = []

    def compile(self, source: str, *, custom_calls: dict[str, Callable[..., Any]] | None = None, **options: Any):
        calls = {name: self.recorded(function) for name, function in (custom_calls or {}).items()}
        if self.variant == "exported":
            executable = self.exported(source, calls, **options)
        else:
            threads = VARIANTS.index(self.variant) * 7 + 1
            executable = shlo_jit.compile(source, threads=threads, custom_calls=calls, cache=False, **options)
        return lambda *arrays: self.seen(executable(*arrays))

    def exported(self, source: str, calls: dict[str, Callable[..., Any]], **options: Any) -> Any:
        shlo_jit.compile(source, custom_calls=calls, **options)  # raises the program's refusal
        path = self.folder / "program.o"
        shlo_jit.export(source, path, custom_calls=calls, **options)
        return shlo_jit.load(path, custom_calls=calls)

    def recorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arrays: np.ndarray) -> Any:
            self.seen(arrays)
            return function(*arrays)

        return call

    def seen(self, values: Any) -> Any:
        for value in values if isinstance(values, tuple | list) else (values,):
            self.digests.append(digest(np.asarray(value)))
        return values


def digest(array: np.ndarray) -> str:
    data = np.ascontiguousarray(array).tobytes()
    return f"{array.dtype} {array.shape} {hashlib.sha256(data).hexdigest()}"


def load(name: str, path: Path) -> ModuleType:
    """A module by the path of its file."""
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


@pytest.mark.parametrize("folder", FOLDERS)
def test_conformance_cases(folder: str, tmp_path: Path) -> None:
    runner = load("conformance_run", SHARED / "conformance" / "run.py")
    different, compared = [], 0
    for category, name, path, index in runner.collect([str(SHARED / "conformance" / folder)]):
        text = Path(path).read_text("utf-8")
        if "run_parallel" in text or "stablehlo.rng " in text:  # several processes; numbers that are meant to differ
            continue
        recorders = [Recorder(variant, tmp_path) for variant in VARIANTS]
        for recorder in recorders:
            runner.run_case(recorder, path, index, category, {})
        compared += bool(recorders[0].digests)
        different += [(name, r.variant) for r in recorders[1:] if r.digests != recorders[0].digests]
    assert compared > 0
    assert not different


@pytest.mark.parametrize("name", PROGRAMS)
def test_real_programs(name: str, tmp_path: Path) -> None:
    common = load("models_common", SHARED / "models" / "common.py")
    folder = SHARED / "models" / "programs"
    recipe = json.loads((folder / f"{name}.json").read_text("utf-8"))
    text = (folder / f"{name}.mlir").read_text("utf-8")
    if recipe.get("devices", 1) > 1 or recipe["group"] == "dyn":
        pytest.skip("several devices, or shapes that are not known")
    arrays = common.make_inputs(recipe)
    recorders = [Recorder(variant, tmp_path) for variant in VARIANTS]
    for recorder in recorders:
        recorder.compile(text)(*arrays)
    assert all(r.digests == recorders[0].digests for r in recorders)
