"""The plans: the sections, each a list of cases with their brokers.

Called by `__main__.py`.

1. A section's cases are interleaved with each other (`runner.py`), whatever their brokers.
2. Runs last about as long for every client: the number of records is ``seconds`` times the known rate of its mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from benchmarks.cases import PARTITIONS, TOPIC, Case, Settings
from benchmarks.certificate import certificate
from benchmarks.clients import NAMES, client


@final
@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Brokers to start: kind is "null", "fake", "kafka" or "none"."""

    kind: str = "null"
    partitions: int = PARTITIONS
    topics: int = 0
    brokers: int = 1
    delay: float = 0.0
    is_tls: bool = False


NULL = TargetSpec()
KAFKA = TargetSpec("kafka", brokers=3)
NONE = TargetSpec("none")
Run = tuple[TargetSpec, Case]


@final
@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure.

    Attributes:
        rounds: Runs of each case in the comparisons.
        few_rounds: The same for sections that need less precision, or whose runs take long.
        seconds: About how long a run lasts.
        is_full: Every loop, client and size of the matrix.
        is_quick: A first look.
    """

    rounds: int = 5
    seconds: float = 1.0
    few_rounds: int = 3
    is_full: bool = False
    is_quick: bool = False
    clients: tuple[str, ...] = NAMES
    modes: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    values: tuple[int, ...] = (100,)
    compressions: tuple[str, ...] = ("none",)
    acks: tuple[str, ...] = ("all",)
    batches: tuple[int, ...] = (65536,)


@final
@dataclass(frozen=True, slots=True)
class Section:
    """One table."""

    name: str
    title: str
    runs: list[Run]
    rounds: int
    note: str = ""
    columns: tuple[str, ...] = field(default=())


# The cost of a larger or compressed record relative to one of 100 bytes, for the lengths of runs only.
def _count(rate: int, settings: Settings, seconds: float, slowdown: float = 1.0) -> int:
    weight = 1 + settings.value_size / 1500 + (0.5 if settings.compression != "none" else 0)
    return max(2000, int(rate * seconds / weight / slowdown))


def _case(name: str, mode: str, loop: str, settings: Settings, effort: Effort, slowdown: float = 1.0) -> Case:
    records = _count(client(name).modes[mode], settings, effort.seconds, slowdown)
    warmup = max(1000, records // 10)
    options: dict[str, float] = {}
    if name == "Java":
        options["java_warmup"] = (
            400_000 if effort.is_quick else 2_000_000 // max(1, settings.value_size // 500)
        )
        # Its report needs some windows of 100 ms in the steady state.
        records = max(records, 200_000 // max(1, settings.value_size // 500))
    return Case("throughput", name, mode, loop, records, warmup, settings, options)


def _settings(effort: Effort) -> list[Settings]:
    return [
        Settings(value_size=size, compression=compression, acks=acks, batch_size=batch)
        for size in effort.values
        for compression in effort.compressions
        for acks in effort.acks
        for batch in effort.batches
    ]


# The comparison on asyncio's own loop is of these modes, unless everything is asked for.
_ASYNCIO_MODES = ("await-each",)
_LEFT_OUT_BY_DEFAULT = {
    ("aiokafka", "dropped"),
    ("drop-in", "dropped"),
    ("drop-in", "send-batch"),
    ("drop-in AIO", "gather"),
    ("confluent AIO", "gather"),
}


def _clients_and_modes(effort: Effort) -> Iterable[tuple[str, str, str]]:
    for name in effort.clients:
        each = client(name)
        if each.unavailable():
            continue
        for loop in each.loops:
            for mode in each.modes:
                if _is_wanted(effort, name, mode, loop, is_second_loop=loop != each.loops[0]):
                    yield name, mode, loop


def _is_wanted(effort: Effort, name: str, mode: str, loop: str, *, is_second_loop: bool) -> bool:
    if effort.modes and mode not in effort.modes:
        return False
    if effort.loops and loop and loop not in effort.loops:
        return False
    if effort.is_full:
        return True
    if is_second_loop and not effort.loops and (mode not in _ASYNCIO_MODES or name == "confluent AIO"):
        return False
    return bool(effort.modes) or (name, mode) not in _LEFT_OUT_BY_DEFAULT


def null_comparison(effort: Effort) -> Section:
    """Every client and mode against the null broker."""
    runs = [
        (NULL, _case(name, mode, loop, settings, effort))
        for settings in _settings(effort)
        for name, mode, loop in _clients_and_modes(effort)
    ]
    return Section("null", "Throughput, null broker", runs, effort.rounds)


# The modes of the targets on real Kafka; one per peer.
_KAFKA_MODES = {
    "aioproduce": ("await-each", "dropped", "tasks", "send-many", "send-batch", "send-arrow"),
    "drop-in": ("await-each", "tasks"),
    "aiokafka": ("await-each", "tasks"),
    "confluent": ("callback", "no-report"),
    "drop-in AIO": ("await-each",),
    "confluent AIO": ("await-each",),
    "kafka-python": ("await-each",),
    "Java": ("callback",),
    "franz-go": ("callback",),
}


def kafka_comparison(effort: Effort) -> Section:
    """The same against three real brokers on the same processors."""
    runs = []
    for settings in _settings(effort):
        for name in effort.clients:
            each = client(name)
            if each.unavailable():
                continue
            for mode in each.modes:
                wanted = mode in (
                    effort.modes or (each.modes if effort.is_full else _KAFKA_MODES.get(name, ()))
                )
                if wanted:
                    # About half the rate: brokers and client share the processors.
                    case = _case(name, mode, each.loops[0], settings, effort, slowdown=1.5)
                    runs.append((KAFKA, case))
    return Section("kafka", "Throughput, real Kafka: three brokers, replication 3", runs, effort.rounds)


def latency(effort: Effort) -> Section:
    """Send to acknowledged at 5,000 records a second, linger 0 and 5."""
    wanted = NAMES if effort.is_full else ("aioproduce", "aiokafka", "confluent", "franz-go", "Java")
    floor = Case(
        "latency-floor", "(no client: a record is due)", "", "uvloop", 5000 if effort.is_quick else 15_000
    )
    runs: list[Run] = [(NONE, floor)]
    for linger in (0, 5):
        for name in wanted:
            each = client(name)
            if name not in effort.clients or each.unavailable():
                continue
            for loop in each.loops if effort.is_full else each.loops[:1]:
                records = 5000 if effort.is_quick else 15_000
                case = Case(
                    "latency", name, f"linger {linger}", loop, records, 1000, Settings(linger_ms=linger)
                )
                runs.append((NULL, case))
    note = "From when a record was due (open loop, no coordinated omission). Java: whole milliseconds, from send()."
    return Section("latency", "Latency at 5,000 records/s, null broker", runs, effort.few_rounds, note)


def stall(effort: Effort) -> Section:
    """How late the loop is at full speed."""
    runs: list[Run] = [
        (NONE, Case("stall-floor", "(a loop that turns, no client)", "", "uvloop", options={"seconds": 2.0}))
    ]
    for compression in ("none", "lz4", "zstd"):
        for name in (
            ("aioproduce", "aiokafka", "confluent AIO") if effort.is_full else ("aioproduce", "aiokafka")
        ):
            if name not in effort.clients or client(name).unavailable():
                continue
            settings = Settings(compression=compression)
            # Not await-each: its second half awaits deliveries that are done, which never lets the loop run.
            mode = "dropped" if "dropped" in client(name).modes else "await-each"
            case = _case(name, mode, "uvloop", settings, replace(effort, seconds=effort.seconds * 2))
            runs.append((NULL, replace(case, options={"stall": 1.0})))
    note = "How late the loop serves a kernel timer that ticks each millisecond, ticks that were missed included."
    return Section("stall", "Event-loop stall at full speed", runs, effort.few_rounds, note)


# The clients compared over TLS, and their modes. Java's first seconds go to its compiler: see java_client.py.
_TLS_MODES = {
    "aioproduce": ("await-each", "dropped", "send-many"),
    "aiokafka": ("await-each",),
    "confluent": ("no-report",),
    "Java": ("callback",),
}


def tls(effort: Effort) -> Section:
    """The same with and without TLS 1.3, without compression and with lz4."""
    runs: list[Run] = []
    for compression in ("none", "lz4"):
        for name, modes in _TLS_MODES.items():
            each = client(name)
            if name not in effort.clients or each.unavailable():
                continue
            for mode in modes:
                if effort.modes and mode not in effort.modes:
                    continue
                for spec, ca in ((NULL, ""), (replace(NULL, is_tls=True), str(certificate().ca))):
                    settings = Settings(compression=compression, ca=ca)
                    runs.append((spec, _case(name, mode, each.loops[0], settings, effort)))
    return Section("tls", "Throughput, null broker, with and without TLS 1.3", runs, effort.rounds)


def round_trip(effort: Effort) -> Section:
    """Throughput with no delay and with 10 ms until the broker answers."""
    runs = []
    far = replace(NULL, delay=0.010)
    modes = {
        "aioproduce": "await-each",
        "aiokafka": "await-each",
        "confluent": "callback",
        "franz-go": "callback",
    }
    for spec, label in ((NULL, 0.0), (far, 10.0)):
        for name, mode in modes.items():
            each = client(name)
            if name in effort.clients and not each.unavailable():
                case = _case(name, mode, each.loops[0], Settings(), effort)
                runs.append((spec, replace(case, options={**case.options, "round_trip_ms": label})))
    return Section("round-trip", "Throughput with 0 and 10 ms of round trip", runs, effort.few_rounds)


def classic(effort: Effort) -> Section:
    """The table of 2016: one at a time, 40 tasks, callbacks, bulk."""
    many, slow = (5_000, 1_000) if effort.is_quick else (1_000_000, 1_000_000)
    settings = Settings(linger_ms=0)
    runs: list[Run] = []
    for name in ("aioproduce", "aiokafka"):
        if name not in effort.clients or client(name).unavailable():
            continue
        for mode, records, tasks in (
            ("(a) one at a time", slow, 1),
            ("(b) 40 tasks", many, 40),
        ):
            case = Case("senders", name, mode, "uvloop", records, 500, settings, {"tasks": tasks})
            runs.append((NULL, case))
        ways = {"callback": "(c) nothing awaited", "await-each": "(c) nothing awaited before the end"}
        bulk = {"send-many": "(d) bulk", "send-batch": "(d) bulk"}
        for choices in (ways, bulk):
            mode = next(mode for mode in choices if mode in client(name).modes)
            case = Case("throughput", name, mode, "uvloop", many, 1000, label=f"{choices[mode]}, {mode}")
            runs.append((NULL, case))
    note = (
        "Published in 2016 for a million messages, Java clients: sync with 40 threads 152 s, old async 133 s, "
        "new async 111-119 s; CPU load 52, 45, 33 %. Theirs was a cluster on a network, ours a null broker."
    )
    return Section("classic", "The table of 2016", runs, effort.few_rounds, note)


def memory(effort: Effort) -> Section:
    """Deliveries that the caller keeps."""
    records = 100_000 if effort.is_quick else 1_000_000
    runs: list[Run] = []
    for name in ("aioproduce", "aiokafka"):
        if name in effort.clients and not client(name).unavailable():
            count = records if name == "aioproduce" else records // 5
            runs.append((NULL, Case("futures", name, "", "uvloop", count, 10_000)))
    return Section("memory", "Deliveries kept alive, and the garbage collector", runs, effort.few_rounds)


def loopback(effort: Effort) -> Section:
    """Measure 1 KB records, compared with the bytes that the same event loop can move."""
    runs: list[Run] = []
    seconds = 0.5 if effort.is_quick else 1.5
    kilobyte = Settings(value_size=1000)
    for loop in ("uvloop", "asyncio"):
        runs.append(
            (
                NONE,
                Case(
                    "loopback", "(raw writelines)", "", loop, settings=kilobyte, options={"seconds": seconds}
                ),
            )
        )
        for mode in ("dropped", "await-each", "send-many", "send-batch"):
            if mode in client("aioproduce").modes and (loop == "uvloop" or mode == "dropped"):
                case = _case("aioproduce", mode, loop, kilobyte, effort)
                runs.append((NULL, case))
    return Section("loopback", "1 KB records, and raw loopback", runs, effort.rounds)


def parking(effort: Effort) -> Section:
    """1,000 tasks of `send_and_wait`, compared with tasks that only wait and are woken."""
    records = int(400_000 * effort.seconds)
    runs: list[Run] = []
    for name, loop, own in (
        ("aioproduce", "uvloop", "(asyncio's own futures)"),
        ("aioproduce/trio", "trio", "(trio's own parking)"),
    ):
        if name in effort.clients and not client(name).unavailable():
            runs.append((NONE, Case("parking", own, "", loop, records, options={"tasks": 1000})))
            runs.append((NULL, _case(name, "tasks", client(name).loops[0], Settings(), effort)))
    return Section("parking", "1,000 tasks, compared with tasks that only wait", runs, effort.rounds)


_PARTITIONS = (1, 10, 100, 1000, 10_000)
_TOPICS = (1, 10, 100, 1000, 5000)
_BROKERS = (1, 3, 10, 50)
_SENDERS = (1, 10, 100, 1000, 10_000)
_WAITERS = (10, 100, 1000, 10_000)
_SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)


def scaling(effort: Effort) -> Section:
    """The cost per record while one thing grows; each curve is named by `mode`."""
    runs: list[Run] = []
    seconds = 0.2 if effort.is_quick else 0.5
    sent = int(600_000 * seconds)

    def add(spec: TargetSpec, curve: str, x: float, case: Case) -> None:
        runs.append((spec, replace(case, mode=curve, options={**case.options, "x": x}, loop="uvloop")))

    def throughput(settings: Settings, records: int) -> Case:
        return Case("dropped", "aioproduce", "", "uvloop", records, max(1000, records // 10), settings)

    for count in _PARTITIONS:
        spec = replace(NULL, partitions=count)
        add(spec, "partitions, sticky", count, throughput(Settings(), sent))
        # All partitions' batches fill at the same time: allow memory for three of each, and time to fill.
        settings = Settings(
            batch_size=4096, linger_ms=60_000, buffer_memory=max(32 * 2**20, 3 * 4096 * count)
        )
        records = max(sent // 2, count * 72)
        case = Case(
            "spread", "aioproduce", "", "uvloop", records, count * 36, settings, {"partitions": count}
        )
        add(spec, "partitions, each in turn", count, case)
    for count in _TOPICS:
        spec = replace(NULL, partitions=1, topics=count)
        settings = Settings(
            batch_size=4096, linger_ms=60_000, buffer_memory=max(32 * 2**20, 3 * 4096 * count)
        )
        case = Case("spread", "aioproduce", "", "uvloop", max(sent // 2, count * 72), count * 36, settings)
        add(spec, "topics, each in turn", count, replace(case, options={"topics": count}))
    for count in _BROKERS:
        spec = replace(NULL, partitions=100, brokers=count)
        add(spec, "brokers", count, throughput(Settings(), sent))
    for count in _SENDERS:
        # Enough records for each task, so that starting the task does not show.
        records = max(int(sent / 4), count * 20) if count > 1 else 2000
        case = Case("senders", "aioproduce", "", "uvloop", records, max(500, count), Settings(linger_ms=0))
        add(NULL, "concurrent send_and_wait", count, replace(case, options={"tasks": count}))
    for count in _WAITERS:
        settings = Settings(value_size=900, batch_size=1024, buffer_memory=8 * 1024)
        case = Case("waiters", "aioproduce", "", "uvloop", max(20_000, 3 * count), 2 * count, settings)
        add(NULL, "tasks waiting for memory", count, replace(case, options={"tasks": count}))
    for size in _SIZES:
        settings = Settings(value_size=size)
        add(NULL, "record size", size, throughput(settings, max(300, int(sent / (1 + size / 800)))))
    note = (
        "CPU microseconds of the client per record; flat: from 10 on none is over 20 % above one before it."
    )
    return Section("scaling", "Scaling", runs, effort.few_rounds, note)


SECTIONS: dict[str, Callable[[Effort], Section]] = {
    "null": null_comparison,
    "kafka": kafka_comparison,
    "latency": latency,
    "stall": stall,
    "tls": tls,
    "round-trip": round_trip,
    "classic": classic,
    "memory": memory,
    "loopback": loopback,
    "parking": parking,
    "scaling": scaling,
}


def topic_names(spec: TargetSpec) -> dict[str, int]:
    """Return the topics of a target, with their partitions."""
    if spec.topics:
        return {f"{TOPIC}-{number}": spec.partitions for number in range(spec.topics)}
    return {TOPIC: spec.partitions}


def unavailable(names: Sequence[str]) -> dict[str, str]:
    """Return the clients that cannot run here, and why."""
    return {name: reason for name in names if (reason := client(name).unavailable())}
