"""Values that users pass as the code of a custom call. Nothing here imports Numba or LLVM."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


class CustomCode:
    """Code that is compiled into programs. Two equal values produce the same code."""

    is_elementwise = False

    @property
    def digest(self) -> str:
        """Identity of the code in the object cache; empty if it has none."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the function and its location, for people: `wave (model.py:12)`."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CustomCode) or type(other) is not type(self):
            return NotImplemented
        return self is other or (self.digest == other.digest != "")

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.digest}>"


class _PythonCode(CustomCode):
    """A function that Numba compiles."""

    what = ""

    def __init__(self, function: Any) -> None:
        self.function = _python_function(function, self.what)
        self.made: dict[Any, Any] = {}
        """Compiled results, by types."""

    @property
    def digest(self) -> str:
        from shlo_jit.custom.identity import identity_of

        identity = identity_of(self.function)
        return "" if identity is None else hashlib.sha256(f"{self.what} {identity}".encode()).hexdigest()

    @property
    def name(self) -> str:
        code = self.function.__code__
        return f"{self.function.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"


class Elementwise(_PythonCode):
    """A function of scalars, applied to every element: `f(a, b)` returns a scalar or a tuple of scalars. It may be a
    function that `numba.njit` or `numba.vectorize` accepts or returns."""

    what = "elementwise"
    is_elementwise = True


class ArrayFunction(_PythonCode):
    """A function of arrays: `f(x, y, out)` writes to its last parameters, or `f(x, y)` returns arrays. It may be a
    function that `numba.njit` accepts or returns."""

    what = "array_function"


class LLVMFunction(CustomCode):
    """A function in LLVM's language: text, or the bytes of bitcode, and the name of the function in it.

    It has the signature of C custom calls, `void f(ptr operands, ptr results)` or `i32 f(ptr operands, ptr results)`.
    If it is `elementwise`, it takes scalars instead: `double f(double, i32)`. Several results are a structure.
    """

    def __init__(self, source: str | bytes, symbol: str, *, elementwise: bool = False) -> None:
        if not isinstance(source, str | bytes):
            raise TypeError(f"LLVMFunction: expected LLVM text or the bytes of bitcode, got {type(source).__name__}")
        if not isinstance(symbol, str) or not symbol:
            raise TypeError(f"LLVMFunction: expected the name of a function, got {symbol!r}")
        if not isinstance(elementwise, bool):
            raise TypeError(f"LLVMFunction: elementwise: expected True or False, got {elementwise!r}")
        self.source = source
        self.symbol = symbol
        self.is_elementwise = elementwise
        data = source.encode(errors="surrogatepass") if isinstance(source, str) else source
        identity = b"%d %d %s %s" % (elementwise, isinstance(source, str), symbol.encode(), data)
        self._digest = hashlib.sha256(identity).hexdigest()

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def name(self) -> str:
        return f"@{self.symbol} (LLVM)"


def elementwise(function: Any) -> Elementwise:
    """Returns the code of a custom call that applies a Numba function of scalars to every element; see `Elementwise`.
    Also a decorator. Raises TypeError if `function` is not a Python function."""
    return Elementwise(function)


def array_function(function: Any) -> ArrayFunction:
    """Returns the code of a custom call that passes its arrays to a Numba function; see `ArrayFunction`. Also a
    decorator. Raises TypeError if `function` is not a Python function."""
    return ArrayFunction(function)


def as_code(target: Any) -> CustomCode | None:
    """Returns the code that the target of a custom call is, or None. Results of `numba.vectorize` are recognized as
    elementwise."""
    if isinstance(target, CustomCode):
        return target
    if type(target).__name__ == "DUFunc" and type(target).__module__.startswith("numba."):
        return Elementwise(target)
    return None


def _python_function(given: Any, what: str) -> Any:
    """Returns the Python function inside the result of one of Numba's decorators, or a plain function itself."""
    given = getattr(given, "_dispatcher", given)  # the result of numba.vectorize
    function = getattr(given, "py_func", given)
    if not hasattr(function, "__code__") or not hasattr(function, "__globals__"):
        raise TypeError(f"{what}: expected a Python function or the result of numba.njit, got {given!r}")
    return function
