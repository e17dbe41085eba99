"""Names of the external symbols that programs refer to, and that are defined when a program is loaded."""

from __future__ import annotations

LAPACK_PREFIX = "shlo_lapack_"
"""Of LAPACK's and BLAS' functions; the rest is the Fortran name without its underscore."""
LAPACK_MISSING = "needs LAPACK, which SciPy provides: pip install scipy"
"""What is said of a program that calls them, where SciPy is not installed."""
