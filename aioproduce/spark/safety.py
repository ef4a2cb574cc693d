"""Determines which batches of a lake no query writes again, from the lake and its queries' checkpoints.

Used by the job `compact` before it lists an hour.

Spark writes `offsets/<n>` before micro-batch n runs and `commits/<n>` after it. A restarted query repeats the last
batch with offsets if that has no commit, and no earlier one. So a committed batch is final as long as the
checkpoint's files exist. A power cut can remove the last commit (Spark does not sync it), and users delete it to
repeat a batch. So a batch is safe when a *later* one is committed.

Invariants:

1. An unknown state is not safe: a missing checkpoint may be on a disk that is not mounted.
2. Naming a query on the command line does not override what the lake knows of it: for a retired query, the batches
   up to the last one that the lake records as complete are safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce.spark.checkpoint import read_checkpoint
from aioproduce.spark.compaction import SafeBatches
from aioproduce.spark.errors import CheckpointError, OptionError
from aioproduce.spark.files import files_of
from aioproduce.spark.lake import landers_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def safe_batches(
    lake: str, *, checkpoints: Iterable[str] = (), retired: Iterable[str] = (), has_last: bool = False
) -> SafeBatches:
    """Return the batches that may be compacted now.

    Args:
        lake: The lake's directory, which records its queries and the paths of their checkpoints.
        checkpoints: Further checkpoints that were moved, or are of lakes without such records.
        retired: Ids of queries that will never run again.
        has_last: Whether each query's last committed batch also counts as safe.

    Raises:
        CheckpointError: If a named one does not exist, or if one is damaged.
        OptionError: If a retired query never landed here.
        LayoutError: If the lake's records are damaged.
    """
    below: dict[str, int] = {}
    gone: set[str] = set()
    landers = {lander.query_id: lander for lander in landers_of(lake, files_of(lake))}
    for lander in landers.values():
        found = read_checkpoint(lander.checkpoint)
        if found is not None and found.query_id == lander.query_id:
            below[lander.query_id] = found.committed + has_last
        else:
            gone.add(lander.query_id)
    for path in checkpoints:
        named = read_checkpoint(path)
        if named is None:
            raise CheckpointError(
                f"{path} is not a checkpoint: correct --checkpoint; nothing was compacted", path=path
            )
        below[named.query_id] = named.committed + has_last
        gone.discard(named.query_id)
    for query in retired:
        if query not in landers:
            raise OptionError(
                f"--retired {query}: this query never landed in {lake}; the queries that did: "
                f"{', '.join(sorted(landers)) or 'none'}",
                option="--retired",
            )
        below[query] = landers[query].batch + 1
        gone.discard(query)
    return SafeBatches(below, frozenset(gone))
