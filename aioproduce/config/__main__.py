"""`python -m aioproduce.config` prints every key as the page `docs/configuration.md`."""

from __future__ import annotations

from aioproduce.config.markdown import markdown_page

if __name__ == "__main__":
    print(markdown_page(), end="")
