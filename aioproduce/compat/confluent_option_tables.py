"""Every option of librdkafka 2.16 in one table: accepted, refused with a remedy, or without effect here.

Read by `confluent_options`; printed in docs/how-to/migrate-from-confluent.md. Names, ranges and defaults are
librdkafka's.
"""

from __future__ import annotations

import math
from typing import Final

from aioproduce.compat.confluent_security import SECURITY_REFUSED, SECURITY_TAKEN
from aioproduce.config import Key
from aioproduce.config.config_def import ConfigDef, Conflict
from aioproduce.config.kinds import IGNORED, INT_MAX, TEXT, Choice, Float, Function, Int, Kind, Unused
from aioproduce.config.table import ACKS, CODECS

_ACKS: Final = Choice(ACKS, is_any_case=True)
_BOOL: Final = Choice(
    {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False},
    is_any_case=True,
    allowed="true or false",
)
_CODECS: Final = Choice(CODECS, is_any_case=True)
_DNS_LOOKUPS: Final = Choice(
    ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), is_any_case=True
)
_PARTITIONERS: Final = Choice(
    ("random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"),
    is_any_case=True,
)
_RECOVERIES: Final = Choice(("none", "rebootstrap"), is_any_case=True)
_CALLBACK: Final = Function("a callable", can_be_async=True)


def _same(name: str, kind: Kind, default: object, *aliases: str) -> Key:
    """Return an option with the same name and values in Kafka."""
    return Key(name, kind, default, becomes=name, aliases=aliases)


def _refused(name: str, remedy: str, *accepted: str) -> Key:
    """Return an option that is not supported, with the values that do not require it."""
    return Key(name, Unused("WORD", *accepted), accepted[0] if accepted else None, remedy)


_LOGGER: Final = "aioproduce logs to logging.getLogger('aioproduce'): add your handlers there"
_LOGGING: Final = "set the level of logging.getLogger('aioproduce')"
_IN_ORDER: Final = "messages are always sent in order"
_OLD_BROKERS: Final = "brokers before 0.10 are not supported"
_FROM_C: Final = "librdkafka accepts it only from C; leave it out"

# fmt: off
# `becomes` is Kafka's own key, if the value is the same in both; `confluent_options` reads the other options.
_TAKEN: Final = (
    Key("metadata.broker.list", TEXT, "", aliases=("bootstrap.servers",)),
    _same("client.id", TEXT, "rdkafka"),
    _same("client.rack", TEXT, ""),
    _same("client.dns.lookup", _DNS_LOOKUPS, "use_all_dns_ips"),
    Key("request.required.acks", _ACKS, -1, becomes="acks", aliases=("acks",)),
    _same("enable.idempotence", _BOOL, False),
    Key("max.in.flight", Int(1, 1_000_000), 1_000_000, aliases=("max.in.flight.requests.per.connection",)),
    _same("retries", Int(0), INT_MAX, "message.send.max.retries"),
    _same("retry.backoff.ms", Int(1, 300_000), 100),
    _same("retry.backoff.max.ms", Int(1, 300_000), 1_000),
    Key("request.timeout.ms", Int(1, 900_000), 30_000),
    Key("socket.timeout.ms", Int(10, 300_000), 60_000),
    Key("message.timeout.ms", Int(0), 300_000, aliases=("delivery.timeout.ms",)),
    Key("linger.ms", Float(0, 900_000), 5.0, aliases=("queue.buffering.max.ms",)),
    Key("batch.size", Int(1), 1_000_000),
    Key("batch.num.messages", Int(1, 1_000_000), 10_000),
    Key("message.max.bytes", Int(1_000, 1_000_000_000), 1_000_000, becomes="max.request.size"),
    Key("queue.buffering.max.messages", Int(0), 100_000),
    Key("queue.buffering.max.kbytes", Int(1), 1_048_576),
    Key("compression.codec", _CODECS, "none", becomes="compression.type", aliases=("compression.type",)),
    Key("compression.level", Int(-1, 12), -1),
    Key("partitioner", _PARTITIONERS, "consistent_random", becomes="partitioner.class"),
    Key("delivery.report.only.error", _BOOL, False),
    Key("topic.metadata.refresh.interval.ms", Int(-1, 3_600_000), 300_000),
    Key("topic.metadata.propagation.max.ms", Int(0, 3_600_000), 30_000),
    _same("metadata.recovery.strategy", _RECOVERIES, "rebootstrap"),
    _same("metadata.recovery.rebootstrap.trigger.ms", Int(0), 300_000),
    _same("reconnect.backoff.ms", Int(0, 3_600_000), 100),
    _same("reconnect.backoff.max.ms", Int(0, 3_600_000), 10_000),
    _same("socket.connection.setup.timeout.ms", Int(1_000), 30_000),
    Key("socket.send.buffer.bytes", Int(0, 100_000_000), 0),
    Key("socket.receive.buffer.bytes", Int(0, 100_000_000), 0),
    Key("connections.max.idle.ms", Int(0), 0),
    Key("statistics.interval.ms", Int(0, 86_400_000), 0),
    _same("enable.metrics.push", _BOOL, True),
    Key("transactional.id", TEXT, ""),
    _same("transaction.timeout.ms", Int(1_000), 60_000),
    Key("error_cb", _CALLBACK, None),
    Key("on_delivery", _CALLBACK, None),
    Key("dr_cb", _CALLBACK, None),
    Key("stats_cb", _CALLBACK, None),
)

