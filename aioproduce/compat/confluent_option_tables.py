"""Every option of librdkafka 2.16, in tables: what is mapped, what is refused and why, what has no object here.

Read by `confluent_options`; printed in docs/migrating.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_INT_MAX: Final = 2**31 - 1


class Kind(enum.Enum):
    """How the value of an option is written."""

    INT = enum.auto()
    FLOAT = enum.auto()
    BOOL = enum.auto()
    TEXT = enum.auto()
    CHOICE = enum.auto()


class Option(NamedTuple):
    """An option that is honoured.

    Attributes:
        kind: How its value is written.
        default: librdkafka's default.
        kafka_key: Kafka's own key, where the value is the same in both; empty where more is to be said.
        low: The least value (INT, FLOAT).
        high: The greatest.
        choices: What is written -> what is meant (CHOICE).
    """

    kind: Kind
    default: Any
    kafka_key: str = ""
    low: float = 0
    high: float = _INT_MAX
    choices: Mapping[str, Any] = MappingProxyType({})


class Refusal(NamedTuple):
    """An option that is not.

    Attributes:
        accepted: The values that ask for nothing, in lower case.
        remedy: Why, and what to do instead.
    """

    accepted: tuple[str, ...]
    remedy: str


def _choices(*names: str) -> Mapping[str, Any]:
    return MappingProxyType({name: name for name in names})


def _int(default: int, kafka_key: str = "", low: int = 0, high: int = _INT_MAX) -> Option:
    return Option(Kind.INT, default, kafka_key, low, high)


MAPPED: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "metadata.broker.list": Option(Kind.TEXT, None),
        "client.id": Option(Kind.TEXT, "rdkafka", "client.id"),
        "client.rack": Option(Kind.TEXT, "", "client.rack"),
        "client.dns.lookup": Option(
            Kind.CHOICE,
            "use_all_dns_ips",
            "client.dns.lookup",
            choices=_choices("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        ),
        "request.required.acks": Option(
            Kind.CHOICE,
            -1,
            "acks",
            choices=MappingProxyType({"all": -1, "-1": -1, "0": 0, "1": 1}),
        ),
        "enable.idempotence": Option(Kind.BOOL, False, "enable.idempotence"),
        "max.in.flight": _int(1_000_000, low=1, high=1_000_000),
        "retries": _int(_INT_MAX, "retries"),
        "retry.backoff.ms": _int(100, "retry.backoff.ms", 1, 300_000),
        "retry.backoff.max.ms": _int(1_000, "retry.backoff.max.ms", 1, 300_000),
        "request.timeout.ms": _int(30_000, low=1, high=900_000),
        "socket.timeout.ms": _int(60_000, low=10, high=300_000),
        "message.timeout.ms": _int(300_000),
        "linger.ms": Option(Kind.FLOAT, 5.0, low=0, high=900_000),
        "batch.size": _int(1_000_000, low=1),
        "batch.num.messages": _int(10_000, low=1, high=1_000_000),
        "message.max.bytes": _int(1_000_000, "max.request.size", 1_000, 1_000_000_000),
        "queue.buffering.max.messages": _int(100_000),
        "queue.buffering.max.kbytes": _int(1_048_576, low=1),
        "compression.codec": Option(
            Kind.CHOICE,
            "none",
            "compression.type",
            choices=_choices("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        "compression.level": _int(-1, low=-1, high=12),
        "partitioner": Option(
            Kind.CHOICE,
            "consistent_random",
            "partitioner.class",
            choices=_choices(
                "random",
                "consistent",
                "consistent_random",
                "murmur2",
                "murmur2_random",
                "fnv1a",
                "fnv1a_random",
            ),
        ),
        "delivery.report.only.error": Option(Kind.BOOL, False),
        "topic.metadata.refresh.interval.ms": _int(300_000, low=-1, high=3_600_000),
        "topic.metadata.propagation.max.ms": _int(30_000, high=3_600_000),
        "metadata.recovery.strategy": Option(
            Kind.CHOICE,
            "rebootstrap",
            "metadata.recovery.strategy",
            choices=_choices("none", "rebootstrap"),
        ),
        "metadata.recovery.rebootstrap.trigger.ms": _int(300_000, "metadata.recovery.rebootstrap.trigger.ms"),
        "reconnect.backoff.ms": _int(100, "reconnect.backoff.ms", high=3_600_000),
        "reconnect.backoff.max.ms": _int(10_000, "reconnect.backoff.max.ms", high=3_600_000),
        "socket.connection.setup.timeout.ms": _int(
            30_000, "socket.connection.setup.timeout.ms", 1_000, _INT_MAX
        ),
        "socket.send.buffer.bytes": _int(0, high=100_000_000),
        "socket.receive.buffer.bytes": _int(0, high=100_000_000),
        "connections.max.idle.ms": _int(0),
        "statistics.interval.ms": _int(0, high=86_400_000),
        "enable.metrics.push": Option(Kind.BOOL, True, "enable.metrics.push"),
        "transaction.timeout.ms": _int(60_000, "transaction.timeout.ms", 1_000),
    }
)

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bootstrap.servers": "metadata.broker.list",
        "acks": "request.required.acks",
        "max.in.flight.requests.per.connection": "max.in.flight",
        "message.send.max.retries": "retries",
        "delivery.timeout.ms": "message.timeout.ms",
        "queue.buffering.max.ms": "linger.ms",
        "compression.type": "compression.codec",
    }
)

# Callables, read one by one; for those that are refused, the remedy.
CALLBACKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "error_cb": "",
        "on_delivery": "",
        "dr_cb": "",
        "stats_cb": "",
        "throttle_cb": "the broker's quota shows in producer.metrics() as produce-throttle-time-avg and -max",
        "logger": "aioproduce logs to logging.getLogger('aioproduce'): add your handlers there",
        "log_cb": "aioproduce logs to logging.getLogger('aioproduce'): add your handlers there",
    }
)

_NOT_HERE: Final = "this producer has no such part; leave it out"
_NO_CALLBACK: Final = "librdkafka takes it from C only; leave it out"
_LOGGING: Final = "set the level of logging.getLogger('aioproduce')"

REFUSED: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        "transactional.id": Refusal(
            ("",), "transactions come with a later version of aioproduce; leave it out"
        ),
        "enable.gapless.guarantee": Refusal(
            ("false",),
            "a message that fails does not stop the producer: look at its future, or send the next after it",
        ),
        "queuing.strategy": Refusal(("fifo",), "messages are sent in their order"),
        "msg_order_cmp": Refusal(("",), "messages are sent in their order"),
        "partitioner_cb": Refusal(
            ("",),
            "name the partition in produce(), or use aioproduce.Producer with a partitioner of your own",
        ),
        "sticky.partitioning.linger.ms": Refusal(
            ("10", "0"),
            "keyless messages go to any partition, each by itself; for sticky ones use aioproduce.Producer with "
            "partitioner_class='uniform_sticky'",
        ),
        "topic.blacklist": Refusal(("",), "only topics that are produced to are asked for; leave it out"),
        "topic.metadata.refresh.fast.interval.ms": Refusal(
            ("100",), "a topic that lost its leader is asked for at the pace of retry.backoff.ms: set that"
        ),
        "topic.metadata.refresh.sparse": Refusal(("true",), "only topics that are produced to are asked for"),
        "metadata.max.age.ms": Refusal(
            ("900000",), "set topic.metadata.refresh.interval.ms: nothing is kept longer than that"
        ),
        "receive.message.max.bytes": Refusal(
            ("100000000",), "answers to a producer are small; a frame that is too large drops the connection"
        ),
        "socket.keepalive.enable": Refusal(
            ("false",), "a stalled connection is found by request.timeout.ms: lower that"
        ),
        "socket.nagle.disable": Refusal(("true",), "TCP_NODELAY is always set"),
        "socket.max.fails": Refusal(
            ("1",), "a connection whose request timed out is dropped, as librdkafka recommends"
        ),
        "broker.address.family": Refusal(("any",), "give addresses instead of names in bootstrap.servers"),
        "allow.auto.create.topics": Refusal(
            ("true", "false"),
            "a producer's topics are created where the cluster does that, as librdkafka's are",
        ),
        "debug": Refusal(("",), f"{_LOGGING} to DEBUG"),
        "log_level": Refusal(("6",), _LOGGING),
        "log.queue": Refusal(("false",), "log lines go to Python's logging at once"),
        "log.connection.close": Refusal(("true",), _LOGGING),
        "enabled_events": Refusal(("0",), _NO_CALLBACK),
        "background_event_cb": Refusal(("",), _NO_CALLBACK),
        "socket_cb": Refusal(("",), _NO_CALLBACK),
        "connect_cb": Refusal(("",), _NO_CALLBACK),
        "closesocket_cb": Refusal(("",), _NO_CALLBACK),
        "open_cb": Refusal(("",), _NO_CALLBACK),
        "resolve_cb": Refusal(("",), _NO_CALLBACK),
        "dr_msg_cb": Refusal(("",), "use on_delivery"),
        "opaque": Refusal(("",), _NO_CALLBACK),
        "default_topic_conf": Refusal(("",), "put the topic's options beside the others"),
        "plugin.library.paths": Refusal(("",), "a plug-in of librdkafka's cannot run here"),
        "interceptors": Refusal(("",), "use aioproduce.Producer, which takes `interceptors`"),
        "builtin.features": Refusal(("",), _NOT_HERE),
        "api.version.request": Refusal(("true",), "brokers before 0.10 are not supported"),
        "api.version.fallback.ms": Refusal(("0",), "brokers before 0.10 are not supported"),
        "broker.version.fallback": Refusal(("0.10.0", ""), "brokers before 0.10 are not supported"),
    }
)

# Of librdkafka's inside, or no longer used there: whatever the value, it asks nothing of an event loop.
WITHOUT_OBJECT: Final = frozenset(
    {
        "message.copy.max.bytes",
        "queue.buffering.backpressure.threshold",
        "topic.metadata.refresh.fast.cnt",
        "socket.blocking.max.ms",
        "broker.address.ttl",
        "reconnect.backoff.jitter.ms",
        "log.thread.name",
        "enable.random.seed",
        "internal.termination.signal",
        "api.version.request.timeout.ms",
        "produce.offset.report",
    }
)

# Option -> librdkafka's default, which asks for nothing.
SECURITY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "security.protocol": "plaintext",
        "ssl.cipher.suites": "",
        "ssl.curves.list": "",
        "ssl.sigalgs.list": "",
        "ssl.key.location": "",
        "ssl.key.password": "",
        "ssl.key.pem": "",
        "ssl_key": "",
        "ssl.certificate.location": "",
        "ssl.certificate.pem": "",
        "ssl_certificate": "",
        "ssl.ca.location": "",
        "https.ca.location": "",
        "https.ca.pem": "",
        "ssl.ca.pem": "",
        "ssl_ca": "",
        "ssl.ca.certificate.stores": "Root",
        "ssl.crl.location": "",
        "ssl.keystore.location": "",
        "ssl.keystore.password": "",
        "ssl.providers": "",
        "ssl.engine.location": "",
        "ssl.engine.id": "dynamic",
        "ssl_engine_callback_data": "",
        "enable.ssl.certificate.verification": "true",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.certificate.verify_cb": "",
        "sasl.mechanisms": "GSSAPI",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "kafkaclient",
        "sasl.kerberos.kinit.cmd": 'kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}',
        "sasl.kerberos.keytab": "",
        "sasl.kerberos.min.time.before.relogin": "60000",
        "sasl.username": "",
        "sasl.password": "",
        "sasl.oauthbearer.config": "",
        "enable.sasl.oauthbearer.unsecure.jwt": "false",
        "oauthbearer_token_refresh_cb": "",
        "oauth_cb": "",
        "sasl.oauthbearer.method": "default",
        "sasl.oauthbearer.client.id": "",
        "sasl.oauthbearer.client.credentials.client.id": "",
        "sasl.oauthbearer.client.credentials.client.secret": "",
        "sasl.oauthbearer.client.secret": "",
        "sasl.oauthbearer.scope": "",
        "sasl.oauthbearer.extensions": "",
        "sasl.oauthbearer.token.endpoint.url": "",
        "sasl.oauthbearer.sub.claim.name": "sub",
        "sasl.oauthbearer.grant.type": "client_credentials",
        "sasl.oauthbearer.assertion.algorithm": "RS256",
        "sasl.oauthbearer.assertion.private.key.file": "",
        "sasl.oauthbearer.assertion.private.key.passphrase": "",
        "sasl.oauthbearer.assertion.private.key.pem": "",
        "sasl.oauthbearer.assertion.file": "",
        "sasl.oauthbearer.assertion.claim.aud": "",
        "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
        "sasl.oauthbearer.assertion.claim.iss": "",
        "sasl.oauthbearer.assertion.claim.jti.include": "false",
        "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
        "sasl.oauthbearer.assertion.claim.sub": "",
        "sasl.oauthbearer.assertion.jwt.template.file": "",
        "sasl.oauthbearer.metadata.authentication.type": "none",
    }
)

# librdkafka takes these from a producer with a warning, and so is it here.
CONSUMER_ONLY: Final = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "consume_cb",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "offset_commit_cb",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "rebalance_cb",
        "session.timeout.ms",
        "share.acknowledgement.mode",
    }
)
