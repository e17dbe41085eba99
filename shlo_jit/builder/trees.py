"""Trees of values: tuples, lists, dictionaries, dataclasses, named tuples and None, with anything else as leaves.

leaves, tree = flatten({"w": x, "b": [y, None]})      unflatten(tree, leaves)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

Tree = tuple[Any, ...] | None
"""Structure of a tree without its leaves; hashable. A leaf is None."""
NONE: Tree = (type(None), None, ())
DICTIONARIES = (dict, OrderedDict)


def flatten(x: Any) -> tuple[list[Any], Tree]:
    """Returns the leaves of a tree in order, and its structure. Dictionaries are traversed in the order of their
    keys."""
    leaves: list[Any] = []
    return leaves, _flatten(x, leaves)


def _flatten(x: Any, leaves: list[Any]) -> Tree:
    kind = type(x)
    if kind is tuple or kind is list:
        return kind, None, tuple([_flatten(part, leaves) for part in x])
    if kind in DICTIONARIES:
        return kind, tuple(x), tuple([_flatten(part, leaves) for part in x.values()])
    if x is None:
        return NONE
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind, None, tuple([_flatten(part, leaves) for part in x])
    if is_dataclass(x) and not isinstance(x, type):
        names = tuple(f.name for f in fields(x) if f.init)
        return kind, names, tuple([_flatten(getattr(x, name), leaves) for name in names])
    leaves.append(x)
    return None


def flatten_as(tree: Tree, x: Any) -> list[Any] | None:
    """Returns the leaves of a tree of this structure, in its order; None for a tree of another structure.

    Dictionaries may have their keys in another order.
    """
    leaves, found = flatten(x)
    if found == tree:
        return leaves
    if _without_order(found) != _without_order(tree):
        return None
    known = dict(zip(paths(found), leaves, strict=True))
    return [known[path] for path in paths(tree)]


def _without_order(tree: Tree) -> Any:
    """Structure of a tree without the order of its dictionaries' keys."""
    if tree is None:
        return None
    kind, names, children = tree
    parts = tuple(map(_without_order, children))
    return (kind, names, parts) if kind not in DICTIONARIES else (kind, frozenset(zip(names, parts, strict=True)))


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """Returns the tree with these leaves."""
    return _unflatten(tree, iter(leaves))


def _unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree is None:
        return next(leaves)
    kind, names, children = tree
    if kind is type(None):
        return None
    parts = [_unflatten(child, leaves) for child in children]
    if kind is tuple or kind is list:
        return kind(parts)
    if kind in DICTIONARIES:
        return kind(zip(names, parts, strict=True))
    return kind(*parts) if names is None else kind(**dict(zip(names, parts, strict=True)))


def paths(tree: Tree, start: str = "") -> list[str]:
    """Names of the leaves for messages: `['w'][0]`, `.bias`."""
    if tree is None:
        return [start]
    kind, names, children = tree
    found: list[str] = []
    for i, child in enumerate(children):
        if names is None:
            step = f"[{i}]"
        else:
            step = f"[{names[i]!r}]" if kind in DICTIONARIES else f".{names[i]}"
        found += paths(child, start + step)
    return found
