"""What a Python that Spark's JVMs start does first, so that it starts in a third of the time.

1. It takes PySpark from the environment and not from a zip. Spark puts its `pyspark.zip` before everything else on
   its workers' path. There is no compiled code in it, so each worker's daemon compiles PySpark again, for more than
   a second, and there are four of them behind the first write of a session. The environment has the same PySpark,
   compiled: the jars come from there too.
2. A worker does without Hypothesis, as a user's does. kio imports it where it is installed, for half a second.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]

if "pyspark.daemon" in sys.orig_argv:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # by which an import fails
