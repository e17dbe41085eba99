"""Parses shardings of the Shardy dialect, whose attributes the parser keeps as texts.

mesh        ::= `<` `[` (string `=` integer (`,` ...)*)? `]` (`,` `device_ids` `=` `[` integers `]`)? `>`
shardings   ::= `[` (sharding (`,` sharding)*)? `]`
sharding    ::= `<` (symbol | `mesh` mesh) `,` `[` (dimension (`,` dimension)*)? `]`
                (`,` (`replicated` | `unreduced`) `=` axes)* `>`
dimension   ::= `{` (axis (`,` axis)*)? (`,`? `?`)? `}` (`p` integer)?
axes        ::= `{` (axis (`,` axis)*)? `}`
axis        ::= string (`:` `(` integer `)` integer)?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NoReturn

from shlo_jit.distributed.sharding_text import Reader
from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid with named axes, the first of which is major."""

    axes: Mapping[str, int]
    """Sizes by name, in order."""
    device_ids: tuple[int, ...] = ()
    """Device numbers, row by row; empty if they are in order."""

    @property
    def size(self) -> int:
        return prod(self.axes.values())

    def __hash__(self) -> int:
        return hash((*self.axes.items(), self.device_ids))


@dataclass(frozen=True)
class Axis:
    """An axis of a mesh, or a sub-axis: the axis is split into `pre_size` parts, and each of these into `size`."""

    name: str
    pre_size: int = 1
    size: int | None = None
    """Size of the sub-axis; None for the whole axis."""


@dataclass(frozen=True)
class Sharding:
    """Sharding of one value: the axes along which each dimension is split. The first axis is major."""

    mesh: Mesh
    dimensions: tuple[tuple[Axis, ...], ...]
    unreduced: tuple[Axis, ...] = ()
    """Axes along which the devices have summands of the value."""
    open: frozenset[int] = frozenset()
    """Dimensions that may be split along more axes."""


def mesh_of(op: Op) -> Mesh:
    """Returns the mesh that an `sdy.mesh` defines. Raises ParseError, VerifyError."""
    r = Reader(op, _text(op, "mesh", "#sdy.mesh", ""))
    found = _mesh(r)
    r.done()
    return found


def shardings_of(op: Op, attribute: str, meshes: Mapping[str, Op]) -> list[Sharding]:
    """Returns the shardings in a list attribute of an op, `in_shardings` or `out_shardings`. `meshes` has the
    `sdy.mesh` ops by name. Raises ParseError, VerifyError."""
    r = Reader(op, _text(op, attribute, "#sdy.sharding_per_value<", ">"))
    found: list[Sharding] = []
    r.expect("[")
    while not r.accept("]"):
        found.append(_sharding(r, meshes))
        if r.token != "]":
            r.expect(",")
    r.done()
    return found


def sharding_of(op: Op, value: object, meshes: Mapping[str, Op]) -> Sharding:
    """Returns the sharding of one value, in the form of function arguments and results: `#sdy.sharding<...>`. Raises
    ParseError, VerifyError at `op`."""
    r = Reader(op, _inside(op, "sdy.sharding", value, "#sdy.sharding", ""))
    found = _sharding(r, meshes)
    r.done()
    return found


def manual_axes(op: Op) -> tuple[str, ...]:
    """Returns the axes along which an op's body is written for parts. Raises ParseError."""
    r = Reader(op, _text(op, "manual_axes", "#sdy<manual_axes", ">"))
    found: list[str] = []
    r.expect("{")
    while not r.accept("}"):
        found.append(r.string())
        if r.token != "}":
            r.expect(",")
    r.done()
    return tuple(found)


def _text(op: Op, attribute: str, prefix: str, suffix: str) -> str:
    """Returns the text between the prefix and the suffix of an attribute."""
    return _inside(op, attribute, op.attributes.get(attribute), prefix, suffix)


def _inside(op: Op, attribute: str, value: object, prefix: str, suffix: str) -> str:
    text = value.text if isinstance(value, OpaqueAttr) else ""
    if not (text.startswith(prefix) and text.endswith(suffix)):
        got = "none" if value is None else f"{text or value}"
        what = f"{op.name}: expected attribute {attribute} = {prefix}...{suffix}, got {got}"
        raise VerifyError(diagnose(what, op.span, op=op.name, label="attribute"))
    return text[len(prefix) : len(text) - len(suffix)]


