"""The entries, one for each result, in the order in which they run. Used by `running` and by the tests.

1. A command is as a person would type it, without the interpreter. `{json}` stands for the file that the program
   writes its figures to, `{junit}` for pytest's; without either it prints JSON to standard output.
2. `quick` is added to a command for a trial, whose figures mean nothing: it shows that the program runs.
3. Minutes are those of two quiet cores. They weight the progress bar, and a run is ended after ten times as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from benchmarks.evidence import medians
from benchmarks.evidence.medians import Medians

SHORT_MINUTES: Final = 8.0
_MODES: Final = (
    *("await-each", "dropped", "gather", "tasks", "callback", "no-report"),
    *("send-many", "send-batch", "send-arrow"),
)
_TRIO_MODES: Final = ("await-each", "dropped", "callback", "send-many", "gather", "tasks")


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A program whose figures are quoted.

    Attributes:
        name: The name, also of its result.
        title: The measurement, in a few words.
        command: As in rule 1.
        minutes: As in rule 3.
        medians: Picks the figures for the comparison with a later run from the program's JSON.
        quick: As in rule 2.
        environment: Variables that the program reads.
        libraries: Distributions whose versions a table shows, besides CPython's and uvloop's.
        has_kafka: Whether it uses real Kafka, and so Java.
        left_out: Keys of the program's JSON that a result leaves out, e.g. each of thousands of requests.
        exit_code: The exit code of a successful run; that of a control is not 0.
    """

    name: str
    title: str
    command: tuple[str, ...]
    minutes: float
    medians: Medians
    quick: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    has_kafka: bool = False
    left_out: tuple[str, ...] = ()
    exit_code: int = 0

    @property
    def is_short(self) -> bool:
        """Whether `--short` runs it."""
        return self.minutes <= SHORT_MINUTES


def _bench(
    name: str, title: str, minutes: float, *options: str, section: str = "", kafka: bool = False
) -> Entry:
    """A section of `python -m benchmarks`."""
    command = ("-m", "benchmarks", "--only", section or name, *options, "--json", "{json}")
    peers = ("aiokafka", "confluent-kafka", "kafka-python", "trio")
    quick = ("--quick", "--seconds", "0.01", "--rounds", "1")
    return Entry(name, title, command, minutes, medians.of_bench, quick, libraries=peers, has_kafka=kafka)


_FASTEST: Final = ("aioproduce", "confluent", "Java", "franz-go")
_COMPARED: Final = ("aioproduce", "aiokafka", "confluent", "franz-go")
_UNREPORTED: Final = ("dropped", "send-many", "callback", "no-report")
_FIVE: Final = ("--rounds", "5")
_SPARK: Final = ("pyspark", "pyarrow")

