"""Reduction of failing programs to smaller ones that still fail (delta debugging on the IR)."""
