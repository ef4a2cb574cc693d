"""The cluster's log, read by another client, against what the service said of its calls.

Used by `story`, and by `tests/spool/kill_forwarding.py` for a million records. The reader is librdkafka; it knows
nothing of queues on disk.

1. Each partition is read to its end, which the client reports: no idle time decides that it is over.
2. A record is what the service made it: `LIFE.NUMBER` at the beginning of its value. Its id is the header `ap.id`.
3. Records that are in the log although their `send()` had not returned are counted, and are not wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, final

ID_HEADER: Final = "ap.id"
EXAMPLES: Final = 5
_SPOOL_SIZE: Final = 16
_TIMEOUT: Final = 60.0
_TURN: Final = 0.2
_MOST_MESSAGES: Final = 5_000


class Logged(NamedTuple):
    """A record of the log.

    Attributes:
        partition: Where it is.
        offset: Its offset there.
        at: When the broker appended it, in seconds since the epoch.
        life: The life of the service that sent it.
        number: Its number in that life.
        record_id: Its `ap.id`; empty if it has none.
    """

    partition: int
    offset: int
    at: float
    life: int
    number: int
    record_id: bytes


@final
@dataclass(slots=True)
class Findings:
    """What the audit found, in records.

    Attributes:
        returned: Their `send()` returned.
        read: In the log, with repeated ones.
        distinct: Different records in the log.
        unreturned: Of these, those whose `send()` had not returned when the service was killed.
        lost: Returned, and not in the log.
        repeated: Copies in the log beyond the first.
        unlike: Copies whose id is not that of the first.
        twice: Still there twice when equal ids are dropped.
        shared: Different records with one id.
        misordered: First copies of a partition that the queue had before one in front of them.
        foreign: In the log, and never sent by the service.
        examples: Some of each kind that is wrong.
    """

    returned: int = 0
    read: int = 0
    distinct: int = 0
    unreturned: int = 0
    lost: int = 0
    repeated: int = 0
    unlike: int = 0
    twice: int = 0
    shared: int = 0
    misordered: int = 0
    foreign: int = 0
    examples: list[str] = field(default_factory=list)

    def wrong(self, *, is_exactly_once: bool) -> dict[str, int]:
        """Return what is wrong, by kind. Exactly once, each copy beyond the first is, too."""
        kinds = ("lost", "unlike", "twice", "shared", "misordered", "foreign")
        counts = {kind: getattr(self, kind) for kind in (*kinds, *(("repeated",) if is_exactly_once else ()))}
        return {kind: count for kind, count in counts.items() if count}

    def as_json(self) -> dict[str, Any]:
        """Return the figures."""
        return asdict(self)

    def found(self, kind: str, what: str) -> None:
        """Count one more record of a kind."""
        count = getattr(self, kind) + 1
        setattr(self, kind, count)
        if count <= EXAMPLES:
            self.examples.append(f"{kind}: {what}")


def audit(returned: Mapping[int, Iterable[range]], log: Iterable[Logged]) -> Findings:
    """Compare.

    Args:
        returned: By life, the numbers of the records whose `send()` returned.
        log: The log, each partition in its order.
    """
    findings = Findings()
    promised = {life: _bits(numbers) for life, numbers in returned.items()}
    findings.returned = sum(sum(bits) for bits in promised.values())
    ids: dict[int, bytes] = {}
    owners: dict[bytes, int] = {}
    latest: dict[tuple[int, bytes], bytes] = {}
    for each in log:
        findings.read += 1
        if each.life not in promised:
            findings.found("foreign", repr(each))
            continue
        key = _key(each.life, each.number)
        is_new_id = each.record_id not in owners
        if owners.setdefault(each.record_id, key) != key:
            findings.found("shared", repr(each))
        first_id = ids.get(key)
        if first_id is None:
            ids[key] = each.record_id
            _place(findings, latest, each)
            continue
        findings.repeated += 1
        if each.record_id != first_id or not first_id:
            findings.found("unlike", f"{each!r}, at first with the id {first_id.hex()!r}")
            findings.twice += is_new_id or not first_id
    _find_lost(findings, promised, ids)
    return findings


def _key(life: int, number: int) -> int:
    return life << 40 | number


def _place(findings: Findings, latest: dict[tuple[int, bytes], bytes], each: Logged) -> None:
    spool, offset = each.record_id[:_SPOOL_SIZE], each.record_id[_SPOOL_SIZE:]
    if offset < latest.get((each.partition, spool), b""):
        findings.found("misordered", repr(each))
    else:
        latest[each.partition, spool] = offset


def _find_lost(findings: Findings, promised: Mapping[int, bytearray], ids: Mapping[int, bytes]) -> None:
    findings.distinct = len(ids)
    found = 0
    for life, bits in promised.items():
        for number, is_promised in enumerate(bits):
            if is_promised and _key(life, number) in ids:
                found += 1
            elif is_promised:
                findings.found("lost", f"life {life}, number {number}")
    findings.unreturned = findings.distinct - found


def _bits(numbers: Iterable[range]) -> bytearray:
    """Return a byte for each number up to the largest: 1 if its `send()` returned."""
    bits = bytearray()
    for each in numbers:
        if each.stop > len(bits):
            bits.extend(bytes(max(each.stop - len(bits), len(bits))))
        bits[each.start : each.stop] = b"\1" * len(each)
    return bits


def read_log(servers: str, topic: str, *, isolation_level: str) -> Iterator[Logged]:
    """Read a topic from its beginning to its end with confluent-kafka.

    Args:
        servers: The cluster.
        topic: The topic.
        isolation_level: `read_committed` leaves out what aborted transactions have.

    Raises:
        RuntimeError: if the cluster reports an error, or answers nothing for a minute.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, _TIMEOUT).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        heard_at = time.monotonic()
        while partitions:
            messages = consumer.consume(_MOST_MESSAGES, _TURN)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() > heard_at + _TIMEOUT:
                raise RuntimeError(f"the partitions {sorted(partitions)} of {topic!r} answer nothing")
            for message in messages:
                error = message.error()
                if error is None:
                    yield _logged(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition())
                else:
                    raise RuntimeError(f"the log of {topic!r} cannot be read: {error}")
    finally:
        consumer.close()


def _logged(message: Any) -> Logged:
    life, _, rest = message.value().partition(b".")
    number = rest.partition(b" ")[0]
    record_id = dict(message.headers() or ()).get(ID_HEADER) or b""
    at = message.timestamp()[1] / 1000
    return Logged(message.partition(), message.offset(), at, int(life), int(number), record_id)
