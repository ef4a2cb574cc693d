"""`python -m aioproduce.config` prints every key as the page `docs/reference/configuration.md`.

`python -m aioproduce.config types` prints the module `aioproduce/config/settings.py`.
"""

from __future__ import annotations

import sys

from aioproduce.config.markdown import markdown_page
from aioproduce.config.settings_source import settings_source

if __name__ == "__main__":
    print(settings_source() if sys.argv[1:] == ["types"] else markdown_page(), end="")
