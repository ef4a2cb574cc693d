"""`aioproduce dev`: a Kafka cluster in memory on loopback, until Ctrl-C.

Called by `app`. The cluster is `aioproduce.testing.FakeCluster`: for development, never for data that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce.cli.display import as_json_line, complain, write_output
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.signals import ended_by_signal
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_topics(topics: Sequence[str], default_partitions: int) -> dict[str, int]:
    """Each `--topic name` or `name:partitions`.

    Raises:
        ValueError: one is not of that form, or comes twice.
    """
    parsed: dict[str, int] = {}
    for topic in topics:
        name, _, count = topic.partition(":")
        if count and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise ValueError(f"--topic takes name or name:partitions, e.g. orders:6, not {topic!r}")
        if name in parsed:
            raise ValueError(f"topic {name!r} is named twice")
        parsed[name] = int(count) if count else default_partitions
    return parsed


async def run_dev(
    brokers: int, host: str, port: int, topics: dict[str, int], default_partitions: int, *, as_json: bool
) -> ExitCode:
    """Run the cluster until SIGINT or SIGTERM, which is how it is meant to end.

    Args:
        brokers: How many.
        host: Where to listen.
        port: Of the first broker, the others follow; 0: free ones.
        topics: Name -> partitions, created at the start.
        default_partitions: Of topics that clients create.
        as_json: Tell the addresses as one JSON object instead of text.
    """
    ended = ended_by_signal()
    try:
        cluster = FakeCluster(
            brokers,
            host=host,
            ports=range(port, port + brokers) if port else (),
            topics=topics,
            default_partitions=default_partitions,
        )
    except ValueError as error:
        complain(f"error: {error}")
        return ExitCode.BAD_INPUT
    try:
        await cluster.start()
    except OSError as error:
        complain(
            f"error: cannot listen on {host}, port {port or 'any'}: {error.strerror or error}. Is another "
            "cluster running there? --port 0 takes free ports"
        )
        return ExitCode.NOT_ACKNOWLEDGED
    try:
        if not write_output(as_json_line(_addresses(cluster)) if as_json else _welcome(cluster)):
            return ExitCode.NOT_ACKNOWLEDGED
        await ended.wait()
    finally:
        await cluster.close()
    if not as_json:
        write_output(_farewell(cluster))
    return ExitCode.DONE


def _addresses(cluster: FakeCluster) -> dict[str, object]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "topics": {name: len(topic.partitions) for name, topic in cluster.topics.items()},
    }


def _welcome(cluster: FakeCluster) -> str:
    servers = cluster.bootstrap_servers
    topic = next(iter(cluster.topics), "orders")
    return (
        f"{len(cluster.ports)} brokers in memory: for development, all is lost at the end. Ctrl-C ends them.\n\n"
        f"bootstrap servers: {servers}\n\n"
        f"  echo hello | aioproduce send {topic} -b {servers}\n"
        f'  async with Producer("{servers}") as producer:\n'
        f'      await producer.send_and_wait("{topic}", b"hello")\n\n'
        "Topics are created when they are first sent to.\n"
    )


def _farewell(cluster: FakeCluster) -> str:
    counts = [
        f"  {name}: {sum(part.log.end_offset - part.log.start_offset for part in topic.partitions):,} records\n"
        for name, topic in cluster.topics.items()
    ]
    return "ended. " + ("What was in it:\n" + "".join(counts) if counts else "Nothing was in it.\n")
