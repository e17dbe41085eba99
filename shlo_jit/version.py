"""The package's version, which the installed metadata are made from."""

__version__ = "0.1.0"
