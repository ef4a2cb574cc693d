"""Which batches of a lake no query writes again, by what the lake and its queries' checkpoints say.

Called by the job `compact` before it looks at an hour.

Spark writes `offsets/<n>` before micro-batch n runs and `commits/<n>` after it. Started again it repeats the last
batch that has offsets, if that has no commit, and none before it; so what is committed is done for good, as long as
the checkpoint's files are there. The last commit is the one that a power cut can take (Spark does not sync it), and
the one that is deleted by hand to have a batch again. So a batch is safe when a *later* one is committed.

Invariants:

1. What is not known is not safe: a checkpoint that is gone may be on a disk that is not mounted.
2. A query's name on the command line is not taken for more than the lake knows of it: of a retired query the
   batches up to the last that the lake calls complete are safe.
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
    """Which batches may be compacted now.

    Args:
        lake: The lake's directory; it names the queries that landed here, and where their checkpoints are.
        checkpoints: More of them, that were moved, or are of lakes without such notes.
        retired: Ids of queries that never run again.
        has_last: Take each query's last committed batch for safe, too.

    Raises:
        CheckpointError: One that was named is not there, or one is damaged.
        OptionError: A retired query never landed here.
        LayoutError: The lake's notes are damaged.
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
                f"{path} is no checkpoint: correct --checkpoint; nothing was compacted", path=path
            )
        below[named.query_id] = named.committed + has_last
        gone.discard(named.query_id)
    for query in retired:
        if query not in landers:
            raise OptionError(
                f"--retired {query}: no such query landed in {lake}; those that did: "
                f"{', '.join(sorted(landers)) or 'none'}",
                option="--retired",
            )
        below[query] = landers[query].batch + 1
        gone.discard(query)
    return SafeBatches(below, frozenset(gone))
