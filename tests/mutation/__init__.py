"""Mutation testing: change one thing in the producer, and see whether a test fails.

`python -m tests.mutation` samples mutants of the core, the drivers and the producer and runs the tests that reach
each of them. `survivors.toml` lists those that survive, with the reason why they may.

| file | what it does |
|---|---|
| `targets.py` | which modules are mutated |
| `operators.py` | what can be changed: a table of operators over the syntax tree |
| `mutants.py` | finds all mutants of a module, names them, draws the sample |
| `swap.py` | puts a mutant's code into the functions that are there |
| `session.py` | one pytest session: collects once, records what each test reaches, runs tests in forked children |
| `choose.py` | which tests are run against a mutant, and in which order |
| `run.py` | runs mutants, and says what became of each |
| `pool.py` | the children: what they report, and the limits of those that hang |
| `survivors.py` | the file of survivors, and whether it is true |
"""
