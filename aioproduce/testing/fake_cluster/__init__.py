"""A Kafka cluster in memory: a broker model without I/O, and a TCP front for it.

| module | what lives there |
|---|---|
| `cluster` | `FakeCluster`, what users see |
| `server` | listeners and sockets on asyncio; the only module that knows a loop or a clock |
| `model` | connections, requests in order, faults applied: facts in, effects out |
| `outgoing` | answers on their way out, and the ends of connections |
| `connections` | what a broker knows of a connection; the log of requests |
| `state` `partition` | brokers, topics, elections, ids: what all brokers share; leader and replicas |
| `replicator` | followers, the ISR and the high watermark in time |
| `views` | what brokers say in Metadata where that is not the truth |
| `apis` | all that is answered, and how its handlers are put together |
| `produce` `fetch` `cluster_apis` `groups` `offset_apis` | the APIs |
| `log` `producer_state` `record_batch` `codecs` | a partition's log, idempotence, the batch format |
| `transaction_apis` `transaction_admin` | the APIs of transactions, for producers and for operators |
| `transaction_coordinator` `transaction_states` `coordinator_places` | who decides what, by a table, and where |
| `verification` | what a partition's leader asks the coordinator before it appends |
| `markers` `control_batch` | the ends of transactions, on their way and as bytes |
| `transaction_log` `pending_offsets` | what of a log, and of groups' offsets, is decided |
| `faults` | scripted misbehaviour |
| `security` | TLS and SASL: what users ask for, and what their clients need |
| `secured` `tls_server` `certificates` | encryption, between the model and its connections |
| `sasl_server` `sasl_mechanisms` | logins: which requests are served when, and who is let in |
| `encoding` | answers, by writers compiled from kio's descriptions |

Requests are read with `aioproduce.wire.reader`; kio's decoder never sees bytes from the network.
"""
