"""Checks on the driver, before any row moves, that the topics of a write exist.

Used by `datasource`, once for each write and for each micro-batch. A producer's request for a topic's partitions
lets the broker create a missing topic, if it may; a load of a million rows into a misspelled topic helps nobody.
So this module asks by itself, on the driver (`drivers.blocking_client`).

Invariants:

1. Asking creates nothing.
2. It ends within the timeout.
3. A wrong setting and a refused login are reported at once: asking again does not help, and may lock a user out.
4. A missing topic is believed only after repeated answers: not every broker knows a new topic at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from aioproduce.config import ProducerConfig
from aioproduce.drivers.blocking_client import ask_any
from aioproduce.errors import AuthenticationError, ConfigError, MissingExtraError, ProducerError, TlsError
from aioproduce.spark.errors import TopicError
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from aioproduce.wire.messages import MetadataResponse
from aioproduce.wire.requests import encode_metadata

_AGAIN_AFTER: Final = 0.25  # seconds
_TIMES_MISSING: Final = 5  # a little over a second, in which a cluster tells all brokers about a new topic


def check_topics(config: ProducerConfig, topics: Collection[str], timeout: float) -> None:
    """Check that topics exist, on any of the bootstrap servers.

    Args:
        config: The cluster's settings.
        topics: Names.
        timeout: Seconds for all of it.

    Raises:
        TopicError: If one is missing or denied, or if no broker answered in time.
    """
    deadline = time.monotonic() + timeout
    times_missing = 0
    asked = sorted(set(topics))
    while asked:
        try:
            codes = _codes(config, asked, deadline)
        except (OSError, ProducerError) as error:
            if _is_final(error):
                raise _refused(asked, error) from error
            if time.monotonic() + _AGAIN_AFTER >= deadline:
                raise _unreachable(config, asked, timeout, error) from error
        else:
            for topic in asked:
                _check_answer(topic, codes.get(topic, UNKNOWN_TOPIC_OR_PARTITION), times_missing)
            asked = [topic for topic in asked if codes.get(topic) == UNKNOWN_TOPIC_OR_PARTITION]
            times_missing += 1
        if asked:
            time.sleep(_AGAIN_AFTER)


def _is_final(error: Exception) -> bool:
    if isinstance(error, TlsError | AuthenticationError):
        return not error.is_transient
    return isinstance(error, ConfigError | MissingExtraError)


def _check_answer(topic: str, code: int, times_missing: int) -> None:
    if code == UNKNOWN_TOPIC_OR_PARTITION and times_missing + 1 >= _TIMES_MISSING:
        raise TopicError(
            f"topic {topic!r} does not exist: create it, e.g. with kafka-topics.sh --bootstrap-server ... --create "
            f"--topic {topic} --partitions 8, or correct the name; no row was sent",
            topic=topic,
            is_missing=True,
        )
    if code == TOPIC_AUTHORIZATION_FAILED:
        raise TopicError(
            f"the cluster denies topic {topic!r}: ask its administrator to allow Describe and Write; no row "
            "was sent",
            topic=topic,
        )
    if code == INVALID_TOPIC_EXCEPTION:
        raise TopicError(
            f"{topic!r} is not a valid topic name: use letters, digits, '.', '_' and '-', at most 249 of "
            "them; no row was sent",
            topic=topic,
            is_missing=True,
        )


def _refused(topics: Sequence[str], error: Exception) -> TopicError:
    return TopicError(
        f"the cluster does not let this driver check topic {topics[0]!r}: {error}; no row was sent",
        topic=topics[0],
    )


def _unreachable(
    config: ProducerConfig, topics: Sequence[str], timeout: float, error: Exception
) -> TopicError:
    servers = ", ".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    return TopicError(
        f"no broker of {servers} answered within {timeout:g} s whether topic {topics[0]!r} exists ({error}): check "
        "kafka.bootstrap.servers from the driver's machine, or raise topic.timeout.ms; no row was sent",
        topic=topics[0],
    )


def _codes(config: ProducerConfig, topics: Sequence[str], deadline: float) -> dict[str, int]:
    """Return each topic's error code, from the first broker that answers."""

    def encode(version: int, correlation_id: int) -> bytes:
        return encode_metadata(
            version, correlation_id, config.client_id, topics, allow_auto_topic_creation=False
        )

    answer = ask_any(config, ApiKey.METADATA, encode, deadline)
    assert isinstance(answer, MetadataResponse)
    return {topic.name: topic.error_code for topic in answer.topics if topic.name is not None}
