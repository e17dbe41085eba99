"""The machine check that libraries begin with: it detects the features that exist, and runs on machines with few of
them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import pytest

from shlo_jit.codegen import optimize
from shlo_jit.codegen.cpu_check import write_cpu_check
from shlo_jit.codegen.cpu_features import X86_64, with_implied
from shlo_jit.codegen.known_cpus import required_features
from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels.builder import ModuleText

HOST = resolve()


def checks(names: list[str], compiled_for: str) -> bytes:
    """Returns an object with a function `i32 check0()`, `check1()`, ... for each target."""
    module = ModuleText(resolve(compiled_for))
    for number, name in enumerate(names):
        write_cpu_check(module, f"machine{number}", resolve(name))
        b = module.function(f"check{number}", [], "i32", linkage="")
        b.ret(b.cast("zext", b.call("i1", f"machine{number}", [], declare=False), "i32"))
    target = resolve(compiled_for)
    return optimize.emit_object(optimize.optimize(module.text(), target), target)


def answers_here(names: list[str]) -> list[bool]:
    jit = llvm.create_lljit_compiler(target_machine(HOST))
    builder = llvm.JITLibraryBuilder().add_current_process().add_object_img(checks(names, "native"))
    for number in range(len(names)):
        builder.export_symbol(f"check{number}")
    library = builder.link(jit, "checks")
    return [bool(ctypes.CFUNCTYPE(ctypes.c_int32)(library[f"check{n}"])()) for n in range(len(names))]


@pytest.mark.skipif(not HOST.is_x86, reason="asks an x86 for its features")
def test_sees_the_features_of_this_machine() -> None:
    has = {name for name, yes in llvm.get_host_cpu_features().items() if yes}
    names = sorted(X86_64)
    expected = [with_implied([name]) <= has for name in names]
    assert any(expected)
    assert not all(expected)
    assert answers_here([f"x86-64+{name}" for name in names]) == expected


@pytest.mark.skipif(not HOST.is_x86, reason="asks an x86 for its levels")
def test_this_machine_runs_native_and_what_it_contains() -> None:
    has = set(required_features(HOST))
    names = ["native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver5", "bdver1"]
    assert answers_here(names) == [set(required_features(resolve(name))) <= has for name in names]


class Machines(NamedTuple):
    """Questions for emulated machines of one architecture."""

    targets: list[str]
    compiled_for: str
    """Target with more features than most of the machines have: the check must not use them."""
    answers: dict[str, str]
    """Maps the emulator's name of a CPU to a digit for each target."""


MACHINES = {
    "x86_64": Machines(
        ["x86-64", "x86-64-v2", "sandybridge", "x86-64-v3", "x86-64-v4"],
        "x86-64-v4",
        {"qemu64": "10000", "Nehalem": "11000", "SandyBridge": "11100", "Haswell": "11110", "max": "11110"},
    ),
    "aarch64": Machines(
        ["aarch64", "aarch64:neoverse-n1", "aarch64:a64fx", "aarch64:neoverse-v1"],
        "aarch64:neoverse-v1",
        {"cortex-a57": "1000", "neoverse-n1": "1100", "a64fx": "1010", "max": "1111"},
    ),
    "riscv64": Machines(
        ["riscv64", "riscv64+v"], "riscv64+v", {"rv64,v=false": "10", "rv64,v=true,vext_spec=v1.0": "11"}
    ),
}


@pytest.mark.parametrize("arch", MACHINES)
def test_on_emulated_machines(arch: str, tmp_path: Path) -> None:
    compiler, emulator = f"{arch}-linux-gnu-gcc", f"qemu-{arch}"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"needs {compiler} and {emulator}")
    targets, compiled_for, answers = MACHINES[arch]
    (tmp_path / "checks.o").write_bytes(checks(targets, compiled_for))
    declared = "".join(f"int check{n}(void); " for n in range(len(targets)))
    calls = "".join(f"putchar('0' + check{n}()); " for n in range(len(targets)))
    (tmp_path / "main.c").write_text(f"#include <stdio.h>\n{declared}\nint main(void) {{ {calls} return 0; }}\n")
    files = [str(tmp_path / name) for name in ("main.c", "checks.o", "main")]
    subprocess.run([compiler, "-static", *files[:2], "-o", files[2]], check=True)
    for cpu, expected in answers.items():
        run = subprocess.run([emulator, "-cpu", cpu, files[2]], check=False, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (0, expected), cpu
