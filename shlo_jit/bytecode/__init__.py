"""Portable artifacts, VHLO in MLIR bytecode, to `Module` and back."""
