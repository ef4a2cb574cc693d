"""The screen of `aioproduce top`: from samples to lines of text, for a terminal of any size.

Called once a second. It uses no clock, no terminal and no stream.

Invariants:

1. A screen has exactly `height` lines, none wider than `width` cells, whatever the length of names.
2. The most important lines come first. If lines are too few, brokers and topics are cut, with the number left out.
3. Colour is never the only sign of trouble: words or figures report it, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Producer = dict[str, Any]

LEAST_WIDTH: Final = 40

_BARS: Final = "▁▂▃▄▅▆▇█"
_STAGES: Final = (
    ("send-wait", "waiting for room", "white"),
    ("batching", "batching", "blue"),
    ("await-send", "waiting to be sent", "yellow"),
    ("in-flight", "in flight", "green"),
    ("retry", "retrying", "red"),
    ("delivery", "in total", "magenta"),
)
_LEAST_MS: Final = 0.1
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: float | None, unit: str = "") -> str:
    """Return a number as three figures and a prefix."""
    if value is None:
        return "-"
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{_figures(value / size)} {prefix}{unit}"
    return f"{_figures(value)} {unit}".rstrip()


def milliseconds(value: float | None) -> str:
    """Return a time as three figures in a suitable unit."""
    if value is None:
        return "-"
    if value >= 120_000:
        return f"{_figures(value / 60_000)} min"
    if value >= 1000:
        return f"{_figures(value / 1000)} s"
    return f"{_figures(value)} ms"


def _figures(value: float) -> str:
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return the last of these values as bars from 0 to the highest; a blank for `None`."""
    shown = list(values)[-width:]
    highest = max((value for value in shown if value is not None), default=0.0)
    drawn = (
        " " if value is None else _BARS[min(int(value / highest * 7 + 0.5), 7)] if highest > 0 else _BARS[0]
        for value in shown
    )
    return "".join(drawn).rjust(width)


def picture(
    samples: Sequence[dict[str, Any]], *, chosen: int, width: int, height: int, status: str, is_lost: bool
) -> Text:
    """Return the whole screen.

    Args:
        samples: The contents of samples, oldest first.
        chosen: The index of the producer to show.
        width: Cells of a line.
        height: Lines.
        status: The state of the connection.
        is_lost: Whether that state is bad.
    """
    room, width = width, max(width, LEAST_WIDTH)
    lines = [_header(samples, chosen, width, status, is_lost)]
    if not samples:
        lines += [Text(), Text("waiting for the first sample", style="dim")]
    else:
        history = [sample["producers"][chosen] for sample in samples]
        lines += _figures_now(history, width)
        lines += _transactions(history[-1], width)
        lines += _spool(history[-1], width)
        lines += _warnings(history[-1], width)
        lines += [Text()]
        lines += _timeline(history[-1], width)
        lines += [Text()]
        lines += _tables(history[-1], width, height - len(lines))
    # A narrower terminal shows the beginnings of lines: wrapped lines would push others off the screen.
    lines = [_cut(line, room) for line in lines[:height]]
    lines += [Text()] * (height - len(lines))
    return Text("\n").join(lines)


