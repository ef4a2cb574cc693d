"""The one table of every key: Kafka 4.3's, implemented or refused, and aioproduce's own.

Called by `producer_config.py` (which parses by it), `markdown.py` (which prints it) and the CLI.

Invariants:
1. `KEYS` holds every key that Kafka 4.3's `ProducerConfig` defines, with Kafka's default, and besides those
   only keys marked `is_own`. A test compares with what Kafka's own jar prints.
2. A refused key says why and what to use instead, and takes the values that change nothing, so that files
   from real life load. A value that asks for something is never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from aioproduce.config.keys import (
    INT_MAX,
    LONG_MAX,
    REQUIRED,
    Bool,
    Choice,
    Function,
    Int,
    Interceptors,
    Key,
    Kind,
    Milliseconds,
    PartitionerClass,
    Servers,
    Text,
    Unused,
    serializer,
)

_SECURITY: Final = "TLS and SASL come with the security release; this version speaks PLAINTEXT only"
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def _key(
    name: str, kind: Kind, default: object, text: str, *, attribute: str = "", default_text: str | None = None
) -> Key:
    return Key(
        name=name,
        kind=kind,
        default=default,
        text=text,
        attribute=attribute or name.replace(".", "_"),
        default_text=default_text,
    )


def _int(name: str, default: int, text: str, low: int, high: int = INT_MAX, **more: object) -> Key:
    return _key(name, Int(low, high, unit=str(more.get("unit", ""))), default, text)


def _ms(
    name: str, default: int, text: str, *, low: int = 0, high: int = LONG_MAX, attribute: str = ""
) -> Key:
    attribute = attribute or name.removesuffix(".ms").replace(".", "_")
    return _key(name, Milliseconds(low, high), default, text, attribute=attribute)


def _bool(name: str, default: bool, text: str) -> Key:
    return _key(name, Bool(), default, text)


def _refused(
    name: str,
    java_type: str,
    default: object,
    text: str,
    *,
    accepted: tuple[object, ...] | None = None,
    attribute: str | None = None,
) -> Key:
    """A refused key; it takes Kafka's default unless `accepted` says what it takes instead."""
    if accepted is None:
        accepted = (Unused(java_type, ()).parse(name, default),)
    return Key(name=name, kind=Unused(java_type, accepted), default=default, text=text, attribute=attribute)


_CLUSTER: Final = (
    _key(
        "bootstrap.servers",
        Servers(),
        REQUIRED,
        "Brokers to ask first for the rest of the cluster; name more than one, in case one is down.",
    ),
    _key(
        "client.id",
        Text(),
        "",
        "Name of this producer in the broker's logs and quotas.",
        default_text="`producer-N`, N counted in the process",
    ),
    _key(
        "client.dns.lookup",
        Choice(
            {"use_all_dns_ips": "use_all_dns_ips"},
            {
                "resolve_canonical_bootstrap_servers_only": "canonical names serve Kerberos, which comes "
                "with the security release"
            },
        ),
        "use_all_dns_ips",
        "Every address that a broker's name resolves to is tried, one after the other.",
    ),
    _key(
        "security.protocol",
        Choice(
            {"PLAINTEXT": "PLAINTEXT"},
            dict.fromkeys(("SSL", "SASL_PLAINTEXT", "SASL_SSL"), "it comes with the security release"),
            is_any_case=True,
        ),
        "PLAINTEXT",
        f"How to talk to brokers. {_SECURITY}.",
    ),
    _ms("metadata.max.age.ms", 300_000, "Metadata older than this is asked for again."),
    _ms("metadata.max.idle.ms", 300_000, "A topic not sent to for this long is forgotten.", low=5_000),
    _key(
        "metadata.recovery.strategy",
        Choice({"rebootstrap": "rebootstrap", "none": "none"}, is_any_case=True),
        "rebootstrap",
        "With no known broker reachable: `rebootstrap` starts again from bootstrap.servers (KIP-899).",
    ),
    _ms(
        "metadata.recovery.rebootstrap.trigger.ms",
        300_000,
        "So long without any metadata leads to a re-bootstrap too (KIP-1102).",
        attribute="metadata_rebootstrap_trigger",
    ),
)

