"""Facts about an exported library, also in relation to this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen import abi
from shlo_jit.codegen.known_cpus import required_features
from shlo_jit.codegen.objects import read_port
from shlo_jit.codegen.target import machine_of_triple, resolve
from shlo_jit.ir.types import DTYPES
from shlo_jit.runtime.library_file import LibraryFile, read_library
from shlo_jit.runtime.library_symbols import Needs, needs
from shlo_jit.schedule.scratch import ScratchBytes

THREADS = (1, 2, 4, 8, 16)
"""Numbers of threads for which the memory of an instance is listed."""


class Fit(NamedTuple):
    """Whether a target's code runs on this machine."""

    is_native: bool
    """Whether the target is for this architecture and system."""
    missing: tuple[str, ...]
    """Features that this processor lacks."""

    def __str__(self) -> str:
        if not self.is_native:
            return "for another machine"
        return f"this machine lacks {', '.join(self.missing)}" if self.missing else "runs on this machine"


class Inspection(NamedTuple):
    """Facts about a library."""

    file: LibraryFile
    needs: Needs | None
    """None if the file format is not supported."""
    fits: tuple[Fit, ...]
    """Fit of each target."""
    memory: Mapping[int, int]
    """Maps a number of threads to the bytes of an instance: the maximum over the targets."""

    @property
    def sized(self) -> Sequence[Mapping[str, Any]]:
        """The functions that take sizes. Libraries of older versions do not list any."""
        return self.file.metadata.get("sized", ())

    @property
    def system_symbols(self) -> list[str]:
        """Required symbols besides custom calls and LAPACK."""
        metadata = self.file.metadata
        own = {*metadata["custom_calls"].values(), *(f"{name}_" for name in metadata["lapack"])}
        return [s for s in self.needs.symbols if s.rpartition(".")[2] not in own] if self.needs is not None else []

    def as_dict(self) -> dict[str, Any]:
        """The metadata and the facts, for JSON."""
        metadata = dict(self.file.metadata)
        targets = [
            {**target, "is_native": fit.is_native, "missing": list(fit.missing)}
            for target, fit in zip(metadata.pop("targets"), self.fits, strict=True)
        ]
        return {
            "path": self.file.path,
            "bytes": self.file.nbytes,
            "format": self.file.format,
            "machine": self.file.machine,
            **metadata,
            "functions": [
                {**function, **{side: list(map(_port, function[side])) for side in ("inputs", "outputs")}}
                for function in metadata["functions"]
            ],
            "sized": list(map(_sized, self.sized)),
            "targets": targets,
            "memory": {str(threads): nbytes for threads, nbytes in self.memory.items()},
            "symbols": None if self.needs is None else list(self.needs.symbols),
            "libraries": None if self.needs is None else list(self.needs.libraries),
        }


def inspect(path: Path) -> Inspection:
    """Reads a library's facts. Raises LibraryError for a file that is no library, and OSError."""
    file = read_library(path)
    return Inspection(file, needs(path), tuple(map(_fit, file.metadata["targets"])), _memory(file.metadata))


def _port(row: Sequence[Any]) -> dict[str, Any]:
    port = read_port(row)
    return {"name": port.name, "dtype": port.dtype.name, "shape": list(port.shape), "bytes": port.nbytes}


def _sized(row: Mapping[str, Any]) -> dict[str, Any]:
    """A function that takes sizes. `first`: the number of the function for the first of its calls."""
    ports = {
        side: [{"name": name, "dtype": dtype, "shape": shape} for name, shape, dtype, _ in row[side]]
        for side in ("inputs", "outputs")
    }
    calls = [{"sizes": call["sizes"], "values": values_of(row, call)} for call in row["calls"]]
    return {**row, **ports, "calls": calls}


def values_of(sized: Mapping[str, Any], call: Mapping[str, Any]) -> list[Any]:
    """Values that select the code for a call, one for each of `by_value`: numbers, or lists of them."""
    ports = [sized["inputs"][i] for i in sized["by_value"]]
    return [
        np.frombuffer(bytes.fromhex(data), DTYPES[dtype].numpy).astype(np.int64).reshape(shape).tolist()
        for (_, shape, dtype, _), data in zip(ports, call["values"], strict=True)
    ]


def _fit(target: Mapping[str, Any]) -> Fit:
    host = resolve()
    if machine_of_triple(target["triple"]) != (host.arch, host.system):
        return Fit(False, ())
    return Fit(True, tuple(sorted(set(target["features"]) - set(required_features(host)))))


def _memory(metadata: Mapping[str, Any]) -> dict[int, int]:
    def of_target(target: Mapping[str, Any], threads: int) -> int:
        terms = [ScratchBytes(fixed, per_thread) for fixed, per_thread in target["arena"]]
        return abi.arena_bytes(0, terms, threads)

    head = metadata["instance_bytes"]
    return {n: head + max(of_target(target, n) for target in metadata["targets"]) for n in THREADS}
