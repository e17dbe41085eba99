"""Schedules programs for made-up machines: no LLVM, and nothing that depends on the host machine."""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.codegen.cpu_caches import caches_of
from shlo_jit.fuse.fuse import fuse
from shlo_jit.fuse.plan import PlanBlock
from shlo_jit.ir.core import Op
from shlo_jit.kernels.target import Target
from shlo_jit.passes import core_functions
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.schedule import Context, schedule
from shlo_jit.text.parser import parse_module
from shlo_jit.traits import Traits

AVX512 = Target(
    name="made up",
    triple="x86_64-unknown-linux-gnu",
    arch="x86_64",
    system="linux",
    cpu="a-cpu",
    features="+avx512f",
    vector_bits=512,
    vector_registers=32,
    has_fma=True,
    has_masks=True,
    has_mask_registers=True,
    has_bf16_dot=False,
    has_vnni=False,
    caches=caches_of("znver5"),
)
AVX2 = replace(AVX512, features="+avx2", vector_bits=256, vector_registers=16, has_masks=False)
SSE = replace(AVX2, features="", vector_bits=128)
AMX = replace(AVX512, features="+amx-bf16,+amx-int8,+amx-tile", has_bf16_dot=True, has_vnni=True)


def main(arguments: str, result: str, *lines: str) -> str:
    """Returns a program whose result is `%y`."""
    body = "\n".join([*lines, f"return %y : {result}"])
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}"


def tensor(*shape: int, dtype: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def context_of(target: Target, calls: frozenset[str] = frozenset(), lapack: bool = True) -> Context:
    return Context(target, calls.__contains__, has_lapack=lambda: lapack)


def core_of(text: str, calls: frozenset[str] = frozenset()) -> Op:
    """Returns a program's entry function in core ops."""
    module = parse_module(text, "program")
    function = module.function("main")
    assert function is not None
    return core_functions(module, function, calls.__contains__)[-1]


def plan_of(text: str, calls: frozenset[str] = frozenset(), target: Target = AVX512) -> PlanBlock:
    """Returns the steps of a program's entry function."""
    return fuse(core_of(text, calls), Traits(target.caches, target.sums_bytes))


def schedules(
    text: str, target: Target = AVX512, calls: frozenset[str] = frozenset(), lapack: bool = True
) -> list[KernelSchedule]:
    """Returns the schedules of a program's steps, in order, except those that run nothing."""
    found = schedule(plan_of(text, calls, target), context_of(target, calls, lapack))
    return [s for s in found.steps.values() if type(s) is not type(NOTHING)]


def the_schedule(text: str, target: Target = AVX512, **options: object) -> KernelSchedule:
    """Returns the schedule of a program that is one kernel."""
    (found,) = schedules(text, target, **options)  # type: ignore[arg-type]
    return found


def note(found: KernelSchedule, what: str) -> Note:
    """Returns the first line with that label."""
    return next(n for n in found.notes if n.what.strip() == what)


def decides(found: KernelSchedule, what: str, value: str, code: str = "", shows: str = "") -> None:
    """Checks that the first line `what` has these fixed words or numbers, and that its reason has the code and shows
    the number."""
    said = note(found, what)
    assert value in said.value, said
    assert not code or (said.why is not None and code in said.why.codes), said
    assert not shows or (said.why is not None and shows in str(said.why)), said
