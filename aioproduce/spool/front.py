"""The producer in front of a queue, which sends to the disk: its settings, and what its errors mean to a caller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioproduce.config.kinds import INT_MAX
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    SpoolFullError,
    SpoolStorageError,
)
from aioproduce.producer.interceptors import auditor_of
from aioproduce.spool.local_broker import ADDRESS
from aioproduce.wire.error_codes import POLICY_VIOLATION

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.errors import DeliveryError

# More than the writer may take for one group; what it takes longer for is possibly stored.
_MARGIN: Final = 30.0
_FRONT_BATCH: Final = 256 * 1024
# Batches of a topic that are under way to the disk; the queue of a topic keeps the groups of more.
_MOST_UNDER_WAY: Final = 5


def check_config(config: ProducerConfig) -> None:
    """Refuse settings that a spooled producer cannot have.

    Raises:
        ConfigError: if there is one.
    """
    if config.acks == 0:
        raise ConfigError(
            "acks=0: a spooled producer removes from the disk what is acknowledged, and this acknowledges nothing; "
            "set acks to all",
            key="acks",
        )
    if config.transactional_id is not None:
        raise ConfigError(
            "transactional.id: a spooled producer does not take one: with exactly_once it makes its own, from the "
            "queue's id",
            key="transactional.id",
        )
    if auditor_of(config.interceptors) is not None:
        raise ConfigError(
            "interceptors: a spooled producer numbers its records itself, in the same header as an Auditor: leave "
            "the Auditor out",
            key="interceptors",
        )


def front_config(config: ProducerConfig) -> ProducerConfig:
    """Return the settings of the producer that sends to the disk: no network, no retries that could store twice."""
    host, _, port = ADDRESS.partition(":")
    return replace(
        config,
        bootstrap_servers=((host, int(port)),),
        client_id=f"{config.client_id}-spool",
        security_protocol="PLAINTEXT",
        partitioner="uniform_sticky",
        batch_size=max(config.batch_size, _FRONT_BATCH),
        linger=0.0,
        compression_type="none",
        acks=-1,
        enable_idempotence=False,
        max_in_flight=_MOST_UNDER_WAY,
        retries=INT_MAX,
        request_timeout=config.max_block + _MARGIN,
        delivery_timeout=config.max_block + _MARGIN,
        enable_metrics_push=False,
    )


def stored_error(error: DeliveryError) -> SpoolFullError | SpoolStorageError:
    """Return what a call raises whose record the front producer could not send to the disk."""
    if isinstance(error, BrokerRejectedError) and error.code == POLICY_VIOLATION:
        return SpoolFullError(
            "the queue on disk is full, and no room became free in time; nothing was stored. Let the cluster take "
            "what is in it, or raise max_bytes"
        )
    return SpoolStorageError(
        f"the record could not be stored on disk: {error}", possibly_stored=error.possibly_written
    )