_BENCHMARKS: Final = (
    _bench("null", "Throughput on the null broker, every mode", 12, *_FIVE, "--modes", *_MODES),
    # Runs of a quarter of a second differed by a factor of two.
    _bench("kafka", "Throughput on real Kafka, every mode", 25, *_FIVE, "--seconds", "3", "--modes", *_MODES,
           kafka=True),
    _bench("not-pinned", "Throughput with all processors for everyone", 6, "--no-pin", section="null"),
    _bench("trio", "trio compared with asyncio", 4, *_FIVE, "--clients", "aioproduce", "aioproduce/trio", "--loops",
           "asyncio", "--modes", *_TRIO_MODES, section="null"),
    _bench("drop-in", "Code for aiokafka with the other import", 4, *_FIVE, "--clients", "drop-in", "aiokafka",
           section="null"),
    _bench("drop-in-aio", "Code for confluent-kafka's AIOProducer with the other import", 4, *_FIVE, "--clients",
           "drop-in AIO", "confluent AIO", "--modes", "await-each", "gather", section="null"),
    _bench("latency", "Latency at 5,000 records/s, linger.ms 0 and 5", 6, *_FIVE),
    _bench("stall", "How late the loop is at full speed", 3, *_FIVE),
    _bench("tls", "Throughput with and without TLS 1.3", 6, *_FIVE),
    _bench("round-trip", "Throughput with 10 ms of round trip", 3, *_FIVE),
    _bench("classic", "The table of 2016, a million records each", 40, *_FIVE),
    _bench("memory", "Deliveries that are kept", 3, *_FIVE),
    _bench("loopback", "Values of 1 KB", 3, *_FIVE),
    _bench("parking", "1,000 tasks, compared with tasks that only wait", 2, *_FIVE, "--clients", "aioproduce",
           "aioproduce/trio"),
    _bench("large-values", "Values of 10 KB", 3, *_FIVE, "--values", "10000", "--clients", *_FASTEST, "--modes",
           *_UNREPORTED, section="null"),
    _bench("small-batches", "Batches of 16 KiB", 3, *_FIVE, "--batches", "16", "--clients", *_FASTEST, "--modes",
           "await-each", "callback", section="null"),
    Entry(
        "matrix", "Every mode, size of values, codec, acks and batch size, one short run each",
        ("-m", "benchmarks", "--full", "--only", "null", "--rounds", "1", "--seconds", "0.05", "--loops", "uvloop",
         "--clients", *_COMPARED, "--json", "{json}"), 12, medians.of_bench,
        ("--seconds", "0.01", "--values", "100", "--compression", "none", "--acks", "all",
         "--clients", "aioproduce"),
        libraries=("aiokafka", "confluent-kafka"),
    ),
    _bench("scaling", "The cost of a record while one thing grows", 20, *_FIVE),
    _bench("start-up", "What an import costs", 1),
    _bench("handshakes", "How late the loop is while 100 connections are opened", 4),
    _bench("bounds", "A broker that stalls for 60 s at full rate, waiting tasks, idle, order", 4,
           "--seconds", "60"),
)  # fmt: skip

