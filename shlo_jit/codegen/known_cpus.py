"""CPUs by LLVM's names, with their features in `cpu_features.py`; LLVM offers no such list.

A CPU that is listed with fewer features than it has gets code that does not use the others. One that is listed with
more
could not run its code. So for recent CPUs, only features that are certain are listed.
"""

from __future__ import annotations

from shlo_jit.codegen.cpu_features import FEATURES, with_implied
from shlo_jit.kernels.target import Target


def _set(words: str, *bases: frozenset[str]) -> frozenset[str]:
    return with_implied([*words.split(), *(f for base in bases for f in base)])


# ---------------------------------------------------------------------- x86-64
_V2 = _set("sse4.2 popcnt cx16 sahf")
_V3 = _set("avx2 bmi bmi2 f16c fma lzcnt movbe", _V2)
_V4 = _set("avx512bw avx512cd avx512dq avx512vl", _V3)

LEVELS: dict[str, frozenset[str]] = {
    "x86-64": frozenset(),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
}
"""The levels of the psABI. As LLVM's CPUs they have exactly these features, so LLVM needs no list of them."""

_CORE2 = _set("ssse3 cx16 sahf")
_SANDYBRIDGE = _set("avx", _V2)
_BROADWELL = _set("adx prfchw", _V3)
_SKYLAKE_AVX512 = _set("", _BROADWELL, _V4)
_CASCADELAKE = _set("avx512vnni", _SKYLAKE_AVX512)
_CANNONLAKE = _set("avx512ifma avx512vbmi", _SKYLAKE_AVX512)
_ICELAKE = _set("avx512vnni avx512vbmi2 avx512bitalg avx512vpopcntdq gfni", _CANNONLAKE)
_SAPPHIRERAPIDS = _set("avx512bf16 avx512fp16 avxvnni amx-int8 amx-bf16", _ICELAKE)
_ALDERLAKE = _set("avxvnni gfni", _BROADWELL)
_SIERRAFOREST = _set("avxifma avxvnniint8 avxneconvert cmpccxadd", _ALDERLAKE)
_SILVERMONT = _set("movbe prfchw", _V2)
_K10 = _set("sse4a popcnt lzcnt cx16 sahf prfchw")
_JAGUAR = _set("avx f16c bmi movbe popcnt", _K10)
_BULLDOZER = _set("xop popcnt", _K10)
_PILEDRIVER = _set("fma f16c bmi tbm", _BULLDOZER)
_ZEN = _set("sse4a", _BROADWELL)
_ZEN4 = _set("avx512bf16", _ZEN, _ICELAKE)

_X86_64 = {
    **LEVELS,
    **dict.fromkeys(("core2",), _CORE2),
    "penryn": _set("sse4.1", _CORE2),
    **dict.fromkeys(("nehalem", "westmere"), _V2),
    "sandybridge": _SANDYBRIDGE,
    "ivybridge": _set("f16c", _SANDYBRIDGE),
    "haswell": _V3,
    **dict.fromkeys(("broadwell", "skylake"), _BROADWELL),
    "skylake-avx512": _SKYLAKE_AVX512,
    "cascadelake": _CASCADELAKE,
    "cooperlake": _set("avx512bf16", _CASCADELAKE),
    "cannonlake": _CANNONLAKE,
    **dict.fromkeys(("icelake-client", "icelake-server", "tigerlake", "rocketlake"), _ICELAKE),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), _SAPPHIRERAPIDS),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "gracemont"), _ALDERLAKE),
    **dict.fromkeys(
        ("sierraforest", "grandridge", "arrowlake", "arrowlake-s", "lunarlake", "pantherlake", "clearwaterforest"),
        _SIERRAFOREST,
    ),
    "bonnell": _set("movbe", _CORE2),
    **dict.fromkeys(("silvermont", "goldmont", "goldmont-plus"), _SILVERMONT),
    "tremont": _set("gfni", _SILVERMONT),
    "amdfam10": _K10,
    "btver1": _set("ssse3", _K10),
    "btver2": _JAGUAR,
    "bdver1": _BULLDOZER,
    **dict.fromkeys(("bdver2", "bdver3"), _PILEDRIVER),
    "bdver4": _set("avx2 bmi2 movbe", _PILEDRIVER),
    **dict.fromkeys(("znver1", "znver2", "znver3"), _ZEN),
    "znver4": _ZEN4,
    "znver5": _set("avxvnni", _ZEN4),
}

# ---------------------------------------------------------------------- AArch64
_V8_1 = _set("lse rdm")
_V8_2 = _set("fullfp16 dotprod rcpc", _V8_1)
_V8_4 = _set("jsconv complxnum flagm rcpc-immo", _V8_2)
_V8_6 = _set("altnzcv fptoint bf16 i8mm", _V8_4)
_NEOVERSE_V1 = _set("sve fp16fml bf16 i8mm", _V8_4)
_V9 = _set("sve2 fp16fml", _V8_6)
_APPLE_M1 = _set("fp16fml altnzcv fptoint", _V8_4)

_AARCH64 = {
    "generic": frozenset[str](),
    **dict.fromkeys(("cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73"), frozenset[str]()),
    "thunderx2t99": _V8_1,
    "a64fx": _set("sve complxnum", _V8_1),
    **dict.fromkeys(("cortex-a55", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-x1"), _V8_2),
    **dict.fromkeys(("neoverse-n1", "neoverse-e1"), _V8_2),
    **dict.fromkeys(("neoverse-v1", "neoverse-512tvb"), _NEOVERSE_V1),
    **dict.fromkeys(("neoverse-n2", "neoverse-v2", "neoverse-n3", "neoverse-v3"), _V9),
    **dict.fromkeys(("cortex-a510", "cortex-a710", "cortex-a715", "cortex-x2", "cortex-x3"), _V9),
    **dict.fromkeys(("cortex-a520", "cortex-a720", "cortex-x4"), _V9),
    **dict.fromkeys(("ampere1", "ampere1a", "ampere1b"), _V8_6),
    "apple-m1": _APPLE_M1,
    **dict.fromkeys(("apple-m2", "apple-m3", "apple-m4"), _set("", _APPLE_M1, _V8_6)),
}

CPUS: dict[str, dict[str, frozenset[str]]] = {
    "x86_64": _X86_64,
    "aarch64": _AARCH64,
    "riscv64": {"generic-rv64": frozenset()},
    "wasm32": {"generic": frozenset()},
}
"""Architecture -> CPU -> features."""
GENERIC = {"x86_64": "x86-64", "aarch64": "generic", "riscv64": "generic-rv64", "wasm32": "generic"}
"""The default CPU of each architecture."""


def required_features(target: Target) -> tuple[str, ...]:
    """Features, sorted by LLVM's names, that a machine needs to run code for a target. They are those that code
    generation may use without being asked, beyond those of all machines of the architecture."""
    words = target.features.split(",") if target.features else []
    off = {word[1:] for word in words if word[0] == "-"}
    on = {word[1:] for word in words if word[0] == "+"} | (LEVELS.get(target.cpu, frozenset()) - off)
    return tuple(sorted(on & set(FEATURES[target.arch])))
