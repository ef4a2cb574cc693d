"""For spark-submit, which takes a file and no module: `spark-submit submit.py <job> ...`.

The same as `python -m aioproduce.spark <job> ...`. On a cluster the package travels along, by `--py-files` or
`--archives`; `print(aioproduce.spark.submit.__file__)` tells where this file is.
"""

from __future__ import annotations

import sys

from aioproduce.spark.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