_REFUSED: Final = (
    _refused("enable.gapless.guarantee",
        "a failed message does not stop the producer: check its future, or send the next one after it", "false"),
    _refused("queuing.strategy", _IN_ORDER, "fifo"),
    _refused("msg_order_cmp", _IN_ORDER, ""),
    _refused("partitioner_cb",
        "name the partition in produce(), or use aioproduce.Producer with a partitioner of your own", ""),
    _refused("sticky.partitioning.linger.ms",
        "each keyless message goes to a random partition; for sticky partitioning use aioproduce.Producer "
        "with partitioner_class='uniform_sticky'", "10", "0"),
    _refused("topic.blacklist", "the client requests only topics that it produces to; leave it out", ""),
    _refused("topic.metadata.refresh.fast.interval.ms",
        "the metadata of a topic that lost its leader is requested every retry.backoff.ms: set that", "100"),
    _refused("topic.metadata.refresh.sparse", "the client requests only topics that it produces to", "true"),
    _refused("metadata.max.age.ms",
        "set topic.metadata.refresh.interval.ms: metadata is never kept longer", "900000"),
    _refused("receive.message.max.bytes",
        "answers to a producer are small; a frame that is too large drops the connection", "100000000"),
    _refused("socket.keepalive.enable",
        "request.timeout.ms detects a stalled connection: lower that", "false"),
    _refused("socket.nagle.disable", "TCP_NODELAY is always set", "true"),
    _refused("socket.max.fails",
        "a connection whose request timed out is dropped, as librdkafka recommends", "1"),
    _refused("broker.address.family", "use addresses instead of names in bootstrap.servers", "any"),
    _refused("allow.auto.create.topics",
        "topics are created if the cluster is configured to do so, as for librdkafka", "true", "false"),
    _refused("debug", "set the level of logging.getLogger('aioproduce') to DEBUG", ""),
    _refused("log_level", _LOGGING, "6"),
    _refused("log.queue", "log lines go directly to Python's logging", "false"),
    _refused("log.connection.close", _LOGGING, "true"),
    _refused("enabled_events", _FROM_C, "0"),
    _refused("dr_msg_cb", "use on_delivery", ""),
    _refused("default_topic_conf", "put the topic's options among the others", ""),
    _refused("plugin.library.paths", "librdkafka's plug-ins cannot run here", ""),
    _refused("interceptors", "use aioproduce.Producer, which accepts `interceptors`", ""),
    _refused("builtin.features", "this producer has no such features; leave it out", ""),
    _refused("api.version.request", _OLD_BROKERS, "true"),
    _refused("api.version.fallback.ms", _OLD_BROKERS, "0"),
    _refused("broker.version.fallback", _OLD_BROKERS, "0.10.0", ""),
    _refused("throttle_cb",
        "producer.metrics() shows the broker's quota as produce-throttle-time-avg and -max"),
    _refused("logger", _LOGGER),
    _refused("log_cb", _LOGGER),
)

