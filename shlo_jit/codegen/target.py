"""Resolves target names to `Target` values and LLVM target machines."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from shlo_jit.caches import Caches
from shlo_jit.codegen.cpu_caches import caches_of
from shlo_jit.codegen.host_caches import host_caches
from shlo_jit.errors import UsageValueError
from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm

TUNING = ("prefer-", "slow-", "fast-", "tuning")
"""Feature flags that only guide heuristics; they must not enter a cache key."""

_TRIPLES: dict[tuple[str, str], dict[str, str]] = {
    ("x86_64", "linux"): {"gnu": "x86_64-unknown-linux-gnu", "musl": "x86_64-unknown-linux-musl"},
    ("x86_64", "macos"): {"": "x86_64-apple-macosx11.0"},
    ("x86_64", "windows"): {"msvc": "x86_64-pc-windows-msvc", "gnu": "x86_64-w64-windows-gnu"},
    ("x86_64", "none"): {"": "x86_64-unknown-none-elf"},
    ("aarch64", "linux"): {"gnu": "aarch64-unknown-linux-gnu", "musl": "aarch64-unknown-linux-musl"},
    ("aarch64", "macos"): {"": "arm64-apple-macosx11.0"},
    ("aarch64", "windows"): {"msvc": "aarch64-pc-windows-msvc", "gnu": "aarch64-w64-windows-gnu"},
    ("aarch64", "none"): {"": "aarch64-unknown-none-elf"},
    ("riscv64", "linux"): {"gnu": "riscv64-unknown-linux-gnu", "musl": "riscv64-unknown-linux-musl"},
    ("riscv64", "none"): {"": "riscv64-unknown-none-elf"},
    ("wasm32", "none"): {"": "wasm32-unknown-unknown"},
}
"""Architecture and system -> C library -> triple. The first of each is the default."""
_ALWAYS = {"riscv64": ("m", "a", "f", "d", "c")}
"""Features that LLVM must be given explicitly although every supported machine of the architecture has them."""


class Host(NamedTuple):
    """The machine we run on, as LLVM detects it."""

    triple: str
    cpu: str
    features: dict[str, bool]
    """All features that LLVM knows of this architecture, and whether the CPU has them."""


_host: list[Host] = []


def set_host(host: Host) -> None:
    """Makes `resolve` use an earlier answer of LLVM about such a machine, without loading LLVM."""
    _host[:] = [host]


def ask_llvm() -> Host:
    import llvmlite.binding as llvm

    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()))


def host() -> Host:
    if not _host:
        set_host(ask_llvm())
    return _host[0]


@functools.cache
def initialize(*, native: bool) -> None:
    """Initializes LLVM, once per process: for this machine's architecture, or for all, which takes more time and
    memory."""
    import llvmlite.binding as llvm

    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@functools.cache
def resolve(name: str = "native") -> Target:
    """Returns a Target by name:

        native                          the machine we run on
        CPU[+feature...][-feature...]   x86-64-v3, znver4, x86-64-v2+avx, icelake-server-avx512bw
        MACHINE[+feature...]            aarch64, riscv64+v, wasm32+simd128: the baseline of such machines
        MACHINE:CPU[+feature...]        aarch64:neoverse-v1, aarch64-macos:apple-m1, x86_64-linux-musl:x86-64-v3

    where MACHINE is ARCH, ARCH-SYSTEM or ARCH-SYSTEM-LIBC. CPUs and features have LLVM's names; the CPU is one of
    `known_cpus.py`, a feature one of `cpu_features.py`. Without a system, it is this machine's if the architecture is,
    too;
    otherwise Linux. For wasm32 there is only `none`. Raises ValueError for an unknown name.
    """
    if name == "native":
        return _native()
    machine, colon, cpu = name.rpartition(":")
    if colon:
        arch, system, triple = _machine(machine, name)
        return _named(name, arch, system, triple, cpu)
    words = re.match(r"([^+-]*)", name)
    assert words is not None
    if words[1] in {arch for arch, _ in _TRIPLES}:
        machine, plus, features = name.partition("+")
        arch, system, triple = _machine(machine, name)
        return _named(name, arch, system, triple, _generic(arch) + plus + features)
    arch, system, triple = _machine(_arch_of_cpu(name), name)
    return _named(name, arch, system, triple, name)


def _native() -> Target:
    triple, cpu, known = host()
    on = {f for f, yes in known.items() if yes and not f.startswith(TUNING)}
    features = ",".join([f"+{f}" for f in sorted(on)] + [f"-{f}" for f in sorted(set(known) - on)])
    return _describe("native", triple, *machine_of_triple(triple), cpu, features, on, host_caches(cpu))


def machine_of_triple(triple: str) -> tuple[str, str]:
    """Architecture and system of a triple."""
    arch = triple.partition("-")[0]
    systems = {"linux": "linux", "darwin": "macos", "macos": "macos", "windows": "windows"}
    system = next((s for word, s in systems.items() if word in triple), "none")
    return {"arm64": "aarch64"}.get(arch, arch), system


# ---------------------------------------------------------------------- the parts of a name
def _machine(text: str, name: str) -> tuple[str, str, str]:
    """Architecture, system and triple of ARCH, ARCH-SYSTEM or ARCH-SYSTEM-LIBC."""
    arch, _, rest = text.partition("-")
    system, _, libc = rest.partition("-")
    systems = [s for a, s in _TRIPLES if a == arch]
    if not systems:
        _unknown("architecture", arch, name, {a for a, _ in _TRIPLES})
    process = host().triple
    if not system and machine_of_triple(process)[0] == arch:
        return arch, machine_of_triple(process)[1], process
    if system and system not in systems:
        _unknown("system", system, name, systems)
    system = system or systems[0]
    triples = _TRIPLES[arch, system]
    if libc and libc not in triples:
        _unknown("C library", libc, name, triples.keys() - {""})
    return arch, system, triples[libc or next(iter(triples))]


def _arch_of_cpu(name: str) -> str:
    """The architecture of a CPU that is named without one."""
    from shlo_jit.codegen.known_cpus import CPUS

    for arch, cpus in CPUS.items():
        if arch in ("x86_64", "aarch64") and _cpu_at_start(name, cpus):
            return arch
    return _unknown("target", name, name, {"native", *CPUS, *CPUS["x86_64"], *CPUS["aarch64"]})


def _cpu_at_start(text: str, cpus: Iterable[str]) -> str | None:
    """The longest CPU name at the start of the text, followed by a feature or the end."""
    fits = [cpu for cpu in cpus if re.match(re.escape(cpu) + r"(?![^+-])", text)]
    return max(fits, key=len, default=None)


def _generic(arch: str) -> str:
    from shlo_jit.codegen.known_cpus import GENERIC

    return GENERIC[arch]


class _Change(NamedTuple):
    """A feature in a name."""

    sign: str
    feature: str


def _changes(text: str, arch: str, name: str) -> list[_Change]:
    """The features after a CPU's name."""
    from shlo_jit.codegen.cpu_features import FEATURES

    known = FEATURES[arch]
    longest_first = "|".join(re.escape(f) for f in sorted(known, key=len, reverse=True))
    found: list[_Change] = []
    while text:
        match = re.match(rf"([+-])({longest_first})(?=[+-]|$)", text)
        if match is None:
            _unknown("feature", re.split(r"(?=[+])", text[1:])[0], name, known)
        found.append(_Change(match[1], match[2]))
        text = text[match.end() :]
    return found


