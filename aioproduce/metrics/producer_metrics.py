"""The sensors of one producer, which the core, the driver and `send()` record into.

Owned by the ProducerLife, which passes it to the code that records. Values are recorded once per batch, request or
wait, never per record. Values that can be read on demand (bytes in use, requests in flight) are gauges.

Times are recorded in seconds and kept in the units of Kafka's metrics: milliseconds, or nanoseconds if the name
says so.

Invariant: recording never raises, and memory grows only with the number of topics and brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from aioproduce._native.sensors import BatchMetrics, RequestMetrics
from aioproduce._native.stats import Distribution, Meter, Windows

_MS: Final = 1e3
_NS: Final = 1e9

TIMED_CALLS: Final[Mapping[str, str]] = {
    "flush": "flush() took",
    "txn-init": "init_transactions() took",
    "txn-begin": "begin_transaction() took",
    "txn-send-offsets": "send_offsets_to_transaction() took",
    "txn-prepare": "prepare_transaction() took",
    "txn-commit": "commit_transaction() took",
    "txn-abort": "abort_transaction() took",
    "metadata-wait": "calls waited for a topic's metadata",
}
"""The times that `<name>-time-ns-total` adds up, in words."""


@final
class ProducerMetrics(RequestMetrics):
    """All sensors of a producer; those of requests and of the sender's steps are inherited.

    Args:
        windows: The sample windows.

    Attributes:
        batches: The sensors of batches, by topic and in total.
        gauges: The values that are read on demand, by the metric's name; set by the owner.
        calls: Nanoseconds spent in each of `TIMED_CALLS`.
    """

    __slots__ = (
        "authentications",
        "authentications_without_end",
        "batch_splits",
        "batches",
        "buffer_exhausted",
        "buffer_wait",
        "buffer_wait_time",
        "calls",
        "connections_closed",
        "connections_created",
        "failed_authentications",
        "failed_reauthentications",
        "gauges",
        "reauthentication_latency",
        "reauthentications",
        "unobserved_failures",
    )

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self.batches: BatchMetrics = BatchMetrics(windows)
        self.gauges: dict[str, Callable[[float], float]] = {}
        self.calls: dict[str, int] = dict.fromkeys(TIMED_CALLS, 0)
        self.batch_splits: Meter = Meter(windows)
        # the pool's
        self.buffer_wait: Meter = Meter(windows)
        self.buffer_wait_time: Distribution = Distribution(windows)
        self.buffer_exhausted: Meter = Meter(windows)
        # the network's
        self.connections_created: Meter = Meter(windows)
        self.connections_closed: Meter = Meter(windows)
        self.authentications: Meter = Meter(windows)
        self.authentications_without_end: Meter = Meter(windows)
        self.failed_authentications: Meter = Meter(windows)
        self.reauthentications: Meter = Meter(windows)
        self.failed_reauthentications: Meter = Meter(windows)
        self.reauthentication_latency: Distribution = Distribution(windows)
        # our own
        self.unobserved_failures: Meter = Meter(windows)

    def refused(self, now: float, count: int = 1) -> None:
        """Count records that did not get into a batch, because the call that sent them raised."""
        self.batches.errors.record(count, now)

    # -- logins ---

    def authenticated(self, is_first: bool, has_end: bool, seconds: float, now: float) -> None:
        """Record a successful login, or without SASL the handshake of TLS.

        Args:
            is_first: Whether it is the connection's first one.
            has_end: Whether the broker ends the session unless the client logs in again.
            seconds: How long it took.
            now: The current instant.
        """
        if not is_first:
            self.reauthentications.record(1, now)
            self.reauthentication_latency.record(seconds * _MS, now)
            return
        self.authentications.record(1, now)
        if not has_end:
            self.authentications_without_end.record(1, now)

    def authentication_failed(self, is_first: bool, now: float) -> None:
        """Record a failed login, or a failed handshake of TLS."""
        (self.failed_authentications if is_first else self.failed_reauthentications).record(1, now)

    # -- waits ---

    def waited_for_memory(self, seconds: float, now: float) -> None:
        """Record that a call waited for room, successfully or not."""
        self.buffer_wait.record(seconds * _NS, now)
        self.buffer_wait_time.record(seconds * _MS, now)

    def spent(self, call: str, seconds: float) -> None:
        """Record the duration of a call of `TIMED_CALLS`."""
        self.calls[call] += round(seconds * _NS)
