"""What a kernel needs to know of the machine it is written for. A value, never the machine we run on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU to generate code for. Made by `shlo_jit.codegen.target.resolve`."""

    name: str
    """As the user gave it: `native`, or a CPU name of LLVM's."""
    triple: str
    cpu: str
    features: str
    """ISA features as LLVM wants them (`+avx2,+fma`), tuning flags left out."""
    vector_bits: int
    """Width of a vector register: 512, 256 or 128."""
    vector_registers: int
    """32 with AVX-512 and on AArch64, 16 otherwise."""
    has_fma: bool
    has_masks: bool
    """Masked loads and stores of every element width cost about as much as plain ones (AVX-512 BW and VL)."""
    has_mask_registers: bool
    """LLVM may choose AVX-512's masked stores (AVX-512 F)."""
    has_bf16_dot: bool
    """`vdpbf16ps`."""
    has_vnni: bool
    """`vpdpbusd`."""
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What of a target changes code: `native` and the same CPU by its name are one target."""
        return self.triple, self.cpu, self.features, self.vector_bits

    def lanes(self, bits: int) -> int:
        """Lanes of a register for elements of a width."""
        return max(1, self.vector_bits // bits)

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")
