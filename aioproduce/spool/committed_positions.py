"""The positions of a queue that the cluster has: offsets of a consumer group, committed with the records.

`transactional_forwarder` asks for them after it has its producer id: then no transaction of an earlier owner is
open any more, or the coordinator says that one is still being ended, and is asked again. It runs in a thread of its
own, over connections of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.drivers.blocking_client import BlockingClient
from aioproduce.errors import (
    BrokerConnectionError,
    ProtocolError,
    TopicAuthorizationError,
    TransactionsUnavailableError,
)
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.transaction_requests import encode_find_coordinator, encode_offset_fetch

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig

PARTITION: Final = 0
"""The partition under whose name a topic's position is committed: each topic has it."""

_GROUP: Final = 0
_PAUSE: Final = 0.1
_MOST_TOPICS: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class CommittedPositions:
    """What the cluster has.

    Attributes:
        offsets: The offsets of the topics that have one.
        denied: The topics whose offsets may not be read.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)


def committed_positions(
    config: ProducerConfig, group: str, topics: Sequence[str], timeout: float
) -> CommittedPositions:
    """Return the committed positions of topics.

    Args:
        config: The addresses of the brokers, TLS and login.
        group: The group.
        topics: The topics.
        timeout: Seconds for all.

    Raises:
        TransactionsUnavailableError: if the group may not be read.
        OSError: if no answer came in time.
        ProtocolError: if an answer is not valid, or the cluster has no such request.
    """
    deadline = time.monotonic() + timeout
    client = BlockingClient(config)
    found = CommittedPositions()
    for start in range(0, len(topics), _MOST_TOPICS):
        asked = topics[start : start + _MOST_TOPICS]
        while (answer := _ask(client, config.client_id, group, asked, deadline)) is None:
            if time.monotonic() + _PAUSE >= deadline:
                raise BrokerConnectionError(
                    f"the coordinator of group {group} gave no offsets within {timeout:g} s",
                    host=config.bootstrap_servers[0][0],
                    port=config.bootstrap_servers[0][1],
                )
            time.sleep(_PAUSE)
        found.offsets.update(answer.offsets)
        found.denied.update(answer.denied)
    return found


def _ask(
    client: BlockingClient, client_id: str, group: str, topics: Sequence[str], deadline: float
) -> CommittedPositions | None:
    """Ask once; None if the coordinator is to be asked again."""
    find = partial(encode_find_coordinator, client_id=client_id, key=group, key_type=_GROUP)
    coordinator: Any = client.ask_any(ApiKey.FIND_COORDINATOR, find, deadline)
    if not _is_answer(coordinator.error_code, group):
        return None
    wanted = [TopicPartition(topic, PARTITION) for topic in topics]
    fetch = partial(encode_offset_fetch, client_id=client_id, group_id=group, partitions=wanted)
    address = coordinator.address
    response: Any = client.ask((address.host, address.port), ApiKey.OFFSET_FETCH, fetch, deadline)
    if not _is_answer(response.error_code, group):
        return None
    found = CommittedPositions()
    for place, (code, offset) in response.offsets.items():
        if code == codes.UNKNOWN_TOPIC_OR_PARTITION:  # it is gone, and its offset with it
            continue
        if code == codes.TOPIC_AUTHORIZATION_FAILED:
            found.denied.add(place.topic)
        elif not _is_answer(code, group):
            return None
        elif offset >= 0:
            found.offsets[place.topic] = offset
    return found


def _is_answer(code: int, group: str) -> bool:
    """Return whether a code is success; false if the coordinator is to be asked again."""
    if code == codes.NONE:
        return True
    if codes.is_retriable(code):
        return False
    text = f"the positions in group {group} cannot be read: {codes.message_of(code)}"
    if code == codes.GROUP_AUTHORIZATION_FAILED:
        raise TransactionsUnavailableError(
            f"{text}. Allow Read on the group", recover="new producer", code=code
        )
    raise ProtocolError(text)


def denied_error(topic: str) -> TopicAuthorizationError:
    """Return why a topic in `CommittedPositions.denied` cannot be forwarded."""
    return TopicAuthorizationError(
        f"the cluster denies access to topic {topic!r}: grant this principal Describe, Read and Write on it",
        topic=topic,
    )
