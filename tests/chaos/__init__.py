"""Real brokers bounced, killed and stalled under producers that send, and the judgement of what became of it.

``python -m tests.chaos`` drives ``python -m aioproduce.verifiable`` (or Kafka's own VerifiableProducer, which
speaks the same lines) and audits the log with Kafka's ConsoleConsumer; ``--soak`` watches the memory, tasks and
handles of a producer process for a long time. ``README.md`` in this folder says how, and lists the figures.

| module | what is there |
|---|---|
| ``schedule`` | which fault comes when, from a seed; carrying one out |
| ``outcomes`` | what the producers told of each record, in arrays |
| ``audit`` | the log against the outcomes |
| ``senders`` | the producers' processes |
| ``run`` | the chaos run, from topic to report |
| ``soak``, ``soak_producer`` | the soak run: its parent, and the process that is watched |
| ``display`` | tables, progress |
"""
