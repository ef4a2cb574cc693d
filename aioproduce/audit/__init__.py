"""Makes loss and duplicates provable: an id and a number in each record, and marks with the last number.

Pass an `Auditor` to a producer. `stamp` and `mark` define the formats for writers and readers;
`docs/how-to/audit.md` describes them byte by byte.
"""

from __future__ import annotations

from aioproduce.audit.auditor import Auditor
from aioproduce.audit.errors import MarkError, StampError
from aioproduce.audit.mark import DEFAULT_AUDIT_TOPIC, Mark
from aioproduce.audit.stamp import STAMP_HEADER, STAMP_SIZE, Stamp, pack_stamp, unpack_stamp

__all__ = [
    "Auditor",
    "DEFAULT_AUDIT_TOPIC",
    "Mark",
    "MarkError",
    "STAMP_HEADER",
    "STAMP_SIZE",
    "Stamp",
    "StampError",
    "pack_stamp",
    "unpack_stamp",
]
