"""Attributes of Shardy (its `bytecode.td`), which are texts elsewhere in this package.

Parts of an attribute are texts, too, without the prefix `#sdy.x`:

    axis      `"x"`, `"x":(1)2`        mesh axis  `"x"=2`
    dimension `{"x", "y"}`, `{?}p1`    sub axis   `(1)2`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from shlo_jit.bytecode.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    BYTE,
    OPTIONAL_ATTRIBUTE,
    OPTIONAL_COUNT,
    SIGNED,
    SIGNEDS,
    STRING,
    Field,
    listed,
    of,
)  # fmt: skip
from shlo_jit.bytecode.kinds import Dialect, Kind
from shlo_jit.bytecode.sdy_rules import (
    NAME,
    dimension_text,
    factors_in,
    mapping_parts,
    mapping_text,
    rule_parts,
    rule_text,
)  # fmt: skip
from shlo_jit.ir.attribute_text import string_text, symbol_text
from shlo_jit.ir.attributes import OpaqueAttr, SymbolRef
from shlo_jit.text.lexer import unescape
from shlo_jit.text.strings import STRING as QUOTED

_TOKEN = re.compile(rf'{QUOTED}|[\[\]{{}}()<>,]|[^"\[\]{{}}()<>,]+')
_AXIS = re.compile(rf"({QUOTED})(?::(\(\d{{1,18}}\)\d{{1,18}}))?$")
_SIZED = re.compile(rf"({QUOTED})=(\d{{1,18}})$")
_SUB_AXIS = re.compile(r"\((\d{1,18})\)(\d{1,18})$")
_DIMENSION = re.compile(r"(\{.*\})(?:p(\d{1,9}))?$", re.DOTALL)
_IDS = "device_ids="


def _texts(parts: Iterable[Any]) -> list[str]:
    return [_text(part) for part in parts]


def _text(part: Any) -> str:
    if isinstance(part, SymbolRef):
        return symbol_text(part.name)
    if not isinstance(part, OpaqueAttr):
        raise ValueError("expected an attribute of sdy")
    return part.text


def _bare(part: Any, prefix: str) -> str:
    text = _text(part)
    if not text.startswith(prefix):
        raise ValueError(f"expected {prefix}")
    return text[len(prefix) :]


def inside(text: str, opener: str, closer: str) -> list[str]:
    """Splits the text in brackets at its top-level commas. Raises ValueError."""
    text = text.strip()
    if len(text) < 2 or text[0] != opener or text[-1] != closer:
        raise ValueError(f"expected {opener} and {closer}")
    found, depth, part = [], 0, ""
    for token in _TOKEN.findall(text[1:-1]):
        if token == "," and not depth:
            found.append(part.strip())
            part = ""
            continue
        depth += (token in "[{(<") - (token in ")}]>")
        part += token
    return [*found, part.strip()] if found or part.strip() else []


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.match(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} cannot be parsed")
    return found


def _opaque(texts: Iterable[str]) -> tuple[OpaqueAttr, ...]:
    return tuple(map(OpaqueAttr, texts))


# ---------------------------------------------------------------------- axes and meshes
def _manual_axes(names: tuple[str, ...]) -> str:
    return f"#sdy<manual_axes{{{', '.join(map(string_text, names))}}}>"


def _manual_parts(text: str) -> tuple[Any, ...]:
    names = inside(text.removeprefix("#sdy<manual_axes").removesuffix(">"), "{", "}")
    return (tuple(unescape(name) for name in names),)


def _mesh(axes: tuple[Any, ...], ids: tuple[int, ...]) -> str:
    end = f", {_IDS}[{', '.join(map(str, ids))}]" if ids else ""
    return f"#sdy.mesh<[{', '.join(_texts(axes))}]{end}>"


def _mesh_parts(text: str) -> tuple[Any, ...]:
    axes, *rest = inside(text.removeprefix("#sdy.mesh"), "<", ">")
    ids = inside(rest[0].removeprefix(_IDS), "[", "]") if rest else []
    return _opaque(inside(axes, "[", "]")), tuple(map(int, ids))


def _axis(name: str, sub_axis: Any) -> str:
    return string_text(name) + (f":{_text(sub_axis)}" if sub_axis is not None else "")


def _axis_parts(text: str) -> tuple[Any, ...]:
    found = _match(_AXIS, text)
    return unescape(found[1]), OpaqueAttr(found[2]) if found[2] else None


def _sized_parts(text: str) -> tuple[Any, ...]:
    found = _match(_SIZED, text)
    return unescape(found[1]), int(found[2])


# ---------------------------------------------------------------------- shardings
def _dimension(axes: tuple[Any, ...], closed: int, priority: int | None) -> str:
    parts = [*_texts(axes), *([] if closed else ["?"])]
    return f"{{{', '.join(parts)}}}" + (f"p{priority}" if priority is not None else "")


def _dimension_parts(text: str) -> tuple[Any, ...]:
    found = _match(_DIMENSION, text)
    axes = inside(found[1], "{", "}")
    closed = "?" not in axes
    return _opaque(a for a in axes if a != "?"), int(closed), int(found[2]) if found[2] else None


def _sharding(mesh: Any, dimensions: tuple[Any, ...], *axes: tuple[Any, ...]) -> str:
    parts = [
        _bare(mesh, "#sdy.") if isinstance(mesh, OpaqueAttr) else _text(mesh),
        f"[{', '.join(_texts(dimensions))}]",
    ]
    for word, given in zip(("replicated", "unreduced"), axes, strict=False):
        if given:
            parts.append(f"{word}={{{', '.join(_texts(given))}}}")
    return f"#sdy.sharding<{', '.join(parts)}>"


def _sharding_parts(text: str) -> tuple[Any, ...]:
    mesh, dimensions, *rest = inside(text.removeprefix("#sdy.sharding"), "<", ">")
    named = (
        SymbolRef((unescape(mesh[1:]) if mesh[1:2] == '"' else mesh[1:],))
        if mesh[:1] == "@"
        else OpaqueAttr(f"#sdy.{mesh}")
    )
    axes: dict[str, tuple[OpaqueAttr, ...]] = {"replicated": (), "unreduced": ()}
    for part in rest:
        word, _, given = part.partition("=")
        if word not in axes:
            raise ValueError(f"{word[:40]!r} of a sharding cannot be written")
        axes[word] = _opaque(inside(given, "{", "}"))
    lists = (axes["replicated"], axes["unreduced"]) if axes["unreduced"] else (axes["replicated"],)
    return named, _opaque(inside(dimensions, "[", "]")), *lists


def _per_value(shardings: tuple[Any, ...]) -> str:
    return f"#sdy.sharding_per_value<[{', '.join(_bare(s, '#sdy.sharding') for s in shardings)}]>"


def _per_value_parts(text: str) -> tuple[Any, ...]:
    (listed,) = inside(text.removeprefix("#sdy.sharding_per_value"), "<", ">")
    return (_opaque(f"#sdy.sharding{part}" for part in inside(listed, "[", "]")),)


def _list_parts(text: str) -> tuple[Any, ...]:
    return (_opaque(inside(text.removeprefix("#sdy<axis_ref_list").removesuffix(">"), "{", "}")),)


def _lists_parts(text: str) -> tuple[Any, ...]:
    listed = inside(text.removeprefix("#sdy<list_of_axis_ref_lists").removesuffix(">"), "[", "]")
    return (_opaque(f"#sdy<axis_ref_list{part}>" for part in listed),)


def _kind(
    code: int, name: str, fields: tuple[Field, ...], make: Callable[..., str], parts: Callable[[str], tuple[Any, ...]]
) -> Kind:
    return Kind(code, name, fields, lambda *given: OpaqueAttr(make(*given)), lambda value: parts(value.text))


ATTRIBUTES_OF_SDY = (
    _kind(0, "manual_axes", (listed(of(str)),), _manual_axes, _manual_parts),
    _kind(1, "mesh_axis", (STRING, SIGNED), lambda name, size: f"{string_text(name)}={size}", _sized_parts),
    _kind(2, "mesh", (ATTRIBUTES, SIGNEDS), _mesh, _mesh_parts),
    _kind(
        3, "sub_axis", (SIGNED, SIGNED), lambda before, size: f"({before}){size}",
        lambda text: tuple(map(int, _match(_SUB_AXIS, text).groups())),
    ),
    _kind(4, "axis", (STRING, OPTIONAL_ATTRIBUTE), _axis, _axis_parts),
    _kind(5, "dimension", (ATTRIBUTES, BYTE, OPTIONAL_COUNT), _dimension, _dimension_parts),
    _kind(6, "sharding", (ATTRIBUTE, ATTRIBUTES, ATTRIBUTES), _sharding, _sharding_parts),
    _kind(7, "per_value", (ATTRIBUTES,), _per_value, _per_value_parts),
    _kind(
        8, "rule_dimension", (SIGNEDS,), dimension_text, lambda text: (() if text == "{}" else factors_in(text),),
    ),
    _kind(
        9, "rule_mapping", (ATTRIBUTES,), lambda parts: mapping_text(tuple(_texts(parts))),
        lambda text: (_opaque(mapping_parts(text)),),
    ),
    _kind(
        10, "rule", (SIGNEDS, ATTRIBUTES, ATTRIBUTES, SIGNEDS, SIGNEDS, SIGNEDS, SIGNEDS, BYTE),
        lambda sizes, operands, results, *rest: rule_text(sizes, _texts(operands), _texts(results), *rest), rule_parts,
    ),
    _kind(
        11, "axis_list", (ATTRIBUTES,), lambda axes: f"#sdy<axis_ref_list{{{', '.join(_texts(axes))}}}>", _list_parts
    ),
    _kind(
        12, "axis_lists", (ATTRIBUTES,),
        lambda lists: "#sdy<list_of_axis_ref_lists["
        + ", ".join(_bare(part, "#sdy<axis_ref_list")[:-1] for part in lists) + "]>",
        _lists_parts,
    ),
    _kind(15, "reduced_sharding", (ATTRIBUTE, ATTRIBUTES, ATTRIBUTES, ATTRIBUTES), _sharding, _sharding_parts),
    _kind(16, "per_value_v2", (ATTRIBUTES,), _per_value, _per_value_parts),
)  # fmt: skip

SDY = Dialect("sdy", ATTRIBUTES_OF_SDY, ())

_BEGINNINGS = (
    ("#sdy<manual_axes", "manual_axes"), ("#sdy.mesh<", "mesh"), ("#sdy.sharding_per_value<", "per_value"),
    ("#sdy.sharding<", "sharding"), ("#sdy<axis_ref_list", "axis_list"), ("#sdy<list_of_axis_ref_lists", "axis_lists"),
    (NAME, "rule"), ("[", "rule_mapping"), ("{", "dimension"), ("(", "sub_axis"),
)  # fmt: skip


def name_of_kind(value: Any) -> str:
    """Returns the kind name of an attribute, which follows from its text. Raises ValueError."""
    text = _text(value)
    for beginning, name in _BEGINNINGS:
        if text.startswith(beginning):
            return "reduced_sharding" if name == "sharding" and "unreduced=" in text else name
    if text[:1] == '"':
        return "mesh_axis" if _SIZED.match(text) else "axis"
    if text.isidentifier():
        return "rule_dimension"
    raise ValueError(f"{text[:80]} cannot be written")