_PROGRAMS: Final = (
    Entry(
        "transactions", "Transactions a second",
        ("-m", "benchmarks.transactions", "--rounds", "5", "--seconds", "3", "--json"), 8,
        medians.of_cases, ("--rounds", "1", "--seconds", "0.2"), libraries=("confluent-kafka",), has_kafka=True,
    ),
    Entry(
        "recording", "What recording metrics adds, in instructions",
        ("-m", "benchmarks.recording", "--instructions", "--json"), 2, medians.of_recording,
    ),
    Entry(
        "interpreters", "Versions of CPython in turn", ("-m", "benchmarks.interpreters", "--json", "{json}"), 8,
        medians.of_interpreters, ("--rounds", "1", "--records", "20000"), libraries=("uvloop",),
    ),
    Entry("budget", "The work that a record costs", ("-m", "tests.budget", "--json"), 2, medians.nested),
    Entry("stages", "Where each microsecond of a record goes", ("-m", "benchmarks.stages", "--json"), 2,
          medians.nested),
    Entry("growth", "Which part of a batch grows with partitions and topics",
          ("-m", "benchmarks.growth", "--json"), 1, medians.nested, ("--quick",)),
    Entry(
        "blocking", "Threads that send", ("-m", "benchmarks.blocking", "--json"), 4, medians.of_blocking,
        ("--records", "8000", "--turns", "1"), libraries=("confluent-kafka",),
    ),
    Entry("blocking-stages", "Each stage of BlockingProducer",
          ("-m", "benchmarks.blocking", "--stages", "--json"), 1, medians.nested),
    Entry(
        "service-overhead", "What a FastAPI dependency adds to a request",
        ("-m", "benchmarks.service_overhead", "--json", "{json}"), 2, medians.of_service,
        ("--requests", "20"), libraries=("fastapi", "starlette", "uvicorn"), left_out=("requests",),
    ),
    Entry(
        "auditor", "What an Auditor costs",
        ("-m", "benchmarks.recording", "--of", "auditor", "--json"), 6, medians.of_pairs,
        ("--sets", "1", "--turns", "1"),
    ),
    Entry(
        "auditor-roomy", "What an Auditor costs, with as many records in a batch",
        ("-m", "benchmarks.recording", "--of", "auditor-roomy", "--json"), 6, medians.of_pairs,
        ("--sets", "1", "--turns", "1"),
    ),
    Entry(
        "partitioners", "The experiments of KIP-480 and KIP-794",
        ("-m", "benchmarks.partitioners", "--full", "--json"), 4, medians.of_partitioners, ("--records", "1000"),
    ),
    Entry(
        "spool", "What a queue on disk costs", ("-m", "benchmarks.spool", "--json", "{json}"), 12,
        medians.of_spool, ("--quick",), libraries=("persist-queue",),
    ),
    Entry(
        "serializers", "What serializing a record costs", ("-m", "tests.serializers.measure", "--json"), 3,
        medians.of_named, libraries=("fastavro", "protobuf", "confluent-kafka"),
    ),
    Entry(
        "failing-logins", "Attempts to log in that fail", ("-m", "benchmarks.failing_logins", "--json"), 8,
        medians.nested, ("--attempts", "20", "--seconds", "1", "--only", "wrong CA"),
    ),
    Entry(
        "reauthentication", "Sessions that end every 2 s",
        ("-m", "benchmarks.reauthentication", "--rates", "20000", "--json"), 12, medians.of_reauthentication,
        ("--seconds", "3", "--mechanisms", "PLAIN"),
    ),
    Entry(
        "spark-sink", "Spark: the sink compared with Spark's own",
        ("-m", "benchmarks.spark_sink", "--rounds", "6", "--json", "{json}"), 12, medians.of_spark_sink,
        ("--rows", "20000", "--rounds", "1", "--batches", "1"), libraries=_SPARK, has_kafka=True,
    ),
    Entry(
        "spark-land", "Spark: land", ("-m", "benchmarks.spark_land", "--rounds", "10", "--json", "{json}"), 5,
        medians.of_spark_land, ("--rows", "20000", "--rounds", "2"), libraries=_SPARK, has_kafka=True,
    ),
    Entry(
        "spark-audit", "Spark: audit", ("-m", "benchmarks.spark_audit", "--json", "{json}"), 8,
        medians.of_spark_audit, ("--rows", "160000", "--rounds", "2"), libraries=_SPARK,
    ),
    Entry(
        "spark-sizing", "Spark: what a rate asks of a cluster",
        ("-m", "benchmarks.spark_sizing", "--json", "{json}"), 6, medians.of_spark_sizing,
        ("--rows", "40000", "--rounds", "1"), libraries=_SPARK, has_kafka=True,
    ),
)  # fmt: skip


PYTEST: Final = ("-m", "pytest", "-q", "-o", "junit_family=xunit1", "--junitxml", "{junit}")
"""Newer families of JUnit's XML have no place for `record_property()`."""


def _tests(name: str, title: str, minutes: float, path: str, **environment: str) -> Entry:
    """A file of tests that say how much they did by `record_property()`."""
    command = (*PYTEST, path)
    return Entry(name, title, command, minutes, medians.of_junit, environment=environment, has_kafka=True)


def _kills(name: str, mode: str, *options: str) -> Entry:
    """Kill a service with a queue that forwards in a mode."""
    how = " ".join((mode, *options))
    title = f"A service with a queue killed 100 times, a million records, brokers bounced: {how}"
    command = ("-m", "tests.spool.kill_forwarding", "--mode", mode, *options, "--json")
    return Entry(
        name, title, command, 10, medians.of_counts, ("--records", "20000", "--kills", "2"), has_kafka=True
    )


_CHAOS: Final = ("-m", "tests.chaos", "--json")
_SEEDS: Final = ("-m", "tests.simulation", "--json")

