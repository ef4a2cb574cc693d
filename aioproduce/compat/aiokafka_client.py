"""The part of `producer.client` that aiokafka's users need: addresses, and whether the cluster is reachable.

The rest of aiokafka's client does not exist here. The error for a missing name says what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from aiokafka.structs import BrokerMetadata

from aioproduce.compat.aiokafka_errors import theirs

if TYPE_CHECKING:
    from aioproduce.compat.aiokafka_path import AiokafkaPath


@final
class ClusterView:
    """The brokers at the time of the request.

    Args:
        addresses: Broker id -> host and port.
    """

    def __init__(self, addresses: dict[int, tuple[str, int]]) -> None:
        self._addresses = addresses

    def brokers(self) -> set[BrokerMetadata]:
        """Return all brokers."""
        return {BrokerMetadata(node, host, port, None) for node, (host, port) in self._addresses.items()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return one broker."""
        found = self._addresses.get(broker_id)
        return None if found is None else BrokerMetadata(broker_id, *found, None)


@final
class ClientView:
    """The part of aiokafka's client that programs use through a producer, mainly for health checks.

    Example:
        >>> await producer.client.fetch_all_metadata()  # raises if no broker answers
    """

    def __init__(self, path: AiokafkaPath) -> None:
        self._path = path

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """The bootstrap servers."""
        return list(self._path.config.bootstrap_servers)

    @property
    def _client_id(self) -> str:
        return self._path.config.client_id

    async def fetch_all_metadata(self) -> ClusterView:
        """Request the cluster's metadata.

        Raises:
            KafkaConnectionError: If no broker answered within `request_timeout_ms`.
        """
        return ClusterView(await self._path.cluster())

    async def force_metadata_update(self) -> bool:
        """Request the cluster's metadata and return whether it answered, as aiokafka does."""
        try:
            await self._path.cluster()
        except theirs.KafkaConnectionError:
            return False
        return True

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"aioproduce's drop-in does not have client.{name}: of aiokafka's client it has hosts, "
            "fetch_all_metadata() and force_metadata_update(). For a topic's partitions use "
            "producer.partitions_for()"
        )

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._client_id}>"
