"""The arithmetic of `benchmarks/spark_sizing.py`, and its tables; by hand-made rounds."""

from __future__ import annotations

from benchmarks.spark_sizing import Round, need, page

ROUNDS = [
    Round("sink", rows=1_000_000, seconds=2.0, spark_seconds=3.0, broker_seconds=0.6),
    Round("land", rows=1_000_000, seconds=4.0, spark_seconds=6.0, broker_seconds=0.3),
    Round("audit", rows=1_000_000, seconds=1.0, spark_seconds=1.2, broker_seconds=0.0),
]


def test_what_a_rate_asks_for() -> None:
    wanted = need(
        10_000_000,
        {"sink": 3.0, "land": 6.0, "audit": 1.2},
        {"sink": 0.6, "land": 0.3, "audit": 0.0},
        wire_bytes=100.0,
    )

    # 10 million a second, 3 processor seconds a million, of which 60 % are used: 10 * 3 / 0.6 cores.
    assert wanted.cores == {"sink": 50, "land": 100, "audit": 20}
    assert wanted.executors == {"sink": 13, "land": 25, "audit": 5}
    assert wanted.partitions == 100
    # 10 * (0.6 for the leader + 2 * 0.3 for followers + 0.3 for the landing) / 0.6 / 4 cores.
    assert wanted.brokers_by_processor == 7
    # 1,000 MB/s, six times over the wire, 600 MB/s of each broker used.
    assert wanted.brokers_by_wire == 10


def test_replication_asks_for_three_brokers_however_little_there_is() -> None:
    wanted = need(1_000, {"sink": 1.0, "land": 1.0}, {"sink": 0.1, "land": 0.1}, wire_bytes=100.0)

    assert (wanted.brokers_by_processor, wanted.brokers_by_wire) == (3, 3)


def test_the_tables_have_the_medians_and_what_rates_ask_for() -> None:
    text = page(ROUNDS, 50.0, 1_000_000)
    assert "A record takes 50 bytes" in text
    assert "| sink | 500,000 | 3.00 | 0.60 | 800,000 |" in text
    assert text.count("| 10,000,000 | 13 | 25 | 5 | 100 | 7 |") == 1
