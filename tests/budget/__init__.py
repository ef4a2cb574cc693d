"""A budget of work, not of time: what one record may cost in instructions, Python frames, calls and objects.

    python -m tests.budget              measure, and compare with `budget.json`
    python -m tests.budget --record     measure, and make that the budget

`test_budget.py` does the first with every run of the tests. A change that makes records dearer fails there and says
by how much; so does one that makes them cheaper, so that a gain is written down and cannot be lost again unseen.

| module | what is there |
|---|---|
| `modes` | how records are sent: each mode has its budget |
| `world` | an event loop without sockets and a broker that answers and keeps nothing |
| `world.c` | a clock, a source of randomness and callgrind's switches, preloaded |
| `program` | runs in a process of its own: modes in that world, counted |
| `measure` | starts it, plainly and under valgrind; what one record costs is a difference of two runs |
| `ledger` | `budget.json`: what was recorded, with what, and how far one may be from it |

Why the figures repeat: a run of 2 N records less one of N leaves what N records cost, without start and end.
Nothing comes from outside: there are no sockets, clock and randomness are preloaded, hashes have no seed, and the
garbage collector runs between runs only. The broker's work is in the figures: it reads batch headers, no records.
"""