_C_ONLY: Final = "background_event_cb socket_cb connect_cb closesocket_cb open_cb resolve_cb opaque"

# About librdkafka's internals, or unused there: no value has an effect on an event loop.
_WITHOUT_OBJECT: Final = (
    "api.version.request.timeout.ms broker.address.ttl enable.random.seed internal.termination.signal "
    "log.thread.name message.copy.max.bytes produce.offset.report queue.buffering.backpressure.threshold "
    "reconnect.backoff.jitter.ms socket.blocking.max.ms topic.metadata.refresh.fast.cnt"
)

# librdkafka accepts these for a producer with a warning, and so does this module.
_CONSUMER_ONLY: Final = (
    "auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages "
    "consume_cb coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof "
    "fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms "
    "fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor "
    "heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records "
    "offset.store.method offset.store.path offset.store.sync.interval.ms offset_commit_cb "
    "partition.assignment.strategy queued.max.messages.kbytes queued.min.messages rebalance_cb "
    "session.timeout.ms share.acknowledgement.mode"
)

_CONFLICTS: Final = (
    # Without an interval, librdkafka never calls it either.
    Conflict("stats_cb", lambda v, _: v["stats_cb"] is not None and v["statistics.interval.ms"] > 0,
        "stats_cb is refused: librdkafka's statistics are of its own threads and queues. Call producer.metrics() "
        "at any time, or use an exporter of aioproduce.reporters"),
    Conflict("batch.num.messages", lambda v, _: v["batch.num.messages"] < 10_000,
        "batch.num.messages={v[batch.num.messages]} is refused, because batches are bounded by bytes: set "
        "batch.size"),
    Conflict("message.timeout.ms", lambda v, _: 0 < v["message.timeout.ms"] <= math.ceil(v["linger.ms"]),
        "message.timeout.ms={v[message.timeout.ms]} must be greater than linger.ms={v[linger.ms]}: raise the one, "
        "or lower the other"),
    Conflict("message.timeout.ms",
        lambda v, given: v["transactional.id"] and "message.timeout.ms" in given
        and v["message.timeout.ms"] > v["transaction.timeout.ms"],
        "message.timeout.ms={v[message.timeout.ms]} must be at most transaction.timeout.ms="
        "{v[transaction.timeout.ms]}: lower the one, or raise the other"),
    Conflict("transaction.timeout.ms",
        lambda v, given: v["transactional.id"] and "message.timeout.ms" not in given
        and v["transaction.timeout.ms"] <= math.ceil(v["linger.ms"]),
        "transaction.timeout.ms={v[transaction.timeout.ms]} must be greater than linger.ms={v[linger.ms]}: raise "
        "the one, or lower the other"),
    Conflict("bootstrap.servers", lambda v, _: not v["metadata.broker.list"].strip(" ,"),
        "bootstrap.servers is missing: set the cluster's addresses, e.g. 'host:9092'"),
)
# fmt: on

OPTIONS: Final = ConfigDef(
    (
        *_TAKEN,
        *_REFUSED,
        *(_refused(name, _FROM_C, "") for name in _C_ONLY.split()),
        *SECURITY_TAKEN,
        *SECURITY_REFUSED,
        *(Key(name, IGNORED, None) for name in _WITHOUT_OBJECT.split()),
        *(
            Key(name, IGNORED, None, "is a consumer's option: this producer ignores it")
            for name in _CONSUMER_ONLY.split()
        ),
    ),
    _CONFLICTS,
    unknown='No such configuration property: "{}"',
    otherwise="librdkafka 2.16 does not know this option",
)
"""Every option by its first name in librdkafka."""
