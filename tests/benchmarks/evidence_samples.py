"""Figures in the shapes in which the programs write them, few and round; used by ``test_evidence``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.cases import Case, Settings
from benchmarks.evidence.entries import ENTRIES
from benchmarks.runner import Result


def bench(section: str, results: list[Result], **others: Any) -> dict[str, Any]:
    """What `python -m benchmarks` writes of one section, as far as the pages show it."""
    return {
        "sections": {
            section: [
                {
                    "name": each.case.name,
                    "case": asdict(each.case),
                    "median": each.figures,
                    "rounds": each.rounds,
                }
                for each in results
            ]
        },
        "others": others,
    }


def _result(
    client: str, mode: str, figures: dict[str, float], loop: str = "uvloop", **options: float
) -> Result:
    case = Case("throughput", client, mode, loop, settings=Settings(), options=options)
    return Result(case, figures, [figures])


def _rates(rate: float, cpu: float) -> dict[str, float]:
    return {"records_per_second": rate, "cpu_seconds_per_million": cpu, "rss_peak_mib": 60.0}


def _latencies(p50: float) -> dict[str, float]:
    return {"latency_p50_ms": p50, "latency_p99_ms": 3 * p50, "latency_p99.9_ms": 9 * p50, "cpu_percent": 5.0}


def _curve(name: str) -> list[Result]:
    return [
        _result("aioproduce", name, {"cpu_seconds_per_million": cost}, x=x)
        for x, cost in ((1, 3.0), (10, 1.0), (100, 1.3))
    ]


_KILLED = {
    "returned": 1_000_000,
    "read": 1_200_000,
    "distinct": 1_100_000,
    "unreturned": 100_000,
    "lost": 0,
    "repeated": 100_000,
    "unlike": 0,
    "twice": 0,
    "shared": 0,
    "misordered": 0,
    "foreign": 0,
    "kills": 100,
    "bounces": 40,
    "wrong": {},
}
_SENT = {
    "attempts": 1000.0,
    "cpu_ms_each": 1.5,
    "resident_growth": 3.0,
    "traced": 2.0,
    "descriptors": 0.0,
    "tasks": 0.0,
    "threads": 0.0,
    "cpu_percent": 0.01,
    "real_attempts": 6.0,
}
_LATENCY = {"sent": 100.0, "renewed": 29.0, "lost": 0.0, "duplicated": 0.0, "latency_p99_ms": 6.0}
_SIMULATED = {
    "seeds": 10,
    "virtual_hours": 3.5,
    "faults": 9,
    "offered": 7,
    "acknowledged": 6,
    "failed": [],
    "failures": {},
}
_SAMPLE = {"acked": 10, "sent": 10, "tasks": 4, "handles": 9, "sockets": 4, "is_last": False}


def _chaos(**more: Any) -> dict[str, Any]:
    return {"records": 2_000_000, "lost": 0, "duplicated": 0, "seconds": 670.5, "wrong": [], **more}


KAFKA = bench(
    "kafka",
    [
        _result("franz-go", "callback", _rates(1_500_000.0, 0.4), loop=""),
        _result("aioproduce", "await-each", _rates(900_000.0, 0.6), loop="asyncio"),
        _result("aioproduce", "await-each", _rates(1_000_000.0, 0.5)),
        _result("aioproduce", "gather", _rates(600_000.0, 0.9)),
    ],
)
"""Real Kafka, which `FIGURES` lacks, as some blocks are shown without it."""

FIGURES: dict[str, Any] = {
    "null": bench(
        "null",
        [
            _result("aioproduce", "await-each", _rates(2_000_000.0, 0.5)),
            _result("aiokafka", "await-each", _rates(500_000.0, 1.0)),
        ],
    ),
    "latency": bench(
        "latency",
        [
            _result("aioproduce", "linger 0", _latencies(0.2)),
            _result("aiokafka", "linger 0", _latencies(0.1)),
        ],
    ),
    "matrix": bench(
        "null",
        [
            _result(client, "callback", _rates(1_000_000.0, 0.5), loop="")
            for client in ("confluent", "franz-go")
        ],
    ),
    "scaling": bench("scaling", [*_curve("brokers"), *_curve("record size")]),
    "bounds": bench("bounds", [], bounds={"stalled broker": {"seconds": 60.0, "accepted": 300_000.0}}),
    "transactions": {
        "python": "3.11.7",
        "figures": {
            f"{who} {size}": {"median": median, "least": median, "most": median, "rounds": [median] * 5}
            for who, factor in (("ours", 1.0), ("confluent", 0.5), ("java", 1.0))
            for size, median in ((1, 500.0 * factor), (1000, 300.0 * factor))
        }
        | {
            name: {"median": value}
            for name, value in (
                ("each 500 ms", 80.0),
                ("idempotent", 100.0),
                ("each 500 ms by idempotent", 0.8),
                ("group commit", 50_000.0),
            )
        },
    },
    "recording": {"dropped": {"with": 1010.0, "without": 1000.0, "added": 0.01}},
    "budget": {
        "frames": {"dropped": {"frames": 1.0, "calls": 2.0}},
        "instructions": {"dropped": {"instructions": 3800.0}},
    },
    "stages": {"append": {"record_ns": 89.0}, "seal": {"record_ns": 10.0, "batch_us": 5.8}},
    "growth": {
        case: {"open": 2.0, "flush": flush, "a batch": 2.0 + flush}
        for case, flush in (("few", 4.0), ("many", 10.0), ("few topics", 6.0), ("many topics", 20.0))
    },
    "blocking": [
        {
            "threads": 8,
            "client": "BlockingProducer, callback",
            "records_per_second": 900_000,
            "cpu_us": 0.78,
            "ratio": [1.7, 1.5, 1.9],
        }
    ],
    "blocking-stages": {"send()": 105.0},
    "service-overhead": {
        "added": {
            way: {"ProducerDep": {"paired_p50": 12.7, "p50_difference": 13.0}}
            for way in ("direct", "uvicorn")
        }
    },
    "auditor": [{"load": "send", "records_per_second": 1, "time": [1.1, 1.0, 1.2], "cpu": [1.1, 1.0, 1.2]}],
    "partitioners": {
        "records": {"slow_broker": 122_880},
        "experiments": {
            "slow_broker": [
                {"choice": "sticky", "mean_ms": 8224.0, "p99_ms": 17_217.0, "by_broker": [94, 3, 3]},
                {"choice": "uniform", "mean_ms": 63.0, "p99_ms": 178.0, "by_broker": [49, 26, 25]},
            ]
        },
    },
    "spool": {
        "append": [
            {
                "way": "send_many",
                "contender": "os",
                "records": 1000,
                "records_per_second": 4_000_000,
                "cpu_us": 0.2,
                "by_producer": [1.2, 1.1, 1.3],
                "rounds": [],
            }
        ],
        "always": [
            {
                "records_per_second": 200_000.0,
                "group": 800.0,
                "group_bytes": 90_000.0,
                "syncs_per_second": 300.0,
                "full_per_second": 280_000.0,
                "share": 0.83,
                "full_share": 0.71,
            }
        ],
        "drain": {
            "drained_per_second": 1_000_000,
            "sent_per_second": 1_100_000,
            "drained_cpu_us": 0.4,
            "sent_cpu_us": 0.2,
        },
        "direct": [
            {
                "cluster": "answers at once",
                "contender": "direct: send()",
                "p50_ms": 0.2,
                "p99_ms": 0.5,
                "written": 0.25,
            }
        ],
        "start-up": {
            "segments": 3_000,
            "segments_with_records": 20,
            "backlog_bytes": 50e9,
            "bytes_on_disk": 3e8,
            "seconds": 0.5,
            "seconds_when_empty": 0.4,
            "seconds_again": 0.05,
            "forwarded": 2_000_000,
            "more_mib_after_start": 0.7,
            "more_mib_at_most_while_forwarding": 11.0,
        },
        "peers": {
            "persist-queue": {
                "version": "1.1.0",
                "rows": [
                    {
                        "ours": "always, one task",
                        "theirs": "persist-queue, put()",
                        "records_per_second": 1_000,
                        "their_records_per_second": 250,
                        "ratio": [4.0, 3.9, 4.1],
                        "cpu_us": 250.0,
                        "their_cpu_us": 280.0,
                    }
                ],
            },
            "rsyslog": {"left_out": "no rsyslogd"},
        },
        "targets": [
            {
                "what": "drain: rate by that of send_many",
                "measured": 0.9,
                "bound": 0.8,
                "is_least": True,
                "spread": [0.85, 1.0],
                "is_met": True,
            }
        ],
    },
    "serializers": {"fastavro alone": {"median": 2.9, "rounds": [2.9]}},
    "failing-logins": {"PLAIN, wrong password": _SENT, "wrong CA": _SENT | {"traced": 1e9}},
    "reauthentication": [
        {
            "mechanism": "PLAIN",
            "is_idempotent": True,
            "rate": 20_000,
            "p99_ratio": 3.0,
            "wrong": ["p99"],
            "sessions_that_end": _LATENCY,
            "sessions_without_end": _LATENCY | {"latency_p99_ms": 2.0},
        }
    ],
    "spark-land": {
        "rows": 2_000_000,
        "rounds": [{"seconds": seconds, "cpu_seconds": 15.0} for seconds in (20.0, 8.0, 10.0, 12.5)],
    },
    "spark-audit": [
        {"lake": lake, "rows": 2_000_000, "reader": "files", "seconds": [4.0, seconds]}
        for lake, seconds in (("clean", 0.5), ("damaged", 4.0))
    ],
    "spark-sizing": {
        "rows": 1_000_000,
        "wire_bytes": 60.0,
        "rounds": [
            {"job": job, "rows": 1_000_000, "seconds": 2.0, "spark_seconds": 3.0, "broker_seconds": 0.6}
            for job in ("sink", "land", "audit")
        ],
    },
    "million-lines": {"tests": 1, "properties": {"lost": 0.0, "records_per_second": 80_000.0}},
    "copy": {"tests": 5, "properties": {}},
    "mutants": [
        {"mutant": "a", "caught": 3, "seeds": 100, "first": 2, "by": {"O": 3}, "stand_in": None},
        {"mutant": "b", "caught": 0, "seeds": 100, "first": None, "by": {}, "stand_in": "a scenario"},
    ],
    "chaos": _chaos(),
    "chaos-full-rate": _chaos(records=2_100_000),
    "chaos-control": _chaos(duplicated=1066),
    "simulation": {"all": _SIMULATED},
    "simulation-transactional": {"all": _SIMULATED},
    "soak": {
        "bounces": {"clean bounce": 2},
        "in_log": 10,
        "rss_slope_kib_per_minute": 3.2,
        "wrong": [],
        "samples": [
            _SAMPLE | {"at": 60.0, "cpu": 9.0, "rss_kib": 100_000},
            _SAMPLE | {"at": 120.0, "cpu": 18.0, "rss_kib": 110_000},
            _SAMPLE | {"at": 121.0, "cpu": 18.0, "rss_kib": 110_000, "is_last": True},
        ],
    },
    "lake": {
        "is_sound": True,
        "seconds": 152.0,
        "files_before": 9,
        "files_after": 3,
        "sources": [
            {
                "name": "orders",
                "producers": 1,
                "expected": 10,
                "found": 10,
                "duplicates": 2,
                "lost": 0,
                "in_kafka": 12,
            }
        ],
        "events": [{"at": 3.0, "name": "service", "text": "the service was killed"}],
    },
    "outage": {
        "returned": 100,
        "read": 103,
        "distinct": 101,
        "unreturned": 1,
        "lost": 0,
        "repeated": 2,
        "unlike": 0,
        "twice": 0,
        "shared": 0,
        "misordered": 0,
        "foreign": 0,
        "mode": "at-least-once",
        "seconds": 30.0,
        "largest_backlog": 50,
        "seconds_to_drain": 0.4,
        "send_ms": {"all is well": {"calls": 100, "p50": 1.0, "p99": 2.0, "most": 3.0}},
        "spans": [["network", 10.0, 20.0]],
        "kills": [15.0],
        "events": [[10.0, "the network was cut"]],
        "backlog": [[0.0, 0], [20.0, 50], [30.0, 0]],
        "send_p50_ms": [[0.1, 1.0], [0.2, 1.1], [30.0, 1.0]],
        "send_p99_ms": [[0.1, 2.0], [0.2, 2.1], [30.0, 2.0]],
    },
    "kill-forwarding": _KILLED | {"mode": "at-least-once"},
    "kill-forwarding-direct": _KILLED | {"mode": "direct"},
    "kill-forwarding-exactly-once": _KILLED | {"mode": "exactly-once"},
    "kill-forwarding-transaction-version-1": _KILLED | {"mode": "exactly-once", "transaction_version": 1},
    "kill-land": {"sent": 2_000_000, "rows": 2_000_000, "lost": 0, "duplicated": 0, "is_right": True},
    "fuzz": [{"name": "sender", "runs": 1000, "edges": 300, "crash": None}],
    "mutation": [{"mutant": "a", "status": "killed"}, {"mutant": "b", "status": "survived"}],
}


FIGURES["long-cut"] = FIGURES["outage"]


def document_of(name: str, figures: Any) -> dict[str, Any]:
    """A result with these figures."""
    entry = ENTRIES[name]
    return {
        "name": name,
        "title": entry.title,
        "command": ["python", *entry.command],
        "environment": dict(entry.environment),
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "is_clean": True,
        "changed": [],
        "began_at": "2026-11-25T11:00:00Z",
        "seconds": 312.0,
        "exit_code": entry.exit_code,
        "machine": {"processor": "A processor", "processors": 2, "kernel": "Linux 6", "memory_mib": 8000},
        "load_before": [0.5, 0.4, 0.3],
        "load_after": [2.0, 1.0, 0.5],
        "versions": {
            "CPython": "3.11.7",
            "aioproduce": "1",
            "extensions": "Cython 3",
            "uvloop": "0.23.0",
            "confluent-kafka": "2.16.1",
            "Kafka": "4.3.1",
            "Java": "17.0.2",
        },
        "medians": entry.medians(figures),
        "figures": figures,
    }
