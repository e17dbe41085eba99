"""Libraries for other machines have the same bits as this one: with `reproducible=True`, everything; without it, all
elementary functions but some of AVX-512.

An emulator runs them if it is installed, with a C compiler for the machine.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from building import Host
from elementary_programs import TYPES, differing, program
from reproducible_cases import everything

import shlo_jit
from shlo_jit.codegen.target import check_runs_here, resolve

pytestmark = pytest.mark.slow


class Machine(NamedTuple):
    """A target, and the tools to run its libraries."""

    target: str
    compiler: str
    emulator: str = ""
    """Empty if only this machine runs them."""
    cpu: str = ""

    def why_not(self) -> str:
        """Returns why it cannot be tested here; empty if it can."""
        missing = next((tool for tool in (self.compiler, self.emulator) if tool and not shutil.which(tool)), "")
        if missing:
            return f"no {missing}"
        try:
            if not self.emulator:
                check_runs_here(resolve(self.target))
        except ValueError as error:
            return str(error)
        return ""

    @property
    def command(self) -> list[str]:
        """The command that runs a program of the machine, with the C library of its compiler."""
        if not self.emulator:
            return []
        words = [self.compiler, "-print-file-name=libc.so.6"]
        library = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        return [self.emulator, "-L", str(Path(library).resolve().parents[1]), "-cpu", self.cpu]


MACHINES = [
    Machine("x86-64-v3", "cc"),
    Machine("x86-64-v4", "cc"),
    Machine("znver4", "cc"),
    Machine("aarch64", "aarch64-linux-gnu-gcc", "qemu-aarch64", "cortex-a57"),
    Machine("aarch64:neoverse-n1", "aarch64-linux-gnu-gcc", "qemu-aarch64", "max"),
    Machine("aarch64:neoverse-v1", "aarch64-linux-gnu-gcc", "qemu-aarch64", "max"),
    Machine("riscv64", "riscv64-linux-gnu-gcc", "qemu-riscv64", "rv64,v=false"),
    Machine("riscv64+v", "riscv64-linux-gnu-gcc", "qemu-riscv64", "rv64,v=true,vext_spec=v1.0"),
]


@cache
def here() -> tuple[str, list[np.ndarray], shlo_jit.Executable, list[np.ndarray]]:
    """Returns a program, its arguments, its executable on this machine, and the results."""
    text, arguments = everything()
    exe = shlo_jit.compile(text, threads=1, reproducible=True)
    return text, arguments, exe, [np.asarray(x) for x in exe(*arguments)]  # type: ignore[return-value]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.target)
def test_same_bits(machine: Machine, tmp_path: Path) -> None:
    if why := machine.why_not():
        pytest.skip(why)
    text, arguments, exe, want = here()
    library, header = tmp_path / "model.so", tmp_path / "model.h"
    shlo_jit.export(text, library, header=header, target=machine.target, reproducible=True)
    host = Host(tmp_path, header, machine.compiler, "-lm", "-lpthread")
    got = host.call(library, "model", arguments, exe.outputs, under=machine.command)
    different = [
        (i, int((x != y).sum()), x.size)
        for i, (x, y) in enumerate(zip(got, want, strict=True))
        if x.tobytes() != y.tobytes()
    ]
    assert not different, "results, and how many of their elements differ"


# ---------------------------------------------------------------------- elementary functions, without the option
OF_AVX512 = {"tanh f32", "erf f32", "erfc f32", "abs c64"}
"""Functions with an algorithm that only AVX-512 has: another one would take more than 5 % longer there. Those of bf16
and f16 are computed in f32, and have other bits only where these are rounded to different sides."""
ROUNDED = {f"{name} {kind}" for name in ("tanh", "erf", "erfc") for kind in ("bf16", "f16")}


@cache
def elementary(kinds: tuple[str, ...]) -> tuple[str, list[np.ndarray], list[str], shlo_jit.Executable, list[np.ndarray]]:
    """Returns the program of elementary functions, its arguments, the names of its results, its executable with AVX2,
    and the results."""
    text, arguments, names = program(kinds)
    exe = shlo_jit.compile(text, threads=1, target="x86-64-v3")
    return text, arguments, names, exe, [np.asarray(x) for x in exe(*arguments)]  # type: ignore[return-value]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.target)
def test_elementary_functions(machine: Machine, tmp_path: Path) -> None:
    if why := machine.why_not():
        pytest.skip(why)
    text, arguments, names, exe, want = elementary(tuple(TYPES))
    library, header = tmp_path / "model.so", tmp_path / "model.h"
    shlo_jit.export(text, library, header=header, target=machine.target)
    host = Host(tmp_path, header, machine.compiler, "-lm", "-lpthread")
    got = host.call(library, "model", arguments, exe.outputs, under=machine.command)
    found = differing(got, want, names)
    if resolve(machine.target).has_masks:
        assert OF_AVX512 <= set(found) <= OF_AVX512 | ROUNDED
    else:
        assert not found, "results, and how many of their elements differ"
