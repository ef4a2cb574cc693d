"""Whether the topics of a write are there: asked by the driver before any row moves.

Called by `datasource`, once for each write and for each micro-batch. A producer asks for a topic's partitions and
has a broker create what is missing, where it may; a load of a million rows into a topic by a misspelled name is no
use to anybody. So this asks by itself: one connection, two requests, blocking, on the driver.

Invariants:

1. Asking creates nothing.
2. All is over within the time-out: a socket is never waited for without what is left of it as its limit.
3. "There is none" is believed only when it is said again: a topic that was made a moment ago is not known to every
   broker at once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Sequence
from typing import Final

from aioproduce.config import ProducerConfig
from aioproduce.errors import ProducerError, ProtocolError
from aioproduce.spark.errors import TopicError
from aioproduce.wire.api import ApiKey, ApiVersions
from aioproduce.wire.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import ApiVersionsResponse, MetadataResponse
from aioproduce.wire.requests import encode_api_versions, encode_metadata
from aioproduce.wire.responses import decode_body

_AGAIN_AFTER: Final = 0.25  # seconds
_TIMES_MISSING: Final = 5  # a little over a second: what a cluster takes to tell all brokers of a new topic
_CHUNK: Final = 65536
_FRAME_MAX: Final = 100 * 1024 * 1024  # as the producer's own bound on an answer


def check_topics(config: ProducerConfig, topics: Collection[str], timeout: float) -> None:
    """See that topics are there, on any of the bootstrap servers.

    Args:
        config: Where the cluster is.
        topics: Names.
        timeout: Seconds for all of it.

    Raises:
        TopicError: one is missing or denied, or no broker answered in time.
    """
    deadline = time.monotonic() + timeout
    times_missing = 0
    asked = sorted(set(topics))
    while asked:
        try:
            codes = _codes(config, asked, deadline)
        except (OSError, ProducerError) as error:
            if time.monotonic() + _AGAIN_AFTER >= deadline:
                raise _unreachable(config, asked, timeout, error) from error
        else:
            for topic in asked:
                _check_answer(topic, codes.get(topic, UNKNOWN_TOPIC_OR_PARTITION), times_missing)
            asked = [topic for topic in asked if codes.get(topic) == UNKNOWN_TOPIC_OR_PARTITION]
            times_missing += 1
        if asked:
            time.sleep(_AGAIN_AFTER)


def _check_answer(topic: str, code: int, times_missing: int) -> None:
    if code == UNKNOWN_TOPIC_OR_PARTITION and times_missing + 1 >= _TIMES_MISSING:
        raise TopicError(
            f"topic {topic!r} does not exist: create it, as in kafka-topics.sh --bootstrap-server ... --create "
            f"--topic {topic} --partitions 8, or correct the name; no row was sent",
            topic=topic,
            is_missing=True,
        )
    if code == TOPIC_AUTHORIZATION_FAILED:
        raise TopicError(
            f"the cluster denies topic {topic!r}: have its administrator allow Describe and Write; no row was sent",
            topic=topic,
        )
    if code == INVALID_TOPIC_EXCEPTION:
        raise TopicError(
            f"{topic!r} is no name of a topic: letters, digits, '.', '_' and '-', at most 249 of them; no row was "
            "sent",
            topic=topic,
            is_missing=True,
        )


def _unreachable(
    config: ProducerConfig, topics: Sequence[str], timeout: float, error: Exception
) -> TopicError:
    servers = ", ".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    return TopicError(
        f"no broker of {servers} told within {timeout:g} s whether topic {topics[0]!r} is there ({error}): check "
        "kafka.bootstrap.servers from the driver's machine, or raise topic.timeout.ms; no row was sent",
        topic=topics[0],
    )


def _codes(config: ProducerConfig, topics: Sequence[str], deadline: float) -> dict[str, int]:
    """Each topic's error code, as the first broker says that answers."""
    for index, (host, port) in enumerate(config.bootstrap_servers):
        try:
            return _ask(host, port, config, topics, deadline)
        except (OSError, ProducerError):
            if index + 1 == len(config.bootstrap_servers):
                raise
    raise AssertionError("ProducerConfig has at least one server")


def _ask(
    host: str, port: int, config: ProducerConfig, topics: Sequence[str], deadline: float
) -> dict[str, int]:
    # A broker that takes the connection and says nothing must not use up the time that the others have.
    limit = min(config.request_timeout, config.socket_connection_setup_timeout)
    with socket.create_connection((host, port), _left(deadline, limit)) as connection:
        until = time.monotonic() + _left(deadline, limit)
        connection.sendall(encode_api_versions(0, 0, config.client_id))
        answer = decode_body(ApiKey.API_VERSIONS, 0, _frame(connection, until))
        assert isinstance(answer, ApiVersionsResponse)
        version = ApiVersions.from_response(answer).version(ApiKey.METADATA)
        connection.sendall(
            encode_metadata(version, 1, config.client_id, topics, allow_auto_topic_creation=False)
        )
        metadata = decode_body(ApiKey.METADATA, version, _frame(connection, until))
        assert isinstance(metadata, MetadataResponse)
    return {topic.name: topic.error_code for topic in metadata.topics if topic.name is not None}


def _frame(connection: socket.socket, deadline: float) -> memoryview:
    frames = FrameReader(_FRAME_MAX)
    while True:
        connection.settimeout(_left(deadline))
        chunk = connection.recv(_CHUNK)
        if not chunk:
            raise ProtocolError("the broker closed the connection instead of answering")
        whole = frames.feed(chunk)
        if whole:
            return whole[0]


def _left(deadline: float, limit: float = float("inf")) -> float:
    left = min(deadline - time.monotonic(), limit)
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left
