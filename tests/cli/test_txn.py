"""`aioproduce txn` against a cluster in memory: what it lists and tells, what it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from aioproduce import PreparedTransaction, Producer
from aioproduce.cli.app import app
from aioproduce.cli.display import rendered
from aioproduce.cli.txn_cluster import ClusterTransactions
from aioproduce.cli.txn_error import TxnError
from aioproduce.cli.txn_view import pairs_view, rows_view
from aioproduce.config import ProducerConfig
from aioproduce.records import TopicPartition
from aioproduce.testing import FakeCluster, FakeSecurity
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import TopicMetadata
from tests.cli.command import Outcome, run_cli

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


async def invoke(*arguments: str, stdin: bytes = b"") -> Outcome:
    """A command in a thread: a process for each would cost a second."""
    result = await asyncio.to_thread(CliRunner().invoke, app, ["txn", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


async def txn(cluster: FakeCluster, *arguments: str, stdin: bytes = b"") -> Outcome:
    return await invoke(*arguments, "-b", cluster.bootstrap_servers, stdin=stdin)


def asked(cluster: FakeCluster) -> ClusterTransactions:
    """What the commands ask, without a process."""
    config = ProducerConfig.from_mapping({"bootstrap.servers": cluster.bootstrap_servers})
    return ClusterTransactions(config, 5.0)


async def prepared(cluster: FakeCluster, transactional_id: str = "orders-1") -> PreparedTransaction:
    """An open transaction with one record, whose producer is closed."""
    async with Producer(cluster.bootstrap_servers, transactional_id=transactional_id, **QUICK) as producer:
        opened = await producer.begin_transaction()
        await opened.send("one", b"yes")
        return await opened.prepare()


async def hang(cluster: FakeCluster) -> int:
    """A transaction whose coordinator has lost it; its producer id."""
    found = await prepared(cluster)
    cluster._model._apis.transactions.transactions.pop("orders-1")
    return found.producer_id


def committed(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("one", isolation="read_committed")]


# -- list ---


async def test_every_coordinator_is_asked(cluster: FakeCluster) -> None:
    ids = [f"orders-{number}" for number in range(6)]
    assert len({cluster.transaction_coordinator(each) for each in ids}) == 3
    async with AsyncExitStack() as stack:
        for each in ids:
            await stack.enter_async_context(
                Producer(cluster.bootstrap_servers, transactional_id=each, **QUICK)
            )
        await prepared(cluster, "open")
        outcome = await txn(cluster, "list", "--json")
        assert outcome.code == 0
        rows = outcome.json["transactions"]
        assert [(row["transactional_id"], row["state"]) for row in rows] == [
            ("open", "Ongoing"),
            *((each, "Empty") for each in ids),
        ]
        for row in rows:
            assert row["coordinator"] == cluster.transaction_coordinator(row["transactional_id"])

        shown = await txn(cluster, "list", "--state", "Ongoing")
        assert (shown.code, shown.out.count("Ongoing"), "orders" in shown.out) == (0, 1, False)

    cluster_asked = asked(cluster)

    def ids_of(**filters: Any) -> list[str]:
        return [each.listing.transactional_id for each in cluster_asked.list_transactions(**filters)]

    assert await asyncio.to_thread(ids_of, pattern="orders-[12]") == ["orders-1", "orders-2"]
    assert await asyncio.to_thread(ids_of, producer_ids=[rows[3]["producer_id"]]) == ["orders-2"]
    assert await asyncio.to_thread(ids_of, states=["Ongoing"], duration=3600.0) == []


async def test_as_a_process(cluster: FakeCluster) -> None:
    outcome = await run_cli("txn", "list", "-b", cluster.bootstrap_servers, "--json")
    assert (outcome.code, outcome.json) == (0, {"transactions": []})


async def test_filters_that_are_none(cluster: FakeCluster) -> None:
    outcome = await txn(cluster, "list", "--state", "Open")
    assert (outcome.code, outcome.out) == (2, "")
    assert "'Open'. Kafka's are Empty, Ongoing" in outcome.err
    with pytest.raises(TxnError, match="INVALID_REGULAR_EXPRESSION") as caught:
        await asyncio.to_thread(asked(cluster).list_transactions, pattern="(")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("newest", "filters"), [(0, {"duration": 1.0}), (1, {"pattern": "a.*"})])
async def test_filters_that_the_broker_does_not_have(
    cluster: FakeCluster, newest: int, filters: dict[str, Any]
) -> None:
    """A filter that is left out would show what was not asked for."""
    cluster.set_api_versions({ApiKey.LIST_TRANSACTIONS: (0, newest)})
    with pytest.raises(TxnError, match="the broker cannot filter by"):
        await asyncio.to_thread(asked(cluster).list_transactions, **filters)


async def test_a_broker_without_the_request(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.LIST_TRANSACTIONS: None}, broker=2)
    outcome = await txn(cluster, "list")
    assert (outcome.code, outcome.out) == (1, "")
    assert "broker 2" in outcome.err
    assert "does not offer ListTransactions" in outcome.err


async def test_a_coordinator_that_loads_is_asked_again(cluster: FakeCluster) -> None:
    await prepared(cluster)
    for api in (ApiKey.LIST_TRANSACTIONS, ApiKey.FIND_COORDINATOR):
        code = ErrorCode.coordinator_not_available
        cluster.faults.fail(api, code)
    (found,) = await asyncio.to_thread(asked(cluster).list_transactions)
    assert found.listing.transactional_id == "orders-1"
    assert (await asyncio.to_thread(asked(cluster).describe, "orders-1"))[1].state == "Ongoing"


async def test_over_tls_with_a_login(tmp_path: Path) -> None:
    security = FakeSecurity(users={"alice": "right"}, mechanisms=("SCRAM-SHA-256",))
    file = tmp_path / "client.properties"
    async with FakeCluster(3, security=security) as cluster:
        for password, code in (("right", 0), ("wrong", 4)):
            settings = cluster.client_settings(mechanism="SCRAM-SHA-256", directory=tmp_path)
            settings["bootstrap.servers"] = cluster.bootstrap_servers
            file.write_text(
                "\n".join(f"{key}={value}" for key, value in settings.items()).replace("right", password)
            )
            outcome = await invoke("list", "--json", "--config", str(file))
            assert outcome.code == code, outcome.err


# -- describe ---


async def test_described(cluster: FakeCluster, tmp_path: Path) -> None:
    opened = await prepared(cluster)
    file = tmp_path / "prepared"
    file.write_bytes(opened.to_bytes())
    outcome = await txn(cluster, "describe", "--prepared", str(file), "--json")
    (row,) = outcome.json["transactions"]
    assert row.pop("started_at").endswith("+00:00")
    assert row == {
        "transactional_id": "orders-1",
        "state": "Ongoing",
        "producer_id": opened.producer_id,
        "producer_epoch": opened.producer_epoch,
        "coordinator": cluster.transaction_coordinator("orders-1"),
        "timeout_ms": 60_000,
        "partitions": ["one-0"],
        "outcome": "open",
    }
    shown = await txn(cluster, "describe", "orders-1")
    assert (shown.code, "Ongoing" in shown.out, "outcome" in shown.out) == (0, True, False)


async def test_ids_that_are_not_told(cluster: FakeCluster) -> None:
    outcome = await txn(cluster, "describe", "nobody-s")
    assert outcome.code == 1
    assert "'nobody-s': TRANSACTIONAL_ID_NOT_FOUND" in outcome.err
    cluster.deny_transactional_id("secret")
    with pytest.raises(TxnError, match="grant Describe") as caught:
        await asyncio.to_thread(asked(cluster).describe, "secret")
    assert caught.value.exit_code == 5


# -- prepared ones ---


async def test_ended_from_a_file(cluster: FakeCluster, tmp_path: Path, version: int) -> None:
    cluster.set_transaction_version(version)
    file = tmp_path / "prepared"
    file.write_bytes((await prepared(cluster)).to_bytes())
    outcome = await txn(cluster, "commit", "--prepared", str(file), "--json")
    assert (outcome.code, outcome.json) == (0, {"transactional_id": "orders-1", "outcome": "committed"})
    refused = await txn(cluster, "abort", "--prepared", str(file), "--json")
    assert (refused.code, refused.json["outcome"]) == (1, "committed")
    assert "already committed" in refused.err
    assert committed(cluster) == [b"yes"]

    file.write_bytes((await prepared(cluster)).to_bytes())
    outcome = await txn(cluster, "abort", "--prepared", str(file))
    assert outcome.code == 0
    assert "aborted" in outcome.out
    assert committed(cluster) == [b"yes"]


@pytest.mark.parametrize("content", [None, b"", b"{}"])
async def test_files_that_are_none(cluster: FakeCluster, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "prepared"
    if content is not None:
        file.write_bytes(content)
    outcome = await txn(cluster, "commit", "--prepared", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert ("cannot read" if content is None else "not a prepared transaction") in outcome.err


# -- what hangs ---


async def test_what_a_coordinator_has_open_does_not_hang(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    opened = await prepared(cluster)
    assert await asyncio.to_thread(asked(cluster).hanging, None) == []
    arguments = (
        "abort",
        "--topic",
        "one",
        "--partition",
        "0",
        "--yes",
        "--producer-id",
        str(opened.producer_id),
    )
    outcome = await txn(cluster, *arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert "does not hang" in outcome.err
    assert cluster.last_stable_offset("one", 0) == 0
    forced = await txn(cluster, *arguments, "--force")
    assert forced.code == 0
    assert cluster.last_stable_offset("one", 0) == 2


async def test_found_and_aborted(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    producer_id = await hang(cluster)
    outcome = await txn(cluster, "find-hanging", "--json")
    (row,) = outcome.json["hanging"]
    assert row.pop("last_record_at").endswith("+00:00")
    assert row.pop("producer_epoch") >= 0
    assert row == {
        "topic": "one",
        "partition": 0,
        "start_offset": 0,
        "producer_id": producer_id,
        "coordinator_epoch": -1,
        "transactional_ids": [],
        "why": "no coordinator knows this producer id",
    }
    place = ("--topic", "one", "--partition", "0")
    shown = await txn(cluster, "find-hanging", "--topic", "one")
    assert (shown.code, str(producer_id) in shown.out) == (0, True)

    for answer in (b"n\n", b""):
        refused = await txn(cluster, "abort", *place, "--start-offset", "0", stdin=answer)
        assert (refused.code, refused.out) == (1, "")
    assert cluster.last_stable_offset("one", 0) == 0
    outcome = await txn(cluster, "abort", *place, "--start-offset", "0", stdin=b"y\n")
    assert outcome.code == 0, outcome.err
    assert cluster.last_stable_offset("one", 0) == 2
    assert committed(cluster) == []
    assert await asyncio.to_thread(asked(cluster).hanging, "one") == []


async def test_another_transaction_of_its_id_goes_on(cluster: FakeCluster) -> None:
    """Its coordinator knows the producer id, and an end elsewhere: nobody will end this one."""
    await prepared(cluster)
    transaction = cluster._model._apis.transactions.transactions["orders-1"]
    transaction.partitions.clear()
    transaction.partitions[("t", 3)] = None
    (found,) = await asyncio.to_thread(asked(cluster).hanging, "one")
    assert found.transactional_ids == ("orders-1",)
    assert "knows no open transaction there (Ongoing)" in found.why


async def test_one_that_ends_meanwhile_does_not_hang(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(cluster)
    file = asked(cluster)
    loop = asyncio.get_running_loop()
    listed = file.list_transactions

    def ended_first(**filters: Any) -> Any:
        producer = Producer(cluster.bootstrap_servers, transactional_id="orders-1", **QUICK)

        async def fenced() -> None:
            async with producer:
                pass

        asyncio.run_coroutine_threadsafe(fenced(), loop).result()
        return listed(**filters)

    monkeypatch.setattr(file, "list_transactions", ended_first)
    assert await asyncio.to_thread(file.hanging, None) == []


async def test_a_marker_does_not_meet_the_next_transaction(cluster: FakeCluster) -> None:
    """While the operator thinks about the answer the transaction ends, and another one begins."""
    opened = await prepared(cluster)
    where = TopicPartition("one", 0)
    (found,) = await asyncio.to_thread(asked(cluster).producers, where)
    await opened.abort(cluster.bootstrap_servers, **QUICK)
    await prepared(cluster)
    with pytest.raises(TxnError, match="has ended meanwhile"):
        await asyncio.to_thread(asked(cluster).write_abort, where, found)
    assert cluster.last_stable_offset("one", 0) == 2


async def test_a_partition_without_a_leader_is_named(cluster: FakeCluster) -> None:
    await hang(cluster)
    cluster.take_leader("t", 3)
    outcome = await txn(cluster, "find-hanging", "--json")
    assert (outcome.code, len(outcome.json["hanging"])) == (0, 1)
    assert "warning: t-3 has no leader" in outcome.err


async def test_places_where_nothing_is(cluster: FakeCluster) -> None:
    await prepared(cluster)
    where = asked(cluster)
    with pytest.raises(TxnError, match="no partition 7 of topic 'one'") as caught:
        await asyncio.to_thread(where.producers, TopicPartition("one", 7))
    assert caught.value.exit_code == 2
    with pytest.raises(TxnError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await asyncio.to_thread(where.hanging, "nowhere")
    outcome = await txn(
        cluster, "abort", "--topic", "one", "--partition", "0", "--start-offset", "9", "--yes"
    )
    assert outcome.code == 2
    assert "open there: producer" in outcome.err
    assert "from offset 0 on" in outcome.err


async def test_a_leader_that_does_not_tell(cluster: FakeCluster) -> None:
    await hang(cluster)
    cluster.deny_topic("one")
    with pytest.raises(TxnError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        await asyncio.to_thread(asked(cluster).hanging, "one")
    assert caught.value.exit_code == 5
    cluster.deny_topic("one", False)
    cluster.set_api_versions({ApiKey.DESCRIBE_PRODUCERS: None})
    with pytest.raises(TxnError, match="does not offer DescribeProducers"):
        await asyncio.to_thread(asked(cluster).hanging, "one")


async def test_nothing_hangs_as_long_as_a_coordinator_is_not_known(cluster: FakeCluster) -> None:
    """Its transactions are in nobody's list."""
    await hang(cluster)
    cluster.create_topic("__transaction_state", 1)
    cluster.take_leader("__transaction_state", 0)
    with pytest.raises(TxnError, match="partition of __transaction_state has no leader"):
        await asyncio.to_thread(asked(cluster).hanging, "one")