_PROOFS: Final = (
    _tests("million-lines", "A million lines through the CLI into real Kafka", 4,
           "tests/integration/test_million_lines.py", AIOPRODUCE_LINES="1000000"),
    _tests("copy", "100,000 records copied by transactions, copiers killed and brokers bounced", 8,
           "tests/integration/test_transactional_copy_kafka.py"),
    _tests("security-faults", "Brokers bounced over TLS, sessions renewed, certificates and passwords replaced", 12,
           "tests/integration/test_security_faults_kafka.py"),
    Entry("chaos", "Real brokers hurt under producers at 3,000 records/s", _CHAOS, 13, medians.of_counts,
          ("--records", "10000"), has_kafka=True),
    Entry("chaos-full-rate", "The same at full rate", (*_CHAOS, "--rate", "-1"), 5, medians.of_counts,
          ("--records", "10000"), has_kafka=True),
    Entry("chaos-control", "The same without idempotence: a control, which must find duplicates",
          (*_CHAOS, "--without-idempotence", "--records", "1000000", "--rate", "20000"), 3, medians.of_counts,
          ("--records", "10000"), has_kafka=True, exit_code=1),
    Entry("simulation", "10,000 simulated lives of a producer", (*_SEEDS, "--seeds", "10000"), 60,
          medians.of_simulation, ("--seeds", "4")),
    Entry("simulation-transactional", "2,000 simulated lives with transactions",
          (*_SEEDS, "--transactional", "--seeds", "2000"), 15, medians.of_simulation, ("--seeds", "4")),
    Entry("mutants", "Bugs on purpose, which the simulation must notice",
          (*_SEEDS, "--mutants", "--seeds", "40"), 20, medians.of_mutants,
          ("--seeds", "2", "--mutant", "idempotence off")),
    Entry("soak", "30 minutes at 50,000 records/s, brokers bounced",
          (*_CHAOS, "--soak", "--minutes", "30", "--rate", "50000", "--bounce-every", "60"), 32,
          medians.of_soak, ("--minutes", "0.5", "--bounce-every", "10"), has_kafka=True),
    Entry("lake", "Services and files to a lake, killed in between",
          ("-m", "examples.lake", "--folder", "build/evidence/lake", "--json", "{json}"), 4, medians.of_lake,
          ("--quick", "--records", "12000", "--seconds", "10"), libraries=_SPARK, has_kafka=True),
    Entry("outage", "A service with a queue on disk, its cluster away and itself killed",
          ("-m", "examples.outage", "--folder", "build/evidence/outage", "--json", "{json}"), 4, medians.of_outage,
          ("--quick", "--seconds", "12"), has_kafka=True),
    Entry("long-cut", "Two minutes without a network at 5,000 records/s, with a queue on disk",
          ("-m", "examples.outage", "--faults", "network", "--rate", "5000", "--seconds", "160",
           "--folder", "build/evidence/long-cut", "--json", "{json}"), 4, medians.of_outage,
          ("--seconds", "12"), has_kafka=True),
    _kills("kill-forwarding", "at-least-once"),
    _kills("kill-forwarding-direct", "direct"),
    _kills("kill-forwarding-exactly-once", "exactly-once"),
    _kills("kill-forwarding-transaction-version-1", "exactly-once", "--transaction-version", "1"),
    Entry("kill-land", "land and compact killed, two million rows", ("-m", "tests.spark.kill_land", "--compact"), 8,
          medians.of_counts, ("--rows", "40000", "--kills", "1"), libraries=_SPARK, has_kafka=True),
    Entry("fuzz", "Hostile bytes, a minute for each target", ("-m", "tests.fuzz", "--seconds", "60", "--json"), 16,
          medians.of_fuzz, ("--seconds", "2", "sender"), libraries=("atheris",)),
    Entry("mutation", "Changes of the producer that a test must notice",
          ("-m", "tests.mutation", "--json", "{json}"), 60, medians.of_mutation, ("--sample", "2")),
)  # fmt: skip

ENTRIES: Final[Mapping[str, Entry]] = {entry.name: entry for entry in (*_BENCHMARKS, *_PROGRAMS, *_PROOFS)}