def _unknown(kind: str, word: str, name: str, known: Collection[str]) -> NoReturn:
    from shlo_jit.codegen.target_hints import target_hint

    where = "" if word == name else f" in target {name!r}"
    raise UsageValueError(f"unknown {kind} {word!r}{where}", code="option.target", hint=target_hint(word, name, known))


# ---------------------------------------------------------------------- a Target
def _named(name: str, arch: str, system: str, triple: str, text: str) -> Target:
    """A target for a CPU by name, followed by features."""
    from shlo_jit.codegen.cpu_features import FEATURES, with_implied, without
    from shlo_jit.codegen.known_cpus import CPUS, GENERIC, LEVELS

    cpu = _cpu_at_start(text, CPUS[arch])
    if cpu is None:
        _unknown("CPU", re.split(r"\+", text)[0], name, CPUS[arch])
    had = CPUS[arch][cpu]
    on = had
    for sign, feature in _changes(text[len(cpu) :], arch, name):
        on = on | with_implied([feature]) if sign == "+" else without(on, feature)
    # LLVM's features of a level are ours. For other CPUs it may know more, which no check would cover, so it gets a
    # complete list.
    exact = cpu in LEVELS or cpu == GENERIC[arch]
    stated = on - had if exact else on
    withheld = (had if exact else set(FEATURES[arch])) - on
    features = [f"+{f}" for f in (*_ALWAYS.get(arch, ()), *sorted(stated))] + [f"-{f}" for f in sorted(withheld)]
    return _describe(name, triple, arch, system, cpu, ",".join(features), on, caches_of(cpu))


def _describe(
    name: str, triple: str, arch: str, system: str, cpu: str, features: str, on: Collection[str], caches: Caches
) -> Target:
    x86 = arch == "x86_64"
    wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= set(on)
    no_vectors = (arch == "riscv64" and "v" not in on) or (arch == "wasm32" and "simd128" not in on)
    return Target(
        name=name,
        triple=triple,
        arch=arch,
        system=system,
        cpu=cpu,
        features=features,
        vector_bits=512 if wide else 256 if "avx2" in on else 64 if no_vectors else 128,
        vector_registers=16 if arch == "wasm32" or (x86 and not wide) else 32,
        has_fma="fma" in on if x86 else arch != "wasm32",
        has_masks=wide,
        has_mask_registers=x86 and "avx512f" in on,
        has_bf16_dot=wide and "avx512bf16" in on,
        has_vnni="avx512vnni" in on if wide else "avxvnni" in on,
        has_byte_pairs="ssse3" in on,
        caches=caches,
    )


def check_runs_here(target: Target) -> None:
    """Raises ValueError unless this machine has the features that the target's code uses."""
    if target.name == "native":
        return
    from shlo_jit.codegen.known_cpus import required_features

    here = resolve()
    if (target.arch, target.system) != (here.arch, here.system):
        message = f"target {target.name!r} is for another machine; this one is {here.triple}"
        hint = "write target='native' to run it here; shlo_jit.export makes libraries for other machines"
        raise UsageValueError(message, code="option.target", hint=hint)
    missing = sorted(set(required_features(target)) - set(required_features(here)))
    if missing:
        message = f"target {target.name!r} needs {', '.join(missing)}, which this machine does not have"
        raise UsageValueError(message, code="option.target", hint="write target='native' to run it here")


def target_machine(target: Target, opt: int = 2) -> llvm.TargetMachine:
    """Returns an LLVM target machine: position independent, small code model, so one object serves JIT and .so.
    WebAssembly has no addresses to be independent of."""
    import llvmlite.binding as llvm

    initialize(native=target.arch == machine_of_triple(host().triple)[0])
    reloc = "static" if target.arch == "wasm32" else "pic"
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc=reloc, codemodel="small", jit=False
    )
