"""Links from a page to what is not a page: files and folders of the repository outside of `docs/`.

Where `pyproject.toml` names the repository's address, they lead there. Without one a file is offered as a download,
and a folder is only named. A link to what does not exist is left to MyST, which warns.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def repository_url() -> str | None:
    """The address of the repository, which `pyproject.toml` names as `Repository`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    url: str | None = project.get("urls", {}).get("Repository")
    return url


class RepositoryLinks(SphinxTransform):
    """Replaces each such link, before MyST resolves the others."""

    default_priority = 5

    def apply(self, **_options: Any) -> None:
        """Replace those of one page."""
        url = repository_url()
        page = Path(self.env.doc2path(self.env.docname))
        for link in list(self.document.findall(_is_link)):
            target = _target(page, link)
            if target is None:
                continue
            name = target.relative_to(ROOT).as_posix()
            if url is not None:
                kind = "tree" if target.is_dir() else "blob"
                link.replace_self(nodes.reference("", "", *link.children, refuri=f"{url}/{kind}/main/{name}"))
            elif target.is_dir():
                link.replace_self(nodes.inline("", "", *link.children))
            elif not isinstance(link, addnodes.download_reference):
                download = addnodes.download_reference(
                    "", "", *link.children, refdoc=self.env.docname, reftarget=f"/../{name}", refwarn=True
                )
                link.replace_self(download)


def _is_link(node: nodes.Node) -> bool:
    return isinstance(node, addnodes.pending_xref | addnodes.download_reference)


def _target(page: Path, link: Any) -> Path | None:
    """The file or folder outside of `docs/` that the link names, or None where it is another link."""
    if link.get("refdomain") == "doc":
        target = (DOCS / f"{link['reftarget']}.md").resolve()
    else:
        target = (page.parent / link["reftarget"]).resolve()
    outside = target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
    return target if outside and target.exists() else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_transform(RepositoryLinks)
    return {"version": "1", "parallel_read_safe": True}
