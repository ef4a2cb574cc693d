"""What a queue on disk costs: `python -m benchmarks.spool`, `SpooledProducer` next to a `Producer` and others.

| module | content |
|---|---|
| `workload` | the records, the ways to send them, producers and queues of one round, the pairing of rounds |
| `append` | putting records on disk by policy, next to a producer's own sending |
| `always` | `sync="always"` next to bare writes and syncs of the same bytes |
| `drain` | forwarding a backlog, next to `send_many` of the same records |
| `direct` | how long `send()` takes in direct mode |
| `startup` | a start with 50 GB on disk, and the memory of forwarding |
| `peers` | persist-queue and rsyslog |

1. Contenders take turns in one process (`startup` and rsyslog: in processes of their own), and a ratio is of two
   turns of the same round: other work on the machine affects both.
2. Processor time is that of the process with all its threads, the writer's too.
3. Queues are on the disk of the repository, never on a memory file system: `--folder` names another place.
"""
