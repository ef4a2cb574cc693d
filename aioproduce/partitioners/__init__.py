"""Which partition a record goes to: the built-in rules, and what a partitioner of one's own implements.

Called by `Producer.send()` for records without an explicit partition: with a key by `partition_for_key`
(Java's murmur2), without one (or with `partitioner.ignore.keys`) by `BuiltInPartitioner`, one object per
topic.
"""

from __future__ import annotations

from aioproduce._native.murmur2 import partition_for_key
from aioproduce.partitioners.builtin import BuiltInPartitioner
from aioproduce.partitioners.protocol import Partitioner, TopicView

__all__ = ["BuiltInPartitioner", "Partitioner", "TopicView", "partition_for_key"]
