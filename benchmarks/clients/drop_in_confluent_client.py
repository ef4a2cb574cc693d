"""Our drop-in for confluent-kafka's AIOProducer: the code that measures theirs, with the other import."""

from __future__ import annotations

from benchmarks.clients.confluent_aio_client import ConfluentAioClient

CLIENT = ConfluentAioClient("drop-in AIO", "aioproduce.compat.confluent", "aioproduce", speed=2)
