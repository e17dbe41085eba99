"""The package's version, from which the installed metadata are generated."""

__version__ = "0.1.0"
