"""Partition choice: the built-in rules, and the interface of custom partitioners.

A record may name its partition. Otherwise a *key rule* may decide (a hash of the key). For the *keyless* records,
which it does not decide, a sticky rule or one that takes turns chooses. `named` has the pairs of rules that
`partitioner.class` can name.
"""

from __future__ import annotations

from aioproduce._native.key_hash import partition_for_key
from aioproduce.partitioners.foreign import ForeignPartitioner
from aioproduce.partitioners.load import LoadTable
from aioproduce.partitioners.named import NAMED, Keyless, NamedPartitioner
from aioproduce.partitioners.protocol import Partitioner, TopicView
from aioproduce.partitioners.sticky import StickyPerBatch, UniformSticky
from aioproduce.partitioners.turns import RoundRobin, UniformRandom

__all__ = [
    "NAMED",
    "ForeignPartitioner",
    "Keyless",
    "LoadTable",
    "NamedPartitioner",
    "Partitioner",
    "RoundRobin",
    "StickyPerBatch",
    "TopicView",
    "UniformRandom",
    "UniformSticky",
    "partition_for_key",
]
