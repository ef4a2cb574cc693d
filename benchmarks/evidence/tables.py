"""The tables of each kind of result, in Markdown, without the line with their origin.

Called by `blocks`. A miss is as visible as a success: each table with a target says "missed" next to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import judge, report
from benchmarks.evidence.markdown import count, table
from benchmarks.evidence.results import Document
from benchmarks.evidence.sections import judgements_of, results_of
from benchmarks.failing_logins import COLUMNS as LOGIN_COLUMNS
from benchmarks.failing_logins import is_met as is_login_met
from benchmarks.partitioners.__main__ import HEADINGS, LEFT_OUT, TITLES, shown

Documents = Mapping[str, Document]
Render = Callable[[Documents], str]


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


# -- python -m benchmarks ---


def section(entry: str, name: str = "") -> Render:
    """Return the renderer of a section's table, as the program prints it."""

    def render(documents: Documents) -> str:
        figures = documents[entry]["figures"]
        results = results_of(figures, name or entry)
        headings, rows = report.table_of(name or entry, results)
        return table(headings, rows, texts=2 if headings[1] == "with" else 1)

    return render


_MATRIX = (
    *(("aioproduce", mode) for mode in ("await-each", "dropped", "tasks", "send-many")),
    ("aiokafka", "await-each"),
    *((client, "callback") for client in ("confluent", "franz-go")),
)
"""The columns of the matrix; the result has every mode and both loops."""


def matrix(documents: Documents) -> str:
    """Return the rates with each setting, in thousands of records a second, on uvloop where there is a loop."""
    rates: dict[str, dict[tuple[str, str], float]] = {}
    for result in results_of(documents["matrix"]["figures"], "null"):
        if result.case.loop in ("", "uvloop"):
            of_setting = rates.setdefault(report.settings_label(result) or "100 B", {})
            of_setting[result.case.client, result.case.mode] = result.figures["records_per_second"]
    rows = [
        [setting, *(count(found[column] / 1000) if column in found else "" for column in _MATRIX)]
        for setting, found in rates.items()
    ]
    headings = [", ".join(column) for column in _MATRIX]
    return table(("thousand records/s", *headings), rows)


def throughput(documents: Documents) -> str:
    """Return the rates on the null broker and on real Kafka next to each other."""
    figures = ("records_per_second", "cpu_seconds_per_million")
    sides = [
        {result.case.name: result.figures for result in results_of(documents[name]["figures"], name)}
        for name in ("null", "kafka")
    ]
    headings = ["client, mode"]
    for broker in ("null broker", "real Kafka"):
        headings += [f"{broker}, records/s", "CPU s per million"]
    rows = []
    for name in dict.fromkeys(name for side in sides for name in side):
        cells = []
        for side in sides:
            of_case = side.get(name)
            rate, cpu = (of_case[figure] for figure in figures) if of_case else (None, None)
            cells += ["" if rate is None else count(rate), "" if cpu is None else f"{cpu:.2f}"]
        rows.append([f"**{name}**" if name.startswith("aioproduce") else name, *cells])
    return table(headings, rows)


def targets(documents: Documents) -> str:
    """Return every target of every measured section."""
    judged = [row for document in documents.values() for row in judgements_of(document["figures"])]
    rows = [judge.row_of(*each) for each in judged]
    asked = [each for _, each in judged if each.least is not None]
    met = sum(each.is_met for each in asked)
    shown = [[*row[:-1], row[-1].replace("MISSED", "**missed**")] for row in rows]
    return table(judge.HEADINGS, shown, texts=2) + f"\n{met} of {len(asked)} targets are met.\n"


def scaling(documents: Documents) -> str:
    """Return each curve's points, and whether it is flat."""
    curves = report.curves_of(results_of(documents["scaling"]["figures"], "scaling"))
    rows = []
    for curve, points in curves.items():
        shown = ", ".join(f"{x:,.0f}: {y:,.2f}" for x, y in points)
        rows.append([curve, shown, report.verdict(curve, points).replace("NO", "**no**")])
    return table(("what grows", "CPU us of a record at each size", "flat within 20 %"), rows, texts=3)


def others(entry: str) -> Render:
    """Return the renderer of a section without cases: a row for each figure."""

    def render(documents: Documents) -> str:
        found = documents[entry]["figures"]["others"][entry]
        rows = [
            [title, figure.replace("_", " "), f"{value:,.4g}" if abs(value) < 1000 else count(value)]
            for title, figures in found.items()
            for figure, value in figures.items()
        ]
        return table(("what", "figure", "value"), rows, texts=2)

    return render


# -- other programs ---


