"""`python -m aioproduce.metrics` prints every metric as the page `docs/reference/api/metrics.md`."""

from __future__ import annotations

from aioproduce.metrics.markdown import markdown_page

if __name__ == "__main__":
    print(markdown_page(), end="")
