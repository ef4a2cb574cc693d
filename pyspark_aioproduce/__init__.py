"""Spark registers what a package named `pyspark_*` calls `DefaultSource` by itself at its first use."""
