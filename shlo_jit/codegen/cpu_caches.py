"""Data caches of CPUs by LLVM's names. LLVM has no such table for most of them.

A name often stands for several products. The table has a common one, or the one with the smaller caches: tiles that are
too small cost less than tiles that fall out of the cache.
"""

from __future__ import annotations

from shlo_jit.caches import PLAIN, Caches

_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual"
_ARK = "ark.intel.com"

_ROWS: dict[str, tuple[tuple[int, int, int, int, int], str]] = {
    # names: (first level in KiB, second level of a core in KiB, last level in MiB, cores that share it, line), source
    "nehalem westmere sandybridge ivybridge": ((32, 256, 8, 4, 64), f"{_INTEL}; desktop parts of 4 cores"),
    "haswell broadwell skylake": ((32, 256, 8, 4, 64), f"{_INTEL}; desktop parts of 4 cores"),
    "skylake-avx512 cascadelake cooperlake": ((32, 1024, 38, 28, 64), f"{_INTEL}; 1.375 MiB a core"),
    "icelake-client rocketlake": ((48, 512, 16, 8, 64), f"{_INTEL}; {_ARK}, Core i7-11700"),
    "icelake-server": ((48, 1280, 60, 40, 64), f"{_INTEL}; {_ARK}, Xeon Platinum 8380"),
    "tigerlake": ((48, 1280, 12, 4, 64), f"{_INTEL}; {_ARK}, Core i7-1165G7"),
    "sapphirerapids": ((48, 2048, 105, 56, 64), f"{_INTEL}; {_ARK}, Xeon Platinum 8480+"),
    "emeraldrapids": ((48, 2048, 320, 64, 64), f"{_ARK}, Xeon Platinum 8592+"),
    "graniterapids graniterapids-d": ((48, 2048, 504, 128, 64), f"{_ARK}, Xeon 6980P"),
    "alderlake": ((48, 1280, 30, 16, 64), f"{_INTEL}; {_ARK}, Core i9-12900K, a performance core"),
    "raptorlake": ((48, 2048, 36, 24, 64), f"{_ARK}, Core i9-13900K, a performance core"),
    "gracemont": ((32, 512, 6, 8, 64), f"{_INTEL}; {_ARK}, Core i3-N305, 2 MiB for four cores"),
    "znver1": ((32, 512, 8, 4, 64), "AMD Software Optimization Guide 55723, 2.6"),
    "znver2": ((32, 512, 16, 4, 64), "AMD Software Optimization Guide 56305, 2.6"),
    "znver3": ((32, 512, 32, 8, 64), "AMD Software Optimization Guide 56665, 2.6"),
    "znver4": ((32, 1024, 32, 8, 64), "AMD Software Optimization Guide 57647, 2.6"),
    "znver5": ((48, 1024, 32, 8, 64), "AMD Software Optimization Guide 58455, 2.6"),
    "x86-64-v4": ((32, 1024, 32, 8, 64), "the least of the servers above that have AVX-512"),
    "cortex-a53": ((32, 128, 0, 4, 64), "Arm Cortex-A53 TRM; Raspberry Pi 3: 512 KiB for four cores"),
    "cortex-a72": ((32, 256, 1, 4, 64), "Arm Cortex-A72 TRM; Raspberry Pi 4: 1 MiB for four cores"),
    "cortex-a76": ((64, 512, 2, 4, 64), "Arm Cortex-A76 TRM; Raspberry Pi 5"),
    "neoverse-n1": ((64, 1024, 32, 64, 64), "Arm Neoverse N1 TRM; AWS Graviton2"),
    "neoverse-n2": ((64, 1024, 64, 128, 64), "Arm Neoverse N2 TRM; Alibaba Yitian 710"),
    "neoverse-v1 neoverse-512tvb": ((64, 1024, 32, 64, 64), "Arm Neoverse V1 TRM; AWS Graviton3"),
    "neoverse-v2": ((64, 1024, 36, 96, 64), "Arm Neoverse V2 TRM; the smaller of NVIDIA Grace and AWS Graviton4"),
    "ampere1 ampere1a ampere1b": ((64, 2048, 64, 192, 64), "AmpereOne product brief"),
    "a64fx": ((64, 682, 8, 12, 256), "A64FX Microarchitecture Manual, 1.1: 8 MiB for twelve cores"),
    "apple-m1": ((128, 3072, 12, 4, 128), "sysctl hw.perflevel0 of an M1, a performance core"),
    "apple-m2 apple-m3 apple-m4": ((128, 4096, 16, 4, 128), "sysctl hw.perflevel0 of an M2, a performance core"),
}


def _row(l1: int, l2: int, last_level: int, cores: int, line: int) -> Caches:
    return Caches(l1 << 10, l2 << 10, last_level << 20 or (l2 << 10) * cores, cores, line)


KNOWN = {name: _row(*row) for names, (row, _) in _ROWS.items() for name in names.split()}
"""CPU -> its caches."""
SOURCES = {name: source for names, (_, source) in _ROWS.items() for name in names.split()}
"""CPU -> where its sizes are published."""


def caches_of(cpu: str) -> Caches:
    """Returns the caches of a CPU by its LLVM name, or plain ones if it is not in the table."""
    return KNOWN.get(cpu, PLAIN)