def _cut(line: Text, width: int) -> Text:
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def _cell(text: str, width: int, *, is_right: bool = False) -> str:
    """Return the text exactly that wide, cut with an ellipsis, and without control characters."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    gap = " " * (width - cell_len(text))
    return gap + text if is_right else text + gap


def _header(samples: Sequence[dict[str, Any]], chosen: int, width: int, status: str, is_lost: bool) -> Text:
    name = ""
    if samples:
        producers = samples[-1]["producers"]
        name = producers[chosen]["client_id"]
        if len(producers) > 1:
            name += f"  ({chosen + 1} of {len(producers)} producers: --client-id shows another)"
    room = max(width - cell_len(status) - len("aioproduce  ") - 2, 0)
    line = Text.assemble(("aioproduce  ", "bold"), (_cell(name, room), ""), "  ")
    return line.append(status, style="bold white on red" if is_lost else "green")


def _figures_now(history: Sequence[Producer], width: int) -> list[Text]:
    """Return two columns of cells: name, figure, and a sparkline of its history."""
    now = history[-1]
    buffer, latency, lag, totals = now["buffer"], now["latency"], now["loop_lag"], now["totals"]

    def past(read: Callable[[Producer], float | None]) -> list[float | None]:
        return [read(producer) for producer in history]

    share = 100 * buffer["used"] / buffer["total"] if buffer["total"] else 0.0
    cells = (
        ("records", f"{count(now['records_per_s'])}/s", past(lambda p: p["records_per_s"]), False),
        ("bytes", f"{count(now['bytes_per_s'], 'B')}/s", past(lambda p: p["bytes_per_s"]), False),
        ("latency, average", milliseconds(latency["avg"]), past(lambda p: p["latency"]["avg"]), False),
        ("buffer", f"{share:.0f} %", past(lambda p: p["buffer"]["used"]), share > 90),
        ("  p99", milliseconds(latency["p99"]), past(lambda p: p["latency"]["p99"]), False),
        (
            "waiting tasks",
            count(buffer["waiting"]),
            past(lambda p: p["buffer"]["waiting"]),
            buffer["waiting"] > 0,
        ),
        ("  p99.9", milliseconds(latency["p999"]), past(lambda p: p["latency"]["p999"]), False),
        ("in flight", count(now["requests_in_flight"]), past(lambda p: p["requests_in_flight"]), False),
        ("retried", count(totals["retries"]), past(lambda p: p["retries_per_s"]), bool(now["retries_per_s"])),
        ("failed", count(totals["errors"]), past(lambda p: p["errors_per_s"]), bool(totals["errors"])),
        (
            "oldest record",
            milliseconds(_age(now, "record")["ms"]),
            past(lambda p: _age(p, "record")["ms"]),
            _age(now, "record")["is_late"],
        ),
        (
            "oldest send()",
            milliseconds(_age(now, "send")["ms"]),
            past(lambda p: _age(p, "send")["ms"]),
            _age(now, "send")["is_late"],
        ),
        ("loop lag, p99", milliseconds(lag["p99"]), past(lambda p: p["loop_lag"]["avg"]), False),
        (
            "throttled, longest",
            milliseconds(now["throttle"]["max"]),
            past(lambda p: p["throttle"]["avg"]),
            False,
        ),
    )
    columns = 2 if width >= 72 else 1
    each = (width - 2 * (columns - 1)) // columns
    bars = max(min(each - 31, 60), 0)
    lines = []
    for start in range(0, len(cells), columns):
        line = Text()
        for place, (name, figure, values, is_bad) in enumerate(cells[start : start + columns]):
            line.append("  " if place else "")
            line.append(_cell(name, 19), style="dim")
            line.append(_cell(figure, 11, is_right=True), style="bold red" if is_bad else "bold")
            line.append(" ")
            line.append(_cell(sparkline(values, bars) if bars else "", each - 31), style="cyan")
        lines.append(line)
    return lines


def _transactions(producer: Producer, width: int) -> list[Text]:
    """Return one line for a transactional producer. A service of an earlier version does not report any."""
    now = producer.get("transactions")
    if now is None:
        return []
    is_bad = now["state"].endswith("error")
    told = f"{now['id']}: {now['state']}"
    if is_bad:
        told += f": {now['error']}"
    else:
        told += f" for {milliseconds(now['open_ms'])}" if now["open_ms"] else ""
        told += f", {count(now['committed_per_s'])}/s committed, {count(now['aborted_per_s'])}/s aborted"
        told += f", a commit {milliseconds(now['commit_avg'])}"
    line = Text(_cell("transactions", 19), style="dim")
    return [line.append(_cell(told, width - 19), style="bold red" if is_bad else "bold not dim")]


def _spool(producer: Producer, width: int) -> list[Text]:
    """Return two lines for a producer with a queue on disk. A service of an earlier version reports none."""
    now = producer.get("spool")
    if now is None:
        return []
    is_bad = not now["takes_records"] or now["blocked_topics"] > 0
    guess = "about " if now["is_estimate"] and now["records"] is not None else ""
    told = "takes records" if now["takes_records"] else "TAKES NO RECORDS"
    told += f", {guess}{count(now['records'])} records and {count(now['bytes'], 'B')} wait"
    if now["bytes"]:
        told += f", the oldest for {milliseconds(now['oldest_ms'])}, empty in {milliseconds(now['drain_ms'])}"
    share = 100 * now["size"] / now["max_size"] if now["max_size"] else 0.0
    more = f"{count(now['stored_per_s'])}/s put on disk, {count(now['forwarded_per_s'])}/s forwarded"
    more += f", a sync {milliseconds(now['sync']['p99'])} (p99), {share:.0f} % full"
    more += (
        f", {count(now['blocked_topics'])} topics blocked, {count(now['totals']['dead_letter'])} dead letters"
    )
    first = Text(_cell("queue on disk", 19), style="dim")
    first.append(_cell(told, width - 19), style="bold red" if is_bad else "bold not dim")
    return [first, Text(_cell("", 19) + _cell(more, width - 19), style="dim")]


def _warnings(producer: Producer, width: int) -> list[Text]:
    """Return a line for each warning, as on the page."""
    return [Text(_cell(f"! {warning}", width), style="bold red") for warning in producer.get("warnings", [])]


def _age(producer: Producer, which: str) -> dict[str, Any]:
    """Return the age of the oldest record or `send()`. A service of an earlier version does not report it."""
    ages: dict[str, dict[str, Any]] = producer.get("ages", {})
    return ages.get(which, {"ms": None, "is_late": False})


def _timeline(producer: Producer, width: int) -> list[Text]:
    """Return the stages of KIP-91 on a logarithmic axis, with a mark at `delivery.timeout.ms`."""
    limit = producer["limits"]["delivery_timeout"]
    stages = producer["stages"]
    longest = max([stage["max"] or 0.0 for stage in stages.values()] + [limit or 0.0, 1000.0])
    names, figures = 19, 19
    room = max(width - names - figures - 2, 8)
    span = math.log10(longest / _LEAST_MS)

    def at(value: float) -> int:
        return round(math.log10(max(value, _LEAST_MS) / _LEAST_MS) / span * (room - 1))

    limited = "" if limit is None else f"delivery.timeout.ms {milliseconds(limit)}"
    title = Text(_cell("delivery timeline", names), style="dim")
    title.append(_cell(limited, room, is_right=True), style="red")
    title.append(_cell("p50 … p99", figures + 1, is_right=True), style="dim")
    lines = [title]
    for key, name, colour in _STAGES:
        times = stages[key]
        axis = [" "] * room
        if times["p50"] is not None:
            start, end, last = at(times["p50"]), at(times["p99"]), at(times["max"])
            axis[start : last + 1] = "─" * (last + 1 - start)
            axis[start : end + 1] = "█" * (end + 1 - start)
        if limit is not None and axis[at(limit)] == " ":
            axis[at(limit)] = "│"
        told = (
            "none" if times["p50"] is None else f"{milliseconds(times['p50'])} … {milliseconds(times['p99'])}"
        )
        line = Text(_cell(name, names), style="bold" if key == "delivery" else "")
        line.append("".join(axis), style=colour)
        line.append(_cell(told, figures + 1, is_right=True), style="dim" if times["p50"] is None else "")
        lines.append(line)
    ticks = [" "] * room
    power = -1
    while (place := at(10.0**power)) < room and 10.0**power <= longest:
        label = milliseconds(10.0**power)
        if place + len(label) <= room and all(
            cell == " " for cell in ticks[max(place - 2, 0) : place + len(label)]
        ):
            ticks[place : place + len(label)] = label
        power += 1
    lines.append(Text(" " * names + "".join(ticks), style="dim"))
    return lines


def _tables(producer: Producer, width: int, height: int) -> list[Text]:
    """Return the tables of brokers and topics, side by side if there is room."""
    brokers = [
        (
            row["name"],
            count(row["in_flight"]),
            count(row["requests_per_s"]),
            milliseconds(row["latency_avg"]),
            milliseconds(row["latency_max"]),
        )
        for row in producer["brokers"]
    ]
    topics = [
        (
            row["name"],
            count(row["records_per_s"]),
            count(row["bytes_per_s"], "B"),
            count(row["retries_per_s"]),
            count(row["errors_per_s"]),
        )
        for row in producer["topics"]
    ]
    is_wide = width >= 78
    each = (width - 2) // 2 if is_wide else width
    left_head, right_head = (
        ("broker", "flight", "req/s", "latency", "max"),
        ("topic", "rec/s", "B/s", "retr/s", "err/s"),
    )
    if is_wide:
        left = _table(left_head, brokers, (6, 6, 7, 8, 8), each, height)
        right = _table(right_head, topics, (8, 7, 8, 6, 6), each, height)
        lines = []
        for place in range(max(len(left), len(right))):
            line = left[place].copy() if place < len(left) else Text(" " * each)
            line.append("  ")
            lines.append(line.append_text(right[place]) if place < len(right) else line)
        return lines
    half = max(height // 2, 2)
    upper = _table(left_head, brokers, (6, 6, 7, 8, 8), each, half)
    return upper + _table(right_head, topics, (8, 7, 8, 6, 6), each, height - len(upper))


def _table(
    head: tuple[str, ...], rows: Sequence[tuple[str, ...]], sizes: tuple[int, ...], width: int, height: int
) -> list[Text]:
    """Return at most `height` lines; the first column gets the rest of the width."""
    first = max(width - sum(sizes[1:]) - (len(sizes) - 1), sizes[0])

    def line(cells: tuple[str, ...]) -> str:
        others = (_cell(cell, size, is_right=True) for cell, size in zip(cells[1:], sizes[1:], strict=True))
        return " ".join([_cell(cells[0], first), *others])

    if height < 2:
        return []
    shown = rows if len(rows) < height else rows[: height - 2]
    lines = [Text(line(head), style="bold underline")]
    lines += [Text(line(row)) for row in shown]
    if len(shown) < len(rows):
        lines.append(Text(_cell(f"and {len(rows) - len(shown)} more", width), style="dim"))
    return lines
