"""Factorizations of matrices as loops of core ops, in place of calls of LAPACK.

Helpers: `lapack_call` reads a call, `matrices` has arithmetic on batches of matrices, and `reflectors`, `eliminations`
and `rotations` have the algorithms."""
