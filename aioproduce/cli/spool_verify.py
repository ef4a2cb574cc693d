"""The run of `aioproduce spool verify`: a check, step by step, with a progress bar and an end at a signal.

Called by `spool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any, Final, final

from rich.progress import DownloadColumn

from aioproduce.cli.display import ProgressBar, unwrapped
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.signals import Signals
from aioproduce.spool.verifying import Verification, bytes_to_verify, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.spool.queue_files import QueueFiles

_PICTURE: Final = 0.1
# Batches between two turns of the event loop, which draws the bar and hears signals.
_BATCHES: Final = 64
_SIGNALLED: Final = {
    None: ExitCode.DONE,
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
}


async def verify_all(
    queues: Sequence[QueueFiles], *, shows_progress: bool
) -> tuple[list[Verification], ExitCode]:
    """Check queues.

    Returns:
        What was found, and the exit code of the signal that ended the check early.

    Raises:
        SpoolDirectoryError: if a queue cannot be read.
    """
    results = [Verification(queue.path, queue.user()) for queue in queues]
    bar = _VerifyProgress(results, sum(map(bytes_to_verify, queues))) if shows_progress else None
    signals = Signals()
    with signals.listening():
        async with contextlib.nullcontext() if bar is None else bar.drawn():
            work = asyncio.create_task(_verify(queues, results), name="aioproduce spool verify")
            try:
                stopped_by = await signals.during(work)
            finally:
                work.cancel()
                await asyncio.wait([work])
    if not work.cancelled():
        work.result()
    return results, _SIGNALLED[stopped_by]


async def _verify(queues: Sequence[QueueFiles], results: Sequence[Verification]) -> None:
    for queue, result in zip(queues, results, strict=True):
        for _ in verify(queue, result):
            if not result.batches % _BATCHES:
                await asyncio.sleep(0)


@final
class _VerifyProgress(ProgressBar):
    def __init__(self, results: Sequence[Verification], total: int) -> None:
        self._results = results
        super().__init__(
            results[0].path if len(results) == 1 else f"{len(results)} queues",
            total,
            [DownloadColumn(table_column=unwrapped()), "{task.fields[records]:,} records"],
            seconds=_PICTURE,
            records=0,
        )

    def _fields(self) -> dict[str, Any]:
        damages = sum(finding.is_damage for each in self._results for finding in each.findings)
        return {
            "completed": sum(each.bytes for each in self._results),
            "records": sum(each.records for each in self._results),
            "trouble": f"{damages:,} damaged places" if damages else "",
        }
