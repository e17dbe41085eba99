"""Names in LLVM text, each given once: those of a function's registers and blocks, and those of a module's symbols.

LLVM has one table of names for the parameters, registers and blocks of a function, and one for the functions and
variables of a module. Whoever writes text asks for a name by a hint and gets one that nothing else has; a name that is
fixed (a parameter's, a routine's symbol) is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable


class LocalNames:
    """Names of one function. A name is a hint and a number; the number is another one every time, and hints do not end
    in digits, so names that are given out differ. Fixed ones are left out."""

    def __init__(self, fixed: Iterable[str]):
        self._fixed: set[str] = set()
        self._hints: set[str] = set()
        self._n = 0
        for name in fixed:
            self.claim(name)

    def new(self, hint: str) -> str:
        if hint not in self._hints:
            assert hint and not hint[-1].isdigit() and "." not in hint, f"no hint for a name: {hint!r}"
            self._hints.add(hint)
        self._n += 1
        name = f"{hint}{self._n}"
        while name in self._fixed:
            self._n += 1
            name = f"{hint}{self._n}"
        return name

    def claim(self, name: str) -> str:
        """Take a name of another form than `new` gives, or, before `new` gives any, of any form."""
        assert name not in self._fixed, f"two values of a function are called {name}"
        is_like_new = name[-1].isdigit() and name.isidentifier()
        assert not self._n or not is_like_new, f"{name} may have been given to another value"
        self._fixed.add(name)
        return name


class GlobalNames:
    """Names of one module. A name is a hint, with a number behind it if others have it."""

    def __init__(self) -> None:
        self._defined: set[str] = set()
        self._reserved: set[str] = set()
        """Given out by `new`, and not defined yet."""
        self._declared: set[str] = set()
        self._next: dict[str, int] = {}
        """Hint -> the number with which the search for a name begins."""

    def new(self, hint: str) -> str:
        n = self._next.get(hint, 0)
        while self._is_taken(name := f"{hint}.{n}" if n else hint):
            n += 1
        self._next[hint] = n + 1
        self._reserved.add(name)
        return name

    def _is_taken(self, name: str) -> bool:
        return name in self._defined or name in self._reserved or name in self._declared

    def release(self, hint: str, name: str) -> None:
        """Give a name back that `new` gave for this hint: what it stood for has been dropped."""
        self._defined.remove(name)
        self._next[hint] -= 1

    def define(self, name: str) -> None:
        """Note that a symbol has a definition in this module."""
        self._reserved.discard(name)
        self._defined.add(name)

    def declare(self, name: str) -> None:
        """Note that text refers to a symbol by this name, wherever that is defined."""
        assert name not in self._reserved, f"@{name} is the name of a kernel of this module"
        self._declared.add(name)
