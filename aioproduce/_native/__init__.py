"""The compiled hot path: record batches, deliveries, key hashing; nothing else.

Imported by the core. Every module here is one `.py` that Cython compiles and that runs interpreted all the
same; `is_compiled()` tells which of the two is loaded.
"""

from __future__ import annotations

from aioproduce._native.key_hash import partition_for_key
from aioproduce._native.record_batch import (
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    RecordBatchBuffer,
    is_compiled,
    record_size_upper_bound,
)

__all__ = [
    "NO_TIMESTAMP",
    "RECORD_BATCH_OVERHEAD",
    "RecordBatchBuffer",
    "is_compiled",
    "partition_for_key",
    "record_size_upper_bound",
]
