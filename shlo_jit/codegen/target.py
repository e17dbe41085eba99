"""Target names to `Target` values and LLVM target machines."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from shlo_jit.kernels.target import Target

TUNING = ("prefer-", "slow-", "fast-", "tuning")
"""Feature flags that only steer choices; they must not enter a cache key."""


@functools.cache
def initialize() -> None:
    """Set LLVM up, once a process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@functools.cache
def resolve(name: str = "native") -> Target:
    """A Target by name: `native`, a CPU of LLVM's (`x86-64-v3`, `znver5`, `sapphirerapids`), or with an architecture
    before it (`aarch64:neoverse-n1`). Raises ValueError for a name LLVM does not know."""
    initialize()
    if name == "native":
        triple = llvm.get_process_triple()
        host = llvm.get_host_cpu_features()
        cpu = llvm.get_host_cpu_name()
        on = {f for f, yes in host.items() if yes and not f.startswith(TUNING)}
        features = ",".join([f"+{f}" for f in sorted(on)] + [f"-{f}" for f in sorted(set(host) - on)])
        return _describe(name, triple, cpu, features, on)
    arch, _, cpu = name.rpartition(":")
    triple = {"": "", "x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}.get(arch)
    if triple is None:
        raise ValueError(f"unknown architecture in target {name!r}: expected x86_64 or aarch64")
    if not triple:
        triple = llvm.get_process_triple()
    on = _features_of(triple, cpu, name)
    return _describe(name, triple, cpu, "", on)


def _features_of(triple: str, cpu: str, name: str) -> set[str]:
    """The vector features of a named CPU, found by compiling a probe for it: LLVM has no list to ask."""
    if not triple.startswith("x86_64"):
        if cpu not in _AARCH64:
            raise ValueError(f"unknown target {name!r}: known for aarch64 are {', '.join(sorted(_AARCH64))}")
        return {"neon", "fma"}
    v3 = {"avx", "avx2", "fma", "f16c", "bmi2"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}
    vnni = v4 | {"avx512vnni"}
    bf16 = vnni | {"avx512bf16"}
    known = dict.fromkeys(
        ("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3", "alderlake"), v3
    )
    known |= dict.fromkeys(("x86-64-v4", "skylake-avx512"), v4)
    known |= dict.fromkeys(("cascadelake", "icelake-server", "icelake-client", "tigerlake", "rocketlake"), vnni)
    known |= dict.fromkeys(("cooperlake", "sapphirerapids", "graniterapids", "znver4", "znver5"), bf16)
    known |= {name: set[str]() for name in ("x86-64", "x86-64-v2", "nehalem")}
    if cpu not in known:
        raise ValueError(f"unknown target {name!r}: known for x86_64 are native, {', '.join(sorted(known))}")
    return known[cpu]


_AARCH64 = {
    "generic",
    "cortex-a57",
    "cortex-a72",
    "cortex-a76",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v1",
    "apple-m1",
}


def check_runs_here(target: Target) -> None:
    """Raise ValueError unless this machine has what the target's code uses, as far as LLVM says."""
    host = resolve()
    if target.triple.partition("-")[0] != host.triple.partition("-")[0]:
        raise ValueError(f"target {target.name!r} is another architecture than this machine's, {host.triple}")
    named = target.is_x86 and target.name != "native"
    wanted = _features_of(target.triple, target.cpu, target.name) if named else set[str]()
    missing = sorted(f for f in wanted if f"+{f}" not in host.features.split(","))
    if missing:
        raise ValueError(f"target {target.name!r} needs {', '.join(missing)}, which this machine does not have")


def _describe(name: str, triple: str, cpu: str, features: str, on: set[str]) -> Target:
    x86 = triple.startswith("x86_64")
    wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= on
    return Target(
        name=name,
        triple=triple,
        cpu=cpu,
        features=features,
        vector_bits=512 if wide else 256 if "avx2" in on else 128,
        vector_registers=32 if wide or not x86 else 16,
        has_fma=not x86 or "fma" in on,
        has_masks=wide,
        has_mask_registers=x86 and "avx512f" in on,
        has_bf16_dot=wide and "avx512bf16" in on,
        has_vnni=wide and "avx512vnni" in on,
    )


def target_machine(target: Target, opt: int = 2) -> llvm.TargetMachine:
    """An LLVM target machine: position independent, small code model, so one object serves JIT and .so."""
    initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="small", jit=False
    )
