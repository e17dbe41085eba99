"""Loop nests that know extents, strides and element types, and no StableHLO (installed as `shlo_jit.kernels`)."""
