"""Which tests reach which code: probes in the package's own functions, read after each test.

`probes` puts them in, `recorder` is the pytest plugin that reads them, `python -m tests.reach` makes the map of
source files and test files that `make quick` chooses by. `tests.mutation` reads the finer record.

Record, then make the map:

    AIOPRODUCE_REACH=build/reach python -m pytest -p tests.reach.recorder
    python -m tests.reach build/reach
"""
