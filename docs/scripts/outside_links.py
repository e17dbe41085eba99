"""Links from pages to other files of the repository, such as `../examples/web`: in HTML, their path as text.

In the repository they are links. The published pages have no such folder beside them, so the text names the path. A
path that the repository does not have is a warning, as for any other link.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def place_of(target: str, page: str, pages: set[str]) -> str | None:
    """Path in the repository of a link's target, if it exists and is no page."""
    path = (DOCS / page).parent.joinpath(target.partition("#")[0]).resolve()
    path = path if path.exists() else path.with_suffix(".md")
    is_page = path.is_relative_to(DOCS) and str(path.relative_to(DOCS).with_suffix("")) in pages
    return str(path.relative_to(ROOT)) if path.exists() and path.is_relative_to(ROOT) and not is_page else None


def said(text: str, place: str) -> nodes.inline:
    """The link's text, followed by the path unless the text contains it."""
    shown = nodes.inline("", "", nodes.inline("", text))
    if Path(place).name not in text:
        shown += [nodes.Text(" ("), nodes.literal("", place), nodes.Text(")")]
    else:
        shown.attributes["title"] = place
    return shown


class LinksOutside(SphinxTransform):
    """Runs after MyST has created references (`pending_xref`), and downloads of links to files."""

    default_priority = 999

    def apply(self, **_: object) -> None:
        links = [*self.document.findall(download_reference), *self.document.findall(pending_xref)]
        for link in links:
            place = place_of(link.get("reftarget", ""), self.env.docname, self.env.found_docs)
            if place is not None:
                link.replace_self(said(link.astext(), place))


def setup(app: Sphinx) -> dict[str, object]:
    app.add_transform(LinksOutside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
