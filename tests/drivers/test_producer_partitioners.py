"""`partitioner.class` through the producer: names, the user's own, and what is wrong with one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.config.kinds import PARTITIONERS
from aioproduce.errors import BufferExhaustedError, ConfigError, PartitionerError, ProducerError
from aioproduce.partitioners import Partitioner
from tests.drivers.concurrency import gather
from tests.drivers.producing import FOREVER_MS, values

if TYPE_CHECKING:
    from aioproduce.partitioners import TopicView
    from aioproduce.testing import FakeCluster

KEYS_DECIDE = set(PARTITIONERS) - {"random", "round_robin", "sticky_ignoring_keys"}
ONE_FOR_ALL = {"murmur2", "consistent", "fnv1a"}
"""Where records without a key go to one partition."""


class Chosen:
    """A partitioner that answers what it is told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes | None, bytes | None, int]] = []

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> Any:
        self.asked.append((topic, key, value, view.partition_count))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Told(Chosen):
    """One that hears of new batches."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.told: list[tuple[str, int]] = []

    def on_new_batch(self, topic: str, view: TopicView, previous: int) -> None:
        assert view.partition_count == 3
        self.told.append((topic, previous))


@pytest.mark.parametrize("name", PARTITIONERS)
async def test_every_name(cluster: FakeCluster, name: Any) -> None:
    async with Producer(
        cluster.bootstrap_servers, partitioner_class=name, batch_size=500, linger_ms=0
    ) as producer:
        keyed = [await (await producer.send("t", b"v", key=b"%d" % (n % 40))) for n in range(120)]
        keyless = [await (await producer.send("t", b"v" * 100)) for _ in range(200)]
        mixed = await (await producer.send_many("t", [b"v"] * 100, keys=[None, b"k"] * 50))

    by_key: dict[int, set[int]] = {}
    for n, metadata in enumerate(keyed):
        by_key.setdefault(n % 40, set()).add(metadata.partition)
    if name in KEYS_DECIDE:
        assert all(len(partitions) == 1 for partitions in by_key.values())
        assert len({each.partition for each in mixed[1::2]}) == 1
    assert {metadata.partition for metadata in keyed} == {0, 1, 2}
    assert len({metadata.partition for metadata in keyless}) == (1 if name in ONE_FOR_ALL else 3)
    if name == "round_robin":
        assert Counter(each.partition for each in (*keyed, *keyless)).most_common()[-1][1] >= 106
    assert len(values(cluster)) == 420


async def test_a_name_of_kafkas(cluster: FakeCluster) -> None:
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    async with Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "partitioner.class": name}
    ) as producer:
        sent = [await (await producer.send("t", b"v", key=b"one")) for _ in range(9)]
    assert sorted(Counter(each.partition for each in sent).values()) == [3, 3, 3]


async def test_ones_own_is_asked_once_for_each_record_that_names_no_partition(cluster: FakeCluster) -> None:
    mine = Chosen(2, 0, 1, 2, 0, 0)
    async with Producer(
        cluster.bootstrap_servers, partitioner_class=mine, key_serializer=str.encode
    ) as producer:
        first = await (await producer.send("t", b"v", key="k"))
        second = await (await producer.send("t", None))
        named = await (await producer.send("t", b"w", partition=0))
        third = await producer.try_send("t", b"x")
        many = await (await producer.send_many("t", [b"y", b"z"]))
    assert [each.partition for each in (first, second, named, third, *many)] == [2, 0, 0, 1, 2, 0]
    assert mine.asked == [
        ("t", b"k", b"v", 3),
        ("t", None, None, 3),
        ("t", None, b"x", 3),
        ("t", None, b"y", 3),
        ("t", None, b"z", 3),
    ]


async def test_ones_own_is_asked_once_however_long_the_record_waits(cluster: FakeCluster) -> None:
    mine = Chosen(0, 1)
    async with Producer(
        cluster.bootstrap_servers,
        partitioner_class=mine,
        buffer_memory=1000,
        batch_size=1000,
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=2 * FOREVER_MS,
    ) as producer:
        await producer.send("t", b"v" * 900)
        # There is no room until the first is acknowledged, and it is sent because this one waits.
        delivery = await producer.send("t", b"w" * 900)
        await producer.flush()
        assert (await delivery).partition == 1
    assert len(mine.asked) == 2


async def test_ones_own_hears_of_new_batches_and_is_asked_again(cluster: FakeCluster) -> None:
    mine = Told(0, 1, 1, 2, 0)
    async with Producer(
        cluster.bootstrap_servers,
        partitioner_class=mine,
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=2 * FOREVER_MS,
    ) as producer:
        first = await producer.send("t", b"v")  # partition 0 has no open batch: 1 it is
        second = await producer.send("t", b"v")  # 1 has one
        third = await producer.send("t", b"v")  # 2 has none: 0 it is
        await producer.flush()
        assert [(await each).partition for each in (first, second, third)] == [1, 1, 0]
    assert mine.told == [("t", 0), ("t", 2)]


async def test_one_that_inherits_from_the_protocol_leaves_on_new_batch_out_too(cluster: FakeCluster) -> None:
    class Mine(Partitioner):
        def __init__(self) -> None:
            self.asked = 0

        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> int:
            self.asked += 1
            return self.asked % view.partition_count

    mine = Mine()  # type: ignore[abstract]  # at run time it is left out all the same
    async with Producer(cluster.bootstrap_servers, partitioner_class=mine) as producer:
        sent = [await (await producer.send("t", b"v")) for _ in range(6)]
    assert [each.partition for each in sent] == [1, 2, 0, 1, 2, 0]
    assert mine.asked == 6


async def send_one(producer: Producer, how: str) -> None:
    if how == "try_send":
        producer.try_send("t", b"bad")
    elif how == "send_many":
        await producer.send_many("t", [b"bad"])
    else:
        await producer.send("t", b"bad")


@pytest.mark.parametrize("answer", [3, -1, True, None, 1.0, "0", 2**70], ids=repr)
@pytest.mark.parametrize("how", ["send", "try_send", "send_many"])
async def test_an_answer_out_of_range_is_an_error_of_that_record(
    cluster: FakeCluster, how: str, answer: object
) -> None:
    mine = Chosen(0, answer, 1)
    async with Producer(cluster.bootstrap_servers, partitioner_class=mine) as producer:
        await (await producer.send("t", b"before"))
        with pytest.raises(ProducerError) as caught:
            await send_one(producer, how)
        await (await producer.send("t", b"after"))
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, PartitionerError):
        error = error.__cause__
    assert isinstance(error, PartitionerError)
    assert (error.topic, error.answer) == ("t", answer)
    assert all(words in str(error) for words in ("Chosen.partition()", "'t'", "0 to 2"))
    assert sorted(v or b"" for v in values(cluster)) == [b"after", b"before"]


class Unprintable(Exception):
    """Has no words for itself."""

    def __repr__(self) -> str:
        raise LookupError("no words")

    __str__ = __repr__


@pytest.mark.parametrize("how", ["answer", "number", "raise"])
async def test_what_cannot_be_printed_is_an_error_of_that_record_too(cluster: FakeCluster, how: str) -> None:
    """A number of 5,000 digits, say, which Python refuses to print: a whole key as one, without its modulus."""

    class Wrong:
        def partition(self, *_: object) -> Any:
            if how == "raise":
                raise Unprintable
            return 10**5000 if how == "number" else Unprintable()

    async with Producer(cluster.bootstrap_servers, partitioner_class=Wrong()) as producer:
        with pytest.raises(PartitionerError, match=r"Wrong\.partition\(\)"):
            await producer.send("t", b"v")
        assert producer.metrics().value("record-error-total") == 1


async def test_what_it_raises_is_the_cause(cluster: FakeCluster) -> None:
    mine = Chosen(KeyError("region"), 1)
    async with Producer(cluster.bootstrap_servers, partitioner_class=mine) as producer:
        with pytest.raises(
            PartitionerError, match=r"Chosen\.partition\(\) raised KeyError: 'region'"
        ) as caught:
            await producer.send("t", b"v")
        assert isinstance(caught.value.__cause__, KeyError)
        assert (await (await producer.send("t", b"v"))).partition == 1


async def test_what_on_new_batch_raises_loses_nothing(cluster: FakeCluster) -> None:
    class Failing(Told):
        def on_new_batch(self, topic: str, view: TopicView, previous: int) -> None:
            raise OSError("no table")

    async with Producer(cluster.bootstrap_servers, partitioner_class=Failing(0)) as producer:
        with pytest.raises(PartitionerError, match=r"Failing\.on_new_batch\(\) raised OSError"):
            await producer.send("t", b"v")
        assert producer.outstanding_bytes == 0
    assert values(cluster) == []


async def test_try_send_says_why_there_is_no_room(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers,
        partitioner_class=Chosen(0),
        buffer_memory=1000,
        batch_size=1000,
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=2 * FOREVER_MS,
    ) as producer:
        await producer.send("t", b"v" * 900)
        with pytest.raises(BufferExhaustedError):
            producer.try_send("t", b"w" * 900)


class NoMethod:
    pass


class Async:
    async def partition(self, *_: object) -> int:
        return 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("roundrobin", "did you mean 'round_robin'"),
        ("com.example.Mine", "is not the name of a partitioner"),
        (Chosen, "the class Chosen instead of an instance"),
        (NoMethod(), "not have a method partition()"),
        (Async(), "async partition()"),
        (7, "(int) does not have a method partition()"),
    ],
    ids=["a typing error", "a Java class of one's own", "a class", "no method", "a coroutine", "a number"],
)
def test_what_is_no_partitioner_is_refused_at_once(given: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Producer("localhost:9092", partitioner_class=given)
    assert words in str(caught.value)
    assert caught.value.key == "partitioner.class"


@pytest.mark.parametrize("name", sorted(ONE_FOR_ALL))
def test_ignoring_keys_where_only_keys_spread_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="every record goes to one partition"):
        Producer("localhost:9092", partitioner_class=name, partitioner_ignore_keys=True)


def test_a_rack_must_have_a_name() -> None:
    with pytest.raises(ConfigError, match=r"needs client\.rack"):
        Producer("localhost:9092", partitioner_rack_aware=True)


async def test_a_thousand_tasks_with_round_robin(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, partitioner_class="round_robin") as producer:
        sent = await gather(*(producer.send_and_wait("t", b"%d" % n) for n in range(3000)))
    assert sorted(Counter(each.partition for each in sent).values()) == [1000, 1000, 1000]
