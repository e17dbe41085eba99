"""Description of the machine a kernel is generated for. It is a value, never the machine we run on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shlo_jit.caches import PLAIN, Caches, Share

VIRTUAL_VECTOR_BITS = 256
"""Vector width of the virtual machine that orders reproducible sums: eight partial sums of f32 in a vector. Chosen: the
width of AVX2, where it costs nothing; other targets take half or several of their registers."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU to generate code for. `shlo_jit.codegen.target.resolve` makes it."""

    name: str
    """Name given by the user: `native`, or a name that `resolve` knows."""
    triple: str
    arch: str
    """`x86_64`, `aarch64`, `riscv64` or `wasm32`."""
    system: str
    """`linux`, `macos`, `windows` or `none`: freestanding, without system calls, threads, perhaps a C library."""
    cpu: str
    """LLVM's name of the CPU: it determines the scheduling model and, where `features` does not, the instructions."""
    features: str
    """ISA features in LLVM's syntax (`+avx2,+fma`), without tuning flags."""
    vector_bits: int
    """Width of a vector register: 512, 256 or 128; 64 without vectors."""
    vector_registers: int
    """32 with AVX-512, on AArch64 and on RISC-V, 16 otherwise."""
    has_fma: bool
    has_masks: bool
    """Masked loads and stores of every element width cost about as much as unmasked ones (AVX-512 BW, DQ and VL)."""
    has_mask_registers: bool
    """LLVM may choose AVX-512's masked stores (AVX-512 F)."""
    has_bf16_dot: bool
    """`vdpbf16ps`."""
    has_vnni: bool
    """`vpdpbusd`."""
    has_byte_pairs: bool = False
    """`pmaddubsw`, which multiplies bytes with and without sign two at a time."""
    caches: Caches = PLAIN
    """Sizes of data caches: read on the machine we run on, from a table for a CPU by its name."""
    reproducible: bool = False
    """Whether sums and elementary functions have the same bits on every target, and for any number of rows (the option
    of `compile`). Decisions that change orders of sums are made for `of_sums` then."""

    @property
    def instructions(self) -> tuple[str, str, str, int]:
        """The parts of a target that say which instructions code uses: `native` and the same CPU by its name are
        one."""
        return self.triple, self.cpu, self.features, self.vector_bits

    @property
    def identity(self) -> tuple[object, ...]:
        """The parts of a target that affect code: the instructions, the sizes of caches, the orders of sums."""
        return *self.instructions, *self.caches.identity, self.reproducible

    @property
    def of_sums(self) -> Target:
        """The machine for which lanes and accumulators of sums are chosen: a virtual one, the same for all targets, if
        results must be reproducible; otherwise this one. LLVM splits its vectors into those that the target has."""
        if not self.reproducible:
            return self
        return replace(self, vector_bits=VIRTUAL_VECTOR_BITS, vector_registers=16, has_masks=False)

    def bytes_of(self, size: Share | int) -> int:
        """Returns the bytes that a threshold is on this CPU (`Caches.bytes_of`)."""
        return self.caches.bytes_of(size)

    def lanes(self, bits: int) -> int:
        """Returns the lanes of a register for elements of a width: at least two up to 64 bits, as kernels require."""
        return max(2 if bits <= 64 else 1, self.vector_bits // bits)

    @property
    def converts_halves(self) -> bool:
        """Whether an instruction converts a vector of f16 to f32, with subnormal numbers."""
        return self.arch == "aarch64" or "+f16c" in self.features.split(",")

    def has_byte_dot(self, same_sign: bool) -> bool:
        """Whether AArch64 multiplies bytes four at a time (`sdot`). Bytes of different signs need another extension."""
        return self.arch == "aarch64" and ("+dotprod" if same_sign else "+i8mm") in self.features.split(",")

    @property
    def sums_bytes(self) -> bool:
        """Whether an instruction multiplies four bytes in each lane and adds up the products."""
        return self.has_vnni or self.has_byte_dot(same_sign=True)

    @property
    def is_x86(self) -> bool:
        return self.arch == "x86_64"

    @property
    def looks_up_words(self) -> bool:
        """Whether an instruction looks 16 words up in a register, by the lowest four bits of lanes."""
        return self.is_x86 and self.vector_bits == 512

    @property
    def looks_up_bytes(self) -> bool:
        """Whether an instruction looks 64 bytes up in two registers (AVX-512 VBMI)."""
        return self.looks_up_words and "+avx512vbmi" in self.features.split(",")

    @property
    def is_elf(self) -> bool:
        """Whether object files are in ELF format."""
        return self.system in ("linux", "none") and self.arch != "wasm32"

    @property
    def pointer_bits(self) -> int:
        return 32 if self.arch == "wasm32" else 64

    @property
    def threads(self) -> str:
        """Mechanism by which threads wait for each other: `futex`, `pthread`, or `serial` if there are no threads."""
        return {"linux": "futex", "macos": "pthread"}.get(self.system, "serial")
