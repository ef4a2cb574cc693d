"""`aioproduce dev`: a Kafka cluster in memory on loopback, until Ctrl-C.

Called by `app`. It runs `aioproduce.testing.FakeCluster`, for development and never for data that matters.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aioproduce.cli.display import as_json_line, complain, write_output
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.signals import ended_by_signal
from aioproduce.errors import ConfigError
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aioproduce.cli.dev_access import Access


def parse_topics(topics: Sequence[str], default_partitions: int) -> dict[str, int]:
    """Return the topics of `--topic name` and `--topic name:partitions`.

    Raises:
        ValueError: if one is not of that form, or comes twice.
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
    brokers: int,
    host: str,
    port: int,
    topics: dict[str, int],
    default_partitions: int,
    access: Access,
    *,
    as_json: bool,
) -> ExitCode:
    """Run the cluster until SIGINT or SIGTERM, its normal end.

    Args:
        brokers: The number of brokers.
        host: The address to listen on.
        port: The first broker's; the others take the next ones. 0 takes free ports.
        topics: Name -> partitions, created at the start.
        default_partitions: The partitions of topics that clients create.
        access: TLS and login of the clients.
        as_json: Print the addresses as one JSON object instead of text.

    Raises:
        ConfigError: if the file for the clients cannot be written.
        MissingExtraError: if TLS was asked for, and the library for certificates is missing.
    """
    ended = ended_by_signal()
    try:
        cluster = FakeCluster(
            brokers,
            host=host,
            ports=range(port, port + brokers) if port else (),
            topics=topics,
            default_partitions=default_partitions,
            security=access.security,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        await cluster.start()
    except OSError as error:
        complain(
            f"error: cannot listen on {host}, {_ports(port, brokers)}: {error.strerror or error}. Is another "
            "cluster running there? --port 0 takes free ports"
        )
        return ExitCode.BAD_INPUT
    try:
        with access.written(cluster) as path:
            text = (
                as_json_line(_addresses(cluster, access, path))
                if as_json
                else _welcome(cluster, access, path)
            )
            if written := write_output(text):
                return written
            await ended.wait()
    finally:
        await cluster.close()
    if not as_json:
        write_output(_farewell(cluster))
    return ExitCode.DONE


def _addresses(cluster: FakeCluster, access: Access, path: Path | None) -> dict[str, object]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "topics": {name: len(topic.partitions) for name, topic in cluster.topics.items()},
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
        "user": access.user,
        "made_password": access.made_password,
        "config_file": None if path is None else str(path),
    }


def _welcome(cluster: FakeCluster, access: Access, path: Path | None) -> str:
    servers = cluster.bootstrap_servers
    topic = next(iter(cluster.topics), "orders")
    facts = [("bootstrap servers", servers)]
    if access.security is not None:
        facts.append(("security", " ".join(filter(None, (access.protocol, access.mechanism)))))
    if access.user is not None:
        facts.append(("user", access.user))
    if access.made_password is not None:
        facts.append(("password", access.made_password))
    if path is None:
        way, made = f"-b {servers}", f'Producer("{servers}")'
    else:
        facts.append(("clients' settings", str(path)))
        way, made = f"--config {shlex.quote(str(path))}", f'Producer.from_properties("{path}")'
    return (
        f"{len(cluster.ports)} brokers in memory, for development: Ctrl-C ends them, and all data is lost.\n\n"
        + "".join(f"{name}: {value}\n" for name, value in facts)
        + f"\n  echo hello | aioproduce send {topic} {way}\n"
        f"  aioproduce check {topic} {way}\n"
        f"  async with {made} as producer:\n"
        f'      await producer.send_and_wait("{topic}", b"hello")\n\n' + _topics(cluster)
    )


def _topics(cluster: FakeCluster) -> str:
    if not cluster.topics:
        return "A topic is created when a client first sends to it.\n"
    there = ", ".join(f"{name} ({len(topic.partitions)})" for name, topic in cluster.topics.items())
    return (
        f"Topics, with their partitions: {there}. Another topic is created when a client first sends to it.\n"
    )


def _ports(first: int, count: int) -> str:
    if not first:
        return "any port"
    return f"port {first}" if count == 1 else f"ports {first} to {first + count - 1}"


def _farewell(cluster: FakeCluster) -> str:
    counts = [
        f"  {name}: {sum(part.log.end_offset - part.log.start_offset for part in topic.partitions):,} records\n"
        for name, topic in cluster.topics.items()
    ]
    return "ended. " + ("It held:\n" + "".join(counts) if counts else "It held no topic.\n")