def transactions(documents: Documents) -> str:
    """Return the figures by size, with their targets."""
    cases = documents["transactions"]["medians"]
    sizes = [int(name.split()[1]) for name in cases if name.startswith("ours ")]
    rows = []
    for size in sizes:
        mine, theirs, java = (cases[f"{who} {size}"] for who in ("ours", "confluent", "java"))
        by_confluent, by_java = f"{mine / theirs:.2f}", f"{mine / java:.2f}"
        if size == 1_000:
            by_confluent += f" (wanted 2: {_verdict(mine / theirs >= 2)})"
            by_java += f" (wanted 1.2: {_verdict(mine / java >= 1.2)})"
        rows.append([f"{size:,}", f"{mine:,.1f}", f"{theirs:,.1f}", by_confluent, f"{java:,.1f}", by_java])
    share = cases["each 500 ms by idempotent"]
    group = cases["group commit"] / cases["ours 1"]
    headings = (
        "records a transaction",
        "aioproduce, transactions/s",
        "confluent-kafka",
        "ratio",
        "Java",
        "ratio",
    )
    more = [
        ["records/s with a commit each 500 ms, by the idempotent producer's, in pairs", f"{share:.2f}", "0.9",
         _verdict(share >= 0.9)],
        [f"records/s of `group_commit(0.05)`, {count(cases['group commit'])}, by one transaction for each record",
         f"{group:.0f}", "50", _verdict(group >= 50)],
    ]  # fmt: skip
    return table(headings, rows, texts=0) + "\n" + table(("what", "measured", "wanted", ""), more)


def recording(documents: Documents) -> str:
    """Return the cost of sensors in each mode."""
    rows = [
        [mode, count(each["with"]), count(each["without"]), f"{each['added']:+.1%}".replace("%", " %")]
        for mode, each in documents["recording"]["figures"].items()
    ]
    return table(("mode of `tests/budget`", "instructions of a record", "without sensors", "added"), rows)


def interpreters(documents: Documents) -> str:
    """Return each interpreter's figures, and their ratios to those of the first."""
    told = documents["interpreters"]["figures"]
    figures, ratios = told["figures"], told["ratios"]
    first, *others = figures
    rows = []
    for figure in figures[first]:
        compared = [f"{count(figures[name][figure])} ({ratios[name][figure]:.2f})" for name in others]
        rows.append([figure, count(figures[first][figure]), *compared])
    return table(["", first, *others], rows)


def budget(documents: Documents) -> str:
    """Instructions, frames and calls of a record in each mode."""
    figures = documents["budget"]["figures"]
    frames, instructions = figures["frames"], figures.get("instructions", {})
    rows = [
        [mode, count(instructions[mode]["instructions"]) if mode in instructions else "",
         f"{each['frames']:.2f}", f"{each['calls']:.2f}"]
        for mode, each in frames.items()
    ]  # fmt: skip
    return table(("mode", "instructions", "Python frames", "calls of C"), rows)


def stages(documents: Documents) -> str:
    """The stages of a record."""
    rows = [
        [name, report.stage_cell(each, "record_ns", 0), report.stage_cell(each, "batch_us", 1)]
        for name, each in documents["stages"]["figures"].items()
    ]
    return table(("stage", "ns a record", "us a batch"), rows)


def growth(documents: Documents) -> str:
    """The parts of a batch with few and with many partitions or topics, and what the many add."""
    figures = documents["growth"]["figures"]
    few, many, few_topics, many_topics = figures
    rows = [
        [part, *(f"{figures[case][part]:.1f}" for case in (few, many)),
         f"{figures[many][part] - figures[few][part]:+.1f}",
         *(f"{figures[case][part]:.1f}" for case in (few_topics, many_topics)),
         f"{figures[many_topics][part] - figures[few_topics][part]:+.1f}"]
        for part in figures[few]
    ]  # fmt: skip
    return table(("us of a batch", few, many, "added", few_topics, many_topics, "added"), rows)


def blocking(documents: Documents) -> str:
    """Return the figures by threads and client."""
    rows = [
        [str(row["threads"]), row["client"], count(row["records_per_second"]), f"{row['cpu_us']:.2f}",
         "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio"])]
        for row in documents["blocking"]["figures"]
    ]  # fmt: skip
    headings = ("threads", "client", "records/s", "CPU us a record", "by the faster confluent-kafka")
    return table(headings, rows, texts=2)


def named(entry: str, heading: str, layout: str = "{:,.2f}") -> Render:
    """The medians of a result, a row each."""

    def render(documents: Documents) -> str:
        rows = [[name, layout.format(value)] for name, value in documents[entry]["medians"].items()]
        return table(("what", heading), rows)

    return render


