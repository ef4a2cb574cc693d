"""A file queue in front of a producer: records are on disk before `send()` returns, and go to Kafka from there.

So no outage of the network or the cluster reaches the application. The way of a record:

    SpooledProducer.send()
      -> the front Producer -> LocalBroker -> SpoolWriter -> TopicLog          (on disk: send() returns)
      -> TopicForwarder or TransactionalForwarder <- TopicQueue <- LogReader
      -> the queue's Producer -> the cluster                                   (acknowledged: the delivery ends)

`topic_log`, `log_reader`, `position` and `segments` are the log on disk. They know neither an event loop nor a
broker, and reach files only through `disk`, so the tests can cut the power between any two effects.
"""

from __future__ import annotations

from aioproduce.spool.health import SpoolHealth as SpoolHealth
from aioproduce.spool.health import SpoolState as SpoolState
from aioproduce.spool.health import TopicBacklog as TopicBacklog
from aioproduce.spool.producer import SpooledProducer as SpooledProducer
from aioproduce.spool.settings import Spool as Spool
from aioproduce.spool.spooled_delivery import SpooledDeliveries as SpooledDeliveries
from aioproduce.spool.spooled_delivery import SpooledDelivery as SpooledDelivery
from aioproduce.spool.transactional_forwarder import LostPosition as LostPosition
from aioproduce.spool.writer_settings import FullPolicy as FullPolicy
from aioproduce.spool.writer_settings import SyncPolicy as SyncPolicy

__all__ = [
    "FullPolicy",
    "LostPosition",
    "Spool",
    "SpoolHealth",
    "SpoolState",
    "SpooledDeliveries",
    "SpooledDelivery",
    "SpooledProducer",
    "SyncPolicy",
    "TopicBacklog",
]
