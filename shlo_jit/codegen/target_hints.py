"""Suggests targets for names that are unknown: `x86-64-v9`, `arm64`, `avx2`, `cuda`."""

from __future__ import annotations

import re
from collections.abc import Collection

from shlo_jit.suggest import closest

_OTHER_NAMES = {
    **dict.fromkeys(("cpu", "host", "auto", "local", "default", "generic-cpu", "x86_64-native"), "native"),
    **dict.fromkeys(("arm64", "armv8", "arm", "aarch64_be"), "aarch64"),
    **dict.fromkeys(("amd64", "x64", "x86", "i686", "x86_64_v1", "x86-64-v1"), "x86-64"),
    **dict.fromkeys(("wasm", "wasm64", "webassembly", "emscripten"), "wasm32"),
    **dict.fromkeys(("riscv", "rv64", "rv64gc"), "riscv64"),
    **dict.fromkeys(("zen", "zen1"), "znver1"),
    **{f"zen{n}": f"znver{n}" for n in (2, 3, 4, 5)},
    **dict.fromkeys(("darwin", "macosx", "osx"), "macos"),
    "win32": "windows",
    "unknown": "linux",
    "sapphire-rapids": "sapphirerapids",
}
_ACCELERATORS = ("cuda", "gpu", "tpu", "rocm", "metal", "mps", "nvptx", "amdgpu", "vulkan", "npu")
_FEATURE = re.compile(r"(avx|sse|amx|fma|neon|sve|vnni)\w*")


def target_hint(word: str, name: str, known: Collection[str]) -> str:
    """Suggests what to write instead of `word` in the name of a target."""
    plain = word.lower()
    level = re.search(r"x86[-_]64[-_]v(\d+)", name.lower())
    if level and re.fullmatch(r"v\d+", plain):
        given = f"x86-64-v{level[1]}"
        levels = "the levels of x86-64 are x86-64, x86-64-v2, x86-64-v3 and x86-64-v4"
        return f"write {given}" if level[1] in "234" else levels
    if plain.split("-")[0].split(":")[0] in _ACCELERATORS:
        return "only CPUs are supported: write native for this machine's CPU"
    if name.lower().startswith("native") and name != "native":
        return "native takes no features: name the CPU and its features, such as haswell+avxvnni"
    if re.fullmatch(r"m[1-4]", plain):
        return f"did you mean 'apple-{plain}'?"
    meant = _OTHER_NAMES.get(plain, "") or closest(word, sorted(known))
    if meant:
        return f"did you mean '{meant}'?"
    if _FEATURE.fullmatch(plain):
        return f"features come after a CPU's name, such as x86-64-v3+{plain}"
    if len(known) <= MOST_NAMES:
        return f"known names: {', '.join(sorted(known))}"
    return "write native, x86-64, x86-64-v3, aarch64, riscv64, wasm32 or a CPU by LLVM's name (llc -mcpu=help)"


MOST_NAMES = 20
"""Longer lists of names are not printed."""