def service(documents: Documents) -> str:
    """Return the cost of each step, each way."""
    added = documents["service-overhead"]["figures"]["added"]
    steps = next(iter(added.values()))
    rows = [[step, *(f"{added[way][step]['paired_p50']:.1f}" for way in added)] for step in steps]
    return table(("microseconds added, p50", *added), rows)


def pairs(entry: str) -> Render:
    """Return the renderer of the cost for each load, by time and by processor time."""

    def render(documents: Documents) -> str:
        rows = []
        for row in documents[entry]["figures"]:
            shown = ["{:+.1f} ({:+.1f}, {:+.1f})".format(*(100 * each - 100 for each in row[kind]))
                     for kind in ("time", "cpu")]  # fmt: skip
            rows.append([row["load"], count(row["records_per_second"]), *shown])
        return table(
            ("load", "records/s", "% of the time: median (least, most)", "% of processor time"), rows
        )

    return render


def partitioners(documents: Documents) -> str:
    """A table for each experiment, as the program prints it, texts first."""
    parts = []
    figures = documents["partitioners"]["figures"]
    for experiment, rows in figures["experiments"].items():
        columns = [name for name in rows[0] if name not in LEFT_OUT[experiment]]
        columns.sort(key=lambda name: not isinstance(rows[0][name], str))
        cells = [[shown(name, row[name]) for name in columns] for row in rows]
        headings = [_in_one_line(HEADINGS.get(name, name)) for name in columns]
        texts = sum(isinstance(rows[0][name], str) for name in columns)
        title = TITLES[experiment].format(figures["records"][experiment])
        parts.append(f"{title}\n\n{table(headings, cells, texts)}")
    return "\n".join(parts)


def _in_one_line(heading: str) -> str:
    return re.sub(r"\n(?=[./])", "", heading).replace("\n", " ").replace("_", " ")


def failing_logins(documents: Documents) -> str:
    """Return the leaks and the CPU time of each kind."""
    rows = [
        [
            kind,
            *(layout.format(figures[name]) for name, _, layout in LOGIN_COLUMNS),
            _verdict(is_login_met(figures)),
        ]
        for kind, figures in documents["failing-logins"]["figures"].items()
    ]
    return table(("what is wrong", *(heading for _, heading, _ in LOGIN_COLUMNS), ""), rows)


def reauthentication(documents: Documents) -> str:
    """Return each run next to one whose sessions do not end."""
    rows = []
    for row in documents["reauthentication"]["figures"]:
        ends, without = row["sessions_that_end"], row["sessions_without_end"]
        rows.append(
            [f"{row['mechanism']}, {'idempotent' if row['is_idempotent'] else 'not idempotent'}",
             count(ends["renewed"]), count(ends["lost"]), count(ends["duplicated"]),
             f"{ends['latency_p99_ms']:.1f}", f"{without['latency_p99_ms']:.1f}", f"{row['p99_ratio']:.2f}",
             f"**missed**: {', '.join(row['wrong'])}" if row["wrong"] else "met"]
        )  # fmt: skip
    headings = ("mechanism", "renewals", "lost", "twice", "p99 ms", "p99 ms without", "ratio, at most 2", "")
    return table(headings, rows)


# -- Spark ---


def spark_sink(documents: Documents) -> str:
    """Return each contender's medians, and the targets."""
    from benchmarks import spark_sink as bench

    runs = [bench.Run(**run) for run in documents["spark-sink"]["figures"]]
    rows = [
        [name, count(each["rows_per_s"]), f"{count(each['rows_per_s_min'])} to {count(each['rows_per_s_max'])}",
         f"{each['cpu_s_per_million']:.2f}", count(each["requests_per_million"]),
         f"{each['batch_p50_s']:.2f}, {each['batch_p99_s']:.2f}"]
        for name, each in bench.figures(runs).items()
    ]  # fmt: skip
    asked = [
        [what, f"{value:.2f}", wanted, _verdict(is_met)]
        for what, value, wanted, is_met in bench.targets(runs)
    ]
    headings = ("sink", "rows/s", "least to most", "CPU s per million rows", "requests per million rows",
                "p50, p99 of a micro-batch, s")  # fmt: skip
    return table(headings, rows) + "\n" + table(("what", "measured", "wanted", ""), asked)


def spark_land(documents: Documents) -> str:
    """Warm, cold, and the range."""
    medians = documents["spark-land"]["medians"]
    warm, cold = medians["warm rows/s"], medians["cold rows/s"]
    least, most = medians["warm rows/s, least"], medians["warm rows/s, most"]
    row = [count(warm), f"{count(least)} to {count(most)}", count(cold), f"{medians['CPU s per million']:.1f}",
           f"200,000: {_verdict(warm >= 200_000)}, least {_verdict(least >= 200_000)}"]  # fmt: skip
    headings = ("rows/s, warm", "least to most", "first run", "CPU s per million rows", "wanted")
    return table(headings, [row], texts=0)


