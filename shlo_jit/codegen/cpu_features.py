"""ISA features by LLVM's names, with the runtime check for each.

The tables list features that code generation may use without being asked, so checking these is enough to run the code:
vectors and arithmetic on them, bit counting, byte swaps, tiles. They omit features that only a dedicated intrinsic
would
use (AES, random numbers, transactions, privileged instructions), and those of every machine of the architecture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

AVX_STATE, AVX512_STATE, TILE_STATE, APX_STATE = 0x6, 0xE6, 0x60000, 0x80000
"""Bits of XCR0: registers that the system saves for a thread. Without them the instructions fault."""


class Cpuid(NamedTuple):
    """A feature of x86-64: a field in a result of the instruction CPUID."""

    leaf: int
    subleaf: int
    register: int
    """Index of the register, 0 to 3: eax, ebx, ecx, edx."""
    bit: int
    state: int = 0
    """Bits that XCR0 must have."""
    width: int = 1
    """Width of the field in bits; wider fields are version numbers."""
    minimum: int = 1
    """Minimum value of the field."""


class Hwcap(NamedTuple):
    """A feature of AArch64 or RISC-V: bits that Linux reports by `getauxval`."""

    word: int
    """AT_HWCAP or AT_HWCAP2."""
    mask: int


AT_HWCAP, AT_HWCAP2 = 16, 26


def _bits(leaf: int, subleaf: int, register: int, state: int = 0, **bits: int) -> dict[str, Cpuid]:
    """Features of one register that need the same state. `_` stands for `.` in a name of SSE, otherwise for `-`."""
    found: dict[str, Cpuid] = {}
    for name, bit in bits.items():
        found[name.replace("_", "." if name.startswith("sse") else "-")] = Cpuid(leaf, subleaf, register, bit, state)
    return found


X86_64: dict[str, Cpuid] = {
    **_bits(1, 0, 2, sse3=0, ssse3=9, cx16=13, sse4_1=19, sse4_2=20, movbe=22, popcnt=23),
    **_bits(1, 0, 2, AVX_STATE, fma=12, avx=28, f16c=29),
    **_bits(7, 0, 1, bmi=3, bmi2=8, adx=19),
    **_bits(7, 0, 1, AVX_STATE, avx2=5),
    **_bits(7, 0, 1, AVX512_STATE, avx512f=16, avx512dq=17, avx512ifma=21, avx512cd=28, avx512bw=30, avx512vl=31),
    **_bits(7, 0, 2, gfni=8),
    **_bits(7, 0, 2, AVX512_STATE, avx512vbmi=1, avx512vbmi2=6, avx512vnni=11, avx512bitalg=12, avx512vpopcntdq=14),
    **_bits(7, 0, 3, AVX512_STATE, avx512fp16=23),
    **_bits(7, 0, 3, TILE_STATE, amx_bf16=22, amx_tile=24, amx_int8=25),
    **_bits(7, 1, 0, raoint=3, cmpccxadd=7),
    **_bits(7, 1, 0, AVX_STATE, avxvnni=4, avxifma=23),
    **_bits(7, 1, 0, AVX512_STATE, avx512bf16=5),
    **_bits(7, 1, 3, AVX_STATE, avxvnniint8=4, avxneconvert=5, avxvnniint16=10),
    **_bits(7, 1, 3, APX_STATE, egpr=21, push2pop2=21, ppx=21, ndd=21, ccmp=21, nf=21, cf=21, zu=21),
    "avx10.1": Cpuid(0x24, 0, 1, 0, AVX512_STATE, width=8, minimum=1),
    "avx10.2": Cpuid(0x24, 0, 1, 0, AVX512_STATE, width=8, minimum=2),
    **_bits(0x80000001, 0, 2, sahf=0, lzcnt=5, sse4a=6, prfchw=8, tbm=21),
    **_bits(0x80000001, 0, 2, AVX_STATE, xop=11, fma4=16),
}

AARCH64: dict[str, Hwcap] = {
    **{
        name: Hwcap(AT_HWCAP, 1 << bit)
        for name, bit in {
            "lse": 8, "rdm": 12, "jsconv": 13, "complxnum": 14, "rcpc": 15, "dotprod": 20, "sve": 22, "fp16fml": 23,
            "rcpc-immo": 26, "flagm": 27,
        }.items()
    },
    "fullfp16": Hwcap(AT_HWCAP, 1 << 9 | 1 << 10),  # for scalars and for vectors
    **{
        name: Hwcap(AT_HWCAP2, 1 << bit)
        for name, bit in {
            "sve2": 1, "altnzcv": 7, "fptoint": 8, "i8mm": 13, "bf16": 14, "sme": 23, "cssc": 34, "sme2": 37,
            "mops": 43,
        }.items()
    },
}  # fmt: skip

RISCV64 = {"v": Hwcap(AT_HWCAP, 1 << (ord("V") - ord("A")))}

FEATURES: dict[str, dict[str, Cpuid] | dict[str, Hwcap] | dict[str, None]] = {
    "x86_64": X86_64,
    "aarch64": AARCH64,
    "riscv64": RISCV64,
    "wasm32": {"simd128": None, "relaxed-simd": None},  # an engine refuses a module with instructions it does not know
}

_AVX512 = ("bw", "cd", "dq", "ifma", "vl", "vnni", "vpopcntdq")
_AVX512_BYTES = ("bf16", "bitalg", "fp16", "vbmi", "vbmi2")
_IMPLIED: dict[str, tuple[str, ...]] = {
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "sse4a": ("sse3",),
    "avx": ("sse4.2",),
    **dict.fromkeys(("avx2", "fma", "f16c"), ("avx",)),
    **dict.fromkeys(("avxvnni", "avxifma", "avxvnniint8", "avxneconvert", "avxvnniint16"), ("avx2",)),
    "fma4": ("avx", "sse4a"),
    "xop": ("fma4",),
    "avx512f": ("avx2", "fma", "f16c"),
    **{f"avx512{name}": ("avx512f",) for name in _AVX512},
    **{f"avx512{name}": ("avx512bw",) for name in _AVX512_BYTES},
    "avx10.1": tuple(f"avx512{name}" for name in _AVX512 + _AVX512_BYTES),
    "avx10.2": ("avx10.1",),
    "amx-int8": ("amx-tile",),
    "amx-bf16": ("amx-tile",),
    "fp16fml": ("fullfp16",),
    "sve": ("fullfp16",),
    "sve2": ("sve",),
    "sme": ("bf16", "fullfp16"),
    "sme2": ("sme",),
    "rcpc-immo": ("rcpc",),
    "altnzcv": ("flagm",),
    "relaxed-simd": ("simd128",),
}
"""Features that LLVM enables with a feature, and so disables together with any of them."""


def with_implied(features: Iterable[str]) -> frozenset[str]:
    """The features, and all that they imply."""
    found, todo = set[str](), list(features)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += _IMPLIED.get(name, ())
    return frozenset(found)


def without(features: Iterable[str], taken: str) -> frozenset[str]:
    """The features without one of them, and without those that imply it."""
    return frozenset(f for f in features if taken not in with_implied([f]))
