"""Sphinx makes the pages: `python -m sphinx -W --keep-going docs build/docs`, with the extra `docs`.

Pages are Markdown, which MyST reads, so that they can be read in the repository too: links between them are relative
paths. What a reader's browser needs is in the folder that is made; nothing comes over the network.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "scripts")]

from shlo_jit import __version__  # noqa: E402  behind the path

project = "shlo_jit"
author = "the authors of shlo_jit"
copyright = "the authors of shlo_jit, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "markdown_docstrings", "mlir_lexer", "outside_links"]
exclude_patterns = ["scripts", "scaling/*.md"]
master_doc = "index"

myst_heading_anchors = 4
myst_links_external_new_tab = False
smartquotes = False  # `--option` would become a dash in prose
suppress_warnings = ["myst.xref_ambiguous"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"shlo_jit {__version__}"
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style, pygments_dark_style = "friendly", "monokai"
