"""Settings that are wrong. `# error:` names what pyright and mypy must say of a line."""

from __future__ import annotations

from typing import Unpack

from aioproduce import BlockingProducer, Producer, ProducerConfig, ProducerSettings, TransactionalPool
from aioproduce.integrations.logging import KafkaLogHandler
from aioproduce.serializers import SerializingProducer

Producer("localhost:9092", lingerms=5)  # error: reportCallIssue, call-arg
Producer("localhost:9092", linger_ms="five")  # error: reportArgumentType, arg-type
Producer("localhost:9092", linger_ms=5.5)  # error: reportArgumentType, arg-type
Producer("localhost:9092", compression_type="lzma")  # error: reportArgumentType, arg-type
Producer("localhost:9092", acks=2)  # error: reportArgumentType, arg-type
Producer("localhost:9092", enable_idempotence="yes")  # error: reportArgumentType, arg-type
Producer("localhost:9092", value_serializer=5)  # error: reportArgumentType, reportCallIssue, arg-type
Producer("localhost:9092", partitioner_class="murmur3")  # error: reportArgumentType, arg-type
Producer("localhost:9092", interceptor_classes="")  # error: reportCallIssue, call-arg
Producer(9092)  # error: reportArgumentType, reportCallIssue, arg-type
BlockingProducer("localhost:9092", lingerms=5)  # error: reportCallIssue, call-arg
BlockingProducer("localhost:9092", linger_ms="five")  # error: reportArgumentType, arg-type
SerializingProducer("localhost:9092", lingerms=5)  # error: reportCallIssue, call-arg
ProducerConfig.from_keywords(linger_ms="five")  # error: reportArgumentType, arg-type
Producer.from_properties("p", lingerms=5)  # error: reportCallIssue, call-arg
TransactionalPool("h:1", transactional_id_prefix="o", size=4, lingerms=5)  # error: reportCallIssue, call-arg
KafkaLogHandler("logs", "localhost:9092", lingerms=5)  # error: reportCallIssue, call-arg

TUNED: ProducerSettings = {"linger_ms": "five"}  # error: reportAssignmentType, typeddict-item


def made(**settings: Unpack[ProducerSettings]) -> None:
    print(settings["lingerms"])  # error: reportGeneralTypeIssues, typeddict-item


made(linger_ms="five")  # error: reportArgumentType, arg-type
