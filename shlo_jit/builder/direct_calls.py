"""Calls of a function under `jit`, generated as Python code for one kind of arguments: a tree with certain arrays.

    def call(*args, **named):
        if not named and len(args) == 2 and type(t1 := args[1]) is k0 and (*t1,) == k1:
            found = run(args[0], t1[k2], t1[k3])
            if found is not other:
                return {k4: found}
        return otherwise(*args, **named)

Names with a k are constants. `run` is the executable, whose machine code checks the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shlo_jit.builder.locations import PACKAGE
from shlo_jit.builder.trees import DICTIONARIES, NONE, Tree

Call = Callable[..., Any]
OTHER = object()
"""Result of `run` for arrays that do not match the program."""


def result_maker(results: Tree, leaves: int) -> Call:
    """Returns a function that builds the tree of results from the executable's return value with `leaves` results."""
    source = _Source()
    return source.function(f"lambda found: {source.tree(results, leaves)}")


def direct_call(
    executable: Any, arguments: Tree, static: Mapping[int, Any], results: Tree, leaves: int, otherwise: Call
) -> Call:
    """Generates a call.

    `arguments`: the tuple of the positional arguments that are not `static`, and the dictionary of those by name.
    Static arguments are positional and are compared by identity. `otherwise` takes arguments of other kinds, and all
    arguments of an executable that has no direct call from Python to machine code.
    """
    if not hasattr(executable, "before"):
        return otherwise
    assert arguments is not None
    _, _, ((_, _, children), named) = arguments
    are_arrays = not named[2] and all(child is None for child in children)
    if are_arrays and not static and _is_as_returned(results, leaves):
        return executable.before(otherwise)
    source = _Source(run=executable.before(lambda *_: OTHER), other=OTHER, otherwise=otherwise)
    rest = iter(children)
    conditions, arrays = [f"len(args) == {len(static) + len(children)}"], []
    for i in range(len(static) + len(children)):
        if i in static:
            conditions.append(f"args[{i}] is {source.constant(static[i])}")
        else:
            source.take(next(rest), f"args[{i}]", conditions, arrays)
    if named[2]:
        source.take(named, "named", conditions, arrays)
    else:
        conditions.insert(0, "not named")
    lines = [
        "def call(*args, **named):",
        f"    if {' and '.join(conditions)}:",
        f"        found = run({', '.join(arrays)})",
        "        if found is not other:",
        f"            return {source.tree(results, leaves)}",
        "    return otherwise(*args, **named)",
    ]
    return source.function("call", "\n".join(lines))


def _is_as_returned(results: Tree, leaves: int) -> bool:
    """Whether an executable returns the tree unchanged: an array, or a tuple of several."""
    return results is None or (results == (tuple, None, (None,) * leaves) and leaves > 1)


class _Source:
    """Generated Python code and the constants that it refers to."""

    def __init__(self, **names: Any) -> None:
        self._names = names

    def constant(self, value: Any) -> str:
        """Returns a name for a constant."""
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, expression: str, statements: str = "") -> Call:
        """Compiles an expression after statements and returns its value. Its frames count as this package's in
        locations."""
        name = f"{PACKAGE}<direct call>"
        exec(compile(statements, name, "exec"), self._names)
        return eval(compile(expression, name, "eval"), self._names)

    def take(self, tree: Tree, place: str, conditions: list[str], arrays: list[str]) -> None:
        """Appends the conditions for a place to hold such a tree, and the places of its leaves."""
        if tree is None:
            arrays.append(place)
            return
        if tree == NONE:
            conditions.append(f"{place} is None")
            return
        kind, names, children = tree
        x = f"t{len(conditions)}"
        conditions.append(f"type({x} := {place}) is {self.constant(kind)}")
        if names is None:
            conditions.append(f"len({x}) == {len(children)}")
            places = [f"{x}[{i}]" for i in range(len(children))]
        elif kind in DICTIONARIES:
            conditions.append(f"(*{x},) == {self.constant(names)}")
            places = [f"{x}[{self.constant(key)}]" for key in names]
        else:
            places = [f"{x}.{field}" for field in names]
        for child, part in zip(children, places, strict=True):
            self.take(child, part, conditions, arrays)

    def tree(self, tree: Tree, leaves: int) -> str:
        """Expression that builds the result tree from `found`, the executable's return value."""
        if _is_as_returned(tree, leaves):
            return "found"
        return self._made(tree, iter(["found"] if leaves == 1 else [f"found[{i}]" for i in range(leaves)]))

    def _made(self, tree: Tree, leaves: Iterator[str]) -> str:
        if tree is None:
            return next(leaves)
        if tree == NONE:
            return "None"
        kind, names, children = tree
        parts = [self._made(child, leaves) for child in children]
        if kind is list:
            return f"[{', '.join(parts)}]"
        if names is None:
            whole = f"({''.join(part + ', ' for part in parts)})"
            return whole if kind is tuple else f"{self.constant(kind)}(*{whole})"
        if kind in DICTIONARIES:
            pairs = ", ".join(f"{self.constant(key)}: {part}" for key, part in zip(names, parts, strict=True))
            return f"{{{pairs}}}" if kind is dict else f"{self.constant(kind)}({{{pairs}}})"
        return f"{self.constant(kind)}({', '.join(f'{n}={part}' for n, part in zip(names, parts, strict=True))})"
