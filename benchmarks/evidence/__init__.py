"""Every figure that the pages quote: one command measures it, and another one puts it into the page.

    make evidence                                       everything, half a day on two quiet cores
    make evidence EVIDENCE=--short                      what ends within some minutes
    make evidence EVIDENCE='--only transactions latency'
    python -m benchmarks.evidence tables                write the tables and plots of the pages anew

| module | what is there |
|---|---|
| `entries` | what is run: an entry is a program, and what its figures are called |
| `medians` | the figures of each program's JSON that a later run is compared with |
| `setting` | commit, machine, versions, load |
| `results` | a result: one JSON file of `benchmarks/results`, and what must be in it |
| `running` | runs entries one after the other, and goes on where one fails |
| `tables`, `plots` | what a page shows of results: Markdown, SVG |
| `blocks` | the blocks by name: which results each is made of |
| `pages` | finds the blocks' markers in the pages, writes and checks what is between them |

1. A result is written only by a run of its entry from start to end; what fails leaves the older result as it was.
2. A page quotes a figure only by a block, which is made of committed results and nothing else: a test compares.
3. Nothing here measures. Each entry is a program of its own, which a person can run by the command in its result.
"""
