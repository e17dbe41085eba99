"""Runs functions of files in `programs`, and writes their results, or the texts of their exceptions.

    python collect.py OUT FILE:NAME,NAME FILE ...      without names, all functions of a file run

The caller sets JAX_PLATFORMS to select the platform; the programs are independent of it.
"""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

HERE = Path(__file__).resolve().parent / "programs"


def main() -> None:
    out, *wanted = sys.argv[1:]
    found: dict[str, Any] = {"platform": jax.devices()[0].client.platform_version}
    for word in wanted:
        file, _, names = word.partition(":")
        jax.config.update("jax_enable_x64", False)  # some files set this
        module = _load(file)
        for name in names.split(",") if names else _programs(module):
            try:
                results: Any = [np.asarray(leaf) for leaf in jax.tree.leaves(getattr(module, name)())]
            except Exception:
                results = traceback.format_exc()
            found[f"{file}.{name}"] = results
    Path(out).write_bytes(pickle.dumps(found))


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _programs(module: ModuleType) -> list[str]:
    """Returns the names of its own functions, except those that begin with an underscore."""
    own = inspect.getmembers(module, lambda f: inspect.isfunction(f) and f.__module__ == module.__name__)
    return [name for name, _ in own if not name.startswith("_")]


if __name__ == "__main__":
    main()
