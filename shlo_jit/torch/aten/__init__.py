"""Records of ATen's operators: each is a function that writes the operator with the builder.

A record is registered under the names of its overloads (`registry.py`) and receives a `Call` and the operator's
arguments: values of the program, numbers, element types, lists. It raises `Unsupported` for what it does not take.
`load()` imports all files.
"""

from importlib import import_module

from shlo_jit.torch.aten.registry import RECORDS, Call, Record, Unsupported

SUBJECTS = (
    "elementwise", "arithmetic", "comparisons", "activations", "creation", "views", "reductions", "products",
    "convolutions", "pooling", "adaptive_pooling", "normalization", "softmax", "indexing", "scatters", "sorting",
    "scans", "attention", "random", "linalg", "factorizations", "fourier", "special", "bessel",
    "orthogonal_polynomials", "probability", "complex_numbers", "windows", "embeddings", "histograms", "upsampling",
    "sizes", "regions", "grids", "matrix_functions",
)  # fmt: skip
"""Files of this package that have records."""


def load() -> dict[str, Record]:
    """Returns all records, by the name of the overload."""
    for subject in SUBJECTS:
        import_module(f"{__name__}.{subject}")
    return RECORDS


__all__ = ["RECORDS", "SUBJECTS", "Call", "Record", "Unsupported", "load"]
