"""The table of all keys: Kafka 4.3's, supported or refused, and aioproduce's own, one row each.

A new key is a row here and, unless it is refused, a field of `ProducerConfig`.

Used by `producer_config.py` (parsing), `markdown.py` (printing), the Spark sink and the CLI.

Invariants:
1. `KEYS` contains every key of Kafka 4.3's `ProducerConfig` with Kafka's default, and in addition only keys marked
   `is_own`. A test compares it with the output of Kafka's own jar.
2. A refused key has a reason and an alternative, and accepts the values that change nothing, so that existing files
   load. A value that requires something is never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproduce.config.config_def import REQUIRED, ConfigDef, Conflict, Key
from aioproduce.config.kinds import (
    BOOL,
    INT_MAX,
    INTERCEPTORS,
    LONG_MAX,
    PARTITIONER,
    SERIALIZER,
    TEXT,
    Choice,
    Function,
    Int,
    Milliseconds,
    Servers,
    optional_text,
)
from aioproduce.config.security_table import (
    KERBEROS_KEYS,
    OAUTH_KEYS,
    SASL_KEYS,
    SECURITY_CONFLICTS,
    SECURITY_PROTOCOL,
    TLS_KEYS,
    refused,
)

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final[Mapping[str, int]] = {"all": -1, "-1": -1, "0": 0, "1": 1}

_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_IN_FLIGHT_MAX: Final = 5  # how many batches per producer a broker remembers
_BY_KEY_ONLY: Final = ("murmur2", "consistent", "fnv1a")
_NO_TWO_PHASE_COMMIT: Final = (
    "brokers do not support it yet (KIP-939): use Transaction.prepare(), whose result another process can "
    "end; leave it out."
)


# fmt: off
_CANONICAL: Final = {"resolve_canonical_bootstrap_servers_only":
    "canonical names are for Kerberos; write them into bootstrap.servers, or set sasl.kerberos.domain.name"}

SECTIONS: Final[Mapping[str, tuple[Key, ...]]] = MappingProxyType({
"The cluster": (
    Key("bootstrap.servers", Servers(), REQUIRED,
        "The first brokers to contact, from which the client learns the others; name several, in case one "
        "is down."),
    Key("client.id", TEXT, "", "Name of this producer in the broker's logs and quotas.",
        default_text="`producer-N`, N counted in the process"),
    Key("client.dns.lookup", Choice(("use_all_dns_ips",), _CANONICAL), "use_all_dns_ips",
        "All addresses of a broker's name are tried in turn."),
    SECURITY_PROTOCOL,
    Key("metadata.max.age.ms", Milliseconds(), 300_000, "Metadata older than this is requested again."),
    Key("metadata.max.idle.ms", Milliseconds(5_000), 300_000,
        "A topic not sent to for this long is forgotten."),
    Key("metadata.recovery.strategy", Choice(("rebootstrap", "none"), is_any_case=True), "rebootstrap",
        "If no known broker is reachable: `rebootstrap` starts again from bootstrap.servers (KIP-899)."),
    Key("metadata.recovery.rebootstrap.trigger.ms", Milliseconds(), 300_000,
        "This long without any metadata also leads to a re-bootstrap (KIP-1102).",
        becomes="metadata_rebootstrap_trigger"),
),
"Records and batches": (
    Key("key.serializer", SERIALIZER, REQUIRED,
        "Converts a record's key to bytes; without it, a key must be bytes or None.",
        default_text="none: bytes are sent unchanged"),
    Key("value.serializer", SERIALIZER, REQUIRED,
        "Converts a record's value to bytes; without it, a value must be bytes or None.",
        default_text="none: bytes are sent unchanged"),
    Key("partitioner.class", PARTITIONER, None,
        "The partition choice for records that do not name a partition: a name of [partitioners](partitioners.md), "
        "or a custom object.", becomes="partitioner", default_text="`uniform_sticky`"),
    Key("partitioner.ignore.keys", BOOL, False,
        "Choose partitions as if records had no key; no effect on a custom partitioner."),
    Key("partitioner.adaptive.partitioning.enable", BOOL, True,
        "For `uniform_sticky`: fewer keyless records for partitions with more waiting batches (KIP-794)."),
    Key("partitioner.availability.timeout.ms", Milliseconds(), 0,
        "For adaptive `uniform_sticky`: no records for brokers that a batch has waited for this long; 0 excludes "
        "no broker.", becomes="partitioner_availability_timeout"),
    Key("batch.size", Int(0, unit="bytes"), 16_384,
        "A partition's batch is full at this size; 0 sends records one by one, as does 1."),
    Key("linger.ms", Milliseconds(), 5, "How long an incomplete batch waits for more records."),
    Key("buffer.memory", Int(0, LONG_MAX, unit="bytes"), 33_554_432,
        "Maximum bytes of accepted and unacknowledged records; at least batch.size."),
    Key("max.block.ms", Milliseconds(), 60_000,
        "How long `send()` waits for metadata and memory together; 0 never waits."),
    Key("max.request.size", Int(0, unit="bytes"), 1_048_576,
        "Maximum size of a request, and so of a record before compression."),
    Key("compression.type", Choice(CODECS), "none", "Codec of the record batches."),
    Key("compression.gzip.level", Int(1, 9, -1), -1, "Level for gzip, 9 the smallest; -1 is zlib's default."),
    Key("compression.lz4.level", Int(1, 17), 9, "Level for lz4, 17 the smallest."),
    Key("compression.zstd.level", Int(-131_072, 22), 3, "Level for zstd, 22 the smallest."),
),
"Delivery": (
    Key("acks", Choice(ACKS), "all",
        "Which replicas must have a record before it counts as acknowledged: all in-sync replicas (`all`, -1), the "
        "leader (1), or none (0: no offset, no retries). Other values than `all` turn default idempotence off."),
    Key("enable.idempotence", BOOL, True,
        "Retries neither duplicate nor reorder. Needs acks=all, retries > 0 and at most 5 in flight; if "
        "it is not set, contradictory acks or retries turn it off."),
    Key(_IN_FLIGHT, Int(1), 5,
        "Unanswered requests per broker. Values above 5 need enable.idempotence=false; above 1, a retry may then "
        "reorder records.", becomes="max_in_flight"),
    Key("retries", Int(0), INT_MAX,
        "How often a batch is retried; delivery.timeout.ms is usually the better bound."),
    Key("delivery.timeout.ms", Milliseconds(0, INT_MAX), 120_000,
        "The time within which an accepted record is acknowledged or fails. At least linger.ms + "
        "request.timeout.ms; raised to that if it is not set."),
    Key("request.timeout.ms", Milliseconds(0, INT_MAX), 30_000,
        "How long a broker may take to answer one request."),
    Key("retry.backoff.ms", Milliseconds(), 100,
        "Wait before the first retry; doubles each time, 20 % jitter (KIP-580)."),
    Key("retry.backoff.max.ms", Milliseconds(), 1_000, "Maximum of that wait, including the first one."),
),
"Connections": (
    Key("reconnect.backoff.ms", Milliseconds(), 50,
        "Wait before connecting again; doubles with each failure, 20 % jitter."),
    Key("reconnect.backoff.max.ms", Milliseconds(), 1_000,
        "Maximum of that wait, including the first one. If only reconnect.backoff.ms is set, this equals it."),
    Key("socket.connection.setup.timeout.ms", Milliseconds(1), 10_000,
        "How long opening a connection may take; doubles with each failure, 20 % jitter."),
    Key("socket.connection.setup.timeout.max.ms", Milliseconds(1), 30_000,
        "Maximum of that time, including the first one."),
    Key("connections.max.idle.ms", Milliseconds(-1), 540_000, "A connection that is idle for this long is closed."),
    Key("send.buffer.bytes", Int(-1, unit="bytes"), 131_072,
        "SO_SNDBUF of the sockets; -1 leaves it to the OS."),
    Key("receive.buffer.bytes", Int(-1, unit="bytes"), 32_768,
        "SO_RCVBUF of the sockets; -1 leaves it to the OS."),
),
"Transactions": (
    Key("transaction.timeout.ms", Milliseconds(1, INT_MAX), 60_000,
        "How long a transaction may be open before its coordinator aborts it; no effect without "
        "transactional.id."),
    Key("transactional.id", optional_text("a name, or None"), None,
        "The name under which this producer's transactions continue after a restart. Only one producer "
        "uses it at a time: a later one takes over. It needs enable.idempotence and acks=all."),
    refused("transaction.two.phase.commit.enable", "BOOLEAN", False, _NO_TWO_PHASE_COMMIT),
),
"aioproduce's own (Kafka has no such keys)": (
    Key("partitioner.rack.aware", BOOL, False,
        "Keyless records go to leaders in the producer's own rack, `client.rack`, if there are any "
        "(KIP-1123).", is_own=True),
    Key("client.rack", TEXT, "",
        "The rack, or zone, of this producer, in the terms of the brokers' `broker.rack`.", is_own=True),
    Key("interceptors", INTERCEPTORS, (),
        "Objects called for each record and acknowledgement, in order; instead of interceptor.classes.",
        default_text="none", is_own=True),
    Key("on.delivery.error", Function("a callable that receives the error",
            annotation="Callable[[DeliveryError], object]"), None,
        "Called with the error of a failed delivery that nobody awaits.",
        default_text="none: counted and logged", is_own=True),
),
"Metrics": (
    Key("enable.metrics.push", BOOL, True,
        "Push metrics to clusters that request them (KIP-714); needs `aioproduce[telemetry]`."),
    Key("metrics.num.samples", Int(1), 2, "Number of sample windows of rates, averages and maxima."),
    Key("metrics.sample.window.ms", Milliseconds(), 30_000,
        "Length of a sample window; 0 means 1."),
    refused("metrics.recording.level", "STRING", "INFO",
        "everything is recorded at every level, and only Kafka's three levels exist.",
        "INFO", "DEBUG", "TRACE"),
),
"Plug-ins": (
    refused("interceptor.classes", "LIST", "",
        "a Java class cannot run here; pass Python objects as `interceptors`."),
    refused("config.providers", "LIST", "",
        "`${provider:path:key}` is not resolved; read the secret in Python and pass the value.",
        aliases=("config.providers.*",)),
    refused("metric.reporters", "LIST", "org.apache.kafka.common.metrics.JmxReporter",
        "JMX and Java classes need a JVM; see producer.metrics() and the exporters in "
        "`aioproduce.reporters`.", ()),
),
"TLS": TLS_KEYS,
"SASL: who logs in": SASL_KEYS,
"SASL/OAUTHBEARER": OAUTH_KEYS,
"SASL/GSSAPI (Kerberos)": KERBEROS_KEYS,
})
"""The table in the order of the printed page."""

_CONFLICTS: Final = (
    Conflict("bootstrap.servers", lambda _, given: "bootstrap.servers" not in given,
        "bootstrap.servers is missing: set the cluster's addresses, e.g. 'host:9092'."),
    # Before acks and retries: since Kafka 4.0 it is an error even if those turn default idempotence off.
    Conflict(None, lambda v, _: v["enable.idempotence"] and v[_IN_FLIGHT] > _IN_FLIGHT_MAX,
        f"{_IN_FLIGHT}={{v[{_IN_FLIGHT}]}} contradicts enable.idempotence=true, which keeps order for at most "
        f"{_IN_FLIGHT_MAX}: lower it, or set enable.idempotence=false "
        "(a retry may then duplicate and reorder records)."),
    Conflict(None, lambda v, given: "enable.idempotence" in given and v["enable.idempotence"] and v["retries"] == 0,
        "enable.idempotence=true contradicts retries=0: leave retries out, or set enable.idempotence=false."),
    Conflict(None, lambda v, given: "enable.idempotence" in given and v["enable.idempotence"] and v["acks"] != -1,
        "enable.idempotence=true contradicts acks={v[acks]}: set acks=all, or set enable.idempotence=false."),
    Conflict("transactional.id",
        lambda v, _: v["transactional.id"]
        and not (v["enable.idempotence"] and v["acks"] == -1 and v["retries"] > 0),
        "transactional.id needs enable.idempotence=true, acks=all and retries above 0: leave those out, or leave "
        "out transactional.id."),
    Conflict(None, lambda v, _: v["partitioner.ignore.keys"] and v["partitioner.class"] in _BY_KEY_ONLY,
        "partitioner.ignore.keys=true contradicts partitioner.class={v[partitioner.class]}: without keys, "
        "every record goes to one partition. Leave one of them out."),
    Conflict(None, lambda v, _: v["partitioner.rack.aware"] and not v["client.rack"],
        "partitioner.rack.aware=true needs client.rack: set it to this producer's rack, in the terms of "
        "the brokers' broker.rack."),
    *SECURITY_CONFLICTS,
)
# fmt: on

OTHER_CLIENTS: Final = {
    # librdkafka (confluent-kafka)
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "oauth.cb": "sasl.oauthbearer.token.provider",
    # aiokafka, the keyword with dots
    "max.batch.size": "batch.size",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauth.token.provider": "sasl.oauthbearer.token.provider",
    # librdkafka and aiokafka
    "partitioner": "partitioner.class",
}
"""Another client's name for a key -> its name here, for suggestions only."""

KEYS: Final = ConfigDef(
    (key for section in SECTIONS.values() for key in section),
    _CONFLICTS,
    unknown="Unknown configuration key {!r}",
    otherwise="`python -m aioproduce.config` lists every key.",
    elsewhere=OTHER_CLIENTS,
)
"""Every key by its dotted name."""
