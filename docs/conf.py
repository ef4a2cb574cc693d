"""The documents' site: `make docs` builds it with Sphinx, furo and MyST. Why these: explanation/decisions.md, 77.

Warnings are errors. Sphinx and MyST warn of a link or an anchor that leads nowhere, of a page that no contents list
names, and (`-n`) of a reference in a docstring that names nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_extensions")]

from aioproduce.version import VERSION  # noqa: E402
from tests.interpreted_finder import InterpretedNative  # noqa: E402

# Signatures and annotations of the hot path come from its Python source; a compiled module keeps neither.
sys.meta_path.insert(0, InterpretedNative("aioproduce"))

project = "aioproduce"
author = "The aioproduce authors"
copyright = "the aioproduce authors"
version = release = VERSION
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "repository_links",
    "command_line",
]
exclude_patterns = ["_extensions"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 4

nitpicky = True
# Python's own classes and those of other projects: a build reads no documents of others, so it needs no network.
nitpick_ignore_regex = [
    ("py:.*", r"(?!aioproduce\b).*"),
    # Type variables, and rooms of the package that no user imports.
    ("py:.*", r"aioproduce\.(_native|core|drivers|portable_error|wire|security|producer)\..*"),
    ("py:.*", r"aioproduce\.\w+\.(\w+\.)*_?[A-Z]_?"),
    ("py:class", r"aioproduce\.(\w+\.)+_\w+"),
    ("py:class", r"aioproduce\.spool\.spooled_delivery\.SpooledGroup"),
    ("py:class", r"aioproduce\.(installation\.NativeModule|reporters\.sources\.Measured)"),
    ("py:class", r"aioproduce\.compat\.aiokafka_batches\.BatchBuilder"),
    ("py:class", r"aioproduce\.testing\.fake_cluster\.(state\.TopicState|record_batch\.\w+)"),
]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False
# Fields of a named tuple are members already.
napoleon_use_ivar = True
default_role = "code"

html_theme = "furo"
html_title = f"aioproduce {VERSION}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#7cc0ff", "color-brand-content": "#7cc0ff"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
