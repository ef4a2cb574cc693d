"""Our drop-in for aiokafka: the code that measures aiokafka, with the other import."""

from __future__ import annotations

from benchmarks.clients.aiokafka_client import AiokafkaClient

CLIENT = AiokafkaClient("drop-in", "aioproduce.compat.aiokafka", "aioproduce", speed=4)
