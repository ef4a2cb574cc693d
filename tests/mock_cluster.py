"""librdkafka's mock cluster: a broker that somebody else wrote, in this process, with faults on request.

Used by the ``mock_cluster`` fixture (``tests/integration/conftest.py``), by ctypes into the library inside
the confluent-kafka wheel. ``rdkafka_mock.h`` is experimental and promises no ABI: the development dependency
is pinned for this module.

What it is good for: that somebody else accepts our encoding, version fallback (it knows ApiVersions to v2
only), error codes, leader moves, disconnects. What it does **not** check, so that no test may lean on it:
sequences of a producer without transactional.id, CRC, record counts, acks (acks=0 gets an answer, where Kafka
sends none), message size, fencing, aborted transactions. LogAppendTime is always 1234. It keeps 5 MiB per
partition, and an auto-created topic has 4 partitions.

1. After every control call the wrapper waits a millisecond: the library's thread can miss the wake-up of a
   call that follows at once, and then serves it at its next timer, a second later (seen 5 times in 60).
2. What crashes the process is refused: a leaderless partition while Produce v10 or Fetch v12 is on offer,
   whose answers name the leader through a null pointer. The same happens when NOT_LEADER_OR_FOLLOWER is
   injected and a Produce v10 then names an unknown topic: create the topic first.
3. A control call that librdkafka refuses raises; nothing is ignored.
4. The cluster and its threads end with the ``with`` block.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRODUCER: Final = 0
_ERROR_TEXT_SIZE: Final = 512
# Invariant 1. Measured with it: no stall in 240 calls.
_WAKE_UP: Final = 0.001

# RD_KAFKA_RESP_ERR__TRANSPORT: an injected "error" that makes the broker close the connection instead.
DISCONNECT: Final = -195

ALL_BROKERS: Final = -1
NO_LEADER: Final = -1

# The last version of Metadata before the flexible ones, whose answers the mock ends with a byte too many.
LAST_SOUND_METADATA: Final = 8


class Api(enum.IntEnum):
    """Keys of the requests that tests inject errors into or take versions from."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22


# The last versions whose answers do not carry the current leader (KIP-951, KIP-595): see invariant 2.
_SAFE_WITHOUT_LEADER: Final = {Api.PRODUCE: 9, Api.FETCH: 11}


class MockClusterError(Exception):
    """librdkafka refused a control call."""


class MockRequest(NamedTuple):
    """A request that reached a broker, in the order of ``timestamp`` (seconds of the library's own clock)."""

    broker_id: int
    api_key: int
    timestamp: float


