"""Names of external symbols that programs refer to; they are defined when a program is loaded."""

from __future__ import annotations

LAPACK_PREFIX = "shlo_lapack_"
"""Prefix of the symbols of LAPACK and BLAS functions; the rest is the Fortran name without its underscore."""
LAPACK_MISSING = "needs LAPACK, which SciPy provides: pip install scipy"
"""Reason printed for a program that calls them if SciPy is not installed."""
