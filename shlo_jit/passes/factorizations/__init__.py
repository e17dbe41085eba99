"""Factorizations of matrices as loops of core ops, in place of calls of LAPACK."""
