"""Syntax of string literals."""

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""Regular expression of a string literal."""