def _mesh(r: Reader) -> Mesh:
    """Parses mesh."""
    axes: dict[str, int] = {}
    ids: tuple[int, ...] = ()
    r.expect("<")
    r.expect("[")
    while not r.accept("]"):
        name = r.string()
        r.expect("=")
        size = r.integer()
        if name in axes or size < 1:
            refuse(r.op, f"axis {name!r} of the mesh " + ("has no devices" if size < 1 else "is there twice"))
        axes[name] = size
        if r.token != "]":
            r.expect(",")
    if r.accept(","):
        for token in ("device_ids", "=", "["):
            r.expect(token)
        ids = r.integers("]")
        size = prod(axes.values())
        if axes and (len(ids) != size or sorted(ids) != list(range(size))):
            refuse(r.op, f"device_ids should name each of the mesh's {size} devices once")
    r.expect(">")
    return Mesh(axes, ids)


def _sharding(r: Reader, meshes: Mapping[str, Op]) -> Sharding:
    """Parses sharding."""
    r.expect("<")
    if r.accept("mesh"):
        mesh = _mesh(r)
    else:
        name = r.symbol()
        if name not in meshes:
            refuse(r.op, f"there is no mesh @{name}; the program has {', '.join('@' + m for m in meshes) or 'none'}")
        mesh = mesh_of(meshes[name])
    r.expect(",")
    r.expect("[")
    dimensions: list[tuple[Axis, ...]] = []
    is_open: set[int] = set()
    while not r.accept("]"):
        cut, may_be_more = _dimension(r)
        if may_be_more:
            is_open.add(len(dimensions))
        dimensions.append(cut)
        if r.token != "]":
            r.expect(",")
    axes: dict[str, tuple[Axis, ...]] = {"replicated": (), "unreduced": ()}
    while r.accept(","):
        if r.token not in axes:
            r.fail("'replicated' or 'unreduced'")
        word = r.next()
        r.expect("=")
        axes[word], _ = _axes(r)
    r.expect(">")
    found = Sharding(mesh, tuple(dimensions), axes["unreduced"], frozenset(is_open))
    for axis in (*(a for d in dimensions for a in d), *axes["replicated"], *axes["unreduced"]):
        _check_axis(r.op, mesh, axis)
    return found


def _dimension(r: Reader) -> tuple[tuple[Axis, ...], bool]:
    """Parses dimension. Its priority is a hint for sharding propagation, and ignored."""
    found = _axes(r)
    if r.kind == "word" and r.token[:1] == "p" and r.token[1:].isdecimal():
        r.next()
    return found


def _axes(r: Reader) -> tuple[tuple[Axis, ...], bool]:
    """Parses axes, also those of a dimension, and whether more may follow."""
    found: list[Axis] = []
    r.expect("{")
    while not r.accept("}"):
        if r.accept("?"):
            r.expect("}")
            return tuple(found), True
        found.append(_axis(r))
        if r.token != "}":
            r.expect(",")
    return tuple(found), False


def _axis(r: Reader) -> Axis:
    """Parses axis."""
    name = r.string()
    if not r.accept(":"):
        return Axis(name)
    r.expect("(")
    pre_size = r.integer()
    r.expect(")")
    return Axis(name, pre_size, r.integer())


def _check_axis(op: Op, mesh: Mesh, axis: Axis) -> None:
    if axis.name not in mesh.axes:
        known = ", ".join(map(repr, mesh.axes)) or "none"
        refuse(op, f"there is no axis {axis.name!r} in the mesh, whose axes are {known}")
    size = mesh.axes[axis.name]
    cut = axis.pre_size * (1 if axis.size is None else axis.size)
    if cut < 1 or size % cut:
        refuse(op, f"axis {axis.name!r} of size {size} cannot be cut into {axis.pre_size} x {axis.size}")


def refuse(op: Op, what: str) -> NoReturn:
    """Raises VerifyError at an op whose sharding is inconsistent."""
    raise VerifyError(diagnose(f"{op.name}: {what}", op.span, op=op.name, label="sharding"))
