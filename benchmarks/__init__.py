"""The measurements that the README quotes; `python -m benchmarks` runs them all and prints a table."""
