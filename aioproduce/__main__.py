"""`python -m aioproduce`: the same as the console script `aioproduce`."""

from aioproduce.cli import main

main()
