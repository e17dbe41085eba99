"""Unique names in LLVM text: those of a function's registers and blocks, and those of a module's symbols.

LLVM has one table of names for the parameters, registers and blocks of a function, and one for the functions and
variables of a module. Emitters request a name with a hint and get one that is not in use. A name that is fixed (a
parameter's, a routine's symbol) is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable


class LocalNames:
    """Names of one function. A name is a hint and a number, which is never reused. Hints do not end in digits, so the
    names differ. Numbers that would give a fixed name are skipped."""

    def __init__(self, fixed: Iterable[str]):
        self._fixed: set[str] = set()
        self._hints: set[str] = set()
        self._n = 0
        for name in fixed:
            self.claim(name)

    def new(self, hint: str) -> str:
        if hint not in self._hints:
            assert hint and not hint[-1].isdigit() and "." not in hint, (
                f"expected a hint without dots or a final digit, found {hint!r}"
            )
            self._hints.add(hint)
        self._n += 1
        name = f"{hint}{self._n}"
        while name in self._fixed:
            self._n += 1
            name = f"{hint}{self._n}"
        return name

    def claim(self, name: str) -> str:
        """Claims a name of a form that `new` never returns or, before the first `new`, of any form."""
        assert name not in self._fixed, f"two values of a function are called {name}"
        is_like_new = name[-1].isdigit() and name.isidentifier()
        assert not self._n or not is_like_new, f"{name} may have been given to another value"
        self._fixed.add(name)
        return name


class GlobalNames:
    """Names of one module. A name is a hint, followed by a number if the hint is in use."""

    def __init__(self) -> None:
        self._defined: set[str] = set()
        self._reserved: set[str] = set()
        """Names that `new` returned and that are not defined yet."""
        self._declared: set[str] = set()
        self._next: dict[str, int] = {}
        """Number at which the search for a name begins, by hint."""

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
        """Releases a name that `new` returned for this hint, because its symbol has been dropped."""
        self._defined.remove(name)
        self._next[hint] -= 1

    def define(self, name: str) -> None:
        """Records that a symbol has a definition in this module."""
        self._reserved.discard(name)
        self._defined.add(name)

    def declare(self, name: str) -> None:
        """Records that text refers to a symbol by this name, wherever it is defined."""
        assert name not in self._reserved, f"@{name} is the name of a kernel of this module"
        self._declared.add(name)
