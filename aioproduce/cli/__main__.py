"""The console script `aioproduce`, as `python -m aioproduce.cli`."""

from aioproduce.cli import main

main()
