"""A broker's name with several addresses under trio: each is tried in its turn (KIP-302).

asyncio and uvloop try them by themselves; here it is the driver's own doing (`drivers.trio_connection`). The names
are resolved by the test: nothing asks a server.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import pytest
import trio

from aioproduce import Producer
from aioproduce.errors import NoBrokerAvailableError
from tests.drivers.loop_thread import cluster_aside
from tests.drivers.producing import closed_port

NAME: Final = "brokers.test"
NOWHERE: Final = "255.255.255.255:9092"
"""No address that TCP goes to: refused here and at once, and otherwise than by a port where nobody listens."""


class Resolver(trio.abc.HostnameResolver):
    """Knows one name, which has these addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses
        self.asked = 0

    async def getaddrinfo(
        self, host: bytes | None, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        del port, family, type, proto, flags
        assert host == NAME.encode()
        self.asked += 1
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, int(its_port)))
            for ip, its_port in (address.split(":") for address in self._addresses)
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


def run(resolver: Resolver, body: Callable[[Producer], Awaitable[None]]) -> None:
    """With a producer that has the name for all its bootstrap servers."""

    async def main() -> None:
        trio.socket.set_custom_hostname_resolver(resolver)
        async with Producer(f"{NAME}:9092") as producer:
            await body(producer)

    trio.run(main)
    gc.collect(1)  # a socket that nobody closed warns


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_first_address_that_answers_is_taken(place: int) -> None:
    with cluster_aside(1, topics={"t": 1}) as cluster, closed_port() as closed:
        addresses = [closed, NOWHERE]
        addresses.insert(place, cluster.bootstrap_servers)
        resolver = Resolver(*addresses)

        async def body(producer: Producer) -> None:
            assert len((await producer.check(tries_each_once=True)).brokers) == 1
            await producer.send_and_wait("t", b"v")
            # One attempt, within which they were tried: no second one, which would ask for the name again.
            assert resolver.asked == 1

        run(resolver, body)
        assert [record.value for record in cluster.records("t")] == [b"v"]


def test_no_address_is_tried_behind_one_that_answers() -> None:
    with cluster_aside(1, topics={"t": 1}) as cluster, cluster_aside(1, topics={"t": 1}) as other:

        async def body(producer: Producer) -> None:
            await producer.send_and_wait("t", b"v")

        run(Resolver(cluster.bootstrap_servers, other.bootstrap_servers), body)
        assert other.requests.count() == 0
        assert cluster.requests.count() > 0


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (["closed"], ["Connection refused"]),
        (["closed", "closed"], ["Connection refused"]),
        (["closed", NOWHERE], ["127.0.0.1: Connection refused", "; 255.255.255.255: "]),
        ([NOWHERE, "closed"], ["255.255.255.255: ", "; 127.0.0.1: Connection refused"]),
    ],
    ids=["one", "alike", "refused first", "refused last"],
)
def test_what_went_wrong_is_told_of_each_address_where_it_differs(
    addresses: Sequence[str], words: Sequence[str]
) -> None:
    with closed_port() as closed:
        resolver = Resolver(*(closed if address == "closed" else address for address in addresses))

        async def body(producer: Producer) -> None:
            with pytest.raises(NoBrokerAvailableError) as caught:
                await producer.check(tries_each_once=True)
            [(server, why)] = caught.value.causes.items()
            assert server == f"{NAME}:9092"
            assert all(word in why for word in words), why
            assert why.count("Connection refused") == 1

        run(resolver, body)
