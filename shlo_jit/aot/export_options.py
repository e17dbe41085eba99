"""The options of an export, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shlo_jit.aot.sized import Shapes
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions
from shlo_jit.runtime.given_arrays import GivenArray


class ExportOptions(NamedTuple):
    """Options of `export` besides the program; see `api.export`."""

    path: Path
    header: Path | None
    name: str
    entries: tuple[str, ...]
    targets: tuple[Target, ...]
    weights_in_file: bool
    threads: bool
    linker: str
    shapes: Mapping[str, Shapes]
    """For each function with unknown dimensions, the calls to generate code for."""
    compile: CompileOptions
    constants: Mapping[str, Sequence[GivenArray]] = {}
    """For each function, the arrays that are given for its arguments."""