def spark_audit(documents: Documents) -> str:
    """Each reader on each lake: warm, cold, and whether 700,000 rows/s are reached."""
    rows = []
    for each in documents["spark-audit"]["figures"]:
        cold, *warm = each["seconds"]
        rate = each["rows"] / median(warm)
        rows.append([each["reader"], count(each["rows"]), each["lake"], count(rate), count(each["rows"] / cold),
                     "" if each["reader"] == "plain" else _verdict(rate >= 700_000)])  # fmt: skip
    return table(("reader", "rows", "lake", "rows/s, warm", "first run", "wanted: 700,000 rows/s"), rows)


def spark_sizing(documents: Documents) -> str:
    """Return the cost of each job, and the sizes for a rate."""
    from benchmarks import spark_sizing as bench

    figures = documents["spark-sizing"]["figures"]
    return bench.tables([bench.Round(**each) for each in figures["rounds"]], figures["wire_bytes"])


# -- proofs ---


def counts(*entries: str) -> Render:
    """Return the results that exist next to each other: a row for each number that one of them has."""

    def render(documents: Documents) -> str:
        columns = {entry: documents[entry]["medians"] for entry in entries if entry in documents}
        names = dict.fromkeys(name for column in columns.values() for name in column)
        rows = [
            [name.replace("_", " "), *(_number(column.get(name)) for column in columns.values())]
            for name in names
        ]
        return table(("figure", *columns), rows)

    return render


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return count(value) if value == int(value) else f"{value:,.2f}"


def mutants(documents: Documents) -> str:
    """Return each bug, and what noticed it."""
    rows = [
        [
            row["mutant"],
            f"{row['caught']} of {row['seeds']}",
            ", ".join(f"{letter} {count}" for letter, count in row["by"].items()),
            row["stand_in"] or "",
        ]
        for row in documents["mutants"]["figures"]
    ]
    return table(("bug", "seeds that notice it", "by", "else noticed by"), rows, texts=4)


def soak(documents: Documents) -> str:
    """Samples, evenly over the run, and the last one, after the producer was closed."""
    figures = documents["soak"]["figures"]
    running = [sample for sample in figures["samples"] if not sample["is_last"]]
    chosen: Sequence[dict[str, Any]] = [*running[:: max(1, -(-len(running) // 10))], figures["samples"][-1]]
    rows = [
        [f"{sample['at'] / 60:.1f}{' (closed)' if sample['is_last'] else ''}", count(sample["sent"]),
         count(sample["acked"]), f"{sample['rss_kib'] / 1024:.1f}", str(sample["tasks"]), str(sample["handles"]),
         str(sample["sockets"])]
        for sample in chosen
    ]  # fmt: skip
    bounces = ", ".join(f"{number} {kind}s" for kind, number in figures["bounces"].items())
    last = figures["samples"][-1]
    cpu, slope = running[-1]["cpu"] / running[-1]["at"], figures["rss_slope_kib_per_minute"]
    wrong = f"**Wrong**: {', '.join(figures['wrong'])}" if figures["wrong"] else "Nothing is wrong"
    summary = (
        f"\n{bounces}; {last['sent']:,} records sent, {last['acked']:,} acknowledged, {figures['in_log']:,} in the "
        f"log; {cpu:.0%} of a processor; memory {slope:+.1f} KiB a minute over the last two thirds. {wrong}.\n"
    )
    return (
        table(("minutes", "sent", "acknowledged", "RSS MiB", "tasks", "handles", "sockets"), rows) + summary
    )


def lake(documents: Documents) -> str:
    """Return the audit's findings for each source."""
    figures = documents["lake"]["figures"]
    names = ("expected", "in_kafka", "found", "duplicates", "lost")
    rows = [[source["name"], *(count(source[name]) for name in names)] for source in figures["sources"]]
    events = "; ".join(f"{event['at']:.0f} s: {event['text']}" for event in figures["events"])
    text = f"\n{events}. {figures['seconds']:.0f} s in all.\n"
    return table(("source", "sent", "in Kafka", "in the lake", "duplicates, recognised", "lost"), rows) + text


def fuzz(documents: Documents) -> str:
    """Return the attempts at each target."""
    rows = [
        [
            row["name"],
            count(row["runs"]),
            count(row["edges"]),
            "held" if row["crash"] is None else "**broken**",
        ]
        for row in documents["fuzz"]["figures"]
    ]
    return table(("target", "inputs", "edges", "its invariant"), rows)
