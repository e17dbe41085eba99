"""A function, in LLVM text, that checks whether the machine it runs on can run code for a target.

It must not use the features that it checks. So it is compiled for the baseline of its architecture, whatever the module
is compiled for, and so must be all code that runs before it. `baseline(target)` returns the attributes for that.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.codegen.cpu_features import AARCH64, RISCV64, X86_64, Cpuid, Hwcap
from shlo_jit.codegen.known_cpus import required_features
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64
from shlo_jit.kernels.target import Target

_BASELINES = {
    "x86_64": '"target-cpu"="x86-64" "target-features"="+sse2"',
    "aarch64": '"target-cpu"="generic" "target-features"="+neon"',
    "riscv64": '"target-cpu"="generic-rv64" "target-features"="+m,+a,+f,+d,+c"',
    "wasm32": "",
}
_EXTENDED = 0x80000000
"""First extended leaf; extended leaves have a separate maximum."""
_OSXSAVE = Cpuid(1, 0, 2, 27)
"""Bit that says that XGETBV may be used."""


def baseline(target: Target) -> str:
    """Attributes of functions that run on any machine of the target's architecture."""
    return _BASELINES[target.arch]


def write_cpu_check(module: ModuleText, name: str, target: Target) -> None:
    """Adds `define internal i1 @name()`, which returns true if the machine, and its system, have `required_features`.

    It always returns true on WebAssembly, whose engines refuse a whole module for one unknown instruction, and on
    AArch64
    and RISC-V without Linux, where programs have no way to ask.
    """
    b = module.function(name, [], "i1", attributes=f"nounwind {baseline(target)}".rstrip())
    names = required_features(target)
    if target.arch == "x86_64" and names:
        _check_cpuid(b, [X86_64[n] for n in names])
    elif target.arch in ("aarch64", "riscv64") and target.system == "linux" and names:
        table: Mapping[str, Hwcap] = AARCH64 if target.arch == "aarch64" else RISCV64
        _check_hwcaps(b, [table[n] for n in names])
    else:
        b.ret(const("i1", 1))


def _check_hwcaps(b: Builder, wanted: list[Hwcap]) -> None:
    """Checks all bits of all words: `getauxval` returns 0 for a word that an old kernel doesn't know."""
    answer = const("i1", 1)
    for word in sorted({w.word for w in wanted}):
        mask = i64(sum({bit for w in wanted if w.word == word for bit in _powers(w.mask)}))
        answer = b.and_(answer, _has(b, b.call("i64", "getauxval", [i64(word)]), mask))
    b.ret(answer)


def _powers(mask: int) -> list[int]:
    return [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _has(b: Builder, word: V, mask: V) -> V:
    return b.icmp("eq", b.and_(word, mask), mask)


def _check_cpuid(b: Builder, wanted: list[Cpuid]) -> None:
    """Checks one leaf after the other; the function returns at the first missing feature."""
    state = 0
    for row in wanted:
        state |= row.state
    rows = [*wanted, _OSXSAVE] if state else wanted
    for leaf in sorted({row.leaf for row in rows}):
        first = leaf & _EXTENDED
        _leave_unless(b, b.icmp("uge", _cpuid(b, first, 0)[0], const("i32", leaf)))
        for subleaf in sorted({row.subleaf for row in rows if row.leaf == leaf}):
            if subleaf:  # eax of leaf 7 has its last subleaf
                _leave_unless(b, b.icmp("uge", _cpuid(b, leaf, 0)[0], i32(subleaf)))
            words = _cpuid(b, leaf, subleaf)
            for row in [row for row in rows if (row.leaf, row.subleaf) == (leaf, subleaf)]:
                field = b.and_(b.lshr(words[row.register], row.bit), i32((1 << row.width) - 1))
                _leave_unless(b, b.icmp("uge", field, i32(row.minimum)))
    if state:
        _leave_unless(b, _has(b, _xcr0(b), i32(state)))
    b.ret(const("i1", 1))


def _leave_unless(b: Builder, condition: V) -> None:
    with b.if_(b.not_(condition)):
        b.ret_early(const("i1", 0))


def _cpuid(b: Builder, leaf: int, subleaf: int) -> list[V]:
    """Returns eax, ebx, ecx and edx."""
    words = "{i32, i32, i32, i32}"
    text = f'call {words} asm "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},0,2"'
    pack = b.emit(words, f"{text}(i32 {const('i32', leaf).text}, i32 {subleaf}) nounwind memory(none)")
    return [b.emit("i32", f"extractvalue {words} {pack.text}, {k}") for k in range(4)]


def _xcr0(b: Builder) -> V:
    """Returns the low half of XCR0. Faults without OSXSAVE, which must have been checked before."""
    pack = b.emit("{i32, i32}", 'call {i32, i32} asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0) nounwind')
    return b.emit("i32", f"extractvalue {{i32, i32}} {pack.text}, 0")
