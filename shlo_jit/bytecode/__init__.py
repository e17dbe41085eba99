"""Portable artifacts, VHLO in MLIR bytecode, to `Module` and back. `module.serialize()` works from here on, which
`shlo_jit` imports before anything makes one."""

from shlo_jit.ir.core import Module


def _bytes_of(module: Module, version: str) -> bytes:
    """The artifact of a module; the writer is imported with the first one."""
    from shlo_jit.bytecode.writer import write_artifact

    return write_artifact(module, version)


Module.bytes_of = staticmethod(_bytes_of)
