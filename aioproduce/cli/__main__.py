"""`python -m aioproduce.cli`: the same as the console script `aioproduce`."""

from aioproduce.cli import main

main()
