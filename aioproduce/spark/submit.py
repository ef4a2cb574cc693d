"""For spark-submit, which needs a file instead of a module: `spark-submit submit.py <job> ...`.

The same as `python -m aioproduce.spark <job> ...`. On a cluster the package must be shipped with `--py-files` or
`--archives`; `print(aioproduce.spark.submit.__file__)` prints the path of this file.

1. Python puts a script's folder at the front of the path, where modules of this package would shadow others with
   their names. This module imports the package that contains it instead.
"""

from __future__ import annotations

import sys
from pathlib import Path


def _prepare_path() -> None:
    folder = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != folder]
    root = folder.parents[1]
    if (root / "aioproduce" / "spark" / "submit.py").is_file():
        sys.path.insert(0, str(root))


if __name__ == "__main__":
    _prepare_path()
    from aioproduce.spark.__main__ import main

    sys.exit(main())
