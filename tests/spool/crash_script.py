"""A script of operations on the logs of a spool, with an oracle, and a power cut before each effect on the disk.

The oracle knows what each operation promised. After a cut the logs are opened and read, and must keep it:

1. A record whose append was made durable, and which was not settled, is there once, and in order.
2. Nothing is there that was never appended, and nothing twice.
3. The position is not ahead of what was settled, and not behind what was durable.
4. Opening and reading never fail, no segment is missing, and the next offset was never used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from aioproduce.spool.log_reader import Batch, LogReader
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.segments import LIFE_STEP
from aioproduce.spool.topic_log import PossiblyStoredError, TopicLog
from tests.spool.batches import make_batch, read_values
from tests.spool.lossy_disk import LossyDisk

SEGMENT_BYTES = 12 * 1024
TOPICS = ("/orders-0", "/payments-0")


class PromiseBroken(AssertionError):
    """What a power cut left does not keep what was promised."""


@dataclass
class TopicOracle:
    """What was promised about one topic.

    Attributes:
        sent: The values of all appended records, in order, except those that are certainly not in the log.
        durable: The values whose durability was promised.
        uncertain: Those whose durability will never be known, because a sync failed.
        offsets: The offset of each value that got one.
        settling: The position that was made durable, or is being made: all before it is settled.
        settled: The position that is durable for sure.
        highest: The highest offset that was ever given.
    """

    sent: list[bytes] = field(default_factory=list)
    durable: set[bytes] = field(default_factory=set)
    uncertain: set[bytes] = field(default_factory=set)
    offsets: dict[bytes, int] = field(default_factory=dict)
    settling: int = 0
    settled: int = 0
    highest: int = -1


class CrashScript:
    """Runs a script, and cuts the power before each effect.

    Args:
        seed: Of the script.
        operations: The number of operations.
        states_per_cut: The most states that are looked at for one cut.
        fault_rate: The share of effects that fail.
    """

    def __init__(self, seed: int, operations: int, states_per_cut: int, fault_rate: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._keeps = self._random.random() < 0.5
        self._operations = operations
        self._states_per_cut = states_per_cut
        self.states = 0
        self.damages = 0
        self.failures = 0
        self._value = 0
        self.disk = LossyDisk(self._power_cut, fault_rate, seed)
        self._oracles = {topic: TopicOracle() for topic in TOPICS}
        self._logs: dict[str, TopicLog] = {}
        self._readers: dict[str, LogReader] = {}
        self._appended: set[str] = set()
        self._unwritten = dict.fromkeys(TOPICS, 0)
        self._quarantine = Quarantine(self.disk, "/quarantine")

    def run(self) -> None:
        """Run the script to its end."""
        steps = (
            (self._append, 10),
            (self._append_and_sync, 6),
            (self._sync, 3),
            (self._settle, 6),
            (self._reopen, 1),
            # In direct mode; others would hardly fill a segment, so every second script has it.
            (self._acknowledge, 3 * (self._seed % 2)),
            # Drops leave little to be used again, which is where some bugs are: every third script has them.
            (self._drop, self._seed % 3 == 0),
        )
        choices = [step for step, weight in steps for _ in range(int(weight))]
        for _ in range(self._operations):
            topic = self._random.choice(TOPICS)
            step = self._random.choice(choices)
            try:
                step(topic)
            except OSError:
                self.failures += 1
                # Whatever failed may have been a sync: what was not durable before is promised no more.
                oracle = self._oracles[topic]
                oracle.uncertain.update(value for value in oracle.offsets if value not in oracle.durable)
        self._power_cut()

    # -- operations ---

    def _log(self, topic: str) -> TopicLog:
        if topic not in self._logs:
            self._logs[topic] = TopicLog(self.disk, topic, SEGMENT_BYTES, keeps=self._keeps)
        return self._logs[topic]

    def _values(self) -> Iterator[bytes]:
        for _ in range(self._random.choice((1, 1, 2, 5))):
            self._value += 1
            yield f"{self._value:08}".encode().ljust(self._random.choice((8, 100, 700)), b".")

    def _append(self, topic: str) -> None:
        log, oracle = self._log(topic), self._oracles[topic]
        groups = [list(self._values()) for _ in range(self._random.choice((1, 2, 3)))]
        while groups:
            before = len(oracle.sent)
            oracle.sent += [value for group in groups for value in group]
            try:
                count = log.append(
                    [[make_batch(group)] for group in groups], self._next_offsets(topic, groups)
                )
            except PossiblyStoredError:
                raise
            except OSError:
                del oracle.sent[before:]
                raise
            del oracle.sent[before:]
            self._appended.add(topic)
            self._unwritten[topic] = 0
            offset = log.next_offset - sum(map(len, groups[:count]))
            for value in (value for group in groups[:count] for value in group):
                oracle.sent.append(value)
                oracle.offsets[value] = offset
                offset += 1
            oracle.highest = max(oracle.highest, log.next_offset - 1)
            del groups[:count]

    def _sync(self, topic: str) -> None:
        log = self._log(topic)
        log.sync()
        self._is_durable(topic)

    def _is_durable(self, topic: str) -> None:
        if (
            topic in self._appended
        ):  # else the log is not responsible for what an earlier process has not synced
            oracle = self._oracles[topic]
            oracle.durable.update(oracle.offsets.keys() - oracle.uncertain)

    def _next_offsets(self, topic: str, groups: list[list[bytes]]) -> list[int]:
        """Return the offsets that direct mode gives to batches: behind those that were never written."""
        offset = self._log(topic).next_offset + self._unwritten[topic]
        return [offset + sum(map(len, groups[:number])) for number in range(len(groups))]

    def _acknowledge(self, topic: str) -> None:
        """The cluster has acknowledged everything, and the latest records before they were written: direct mode."""
        log, oracle = self._log(topic), self._oracles[topic]
        count = self._random.choice((1, 3, 1000, LIFE_STEP))
        self._unwritten[topic] += count
        end = log.next_offset + self._unwritten[topic]
        # Until the position is behind them, only the life's own id keeps these offsets from being used again.
        if count == LIFE_STEP or self._random.random() < 0.5:
            self._readers.pop(topic, None)
            oracle.settling = max(oracle.settling, end)
            log.settle(end)
            oracle.settled = end
            oracle.highest = max(oracle.highest, end - 1)

    def _append_and_sync(self, topic: str) -> None:
        self._append(topic)
        self._sync(topic)

    def _settle(self, topic: str) -> None:
        log, oracle = self._log(topic), self._oracles[topic]
        if topic not in self._readers:
            self._readers[topic] = LogReader(self.disk, topic, log.position, self._quarantine)
        reader = self._readers[topic]
        reader.pass_over(log.dropped_to)
        batches = _next_batches(reader, log, self._random.choice((1, 3000, 20000)))
        if batches:
            settled = batches[-1].head.end_offset
            oracle.settling = max(oracle.settling, settled)
            log.settle(settled)
            oracle.settled = settled

    def _drop(self, topic: str) -> None:
        """Drop the oldest segment, or end the active one."""
        log, oracle = self._log(topic), self._oracles[topic]
        if self._random.random() < 0.3 or not log.stored_bytes:
            log.seal()
            return
        end = log.segments[1].base_offset if len(log.segments) > 1 else log.next_offset
        oracle.settling = max(oracle.settling, end)
        position = log.position
        first, end, count = log.drop_oldest()
        oracle.settled = log.position
        dropped = sum(max(first, position) <= offset < end for offset in oracle.offsets.values())
        _promise(bool(self.failures) or dropped == count, f"{dropped} were dropped, and {count} were counted")
        log.remove_settled()

    def _reopen(self, topic: str) -> None:
        """The process is killed, or closes the log: the disk keeps its power."""
        log = self._logs.pop(topic, None)
        self._unwritten[topic] = 0
        self._readers.pop(topic, None)
        try:
            if log is not None and self._random.random() < 0.5:
                log.close()
                self._is_durable(topic)
        finally:
            self._appended.discard(topic)

    # -- power cuts ---

    def _power_cut(self) -> None:
        for disk in self.disk.states(self._states_per_cut, self._seed * 1_000_003 + self.disk.effects):
            self.states += 1
            for topic, oracle in self._oracles.items():
                self._look(disk, topic, oracle)

    def _look(self, disk: LossyDisk, topic: str, oracle: TopicOracle) -> None:
        log = TopicLog(disk, topic, SEGMENT_BYTES, keeps=self._keeps)
        reader = LogReader(disk, topic, log.position, Quarantine(disk, "/quarantine"))
        found: list[tuple[int, bytes]] = []
        while batches := _next_batches(reader, log, 4096):
            for batch in batches:
                found += read_values(batch.content)
        self.damages += len(reader.damages)
        try:
            _look_at_position(log, oracle)
            _look_at_damages(reader)
            _look_at_records([each for each in found if each[0] >= log.position], log.position, oracle)
            _promise(log.next_offset > oracle.highest, f"offset {log.next_offset} was used before")
        except PromiseBroken as broken:
            raise PromiseBroken(f"{topic}: {broken}") from None


def _next_batches(reader: LogReader, log: TopicLog, most: int) -> list[Batch]:
    """Read as the forwarder does."""
    segments = list(log.segments)
    return reader.read_cached(segments, most) or reader.read(segments, most)


def _promise(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise PromiseBroken(otherwise)


def _look_at_position(log: TopicLog, oracle: TopicOracle) -> None:
    position = log.position
    _promise(position >= oracle.settled, f"position {position} is behind {oracle.settled}, which was durable")
    for value in oracle.durable:
        if oracle.settling <= oracle.offsets[value] < position:
            raise PromiseBroken(f"position {position} is ahead of {value[:8]!r}")


def _look_at_damages(reader: LogReader) -> None:
    for damage in reader.damages:
        is_missing = int(damage.segment.partition(".")[0]) >= damage.next_offset
        _promise(not is_missing, f"a segment was removed before the position was behind it: {damage}")


def _look_at_records(kept: list[tuple[int, bytes]], position: int, oracle: TopicOracle) -> None:
    values = [value for _, value in kept]
    there = set(values)
    _promise(len(there) == len(values), "a record is there twice")
    order = {value: number for number, value in enumerate(oracle.sent)}
    for value in values:
        _promise(value in order, f"{value[:8]!r} was never appended")
    numbers = [order[value] for value in values]
    _promise(numbers == sorted(numbers), f"out of order: {[value[:8] for value in values]}")
    for offset, value in kept:
        _promise(oracle.offsets.get(value, offset) == offset, f"{value[:8]!r} has another offset")
    for value in oracle.durable:
        is_wanted = oracle.offsets[value] >= max(position, oracle.settling)
        _promise(value in there or not is_wanted, f"{value[:8]!r} at {oracle.offsets[value]} is lost")
