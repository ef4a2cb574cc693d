"""The experiments of the partitioners' history, repeated: `python -m benchmarks.partitioners`.

| module | question | from |
|---|---|---|
| `batching` | the effect on latency of staying with a partition | KIP-480 |
| `slow_broker` | the effect of one slow broker on all, and its remedies | KIP-794 |
| `balance` | how even the partitions become | the perf test of KAFKA-10888 |
| `run` | producers, brokers with a service time and a network, on virtual time | |

Everything runs in the simulation: no wall clock, and the same figures for the same seed on any machine. It cannot
show the processor time of a record; `python -m benchmarks` measures that.
"""
