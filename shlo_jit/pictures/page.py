"""HTML pages around pictures, built of elements too: one file without external references."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from shlo_jit.pictures.drawing import FONT, clean, style

_RULES = """
body { margin: 0 auto; padding: 20px; max-width: 1500px; background: var(--page); color: var(--ink);
  font: 14px/1.45 %s; }
h1 { font-size: 19px; margin: 0 0 2px; overflow-wrap: anywhere; } h2 { font-size: 15px; margin: 22px 0 8px; }
p { margin: 4px 0 12px; color: var(--dim); }
details { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; background: var(--page); }
summary { padding: 7px 12px; cursor: pointer; background: var(--card); border-radius: 8px; }
summary span { color: var(--dim); margin-left: 10px; }
.scroll { overflow-x: auto; padding: 6px; }
.scroll svg { display: block; max-width: 100%%; height: auto; }
.fit { overflow-x: auto; max-width: 100%%; }
.fit svg { display: block; max-width: 100%%; height: auto; }
.wide svg { min-width: 760px; }
.beside { display: flex; flex-wrap: wrap; gap: 24px; align-items: flex-start; }
table { border-collapse: collapse; font-size: 12.5px; }
th, td { padding: 3px 9px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; position: sticky; top: 0; background: var(--page); }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; }
.words td:last-child, .words th:last-child { text-align: left; white-space: normal; min-width: 130px; }
.words td, .words th { padding: 3px 6px; }
.rows { overflow: auto; max-height: 640px; max-width: 100%%; }
.beside .fit { flex: 1 1 420px; max-width: 620px; } .beside .rows { flex: 2 1 620px; min-width: 0; }
@media (max-width: 560px) { .beside .fit { flex-basis: 100%%; } .beside .fit .s11 { font-size: 14px; } }
.graph { gap: 12px; } .graph .scroll { flex: 0 1 auto; min-width: 0; max-width: 100%%; }
.graph .scroll svg { min-width: 0; } .graph .rows { flex: 1 1 320px; max-height: none; padding: 8px; }
tr.lit td, tr:target td { background: var(--heat2); }
.strip { display: flex; height: 26px; margin: 10px 0; border-radius: 5px; overflow: hidden; }
.strip a { flex: 1 1 0; min-width: 0; }
.legend span { display: inline-block; margin-right: 14px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 5px;
  border: 1px solid var(--line); }
"""


def element(
    tag: str, kind: str = "", text: str = "", children: Iterable[ET.Element] = (), **attributes: str
) -> ET.Element:
    given = {"class": kind, **attributes}
    made = ET.Element(tag, {name: clean(value) for name, value in given.items() if value})
    made.text = clean(text) or None
    made.extend(children)
    return made


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    ids: Sequence[str] = (),
    tips: Sequence[str] = (),
    kind: str = "",
) -> ET.Element:
    """A table of texts. `ids`: of its rows; `tips`: their tooltips; `kind`: `words` if the last column has multi-line
    text."""
    made = element("table", kind)
    made.append(element("thead", children=[element("tr", children=[element("th", text=head) for head in heads])]))
    body = element("tbody")
    for number, row in enumerate(rows):
        cells = [element("td", text=cell) for cell in row]
        marks = {"id": ids[number] if ids else "", "title": tips[number] if tips else ""}
        body.append(element("tr", children=cells, **marks))
    made.append(body)
    return made


def page(title: str, about: str, body: Iterable[ET.Element], script: str = "") -> str:
    """The text of a page. Without scripts everything but highlights is visible."""
    head = element("head", children=[
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", text=title),
        element("style", text=style() + _RULES % FONT),
    ])  # fmt: skip
    said = [element("h1", text=title), element("p", text=about)]
    scripts = [element("script", text=f'{script}document.body.dataset.script = "ran";\n')] if script else []
    html = element("html", children=[head, element("body", children=[*said, *body, *scripts])], lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"
