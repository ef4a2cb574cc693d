"""Converts the arguments of aiokafka's producer to settings, and refuses what aiokafka refuses.

Used by the drop-in's constructor. Stricter checks and bounds that aiokafka does not have are noted here and in
docs/how-to/migrate-from-aiokafka.md.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, final

from aiokafka.conn import collect_hosts

from aioproduce.config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioproduce.partitioners.protocol import TopicView

MISSING: Final = object()
"""The value of `acks` if it is not passed."""

_COMPRESSIONS: Final = ("gzip", "snappy", "lz4", "zstd", None)
_PROTOCOLS: Final = ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# With idempotence aiokafka retries for ever. Here a record that cannot be delivered fails after Java's two
# minutes.
_IDEMPOTENT_DELIVERY_MS: Final = 120_000
_BUFFER: Final = 32 * 2**20
_SETUP_MS: Final = 10_000


def config_of(given: Mapping[str, Any]) -> ProducerConfig:
    """Return our configuration for aiokafka's arguments.

    Raises:
        ValueError: If aiokafka refuses a value, or if a value is out of range here (ConfigError).
    """
    acks, is_idempotent = _acks(given)
    if given["compression_type"] not in _COMPRESSIONS:
        raise ValueError("Invalid compression type!")
    security = _security(given)
    # aiokafka accepts fractions of milliseconds.
    timeout = ceil(given["request_timeout_ms"])
    linger = ceil(given["linger_ms"])
    batch_size = given["max_batch_size"]
    idle = given["connections_max_idle_ms"]
    settings: dict[str, object] = {
        "bootstrap.servers": _servers(given["bootstrap_servers"]),
        "client.id": given["client_id"],
        "acks": acks,
        "enable.idempotence": is_idempotent,
        "compression.type": given["compression_type"] or "none",
        "batch.size": batch_size,
        "linger.ms": linger,
        "max.request.size": given["max_request_size"],
        "metadata.max.age.ms": ceil(given["metadata_max_age_ms"]),
        "request.timeout.ms": timeout,
        # `send()` waits as long for the topic and for room.
        "max.block.ms": timeout,
        "socket.connection.setup.timeout.ms": max(min(_SETUP_MS, timeout), 1),
        # A batch fails with the error of the first attempt that ends after request_timeout_ms. That attempt may
        # begin just before then and take as long.
        "delivery.timeout.ms": max(linger + 2 * timeout, _IDEMPOTENT_DELIVERY_MS if is_idempotent else 0),
        "retry.backoff.ms": ceil(given["retry_backoff_ms"]),
        "retry.backoff.max.ms": max(ceil(given["retry_backoff_ms"]), 1_000),
        "connections.max.idle.ms": -1 if idle is None else ceil(idle),
        "buffer.memory": max(_BUFFER, 2 * batch_size, 2 * given["max_request_size"]),
        **security,
    }
    if not is_idempotent:
        # aiokafka's order: a batch is not sent before the previous one is done.
        settings["max.in.flight.requests.per.connection"] = 1
    if given["transactional_id"] is not None:
        settings["transactional.id"] = given["transactional_id"]
        settings["transaction.timeout.ms"] = ceil(given["transaction_timeout_ms"])
    if given["partitioner"] is not MISSING:
        settings["partitioner.class"] = AiokafkaPartitioner(given["partitioner"])
    return ProducerConfig.from_mapping(settings)


def _acks(given: Mapping[str, Any]) -> tuple[object, bool]:
    acks = given["acks"]
    # The first comparison is aiokafka's: it accepts `True` and `1.0` for 1.
    if acks is not MISSING and acks not in (0, 1, -1, "all"):
        raise ValueError("Invalid ACKS parameter")
    if given["enable_idempotence"] or given["transactional_id"] is not None:
        if acks is not MISSING and acks not in ("all", -1):
            raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
        return "all", True
    return ("1" if acks is MISSING else str(acks) if acks == "all" else str(int(acks))), False


def _security(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the security settings; arguments that the protocol does not need are ignored, as in aiokafka."""
    protocol = given["security_protocol"]
    if protocol not in _PROTOCOLS:
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    if protocol in ("SSL", "SASL_SSL") and given["ssl_context"] is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    if protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        mechanism = given["sasl_mechanism"]
        if mechanism not in _MECHANISMS:
            raise ValueError(
                "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER` sasl_mechanism are "
                "supported at the moment"
            )
        if mechanism == "PLAIN" and (
            given["sasl_plain_username"] is None or given["sasl_plain_password"] is None
        ):
            raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")
    settings: dict[str, object] = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.context"] = given["ssl_context"]
    if protocol.startswith("SASL"):
        settings |= _sasl(given)
    return settings


def _sasl(given: Mapping[str, Any]) -> dict[str, object]:
    mechanism = given["sasl_mechanism"]
    settings: dict[str, object] = {"sasl.mechanism": mechanism}
    if mechanism == "GSSAPI":
        settings["sasl.kerberos.service.name"] = given["sasl_kerberos_service_name"]
        settings["sasl.kerberos.domain.name"] = given["sasl_kerberos_domain_name"]
    elif mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.token.provider"] = given["sasl_oauth_token_provider"]
    else:
        settings["sasl.username"] = given["sasl_plain_username"]
        settings["sasl.password"] = given["sasl_plain_password"]
    return settings


def _servers(servers: str | Sequence[str]) -> list[str]:
    """Return addresses as aiokafka reads them, where the port may be missing."""
    found = collect_hosts(servers, randomize=False)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port, _ in found]


@final
class AiokafkaPartitioner:
    """A partitioner written for aiokafka: `partitioner(key_bytes, all_partitions, available_partitions)`."""

    __slots__ = ("_choose",)

    def __init__(self, choose: Callable[[bytes | None, list[int], list[int]], int]) -> None:
        self._choose = choose

    def partition(
        self,
        topic: str,  # noqa: ARG002  # the protocol's; aiokafka's callables get only the key
        key: bytes | None,
        value: bytes | None,  # noqa: ARG002
        view: TopicView,
    ) -> int:
        """Return the partition that the callable chooses."""
        # A new list, as in aiokafka, because the callable may shuffle it.
        return self._choose(key, list(range(view.partition_count)), list(view.available))
