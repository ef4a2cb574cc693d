"""Our idempotent producer against librdkafka's mock cluster: its producer id, and errors about its sequences.

The mock checks no sequence of a producer without transactional.id: such errors are injected, and what lies in the
log afterwards is judged by the rules that Kafka applies (``mock_log.py``).
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from aioproduce.errors import ProducerFatalError
from tests.integration.mock_harness import judge, judge_kind, kept_of, producer_of
from tests.integration.traffic import Traffic, Verdict
from tests.mock_cluster import DISCONNECT, Api, MockCluster

pytestmark = pytest.mark.usefixtures("nothing_unhandled")


@pytest.mark.scenario(49, "M")
@pytest.mark.scenario(50, "M")
@pytest.mark.parametrize(
    ("code", "sequences"),
    [
        (45, [(0, 0), (1, 0), (1, 5), (2, 0), (2, 5), (3, 0), (3, 5)]),
        (59, [(0, 0), (0, 3), (0, 8), (0, 10), (0, 15), (0, 17), (0, 22)]),
    ],
)
async def test_a_producer_that_the_broker_lost_track_of_starts_anew(
    mock_cluster: MockCluster, topic_name: str, code: int, sequences: list[tuple[int, int]]
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER on the first batch: a new epoch, from sequence 0.

    With UNKNOWN_PRODUCER_ID the mock never says where its log begins; then nothing proves that the producer was
    forgotten, and the request is repeated as it was, as Java's is.
    """
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(3)
        await traffic.settle()
        for _ in range(3):
            mock_cluster.push_errors(Api.PRODUCE, code)
            await traffic.send(5)
            await traffic.settle()
            await traffic.send(2)
            await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()
    kept = await kept_of(mock_cluster, topic_name)
    assert (kept.repeated, kept.refused) == ([], [])
    assert [(batch.producer_epoch, batch.base_sequence) for batch in kept.batches] == sequences
    assert len({batch.producer_id for batch in kept.batches}) == 1


@pytest.mark.scenario(48, "M")
async def test_a_repetition_that_the_broker_recognizes_is_a_success_of_unknown_offset(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        mock_cluster.push_errors(Api.PRODUCE, 46)
        first = await producer.send_and_wait(topic_name, b"first")
        second = await producer.send_and_wait(topic_name, b"second")

    assert not first.has_offset
    assert second.offset == 0
    # The code means that the first batch is in the log: the second one carries on behind it, in its epoch.
    (batch,) = (await kept_of(mock_cluster, topic_name)).batches
    assert (batch.producer_epoch, batch.base_sequence, batch.values) == (0, 1, (b"second",))


@pytest.mark.scenario(54, "M")
@pytest.mark.parametrize("code", [14, 15, 16, 51, 7, DISCONNECT])
async def test_init_producer_id_is_retried(mock_cluster: MockCluster, topic_name: str, code: int) -> None:
    """The coordinator is loading, not available, elsewhere, or busy; no answer comes."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.start_tracking()
    mock_cluster.push_errors(Api.INIT_PRODUCER_ID, code, code, code)
    async with producer_of(mock_cluster, retry_backoff_ms=10, retry_backoff_max_ms=100) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(10)
        await traffic.settle()
        requests = mock_cluster.requests(Api.INIT_PRODUCER_ID)

    assert traffic.errors() == []
    gaps = [later.timestamp - earlier.timestamp for earlier, later in pairwise(requests)]
    assert len(gaps) == 3
    assert all(gap >= least - 0.001 for gap, least in zip(gaps, [0.008, 0.016, 0.032], strict=True)), gaps
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()
    assert await judge_kind(traffic, mock_cluster, topic_name, "idempotent") == Verdict()


@pytest.mark.scenario(54, "M")
async def test_a_denied_producer_id_is_fatal_for_what_waits_for_it(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """CLUSTER_AUTHORIZATION_FAILED; the right may be granted later."""
    mock_cluster.create_topic(topic_name)
    # It is asked for before there is a record, and again, backing off: often enough to be denied with one.
    mock_cluster.push_errors(Api.INIT_PRODUCER_ID, *[31] * 1000)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(3)
        await traffic.settle()
        mock_cluster.clear_errors(Api.INIT_PRODUCER_ID)
        assert sorted(traffic.failed) == [0, 1, 2]
        for error in traffic.failed.values():
            assert isinstance(error, ProducerFatalError)
            assert (error.name, error.possibly_written) == ("CLUSTER_AUTHORIZATION_FAILED", False)
            assert "IdempotentWrite" in str(error)
        await traffic.send(5)
        await traffic.settle()

    assert len(traffic.acked) == 5
    assert await judge_kind(traffic, mock_cluster, topic_name, "idempotent") == Verdict()
