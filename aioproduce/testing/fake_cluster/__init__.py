"""A Kafka cluster in memory: a broker model without I/O, and a TCP server for it.

| module | contents |
|---|---|
| `cluster` | `FakeCluster`, the public class |
| `server` | listeners and sockets on asyncio; the only module with a loop or a clock |
| `model` | connections, requests in order, faults: events in, effects out |
| `outgoing` | outgoing answers, and the ends of connections |
| `connections` | the broker's view of a connection; the log of requests |
| `state` `partition` | brokers, topics, elections, ids: the shared state; leader and replicas |
| `replicator` | followers, the ISR and the high watermark over time |
| `views` | outdated views that brokers report in Metadata |
| `apis` | all supported APIs, and the assembly of their handlers |
| `produce` `fetch` `cluster_apis` `groups` `offset_apis` | the APIs |
| `log` `producer_state` `record_batch` `codecs` | a partition's log, idempotence, the batch format |
| `transaction_apis` `transaction_admin` | the APIs of transactions, for producers and for operators |
| `transaction_coordinator` `transaction_states` `coordinator_places` | the coordinators: their states and brokers |
| `verification` | a leader's question to the coordinator before it appends |
| `markers` `control_batch` | the ends of transactions: their delivery, and as bytes |
| `transaction_log` `pending_offsets` | which parts of a log, and of groups' offsets, are decided |
| `faults` | scripted faults |
| `security` | TLS and SASL: the users' settings, and those of their clients |
| `secured` `tls_server` `certificates` | encryption, between the model and its connections |
| `sasl_server` `sasl_mechanisms` | logins: which requests are served when, and who is accepted |
| `encoding` | encodes answers, with writers compiled from kio's descriptions |

`aioproduce.wire.reader` reads requests; kio's decoder never reads bytes from the network.
"""
