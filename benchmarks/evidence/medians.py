"""The figures of each program's JSON that a later run is compared with: a flat mapping from a name to a number.

Called by `running` for `medians` of a result. Where a program runs rounds, the figure is their median; where it
runs once, the figure is what it counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from benchmarks.evidence.sections import results_of
from benchmarks.report import settings_label

Flat: TypeAlias = dict[str, float]
Medians: TypeAlias = Callable[[Any], Flat]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def nested(figures: Mapping[str, Any]) -> Flat:
    """Return every number of nested mappings, by its path."""
    found: Flat = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            found |= {f"{name}: {inner}": number for inner, number in nested(value).items()}
        elif _is_number(value):
            found[name] = value
    return found


def of_bench(figures: Mapping[str, Any]) -> Flat:
    """Return each figure of each case of `python -m benchmarks`; settings distinguish cases with the same name."""
    found = nested(figures["others"])
    for section in figures["sections"]:
        for result in results_of(figures, section):
            x = result.case.options.get("x")
            name = ", ".join(filter(None, (result.case.name, settings_label(result), f"{x:g}" if x else "")))
            found |= {f"{name}: {figure}": value for figure, value in result.figures.items()}
    return found


def of_cases(figures: Mapping[str, Any]) -> Flat:
    """Return the medians of `benchmarks.transactions`."""
    return {name: each["median"] for name, each in figures["figures"].items()}


def of_named(figures: Mapping[str, Any]) -> Flat:
    """Return the median of each name that has a median and rounds."""
    return {name: each["median"] for name, each in figures.items()}


def of_recording(figures: Mapping[str, Mapping[str, float]]) -> Flat:
    """Return the cost of sensors, as a share."""
    return {mode: each["added"] for mode, each in figures.items()}


def of_pairs(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return the ratios of `benchmarks.recording`: time with the measured part over time without."""
    return {f"{row['load']}: {kind}": row[kind][0] for row in figures for kind in ("time", "cpu")}


def of_blocking(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return records a second and processor time, by client and threads."""
    return {
        f"{row['client']}, {row['threads']} threads: {figure}": row[figure]
        for row in figures
        for figure in ("records_per_second", "cpu_us")
    }


def of_interpreters(figures: Mapping[str, Any]) -> Flat:
    """Return each interpreter's ratios to the first."""
    return nested(figures["ratios"])


def of_service(figures: Mapping[str, Any]) -> Flat:
    """Return the microseconds of each step."""
    return {
        f"{step}, {way}": each["paired_p50"]
        for way, steps in figures["added"].items()
        for step, each in steps.items()
    }


def of_partitioners(figures: Mapping[str, Any]) -> Flat:
    """Return every number of every row; a row's texts and its linger are its name."""
    found: Flat = {}
    for experiment, rows in figures["experiments"].items():
        for row in rows:
            words = [str(row[key]) for key in row if isinstance(row[key], str) or key == "linger_ms"]
            name = ", ".join((experiment, *words))
            found |= {f"{name}: {key}": value for key, value in row.items() if _is_number(value)}
    return found


def of_reauthentication(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return each run's figures, with sessions that end and without."""
    found: Flat = {}
    for row in figures:
        idempotence = "idempotent" if row["is_idempotent"] else "not idempotent"
        found |= nested({f"{row['mechanism']}, {idempotence}, {row['rate']}/s": row})
    return found


def of_spark_sink(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return `spark_sink.figures` of each contender."""
    from benchmarks.spark_sink import Run
    from benchmarks.spark_sink import figures as medians_of

    return nested(medians_of([Run(**run) for run in figures]))


def of_spark_land(figures: Mapping[str, Any]) -> Flat:
    """Return rows a second, cold and warm, and processor seconds."""
    cold, *warm = (figures["rows"] / each["seconds"] for each in figures["rounds"])
    cost = [each["cpu_seconds"] / figures["rows"] * 1e6 for each in figures["rounds"][1:]]
    return {
        "cold rows/s": cold,
        "warm rows/s": median(warm),
        "warm rows/s, least": min(warm),
        "warm rows/s, most": max(warm),
        "CPU s per million": median(cost),
    }


def of_spark_audit(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return rows a second of each reader on each lake, warm and cold."""
    found: Flat = {}
    for row in figures:
        cold, *warm = row["seconds"]
        name = f"{row['reader']}, {row['rows']:,} rows, {row['lake']}"
        found[f"{name}: warm rows/s"] = row["rows"] / median(warm)
        found[f"{name}: cold rows/s"] = row["rows"] / cold
    return found


def of_spark_sizing(figures: Mapping[str, Any]) -> Flat:
    """Return the processor seconds of a million rows, by job."""
    found: Flat = {"wire bytes": figures["wire_bytes"]}
    jobs = dict.fromkeys(each["job"] for each in figures["rounds"])
    for job in jobs:
        rounds = [each for each in figures["rounds"] if each["job"] == job]
        for kind in ("spark", "broker"):
            found[f"{job}: {kind} CPU s per million"] = median(
                each[f"{kind}_seconds"] / each["rows"] * 1e6 for each in rounds
            )
        found[f"{job}: rows/s"] = median(each["rows"] / each["seconds"] for each in rounds)
    return found


def of_junit(figures: Mapping[str, Any]) -> Flat:
    """Return the properties that tests recorded, and the number of tests."""
    return {"tests": figures["tests"], **figures["properties"]}


def of_counts(figures: Mapping[str, Any]) -> Flat:
    """Return the numbers of the top level."""
    return {name: value for name, value in figures.items() if _is_number(value)}


def of_simulation(figures: Mapping[str, Any]) -> Flat:
    """Return the figures of all seeds together."""
    total = figures["all"]
    return {**of_counts(total), "violations": len(total["failed"])}


def of_mutants(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return the number of seeds that noticed each bug, and the number of bugs."""
    return {"bugs": len(figures), **{row["mutant"]: row["caught"] for row in figures}}


def of_soak(figures: Mapping[str, Any]) -> Flat:
    """Return the numbers of the top level, and the minima and maxima of the samples."""
    running = [sample for sample in figures["samples"] if not sample["is_last"]]
    found = of_counts(figures)
    for name in ("rss_kib", "tasks", "handles", "sockets"):
        found[f"{name}, last"] = running[-1][name]
        found[f"{name}, most"] = max(sample[name] for sample in running)
    return found


def of_lake(figures: Mapping[str, Any]) -> Flat:
    """Return the audit's counts of all sources together."""
    names = ("expected", "in_kafka", "found", "duplicates", "lost")
    sums = {name: sum(source[name] for source in figures["sources"]) for name in names}
    return {**of_counts(figures), **sums}


def of_outage(figures: Mapping[str, Any]) -> Flat:
    """Return the audit's counts, and the milliseconds of `send()` in each state of the cluster."""
    return {**of_counts(figures), **nested(figures["send_ms"])}


def of_spool(figures: Mapping[str, Any]) -> Flat:
    """Return the figure of each target, and the rates on the way to the disk."""
    rates = {
        f"{row['way']}, {row['contender']}: records/s": row["records_per_second"] for row in figures["append"]
    }
    return {**{row["what"]: row["measured"] for row in figures["targets"]}, **rates}


def of_fuzz(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return how much each target was tried, and whether its invariant held."""
    return {
        f"{row['name']}: {what}": value
        for row in figures
        for what, value in (("runs", row["runs"]), ("broken", float(row["crash"] is not None)))
    }


def of_mutation(figures: Sequence[Mapping[str, Any]]) -> Flat:
    """Return the number of mutants by outcome."""
    return dict(Counter(row["status"] for row in figures))
