"""Reader and writer of portable artifacts: VHLO in MLIR bytecode."""