_RECORDS: Final = (
    _key(
        "key.serializer",
        serializer(),
        REQUIRED,
        "Makes bytes of a record's key; without one a key must be bytes or None.",
        default_text="none: bytes as they are",
    ),
    _key(
        "value.serializer",
        serializer(),
        REQUIRED,
        "Makes bytes of a record's value; without one a value must be bytes or None.",
        default_text="none: bytes as they are",
    ),
    _key(
        "partitioner.class",
        PartitionerClass(),
        None,
        "Who chooses the partition of a record that names none: a name of [partitioners](partitioners.md), or an "
        "object of one's own.",
        attribute="partitioner",
        default_text="`uniform_sticky`",
    ),
    _bool(
        "partitioner.ignore.keys",
        False,
        "Choose partitions as if records had no key; of no effect on a partitioner of one's own.",
    ),
    _bool(
        "partitioner.adaptive.partitioning.enable",
        True,
        "Of `uniform_sticky`: fewer keyless records for partitions for which more batches wait (KIP-794).",
    ),
    _ms(
        "partitioner.availability.timeout.ms",
        0,
        "Of `uniform_sticky`, if adaptive: none for brokers that kept a batch waiting so long; 0 leaves none out.",
        attribute="partitioner_availability_timeout",
    ),
    _int(
        "batch.size",
        16_384,
        "A partition's batch is full at this size; 0 sends records one by one, as 1 does.",
        0,
        unit="bytes",
    ),
    _ms("linger.ms", 5, "How long a batch that is not full waits for more records."),
    _int(
        "buffer.memory",
        33_554_432,
        "Bound on the bytes of records accepted and not yet acknowledged; at least batch.size.",
        0,
        LONG_MAX,
        unit="bytes",
    ),
    _ms("max.block.ms", 60_000, "How long `send()` waits for metadata and memory together; 0 never waits."),
    _int(
        "max.request.size",
        1_048_576,
        "Bound on a request, and so on a record before compression.",
        0,
        unit="bytes",
    ),
    _key("compression.type", Choice({c: c for c in _CODECS}), "none", "Codec of the record batches."),
    _key(
        "compression.gzip.level",
        Int(1, 9, (-1,)),
        -1,
        "Level for gzip, 9 the smallest; -1 is zlib's default.",
    ),
    _int("compression.lz4.level", 9, "Level for lz4, 17 the smallest.", 1, 17),
    _int("compression.zstd.level", 3, "Level for zstd, 22 the smallest.", -131_072, 22),
)

