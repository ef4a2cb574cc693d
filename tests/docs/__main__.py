"""`python -m tests.docs` lists every block of README and docs: place, kind, who runs it or why nobody does."""

from __future__ import annotations

from collections import Counter

from tests.docs.blocks import ALL

if __name__ == "__main__":
    for block in ALL:
        print(
            f"{block.place:50} {block.language:11} {block.kind:9} {block.file or block.test or block.words or ''}"
        )
    print(
        *(f"{kind} {count}" for kind, count in sorted(Counter(block.kind for block in ALL).items())), sep=", "
    )
