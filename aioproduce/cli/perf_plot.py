"""A plot of a run of `aioproduce perf`: throughput, latency and stages over time.

Called by `perf_command`. It needs matplotlib (the extra `plot`), and imports it when it draws.
"""

from __future__ import annotations

import math
from typing import Any, Final

_BLUE: Final = "#1f77b4"
_ORANGE: Final = "#ff7f0e"
_GREY: Final = "#8a929b"
_RED: Final = "#d9534f"
_STAGES: Final = {
    "send_wait": ("wait for room", "#d9534f"),
    "batching": ("batching", "#ff7f0e"),
    "await_send": ("await send", "#9467bd"),
    "in_flight": ("in flight", "#1f77b4"),
    "retry": ("retry", "#8c564b"),
}


def draw(file: str, values: dict[str, Any]) -> None:
    """Write the plot; the file's suffix is its format.

    Args:
        file: The path.
        values: The document that `--json` prints.

    Raises:
        OSError: if it cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    slots = [slot for slot in values["timeline"] if slot["seconds"] > 0]
    # A last slot that is much shorter than the others would show the rate of a few batches.
    if len(slots) > 1 and slots[-1]["seconds"] < slots[0]["seconds"] / 2:
        slots.pop()
    style: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
        figure.suptitle(_title(values), fontsize=10)
        _throughput(axes[0], slots)
        _latency(axes[1], slots)
        _stages(axes[2], slots)
        axes[2].set_xlabel("seconds from the start")
        axes[2].set_xlim(left=0)
        figure.align_ylabels(axes)
        figure.savefig(file, dpi=130)
        pyplot.close(figure)


def _title(values: dict[str, Any]) -> str:
    options, total = values["options"], values["total"]
    what = f"{options['record_size']}-byte records" if options["record_size"] else "records"
    limit = f", limit {options['throughput']:,.0f}/s" if options["throughput"] > 0 else ""
    rate = f"{total['records_per_second']:,.0f} records/s" if total else ""
    producer = values["producer"]
    acks = "all" if producer["acks"] == -1 else producer["acks"]
    return (
        f"aioproduce perf: {values['acknowledged']:,} {what} to {values['topic']}{limit}: {rate}\n"
        f"acks={acks}, linger.ms={producer['linger.ms']:g}, batch.size={producer['batch.size']:,}, "
        f"compression.type={producer['compression.type']}"
    )


def _middles(slots: list[dict[str, Any]]) -> list[float]:
    return [slot["begins_s"] + slot["seconds"] / 2 for slot in slots]


def _mark(slots: list[dict[str, Any]]) -> str:
    return "o" if len(slots) < 20 else ""


def _legend(axis: Any) -> None:
    """Draw the legend above the axes, where no line crosses it."""
    axis.legend(frameon=False, ncols=5, loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0)


def _throughput(axis: Any, slots: list[dict[str, Any]]) -> None:
    times = _middles(slots)
    rates = [slot["records_per_second"] for slot in slots]
    axis.plot(times, rates, color=_BLUE, marker=_mark(slots), ms=3, label="records/s")
    axis.set_ylim(bottom=0, top=max([*rates, 1.0]) * 1.15)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_ylabel("records/s acknowledged")
    failed = [(time, slot["failed"]) for time, slot in zip(times, slots, strict=True) if slot["failed"]]
    if failed:
        axis.plot(*zip(*failed, strict=True), "x", color=_RED, label="records failed")
        _legend(axis)
    axis.grid(axis="y", alpha=0.25)


def _latency(axis: Any, slots: list[dict[str, Any]]) -> None:
    times = _middles(slots)
    for name, label, colour in (
        ("max", "max", _GREY),
        ("p999", "99.9 %", _RED),
        ("p99", "99 %", _ORANGE),
        ("p50", "50 %", _BLUE),
    ):
        values = [slot["latency_ms"][name] if slot["latency_ms"] else math.nan for slot in slots]
        axis.plot(times, values, color=colour, marker=_mark(slots), ms=3, lw=1.3, label=label)
    if any(slot["latency_ms"] for slot in slots):
        from matplotlib.ticker import LogLocator, NullFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel("latency, ms")
    _legend(axis)
    axis.grid(axis="y", alpha=0.25)


def _stages(axis: Any, slots: list[dict[str, Any]]) -> None:
    times = _middles(slots)
    for stage, (label, colour) in _STAGES.items():
        values = [slot["stages_ms"][stage] for slot in slots]
        if any(value is not None for value in values):
            shown = [math.nan if value is None else value for value in values]
            axis.plot(times, shown, color=colour, marker=_mark(slots), ms=3, lw=1.3, label=label)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("average in each stage, ms")
    if axis.lines:
        _legend(axis)
    axis.grid(axis="y", alpha=0.25)