async def test_a_marker_that_the_leader_refuses(cluster: FakeCluster) -> None:
    """An epoch below the producer's; and one that does not know the request."""
    async with Producer(cluster.bootstrap_servers, transactional_id="orders-1", **QUICK):
        pass
    await hang(cluster)
    place = ("--topic", "one", "--partition", "0", "--start-offset", "0", "--yes")
    outcome = await txn(cluster, "abort", *place, "--producer-epoch", "0")
    assert (outcome.code, outcome.out) == (1, "")
    assert "WriteTxnMarkers for one-0: INVALID_PRODUCER_EPOCH" in outcome.err
    cluster.set_api_versions({ApiKey.WRITE_TXN_MARKERS: None})
    outcome = await txn(cluster, "abort", *place)
    assert (outcome.code, outcome.out) == (1, "")
    assert "does not offer WriteTxnMarkers" in outcome.err
    assert cluster.last_stable_offset("one", 0) == 0


async def test_no_cluster() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        outcome = await invoke("list", "-b", f"127.0.0.1:{unused.getsockname()[1]}")
    assert (outcome.code, outcome.out) == (1, "")
    assert "the cluster: " in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort",),
        ("abort", "--topic", "one"),
        ("abort", "--topic", "one", "--partition", "0"),
        ("abort", "--topic", "one", "--partition", "0", "--start-offset", "1", "--producer-id", "1"),
        ("describe",),
    ],
)
async def test_usage(cluster: FakeCluster, arguments: tuple[str, ...]) -> None:
    outcome = await txn(cluster, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert "say which" in outcome.err


async def test_nothing_hangs_where_the_coordinators_log_may_not_be_described(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live transaction whose coordinator is not among the brokers that are told."""
    real = ClusterTransactions._metadata

    def denied(self: ClusterTransactions, topics: Any) -> Any:
        metadata = real(self, topics)
        log = TopicMetadata("__transaction_state", None, codes.TOPIC_AUTHORIZATION_FAILED)
        return replace(metadata, topics=(*(each for each in metadata.topics if each.name != log.name), log))

    monkeypatch.setattr(ClusterTransactions, "_metadata", denied)
    for topics in ((), ("--topic", "one")):
        outcome = await txn(cluster, "find-hanging", *topics)
        assert outcome.code == 5, outcome
        assert "TOPIC_AUTHORIZATION_FAILED" in outcome.err


def test_what_terminals_obey_is_not_shown() -> None:
    row = {"transactional_id": "a\x1b[2J", "partitions": ["b\x1b]0;x\x07-0"]}
    shown = rendered(rows_view([row], row)) + rendered(pairs_view(row))
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert "a\N{REPLACEMENT CHARACTER}[2J" in shown