_DELIVERY: Final = (
    _key(
        "acks",
        Choice({"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}),
        "all",
        "Who must have a record before it counts as acknowledged: all in-sync replicas (`all`, -1), the "
        "leader (1), or nobody (0: no offset, no retries). Anything but `all` turns default idempotence off.",
    ),
    _bool(
        "enable.idempotence",
        True,
        "Retries neither duplicate nor reorder. Needs acks=all, retries > 0 and at most 5 in flight; where "
        "it is not set, acks or retries at odds with it turn it off.",
    ),
    _key(
        "max.in.flight.requests.per.connection",
        Int(1, INT_MAX),
        5,
        "Unanswered requests per broker. Above 5 set enable.idempotence=false, and above 1 a retry may then "
        "reorder records.",
        attribute="max_in_flight",
    ),
    _int(
        "retries",
        INT_MAX,
        "How often a batch is sent again; better left alone and bounded by delivery.timeout.ms.",
        0,
    ),
    _ms(
        "delivery.timeout.ms",
        120_000,
        "An accepted record is acknowledged or failed by then. At least linger.ms + request.timeout.ms; "
        "raised to that where it is not set.",
        high=INT_MAX,
    ),
    _ms("request.timeout.ms", 30_000, "How long a broker may take to answer one request.", high=INT_MAX),
    _ms("retry.backoff.ms", 100, "Wait before the first retry; doubles each time, 20 % jitter (KIP-580)."),
    _ms("retry.backoff.max.ms", 1_000, "Bound on that wait, the first one too."),
)

_CONNECTIONS: Final = (
    _ms("reconnect.backoff.ms", 50, "Wait before connecting again; doubles with each failure, 20 % jitter."),
    _ms(
        "reconnect.backoff.max.ms",
        1_000,
        "Bound on that wait, the first one too. Where only reconnect.backoff.ms is set, this is equal to it.",
    ),
    _ms(
        "socket.connection.setup.timeout.ms",
        10_000,
        "How long a connection may take to be made; doubles with each failure, 20 % jitter.",
        low=1,
    ),
    _ms("socket.connection.setup.timeout.max.ms", 30_000, "Bound on that time, the first one too.", low=1),
    _ms("connections.max.idle.ms", 540_000, "A connection unused for this long is closed.", low=-1),
    _int("send.buffer.bytes", 131_072, "SO_SNDBUF of the sockets; -1 leaves it to the OS.", -1, unit="bytes"),
    _int(
        "receive.buffer.bytes", 32_768, "SO_RCVBUF of the sockets; -1 leaves it to the OS.", -1, unit="bytes"
    ),
)

_TRANSACTIONS_TEXT: Final = "transactions come with a later version; leave it out."

_TRANSACTIONS: Final = (
    _ms(
        "transaction.timeout.ms",
        60_000,
        "Read and checked; of no effect without transactional.id, as in Java.",
        low=1,
        high=INT_MAX,
    ),
    _refused("transactional.id", "STRING", None, _TRANSACTIONS_TEXT),
    _refused("transaction.two.phase.commit.enable", "BOOLEAN", False, _TRANSACTIONS_TEXT),
)

_OWN: Final = (
    Key(
        name="partitioner.rack.aware",
        kind=Bool(),
        default=False,
        text="Keyless records go to leaders in the producer's own rack, `client.rack`, while there are any "
        "(KIP-1123).",
        attribute="partitioner_rack_aware",
        is_own=True,
    ),
    Key(
        name="client.rack",
        kind=Text(),
        default="",
        text="The rack, or zone, that this producer is in, as in the brokers' `broker.rack`.",
        attribute="client_rack",
        is_own=True,
    ),
    Key(
        name="interceptors",
        kind=Interceptors(),
        default=(),
        text="Objects called for each record and acknowledgement, in order; instead of interceptor.classes.",
        attribute="interceptors",
        is_own=True,
        default_text="none",
    ),
    Key(
        name="on.delivery.error",
        kind=Function("a callable that is given the error"),
        default=None,
        text="Called with the error of a failed delivery that nobody awaits.",
        attribute="on_delivery_error",
        is_own=True,
        default_text="none: counted and logged",
    ),
)

_PLUGINS: Final = (
    _refused(
        "interceptor.classes",
        "LIST",
        "",
        "a Java class cannot run here; pass Python objects as `interceptors`.",
    ),
    _refused(
        "config.providers",
        "LIST",
        "",
        "`${provider:path:key}` is not resolved; read the secret in Python and pass the value.",
    ),
    _refused(
        "metric.reporters",
        "LIST",
        "org.apache.kafka.common.metrics.JmxReporter",
        "JMX and Java classes need a JVM; see producer.metrics() and the exporters in `aioproduce.reporters`.",
        accepted=((),),
    ),
)

_METRICS: Final = (
    _bool(
        "enable.metrics.push",
        True,
        "Push metrics to the cluster where it asks for them (KIP-714); needs `aioproduce[telemetry]`.",
    ),
    _int("metrics.num.samples", 2, "How many sample windows rates, averages and maxima are over.", 1),
    _ms("metrics.sample.window.ms", 30_000, "How long a sample window takes in; 0 is taken for 1."),
    _refused(
        "metrics.recording.level",
        "STRING",
        "INFO",
        "everything is recorded at any level, and there is no other than Kafka's three.",
        accepted=("INFO", "DEBUG", "TRACE"),
    ),
)

_SECURITY_KEYS: Final[tuple[tuple[str, str, object], ...]] = (
    ("security.providers", "STRING", None),
    ("ssl.cipher.suites", "LIST", ""),
    ("ssl.enabled.protocols", "LIST", "TLSv1.2,TLSv1.3"),
    ("ssl.endpoint.identification.algorithm", "STRING", "https"),
    ("ssl.engine.factory.class", "CLASS", None),
    ("ssl.key.password", "PASSWORD", None),
    ("ssl.keymanager.algorithm", "STRING", "SunX509"),
    ("ssl.keystore.certificate.chain", "PASSWORD", None),
    ("ssl.keystore.key", "PASSWORD", None),
    ("ssl.keystore.location", "STRING", None),
    ("ssl.keystore.password", "PASSWORD", None),
    ("ssl.keystore.type", "STRING", "JKS"),
    ("ssl.protocol", "STRING", "TLSv1.3"),
    ("ssl.provider", "STRING", None),
    ("ssl.secure.random.implementation", "STRING", None),
    ("ssl.trustmanager.algorithm", "STRING", "PKIX"),
    ("ssl.truststore.certificates", "PASSWORD", None),
    ("ssl.truststore.location", "STRING", None),
    ("ssl.truststore.password", "PASSWORD", None),
    ("ssl.truststore.type", "STRING", "JKS"),
    ("sasl.client.callback.handler.class", "CLASS", None),
    ("sasl.jaas.config", "PASSWORD", None),
    ("sasl.kerberos.kinit.cmd", "STRING", "/usr/bin/kinit"),
    ("sasl.kerberos.min.time.before.relogin", "LONG", 60_000),
    ("sasl.kerberos.service.name", "STRING", None),
    ("sasl.kerberos.ticket.renew.jitter", "DOUBLE", 0.05),
    ("sasl.kerberos.ticket.renew.window.factor", "DOUBLE", 0.8),
    ("sasl.login.callback.handler.class", "CLASS", None),
    ("sasl.login.class", "CLASS", None),
    ("sasl.login.connect.timeout.ms", "INT", None),
    ("sasl.login.read.timeout.ms", "INT", None),
    ("sasl.login.refresh.buffer.seconds", "SHORT", 300),
    ("sasl.login.refresh.min.period.seconds", "SHORT", 60),
    ("sasl.login.refresh.window.factor", "DOUBLE", 0.8),
    ("sasl.login.refresh.window.jitter", "DOUBLE", 0.05),
    ("sasl.login.retry.backoff.max.ms", "LONG", 10_000),
    ("sasl.login.retry.backoff.ms", "LONG", 100),
    ("sasl.mechanism", "STRING", "GSSAPI"),
    ("sasl.oauthbearer.assertion.algorithm", "STRING", "RS256"),
    ("sasl.oauthbearer.assertion.claim.aud", "STRING", None),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "INT", 300),
    ("sasl.oauthbearer.assertion.claim.iss", "STRING", None),
    ("sasl.oauthbearer.assertion.claim.jti.include", "BOOLEAN", False),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "INT", 60),
    ("sasl.oauthbearer.assertion.claim.sub", "STRING", None),
    ("sasl.oauthbearer.assertion.file", "STRING", None),
    ("sasl.oauthbearer.assertion.private.key.file", "STRING", None),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "PASSWORD", None),
    ("sasl.oauthbearer.assertion.template.file", "STRING", None),
    ("sasl.oauthbearer.client.credentials.client.id", "STRING", None),
    ("sasl.oauthbearer.client.credentials.client.secret", "PASSWORD", None),
    ("sasl.oauthbearer.clock.skew.seconds", "INT", 30),
    ("sasl.oauthbearer.expected.audience", "LIST", ""),
    ("sasl.oauthbearer.expected.issuer", "STRING", None),
    ("sasl.oauthbearer.header.urlencode", "BOOLEAN", False),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "LONG", 3_600_000),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "LONG", 10_000),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "LONG", 100),
    ("sasl.oauthbearer.jwks.endpoint.url", "STRING", None),
    (
        "sasl.oauthbearer.jwt.retriever.class",
        "CLASS",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    (
        "sasl.oauthbearer.jwt.validator.class",
        "CLASS",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    ("sasl.oauthbearer.scope", "STRING", None),
    ("sasl.oauthbearer.scope.claim.name", "STRING", "scope"),
    ("sasl.oauthbearer.sub.claim.name", "STRING", "sub"),
    ("sasl.oauthbearer.token.endpoint.url", "STRING", None),
)

SECTIONS: Final[Mapping[str, tuple[Key, ...]]] = MappingProxyType(
    {
        "The cluster": _CLUSTER,
        "Records and batches": _RECORDS,
        "Delivery": _DELIVERY,
        "Connections": _CONNECTIONS,
        "Transactions": _TRANSACTIONS,
        "aioproduce's own (Kafka has no such keys)": _OWN,
        "Metrics": _METRICS,
        "Plug-ins": _PLUGINS,
        "Security": tuple(
            _refused(name, java_type, default, f"{_SECURITY}; leave it out.")
            for name, java_type, default in _SECURITY_KEYS
        ),
    }
)
"""The table in the order of the printed page."""


def _index(keys: Iterable[Key]) -> Mapping[str, Key]:
    table: dict[str, Key] = {}
    for key in keys:
        if key.name in table:
            msg = f"{key.name} stands twice in the table"
            raise AssertionError(msg)
        table[key.name] = key
    return MappingProxyType(table)


KEYS: Final[Mapping[str, Key]] = _index(key for section in SECTIONS.values() for key in section)
"""Every key by its dotted name."""

KEYS_BY_KEYWORD: Final[Mapping[str, Key]] = MappingProxyType({key.keyword: key for key in KEYS.values()})
"""Every key by its name as a keyword argument."""

OTHER_CLIENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
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
        # aiokafka, the keyword with dots
        "max.batch.size": "batch.size",
        # librdkafka and aiokafka
        "partitioner": "partitioner.class",
    }
)
"""What other clients call a key -> what it is called here: for suggestions only."""
