"""Text to `Module` and back. `str(module)` works from here on, which `shlo_jit` imports before anything makes one."""

from shlo_jit.ir.core import Module


def _text_of(module: Module) -> str:
    """The text of a module; the printer is imported with the first one that is printed."""
    from shlo_jit.text.printer import print_module

    return print_module(module)


Module.text_of = staticmethod(_text_of)
