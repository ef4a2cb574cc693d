"""The output of `aioproduce perf` besides Kafka's lines: the JSON document, the summary, the bar.

Called by `perf_command`. The keys of the document are part of the interface.
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console

import aioproduce
from aioproduce.cli.display import ProgressBar, complain, summary_grid
from aioproduce.cli.perf_timeline import STAGES, stage_averages
from aioproduce.installation import build_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from aioproduce.cli.perf import PerfJob, PerfRun
    from aioproduce.cli.perf_command import Given

_PICTURE: Final = 0.2
_STAGE_TEXTS: Final = {
    "send_wait": "waiting for room in buffer.memory, of each send() that did",
    "batching": "in a batch that was not full, within linger.ms",
    "await_send": "in a batch that was ready and not sent",
    "in_flight": "in the first request, until its answer",
    "retry": "from a failed first request to the outcome",
}
assert set(_STAGE_TEXTS) == set(STAGES)


def document(run: PerfRun, job: PerfJob, given: Given) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    stopwatch = run.stopwatch
    timeline, stats, steady = run.timeline, run.stats, run.steady_stats
    return {
        "topic": job.topic,
        "options": {
            "num_records": job.records,
            "record_size": given.record_size,
            "payload_file": given.payload_file,
            "payload_monotonic": given.payload_monotonic,
            "throughput": given.throughput,
            "warmup_records": job.warmup,
            "reporting_interval_ms": given.reporting_interval,
        },
        "producer": {
            "acks": job.config.acks,
            "linger.ms": round(job.config.linger * 1000, 3),
            "batch.size": job.config.batch_size,
            "buffer.memory": job.config.buffer_memory,
            "compression.type": job.config.compression_type,
            "enable.idempotence": job.config.enable_idempotence,
        },
        "sent": stopwatch.sent,
        "acknowledged": stopwatch.acknowledged,
        "failed": stopwatch.failed,
        "errors": {name: count for name, (count, _) in stopwatch.errors.items()},
        "total": None if run.total is None else run.total.as_json(),
        "steady": None if run.steady is None else run.steady.as_json(),
        "windows": [] if stats is None else [window.as_json() for window in stats.windows],
        "steady_windows": [] if steady is None else [window.as_json() for window in steady.windows],
        "stages_ms": None if timeline is None else stage_averages(timeline.stages()),
        "timeline": [] if timeline is None else [slot.as_json() for slot in timeline.slots],
        "metrics": run.metrics.as_dict() if given.print_metrics and run.metrics is not None else None,
        "stopped_by": None
        if run.problem is None
        else {"error": type(run.problem).__name__, "message": str(run.problem)},
        "signal": None if run.signal is None else run.signal.name,
        "exit_code": int(run.exit_code),
        "versions": {
            "aioproduce": aioproduce.__version__,
            "build": str(build_info()),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
    }


def problems(run: PerfRun) -> Iterator[str]:
    """Yield a line for each problem."""
    if run.problem is not None:
        yield str(run.problem)
    for name, (count, text) in run.stopwatch.errors.items():
        yield f"{count:,} record(s) failed, {name}: {text}"


def summary_table(values: dict[str, Any]) -> Table:
    """Return the document as a table for people."""
    table = summary_grid()
    total = values["total"]
    without = "acks=0: written to a connection, no broker confirms" if values["producer"]["acks"] == 0 else ""
    table.add_row("acknowledged", f"{values['acknowledged']:,}", without or f"of {values['sent']:,} sent")
    if values["failed"]:
        table.add_row("failed", f"{values['failed']:,}", ", ".join(values["errors"]))
    table.add_row("records/s", f"{total['records_per_second']:,.0f}", f"in {total['seconds']:.3f} s")
    table.add_row("MB/s", f"{total['mb_per_second']:,.2f}", "of values; 1 MB is 1,048,576 bytes")
    latency = (values["steady"] or total)["latency_ms"]
    if latency is not None:
        of = "after the warm-up" if values["steady"] else "every acknowledged record"
        table.add_row("p50 latency", f"{latency['p50']:,.2f} ms", f"from send() to acknowledgement, {of}")
        table.add_row("p99 latency", f"{latency['p99']:,.2f} ms", f"p99.9 {latency['p999']:,.2f} ms")
        table.add_row("max latency", f"{latency['max']:,.2f} ms", "")
    for stage, average in (values["stages_ms"] or {}).items():
        if average is not None:
            table.add_row(stage.replace("_", " "), f"{average:,.2f} ms", f"average {_STAGE_TEXTS[stage]}")
    if values["options"]["throughput"] < 0 and latency is not None:
        table.caption = (
            "Without a limit, latency is mostly the wait in the producer's own queue: docs/how-to/perf.md."
        )
        table.caption_justify = "left"
    return table


def to_stderr(content: RenderableType) -> None:
    """Write a rich object to standard error, if there is one."""
    if sys.stderr is None:
        return
    is_terminal = sys.stderr.isatty()
    console = Console(stderr=True, width=None if is_terminal else 100)
    with console.capture() as captured:
        console.print(content)
    complain(captured.get().rstrip("\n"))


@final
class PerfProgress(ProgressBar):
    """The bar, on standard error.

    Args:
        run: The run to show.
        job: Its job, with the number of records.
    """

    def __init__(self, run: PerfRun, job: PerfJob) -> None:
        self._run = run
        columns = ["{task.completed:,.0f} acked {task.fields[rate]:,.0f}/s", "p99 {task.fields[p99]}"]
        super().__init__(job.topic, job.records, columns, seconds=_PICTURE, rate=0.0, p99="-")

    def _fields(self) -> dict[str, Any]:
        run = self._run
        shown: dict[str, Any] = {}
        recent = run.total
        if recent is None and run.timeline is not None and run.timeline.slots:
            recent = run.timeline.slots[-1].measured
        if recent is not None:
            shown["rate"] = recent.records_per_second
            if recent.latencies.count:
                shown["p99"] = f"{recent.latencies.percentile(0.99) * 1000:,.1f} ms"
        failed = run.stopwatch.failed
        trouble = f"{failed:,} failed" if failed else ""
        return {"completed": run.stopwatch.acknowledged, "trouble": trouble, **shown}
