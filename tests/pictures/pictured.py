"""Programs to draw, and parsers of drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import shlo_jit
from shlo_jit import examples
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.pictures.drawing import SVG

T = "tensor<16x64xf32>"
ONE = f"func.func @main(%x: {T}) -> {T} {{ %0 = stablehlo.tanh %x : {T} return %0 : {T} }}"
NOTHING = f"func.func @main(%x: {T}) -> {T} {{ return %x : {T} }}"
CONTROL = """
func.func @main(%x: tensor<16x64xf32>, %n: tensor<i32>, %p: tensor<i1>) -> tensor<16x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%a = %x, %i = %zero) : tensor<16x64xf32>, tensor<i32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %g = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x16xf32>
    %b = stablehlo.dot_general %g, %a, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
    stablehlo.return %b, %j : tensor<16x64xf32>, tensor<i32>
  }
  %1 = "stablehlo.if"(%p) ({
    %s = "stablehlo.sort"(%0#0) ({
    ^bb0(%u: tensor<f32>, %v: tensor<f32>):
      %w = stablehlo.compare LT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %w : tensor<i1>
    }) {dimension = 1 : i64} : (tensor<16x64xf32>) -> tensor<16x64xf32>
    stablehlo.return %s : tensor<16x64xf32>
  }, {
    stablehlo.return %0#0 : tensor<16x64xf32>
  }) : (tensor<i1>) -> tensor<16x64xf32>
  return %1 : tensor<16x64xf32>
}
"""
UNFIT = 'func.func @"<b>&\\01\\22"(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.tanh %x : tensor<4xf32> return %0 : tensor<4xf32> }'
UNKNOWN = "func.func @main(%x: tensor<?x64xf32>) -> tensor<?x64xf32> { %0 = stablehlo.tanh %x : tensor<?x64xf32> return %0 : tensor<?x64xf32> }"


def chain(count: int, inside: bool = False) -> str:
    """A chain of `count` products. `inside`: in the body of a loop."""
    dots = [
        f"%v{i + 1} = stablehlo.dot_general %v{i}, %w, contracting_dims = [1] x [0] : ({T}, tensor<64x64xf32>) -> {T}"
        for i in range(count)
    ]
    body = "\n".join(dots)
    if not inside:
        return f"func.func @main(%v0: {T}, %w: tensor<64x64xf32>) -> {T} {{\n{body}\nreturn %v{count} : {T}\n}}"
    return f"""func.func @main(%x: {T}, %w: tensor<64x64xf32>, %n: tensor<i32>) -> {T} {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %0:2 = stablehlo.while(%v0 = %x, %i = %one) : {T}, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        {body}
        stablehlo.return %v{count}, %j : {T}, tensor<i32>
      }}
      return %0#0 : {T}
    }}"""


def called() -> str:
    """A program that is too large for its calls to be inlined."""
    body = "\n".join(f"%v{i + 1} = stablehlo.cosine %v{i} : {T}" for i in range(100))
    calls = "\n".join(f"%c{i + 1} = func.call @layer(%c{i}) : ({T}) -> {T}" for i in range(100))
    return f"""func.func @main(%c0: {T}) -> {T} {{ {calls} return %c100 : {T} }}
      func.func private @layer(%v0: {T}) -> {T} {{ {body} return %v100 : {T} }}"""


PROGRAMS = {
    "mlp": examples.path("mlp").read_text(),
    "one": ONE,
    "nothing": NOTHING,
    "control": CONTROL,
    "long": chain(1000),
    "long inside": chain(100, inside=True),
    "called": called(),
}


def planned(text: str, entry: str = "main") -> list[PlannedFunction]:
    ((_, functions),) = shlo_jit.compile(text, entry).planned()
    return functions


def read_svg(text: str) -> ET.Element:
    """Parses a picture, and checks that it is well-formed and has no external references."""
    root = ET.fromstring(text)
    assert root.tag == f"{{{SVG}}}svg"
    assert "http" not in text.replace(SVG, "") and "@import" not in text and "url(" not in text
    return root


def of_kind(root: ET.Element, kind: str) -> list[ET.Element]:
    return [e for e in root.iter() if kind in e.get("class", "").split()]


def words(root: ET.Element) -> list[str]:
    """The texts of a drawing, without tooltips."""
    return [e.text or "" for e in root.iter(f"{{{SVG}}}text")]


class Page(HTMLParser):
    """A parsed page: its texts. Checks that elements are nested correctly."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[tuple[str, str]] = []
        self.feed(text)
        assert not self.open
        assert text.startswith("<!DOCTYPE html>") and "http" not in text and "url(" not in text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append((self.open[-1] if self.open else "", data))

    def texts(self, tag: str) -> list[str]:
        return [data for where, data in self.said if where == tag]

    def with_class(self, kind: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if kind in (attrs.get("class") or "").split()]
