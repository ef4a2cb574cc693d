"""Every figure that the pages quote: one command measures it, and another one puts it into the page.

    make evidence                                       everything, half a day on two quiet cores
    make evidence EVIDENCE=--short                      entries that end within some minutes
    make evidence EVIDENCE='--only transactions latency'
    python -m benchmarks.evidence tables                write the tables and plots of the pages again

| module | contents |
|---|---|
| `entries` | the entries: a program each, with the names of its figures |
| `medians` | the figures of each program's JSON that a later run is compared with |
| `setting` | commit, machine, versions, load |
| `results` | a result: one JSON file of `benchmarks/results`, and its required fields |
| `running` | runs entries one after the other, and continues if one fails |
| `tables`, `plots` | results for a page: Markdown, SVG |
| `blocks` | the blocks by name, with their results |
| `pages` | finds the blocks' markers in the pages, writes and checks the text between them |

1. Only a run of its entry from start to end writes a result; a failure leaves the older result unchanged.
2. A page quotes figures only by a block, which is made of committed results and nothing else: a test compares them.
3. Nothing here measures. Each entry is a separate program, which a person can run by the command in its result.
"""
