"""How strings are written."""

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""A regular expression."""
