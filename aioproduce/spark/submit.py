"""For spark-submit, which takes a file and no module: `spark-submit submit.py <job> ...`.

The same as `python -m aioproduce.spark <job> ...`. On a cluster the package travels along, by `--py-files` or
`--archives`; `print(aioproduce.spark.submit.__file__)` tells where this file is.

1. Python puts the folder of a script before everything else on the path: modules of this one would stand in for
   others of their names. What is imported instead is the package that this file is part of, where it is.
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