@functools.cache
def rdkafka_library() -> ctypes.CDLL:
    """Load the librdkafka that confluent-kafka itself uses, and declare what is called here."""
    package = Path(confluent_kafka.__file__).parent
    bundled = [
        *package.parent.glob("confluent_kafka.libs/librdkafka-*"),
        *package.glob(".dylibs/librdkafka*"),
    ]
    path = str(bundled[0]) if bundled else ctypes.util.find_library("rdkafka")
    if path is None:
        raise MockClusterError("confluent-kafka bundles no librdkafka here, and the system has none")
    library = ctypes.CDLL(path)
    text, version = confluent_kafka.libversion()
    if library.rd_kafka_version() != version:
        raise MockClusterError(f"{path} is not the librdkafka {text} that confluent-kafka uses")
    pointer, string, i16, i32, size = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int16,
        ctypes.c_int32,
        ctypes.c_size_t,
    )
    integer = ctypes.c_int
    sizes = ctypes.POINTER(size)
    signatures: dict[str, tuple[object, list[object]]] = {
        "conf_new": (pointer, []),
        "conf_destroy": (None, [pointer]),
        "conf_set": (integer, [pointer, string, string, string, size]),
        "new": (pointer, [integer, pointer, string, size]),
        "destroy": (None, [pointer]),
        "err2str": (string, [integer]),
        "mock_cluster_new": (pointer, [pointer, integer]),
        "mock_cluster_destroy": (None, [pointer]),
        "mock_cluster_bootstraps": (string, [pointer]),
        "mock_topic_create": (integer, [pointer, string, integer, integer]),
        "mock_topic_delete": (integer, [pointer, string]),
        "mock_topic_set_error": (None, [pointer, string, integer]),
        "mock_partition_set_leader": (integer, [pointer, string, i32, i32]),
        "mock_partition_push_leader_response": (integer, [pointer, string, integer, i32, i32]),
        "mock_broker_set_down": (integer, [pointer, i32]),
        "mock_broker_set_up": (integer, [pointer, i32]),
        "mock_broker_set_rtt": (integer, [pointer, i32, integer]),
        "mock_broker_set_host_port": (None, [pointer, i32, string, integer]),
        "mock_broker_add": (integer, [pointer, i32]),
        "mock_broker_decommission": (integer, [pointer, i32]),
        "mock_push_request_errors_array": (None, [pointer, i16, size, ctypes.POINTER(integer)]),
        # Variadic: pairs of (error, round trip in ms) follow.
        "mock_broker_push_request_error_rtts": (integer, [pointer, i32, i16, size]),
        "mock_clear_request_errors": (None, [pointer, i16]),
        "mock_set_apiversion": (integer, [pointer, i16, i16, i16]),
        "mock_start_request_tracking": (None, [pointer]),
        "mock_clear_requests": (None, [pointer]),
        "mock_get_requests": (ctypes.POINTER(pointer), [pointer, sizes]),
        "mock_request_id": (i32, [pointer]),
        "mock_request_api_key": (i16, [pointer]),
        "mock_request_timestamp": (ctypes.c_int64, [pointer]),
        "mock_request_destroy_array": (None, [ctypes.POINTER(pointer), size]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """A cluster of mock brokers with ids from 1, from ``with`` to the end of the block.

    Args:
        brokers: How many.
    """

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = brokers
        self._rdkafka = rdkafka_library()
        self._maximum_versions = {api: safe + 1 for api, safe in _SAFE_WITHOUT_LEADER.items()}
        self._handle: int | None = None
        self._cluster: int | None = None

    def __enter__(self) -> Self:
        text = ctypes.create_string_buffer(_ERROR_TEXT_SIZE)
        conf = self._rdkafka.rd_kafka_conf_new()
        # The handle is never used as a client, and would print that it has no bootstrap servers.
        if self._rdkafka.rd_kafka_conf_set(conf, b"log_level", b"0", text, _ERROR_TEXT_SIZE):
            self._rdkafka.rd_kafka_conf_destroy(conf)
            raise MockClusterError(text.value.decode())
        self._handle = self._rdkafka.rd_kafka_new(_PRODUCER, conf, text, _ERROR_TEXT_SIZE)
        if self._handle is None:
            self._rdkafka.rd_kafka_conf_destroy(conf)
            raise MockClusterError(text.value.decode())
        self._cluster = self._rdkafka.rd_kafka_mock_cluster_new(self._handle, self.brokers)
        if self._cluster is None:
            self.close()
            raise MockClusterError(f"librdkafka made no cluster of {self.brokers} brokers")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the brokers and their thread. Safe to repeat."""
        if self._cluster is not None:
            self._rdkafka.rd_kafka_mock_cluster_destroy(self._cluster)
            self._cluster = None
        if self._handle is not None:
            self._rdkafka.rd_kafka_destroy(self._handle)
            self._handle = None

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as ``bootstrap.servers`` wants them."""
        servers: bytes = self._rdkafka.rd_kafka_mock_cluster_bootstraps(self._living())
        return servers.decode()

    def create_topic(self, name: str, partitions: int = 1, replication: int = 1) -> str:
        """Create a topic and return its name."""
        self._control("topic_create", name.encode(), partitions, replication)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._control("topic_delete", name.encode())

    def set_topic_error(self, name: str, error_code: int) -> None:
        """Answer Metadata for this topic with an error from now on; 0 ends it."""
        self._control("topic_set_error", name.encode(), error_code)

    def set_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Move a partition, or take its leader away (``NO_LEADER``).

        Raises:
            MockClusterError: Without a leader the offered Produce or Fetch version would crash the process.
        """
        if broker_id == NO_LEADER:
            for api, safe in _SAFE_WITHOUT_LEADER.items():
                if self._maximum_versions[api] > safe:
                    raise MockClusterError(
                        f"{api.name} above v{safe} crashes librdkafka at a leaderless partition:"
                        f" set_api_version(Api.{api.name}, 0, {safe}) first"
                    )
        self._control("partition_set_leader", topic.encode(), partition, broker_id)

    def push_leader_response(self, topic: str, partition: int, broker_id: int, leader_epoch: int) -> None:
        """Let the next Metadata answer name this leader and epoch, true or not."""
        self._control("partition_push_leader_response", topic.encode(), partition, broker_id, leader_epoch)

    def set_down(self, broker_id: int = ALL_BROKERS) -> None:
        """Close a broker's connections and refuse new ones; its partitions keep it as leader."""
        self._control("broker_set_down", broker_id)

    def set_up(self, broker_id: int = ALL_BROKERS) -> None:
        """Undo ``set_down``."""
        self._control("broker_set_up", broker_id)

    def add_broker(self, broker_id: int) -> None:
        """Add a broker; partitions are assigned again."""
        self._control("broker_add", broker_id)

    def remove_broker(self, broker_id: int) -> None:
        """Remove a broker for good; its partitions go to the others."""
        self._control("broker_decommission", broker_id)

    def set_round_trip(self, seconds: float, broker_id: int = ALL_BROKERS) -> None:
        """Delay every answer of a broker."""
        self._control("broker_set_rtt", broker_id, round(seconds * 1000))

    def set_advertised_address(self, broker_id: int, host: str, port: int) -> None:
        """Change what Metadata says about a broker; it goes on listening where it did."""
        self._control("broker_set_host_port", broker_id, host.encode(), port)

    def push_errors(self, api: int, *error_codes: int) -> None:
        """Answer the next requests of a kind, on any broker, with these errors (0 lets one pass)."""
        codes = (ctypes.c_int * len(error_codes))(*error_codes)
        self._control("push_request_errors_array", int(api), len(error_codes), codes)

    def push_delayed_errors(self, broker_id: int, api: int, answers: Sequence[tuple[int, float]]) -> None:
        """Answer the next requests of a kind to one broker with (error, seconds of delay) each."""
        flat = [ctypes.c_int(value) for code, delay in answers for value in (code, round(delay * 1000))]
        self._control("broker_push_request_error_rtts", broker_id, int(api), len(answers), *flat)

    def clear_errors(self, api: int) -> None:
        """Forget the errors that were pushed for a kind of request and not yet given."""
        self._control("clear_request_errors", int(api))

    def set_api_version(self, api: int, minimum: int, maximum: int) -> None:
        """Offer only these versions of a request (-1, -1: none at all) to connections made from now on."""
        self._control("set_apiversion", int(api), minimum, maximum)
        for guarded in _SAFE_WITHOUT_LEADER:
            if guarded == api:
                self._maximum_versions[guarded] = maximum

    def start_tracking(self) -> None:
        """Remember requests from now on, for ``requests``."""
        self._control("start_request_tracking")
        self._control("clear_requests")

    def requests(self, api: int | None = None) -> list[MockRequest]:
        """Return the requests (of one kind) that came since ``start_tracking``."""
        count = ctypes.c_size_t()
        array = self._rdkafka.rd_kafka_mock_get_requests(self._living(), ctypes.byref(count))
        found = [
            MockRequest(
                broker_id=self._rdkafka.rd_kafka_mock_request_id(array[index]),
                api_key=self._rdkafka.rd_kafka_mock_request_api_key(array[index]),
                timestamp=self._rdkafka.rd_kafka_mock_request_timestamp(array[index]) / 1e6,
            )
            for index in range(count.value)
        ]
        self._rdkafka.rd_kafka_mock_request_destroy_array(array, count)
        return [request for request in found if api is None or request.api_key == api]

    def _living(self) -> int:
        if self._cluster is None:
            raise MockClusterError("the mock cluster is used outside its with block")
        return self._cluster

    def _control(self, name: str, *args: object) -> None:
        """Call ``rd_kafka_mock_<name>`` on the cluster; functions without result return ``None`` here."""
        code = getattr(self._rdkafka, f"rd_kafka_mock_{name}")(self._living(), *args)
        # Invariant 1: no state of ours is waited for, there is nothing to poll.
        time.sleep(_WAKE_UP)
        if code:
            reason: bytes = self._rdkafka.rd_kafka_err2str(code)
            raise MockClusterError(f"{name}{args}: {reason.decode()} ({code})")
