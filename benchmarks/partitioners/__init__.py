"""The experiments of the partitioners' history, again: `python -m benchmarks.partitioners`.

| module | question | from |
|---|---|---|
| `batching` | what sticking to a partition does to latency | KIP-480 |
| `slow_broker` | what one slow broker does to all, and what becomes of that | KIP-794 |
| `balance` | how even the partitions come out | the perf test of KAFKA-10888 |
| `run` | producers, brokers with a service time and a network, on virtual time | |

Everything runs in the simulation: no wall clock, the same figures for the same seed on any machine. What it cannot
show is the cost of a record on a processor; `python -m benchmarks` is for that.
"""
