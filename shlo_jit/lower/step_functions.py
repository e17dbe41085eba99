"""The functions that run steps: the entry, the functions that it calls, and their parts. All others are kernels."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.lower.glue import mark_glue


class StepFunctions:
    """The functions of a module that run steps."""

    def __init__(self, module: ModuleText):
        self.module = module
        self.names: set[str] = set()

    def new(self, name: str, params: list[tuple[str, str]], internal: bool) -> Builder:
        """Returns a builder for a function that runs steps."""
        self.names.add(name)
        # Addresses that a loop swaps point into the arena too.
        return self.module.function(
            name,
            params,
            "i32",
            linkage="internal" if internal else "",
            attributes="nounwind",
            noalias=len(params) == len(abi.PARAMETERS),
        )

    def inline_small_kernels(self) -> None:
        """Marks short kernels for inlining, so that loops over tiny tensors run in registers. Kernels without branches,
        which compute single elements, may be longer: their indices and bounds are then simplified with the counters of
        the loop around them."""
        for name, text in self.module.functions.items():
            is_straight = "\n  br " not in text and "\n  switch " not in text
            most = tuning.INLINE_STRAIGHT_LINES if is_straight else tuning.INLINE_KERNEL_LINES
            if name not in self.names and text.count("\n") <= most and "alwaysinline" not in text:
                self.module.functions[name] = text.replace(" nounwind {", " nounwind alwaysinline {", 1)

    def mark_glue(self) -> None:
        """Marks long functions of steps as glue, which LLVM does not optimize."""
        inlined = {name for name, text in self.module.functions.items() if "alwaysinline" in text}
        for name in self.names:
            self.module.functions[name] = mark_glue(self.module.functions[name], inlined)
