"""Unmodified programs, as JAX's documentation and other libraries show them, have the same results on the platform as
on XLA's CPU: each file of `programs`, in a separate process on each."""

from __future__ import annotations

import ast
import importlib.metadata
import pickle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from platform_process import run

pytest.importorskip("jax", reason="the platform is JAX's")
HERE = Path(__file__).resolve().parent


class File(NamedTuple):
    """A file of programs. `quick` are those that always run; `libraries` are its imports, by the names of
    distributions."""

    quick: str
    libraries: tuple[str, ...] = ()


FILES = {
    "basics": File(
        "quickstart trees own_derivatives where_and_gradients per_example_gradients called_back exported stateful"
    ),
    "training": File("layers_by_hand evolving"),
    "numerics": File("orbits minimization gaussian_process"),
    "parallel": File("exchanges explicit_axes local_arrays"),
    "pallas_interpreted": File("whole_arrays"),
    "foreign": File(""),
    "with_flax": File("nnx_training", ("flax", "optax")),
    "with_equinox": File("recurrent_classifier", ("equinox", "optax")),
    "with_numpyro": File("logistic_hmc", ("numpyro",)),
    "with_blackjax": File("tempered_particles", ("blackjax",)),
    "with_diffrax": File("stiff_steps", ("diffrax", "lineax", "optimistix")),
    "with_others": File("", ("dm-haiku", "jraph", "distrax", "jaxopt", "chex", "optax")),
}
BATCHES = [
    ("basics", "training"),
    ("numerics", "parallel", "pallas_interpreted"),
    ("with_flax", "with_equinox"),
    ("with_numpyro", "with_blackjax", "with_diffrax"),
]
"""Files whose quick programs share a process."""

TOLERANCES = {np.dtype(np.float32): (1e-5, 1e-6), np.dtype(np.float64): (1e-9, 1e-12)}
"""Tolerances of an element: relative to the largest element of its array, and absolute for arrays that consist of
rounding errors (the gradient of a value without influence). Neither platform is more accurate: sums are computed in
other orders, and errors of some hundred roundings, 6e-8 each, are visible after training steps. Programs that decide by
comparing (samplers, adaptive steps) use 64 bits, so that rounding errors of 1e-16 may grow a millionfold."""


def _names(file: str) -> list[str]:
    tree = ast.parse((HERE / "programs" / f"{file}.py").read_text(encoding="utf-8"))
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


def test_the_table_is_about_the_files_there_are() -> None:
    assert {path.stem for path in (HERE / "programs").glob("*.py")} == {*FILES}
    for name, file in FILES.items():
        assert {*file.quick.split()} <= {*_names(name)}
    assert {f for batch in BATCHES for f in batch} == {name for name, file in FILES.items() if file.quick}


@pytest.mark.parametrize("batch", BATCHES, ids="-".join)
@pytest.mark.sampled(8)
def test_quick_programs_give_what_xla_gives(batch: tuple[str, ...], tmp_path: Path) -> None:
    there = [name for name in batch if not _missing(name)]
    if not there:
        pytest.skip(_missing(batch[0]))
    _check({name: FILES[name].quick.split() for name in there}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_programs_give_what_xla_gives(name: str, tmp_path: Path) -> None:
    if _missing(name):
        pytest.skip(_missing(name))
    _check({name: _names(name)}, tmp_path)


def _missing(name: str) -> str:
    """Returns the reason why a file cannot run, or ""."""
    installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    missing = [library for library in FILES[name].libraries if library not in installed]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _check(wanted: dict[str, list[str]], folder: Path) -> None:
    words = [f"{file}:{','.join(names)}" for file, names in wanted.items()]
    found = []
    for platform in ("shlo", "cpu"):
        out = folder / platform
        done = run(str(HERE / "collect.py"), str(out), *words, JAX_PLATFORMS=platform)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        found.append(pickle.loads(out.read_bytes()))
    ours, theirs = found
    assert "shlo_jit" in ours.pop("platform") and "shlo_jit" not in theirs.pop("platform")
    assert [*ours] == [*theirs] == [f"{file}.{name}" for file, names in wanted.items() for name in names]
    wrong = [f"{name}: {reason}" for name in ours if (reason := _difference(ours[name], theirs[name]))]
    versions = {d: importlib.metadata.version(d) for file in wanted for d in ("jax", *FILES[file].libraries)}
    assert not wrong, "\n".join([str(versions), *wrong])


def _difference(ours: list[np.ndarray] | str, theirs: list[np.ndarray] | str) -> str:
    """Returns a description of the difference of results; "" if they are right."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return f"raises\nours: {ours}\nXLA's: {theirs}"
    if [(a.shape, a.dtype) for a in ours] != [(b.shape, b.dtype) for b in theirs]:
        return f"types: {[(a.shape, a.dtype) for a in ours]}, not {[(b.shape, b.dtype) for b in theirs]}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return f"result {i}: {a}, not {b}"
            continue
        relative, absolute = TOLERANCES[a.real.dtype]
        finite = np.isfinite(b)
        largest = np.max(np.abs(b[finite]), initial=0)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return f"result {i}: {a}, not {b}"
        off = np.max(np.abs(a[finite] - b[finite]), initial=0)
        if not off <= relative * largest + absolute:
            return f"result {i} is off by {off}, its largest element {largest}: {a}, not {b}"
    return ""
