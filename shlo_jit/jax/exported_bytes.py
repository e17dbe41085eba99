"""Reads the format of `jax.export.Exported.serialize` without JAX's own reader, which trusts its input.

The fields are those of JAX's `serialization.fbs`. Fields that only other devices need (shardings, meshes), gradients
and effects are not read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.export
import ml_dtypes
import numpy as np

from shlo_jit.bytecode.flatbuffer import Buffer, Table
from shlo_jit.bytecode.stream import Damaged

NESTING_LIMIT = 1000
"""Limit of the nesting of trees: JAX's own functions for these recurse, in machine code too."""
LEAF, NONE, TUPLE, LIST, DICT, CUSTOM = range(6)
"""Kinds of a node."""
FUNCTION_NAME, IN_TREE, IN_AVALS, OUT_TREE, OUT_AVALS, FEW_DEVICES = range(1, 7)
PLATFORMS, MODULE, CALLING_CONVENTION, KEPT_ARGUMENTS = 9, 13, 14, 15
DEVICES, AVALS, IN_NUMBERS, OUT_NUMBERS = 18, 19, 22, 23
"""Fields of the root table; `IN_NUMBERS` and `OUT_NUMBERS` are indices of types in AVALS."""
DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 "
    "bfloat16 int4 uint4 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float0 "
    "float8_e4m3 float8_e3m4 float8_e8m0fnu float4_e2m1fn"
).split()
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
"""Kinds of random keys, whose dtypes have the numbers after DTYPES."""
SHAPED = 0
"""The kind of an abstract value that has a shape."""
DIGITS = 18


class ReadExported(NamedTuple):
    """The fields of a `jax.export.Exported` that running it on one device needs, with the same names."""

    fun_name: str
    platforms: tuple[str, ...]
    nr_devices: int
    in_tree: Any
    in_avals: tuple[Any, ...]
    out_tree: Any
    out_avals: tuple[Any, ...]
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    mlir_module_serialized: bytes


def read_exported(data: bytes) -> ReadExported:
    """Reads an exported program. Raises Damaged with the byte, and ValueError for problems other than damage, such as
    an unregistered node type."""
    root = Buffer(data).root()
    known = [_aval(table) for table in root.tables(AVALS)]
    inputs, outputs = (_avals(root, known, *fields) for fields in ((IN_NUMBERS, IN_AVALS), (OUT_NUMBERS, OUT_AVALS)))
    kept = root.numbers(KEPT_ARGUMENTS, "H")
    if any(a >= b for a, b in itertools.pairwise((*kept, len(inputs)))):
        raise Damaged(f"expected increasing indices of the {len(inputs)} arguments, got {kept}", root.at)
    module = root.bytes(MODULE)
    if module is None:
        raise Damaged("there is no program", root.at)
    return ReadExported(
        fun_name=root.text(FUNCTION_NAME) or "the function",
        platforms=tuple(root.texts(PLATFORMS)),
        nr_devices=root.number(DEVICES, "<I") or root.number(FEW_DEVICES, "<h"),
        in_tree=_tree(root.need(IN_TREE, "the tree of arguments"), inputs),
        in_avals=inputs,
        out_tree=_tree(root.need(OUT_TREE, "the tree of results"), outputs),
        out_avals=outputs,
        calling_convention_version=_calling_convention(root),
        module_kept_var_idx=kept,
        mlir_module_serialized=module,
    )


def _calling_convention(root: Table) -> int:
    version = root.number(CALLING_CONVENTION, "<H")
    first = jax.export.minimum_supported_calling_convention_version
    last = jax.export.maximum_supported_calling_convention_version
    if not first <= version <= last:
        raise Damaged(f"the calling convention has version {version}; {first} to {last} are known", root.at)
    return version


# ---------------------------------------------------------------------- types
def _avals(root: Table, known: list[Any], numbers: int, written: int) -> tuple[Any, ...]:
    """Returns the types of arguments or results: indices of known types or, in older files, the types themselves."""
    chosen = root.numbers(numbers, "I")
    if any(i >= len(known) for i in chosen):
        raise Damaged(f"expected an index below {len(known)}, the number of types, got {max(chosen)}", root.at)
    return tuple(known[i] for i in chosen) if chosen else tuple(map(_aval, root.tables(written)))


def _aval(table: Table) -> Any:
    kind = table.number(0, "<b")
    if kind != SHAPED:
        raise Damaged(f"unknown kind of type {kind}", table.at)
    return jax.core.ShapedArray(tuple(map(_extent, table.texts(1))), _dtype(table.number(2, "<b"), table.at))


def _extent(text: str) -> int:
    """Returns a dimension; 0 for an expression of symbols, whose size only the program knows."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else 0


def _dtype(number: int, at: int) -> Any:
    if not 0 <= number < len(DTYPES) + len(KEYS):
        raise Damaged(f"unknown dtype {number}", at)
    if number >= len(DTYPES):
        return _key_dtype(KEYS[number - len(DTYPES)])
    name = DTYPES[number]
    if name == "float0":
        return jax.dtypes.float0
    return np.dtype(getattr(ml_dtypes, name, name))


@functools.cache
def _key_dtype(implementation: str) -> Any:
    return jax.eval_shape(functools.partial(jax.random.key, 0, impl=implementation)).dtype


# ---------------------------------------------------------------------- trees
def _tree(table: Table, leaves: tuple[Any, ...]) -> Any:
    """Returns the structure of a tree that has these leaves. Containers of users may inspect the leaves."""
    left = iter(leaves)
    found = jax.tree.structure(_node(table, left, 0))
    if next(left, None) is not None or found.num_leaves != len(leaves):
        raise Damaged(f"a tree has {found.num_leaves} leaves, and there are {len(leaves)} values", table.at)
    return found


def _node(table: Table, leaves: Iterator[Any], depth: int) -> Any:
    if depth > NESTING_LIMIT:
        raise Damaged(f"a tree is nested more than {NESTING_LIMIT} deep", table.at)
    kind = table.number(0, "<b")
    children = [_node(child, leaves, depth + 1) for child in table.tables(1)]
    if kind in (LEAF, NONE) and children:
        raise Damaged("a leaf or None has children", table.at)
    if kind == LEAF:
        try:
            return next(leaves)
        except StopIteration:
            raise Damaged("a tree has more leaves than there are values", table.at) from None
    if kind == DICT:
        keys = table.texts(2)
        if len({*keys}) != len(children) or len(keys) != len(children):
            raise Damaged(f"a dictionary has {len(keys)} keys for {len(children)} values", table.at)
        return dict(zip(keys, children, strict=True))
    if kind == CUSTOM:
        return _custom(table, children)
    make: dict[int, Callable[[list[Any]], Any]] = {NONE: lambda _: None, TUPLE: tuple, LIST: list}
    if kind not in make:
        raise Damaged(f"unknown kind of tree node {kind}", table.at)
    return make[kind](children)


def _custom(table: Table, children: list[Any]) -> Any:
    """Returns a container that is registered with `jax.export`."""
    from jax._src.export import _export

    name = table.text(3)
    if name is None:
        raise Damaged("a type of a tree has no name", table.at)
    if name not in _export.deserialization_registry:
        raise ValueError(
            f"the type {name!r} of a tree is not registered (jax.export.register_pytree_node_serialization)"
        )
    _, read, make = _export.deserialization_registry[name]
    try:
        return make(read(table.bytes(4) or b""), children)
    except Exception as error:  # the functions are the user's
        raise ValueError(f"the type {name!r} of a tree cannot be constructed: {error}") from error
