"""Parts of `aioproduce perf` on their own: when a record counts as sent, what is told over time, what is drawn."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter

import pytest

from aioproduce._native.delivery import BatchResult, make_delivery
from aioproduce._native.stopwatch import Latencies, Stopwatch
from aioproduce.cli.perf import _Sends, _Turns
from aioproduce.cli.perf_lines import KafkaStats
from aioproduce.cli.perf_payloads import DrawnPayloads, Numbers, RandomLetters, read_payloads
from aioproduce.cli.perf_timeline import MOST_SLOTS, SHORTEST_SLOT, STAGES, Timeline
from aioproduce.metrics import Histogram, MetricsSnapshot


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Runtime:
    def unobserved_failure(self, *_: object) -> None:
        raise AssertionError("nothing fails here")


async def test_a_send_that_suspends_counts_from_its_call() -> None:
    clock = Clock()
    watch = Stopwatch(clock, lambda now: None)
    latencies = Latencies()
    watch.sinks.append(latencies)
    sends = _Sends(watch, clock)
    batch = BatchResult("t", 0, Runtime())  # type: ignore[arg-type]
    one, two, three = (make_delivery(batch, index, 0, -1, 1) for index in range(3))

    async def work() -> None:
        sends.open()
        sends.deliveries.append(one)  # called at 0
        clock.now = 1.0
        await asyncio.sleep(0)  # the second, called at 1, waits until 5, and once more until 6
        clock.now = 5.0
        await asyncio.sleep(0)
        clock.now = 6.0
        sends.deliveries.append(two)
        sends.deliveries.append(three)  # called at 6
        clock.now = 6.5
        sends.close()
        clock.now = 8.0
        await asyncio.sleep(0)  # a pause of the tool's own is nobody's latency

    def resumed() -> None:
        # Whatever the loop did meanwhile took its time.
        clock.now = {1.0: 5.0, 5.0: 6.0}.get(clock.now, clock.now)
        sends.resumed()

    await _Turns(work(), sends.suspended, resumed)
    clock.now = 10.0
    batch.succeed(0)
    batch.run_callbacks()

    assert watch.acknowledged == 3
    # 10 - 0, 10 - 1 and 10 - 6.
    assert latencies.average == pytest.approx((10 + 9 + 4) / 3)
    assert latencies.highest == 10


async def test_what_ends_the_task_is_seen_by_what_runs_in_it() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def run() -> None:
        await _Turns(work(), lambda: seen.append("suspended"), lambda: seen.append("resumed"))

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert seen == ["suspended", "resumed", "cancelled", "suspended", "resumed", "cleaned up"]


def test_a_window_ends_with_the_first_acknowledgement_after_its_time() -> None:
    lines: list[str] = []
    sinks: list[Latencies] = []
    stats = KafkaStats(100.0, 5.0, sinks, lines.append)
    sinks[0].add_run(3, 3 * 2**20, 0.010, 0.010)
    stats.settled(104.9)
    assert lines == []
    sinks[0].add_run(1, 2**20, 0.040, 0.0)
    stats.settled(108.0)
    sinks[0].add_run(2, 2**20, 1.0, 0.0)
    total = stats.end(110.0)

    # Four records of a megabyte each in 8 seconds: 10, 20, 30 and 40 ms.
    assert lines == [
        "4 records sent, 0.5 records/sec (0.50 MB/sec), 25.0 ms avg latency, 40.0 ms max latency."
    ]
    assert stats.total_line(total) == (
        "6 records sent, 0.600000 records/sec (0.50 MB/sec), 350.00 ms avg latency, 1000.00 ms max latency, "
        "40 ms 50th, 1000 ms 95th, 1000 ms 99th, 1000 ms 99.9th."
    )
    assert [(window.begins, window.seconds) for window in stats.windows] == [(0.0, 8.0), (8.0, 2.0)]


def test_nothing_acknowledged_prints_what_java_prints() -> None:
    stats = KafkaStats(0.0, 5.0, [], print)

    # In Java 0 divided by 0.0 is NaN, and the percentiles are those of an array of zeros.
    assert stats.total_line(stats.end(2.0)) == (
        "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, "
        "0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
    )


def test_a_long_run_keeps_few_slots_and_every_record() -> None:
    batches = 0

    def read_metrics() -> MetricsSnapshot:
        # Each stage took 3 ms of each batch.
        histograms = [
            Histogram(name, {}, "", "ms", (), (batches,), 3.0 * batches) for name in STAGES.values()
        ]
        return MetricsSnapshot([], histograms)

    sinks: list[Latencies] = []
    timeline = Timeline(50.0, sinks, read_metrics)
    now, ticks = 50.0, 1000
    for tick in range(1, ticks + 1):
        batches += 2
        sinks[0].add_run(10, 100, 0.001, 0.0)
        now += timeline.interval
        timeline.end_slot(now, tick)

    slots = timeline.slots
    assert len(slots) < MOST_SLOTS
    assert timeline.interval > SHORTEST_SLOT
    assert sum(slot.measured.latencies.count for slot in slots) == 10 * ticks
    assert sum(slot.failed for slot in slots) == ticks
    assert all(slot.as_json()["stages_ms"] == dict.fromkeys(STAGES, 3.0) for slot in slots)
    # One after the other, from the start to the end, without a gap.
    ends = [slot.measured.begins + slot.measured.seconds for slot in slots]
    assert [slot.measured.begins for slot in slots] == [0.0, *ends[:-1]]
    assert ends[-1] == pytest.approx(now - 50.0)


@pytest.mark.parametrize("size", [1, 100, 16_384, 1_000_000])
def test_random_letters_come_in_turn_and_compress_like_fresh_ones(size: int) -> None:
    payloads = RandomLetters(size, batch_size=65_536)
    count = max(3, 65_536 // size)
    taken = [value for first in range(0, count, 2) for value in payloads.take(first, 2)]

    assert {len(value) for value in taken} == {size}
    batch = b"".join(taken[:count])
    # 26 letters of equal share have 4.7 bits each; deflate's codes come within a few percent of that.
    assert len(zlib.compress(batch, 9)) >= len(batch) * 4.7 / 8


def test_a_record_of_hundreds_of_megabytes() -> None:
    """The most that `max.request.size` can be raised to is 2 GiB; `random.randbytes` gives 256 MiB at once."""
    payloads = RandomLetters(240_000_000, batch_size=16_384)

    first, second = payloads.take(0, 2)

    assert len(first) == len(second) == 240_000_000
    assert set(first[-1000:]) <= set(range(ord("A"), ord("Z") + 1))


def test_drawn_payloads_are_all_drawn_and_the_same_again() -> None:
    values = [b"a", b"bb", b""]
    first, second = DrawnPayloads(values), DrawnPayloads(values)

    drawn = list(first.take(0, 900))
    assert drawn == list(second.take(0, 900))
    assert min(Counter(drawn).values()) > 200
    assert first.largest == 2


def test_numbers() -> None:
    payloads = Numbers(1001)

    assert payloads.take(998, 3) == [b"998", b"999", b"1000"]
    assert payloads.largest == 4


@pytest.mark.parametrize(
    ("content", "payloads"),
    # Kafka's tool, 4.3.1, was given the same files: "Number of records read" is the length of each of these.
    [
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\na\nb", [b"a", b"b"]),
        (b"\n\na", [b"", b"a"]),
        (b"a", [b"a"]),
        (b"\n\n", [b""]),
        (b"a\n\n", [b"a", b""]),
    ],
)
def test_files_are_cut_as_kafkas_tool_cuts_them(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, payloads: list[bytes]
) -> None:
    file = tmp_path_factory.mktemp("payloads") / "file"
    file.write_bytes(content)

    assert read_payloads(str(file), "\\n") == payloads
