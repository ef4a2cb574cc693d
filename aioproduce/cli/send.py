"""The run of `aioproduce send`: from input to acknowledgement, or to an error.

Called by `send_command`, which has checked everything that it can without a cluster.

Invariants:

1. No record is sent before inputs, cluster, topic and partition have been found.
2. A record needs no task, and most need no callback: a line costs a `send()` and an append to a list. With
   `--failed-to` it costs a callback, so that no acknowledged record must be kept.
3. Whatever ends the run, `next_line` is the first line that was not given to the producer. All lines before it are
   counted. A later run sends the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.cli.exit_codes import ExitCode, exit_code_of
from aioproduce.cli.failed_records import FailedRecord
from aioproduce.cli.inputs import InputError, InputReader, LineSplitter
from aioproduce.cli.line_format import BadLineError, BlankLineError, LeftOutError
from aioproduce.cli.run import Run
from aioproduce.cli.tally import Problem, Tally
from aioproduce.errors import InvalidRecordError, InvalidTopicError, PartitionOutOfRangeError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.cli.failed_records import FailedFile
    from aioproduce.cli.inputs import Input
    from aioproduce.cli.line_format import LineParser
    from aioproduce.config import ProducerConfig
    from aioproduce.records import Header

# Lines between two counts of the settled records: a failure is noticed within this number.
_GROUP_LINES: Final = 500
# With --rate: groups per second, so that the records are spread and not sent in bursts.
_PACES_PER_SECOND: Final = 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob:
    """The records to send, and how.

    Attributes:
        topic: The topic.
        inputs: The inputs, in order.
        config: The producer's configuration.
        from_line: The number of the first line to send of the first input.
        parse: Line -> key and value; `None` if the line is the value.
        restore: Used instead of `parse`: line -> a record that failed in an earlier run.
        failed_to: The file for records and lines that fail.
        partition: The partition of all records; `None` lets the producer choose.
        headers: The headers of all records.
        skips: Whether lines that cannot be sent and records that fail are skipped and counted; else the first one
            ends the run.
        rate: The limit of records per second; `None` for no limit.
        timeout: Seconds to wait for cluster and topic at the start, and for acknowledgements after a signal.
    """

    topic: str
    inputs: list[Input]
    config: ProducerConfig
    from_line: int
    parse: LineParser | None
    restore: Callable[[bytes], FailedRecord] | None
    failed_to: FailedFile | None
    partition: int | None
    headers: list[Header] | None
    skips: bool
    rate: float | None
    timeout: float


class _StoppedError(Exception):
    """The run ends here; the tally or `problem` has the cause."""


@final
class SendRun(Run):
    """One run.

    Args:
        job: The job.
        announce: Called with a line for the user after a signal.

    Attributes:
        tally: The counts.
        problem: The error that ended the run early, if it was not a record's failure.
        next_line: The place of the input and the number of its line where a later run continues; `None` if
            everything was read.
    """

    def __init__(self, job: SendJob, announce: Callable[[str], None]) -> None:
        super().__init__(job.config, job.topic, job.timeout, announce)
        self._job = job
        self._sending_since: float | None = None
        self.tally: Tally = Tally()
        self.problem: Problem | None = None
        self._place = 0
        self.next_line: tuple[int, int] | None = (0, job.from_line)
        self._stopped_with: ExitCode | None = None

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the process."""
        rejected = ExitCode.LINES_REJECTED if self.tally.rejected else ExitCode.DONE
        return super().exit_code or rejected

    def next_line_as_json(self) -> dict[str, str | int] | None:
        """Return the line where a later run continues, for the summary for programs."""
        if self.next_line is None:
            return None
        place, line = self.next_line
        return {"file": self._job.inputs[place].name, "line": line}

    def _outstanding(self) -> int:
        return self.tally.outstanding

    def _end(self) -> None:
        self.tally.end()
        failed = self._job.failed_to
        if failed is None:
            return
        try:
            failed.close()
        except InputError as error:
            self._stop(error, ExitCode.BAD_INPUT)
            return
        lost = self.tally.failed + self.tally.rejected - failed.written
        if lost:
            raise RuntimeError(f"{lost} failed records are not in {failed.path}")

    def _failure(self) -> ExitCode | None:
        return ExitCode.NOT_ACKNOWLEDGED if self.tally.failed else self._stopped_with

    # -- the work ---

    async def _work(self) -> None:
        try:
            self._check_partition(await self._check_destination())
            await self._pump()
        except _StoppedError:
            pass
        except InputError as error:
            self._stop(error, ExitCode.BAD_INPUT)
        except ProducerError as error:
            self._stop(error, exit_code_of(error))
        # Wait for accepted records, whatever ended the run. `delivery.timeout.ms` bounds this.
        try:
            await self._producer.flush()
        except ProducerError as error:
            self._stop(error, ExitCode.NOT_ACKNOWLEDGED)

    def _stop(
        self, error: Exception, exit_code: ExitCode, source: str | None = None, line: int | None = None
    ) -> None:
        if self.problem is None:
            self.problem = Problem(source, line, type(error).__name__, str(error))
            self._stopped_with = exit_code

    def _check_partition(self, count: int) -> None:
        job = self._job
        if job.partition is not None and job.partition >= count:
            raise PartitionOutOfRangeError(
                f"topic {job.topic!r} has {count} partition(s), 0 to {count - 1}, and no partition {job.partition}",
                topic=job.topic,
                partition=job.partition,
                partition_count=count,
            )

    async def _pump(self) -> None:
        job = self._job
        # A record as JSON takes up to six times its bytes.
        limit = job.config.max_request_size * (1 if job.restore is None else 8)
        splitter = LineSplitter(limit)
        source: Input | None = None
        line_number, first_wanted = 1, job.from_line
        async for source_now, chunk in InputReader(job.inputs).chunks():
            if source_now is not source:
                line_number, first_wanted = 1, job.from_line if source is None else 1
                self._place += source is not None
                source = source_now
                self.next_line = (self._place, first_wanted)
            self.tally.read_bytes += len(chunk)
            lines = splitter.feed(chunk) if chunk else splitter.finish()
            if splitter.overlong_size:
                if line_number >= first_wanted:
                    self._reject(source.name, line_number, self._overlong(splitter.overlong_size), None)
                line_number += 1
            skipped = min(max(first_wanted - line_number, 0), len(lines))
            await self._send_lines(source.name, line_number + skipped, lines[skipped:])
            line_number += len(lines)
            if not chunk and line_number < first_wanted:
                raise InputError(f"--from-line {first_wanted}: {source.name} has {line_number - 1:,} lines")
        self.next_line = None

    def _overlong(self, size: int) -> BadLineError:
        limit = self._job.config.max_request_size
        return BadLineError(
            f"has {size} bytes, more than max.request.size={limit}: raise it (-X max.request.size=...; the "
            "topic's max.message.bytes bounds it too), or split the line",
            f"is longer than max.request.size={limit}",
        )

    async def _send_lines(self, source: str, first_line: int, lines: list[bytes]) -> None:
        rate = self._job.rate
        size = _GROUP_LINES if rate is None else max(1, min(_GROUP_LINES, int(rate / _PACES_PER_SECOND)))
        for start in range(0, len(lines), size):
            await self._send_slice(source, first_line + start, lines[start : start + size])
            self.tally.settle()
            if self._job.failed_to is not None:
                self._job.failed_to.flush()
            if self.tally.failed and not self._job.skips:
                raise _StoppedError
            if rate is not None:
                await self._pace(rate)
            else:
                await asyncio.sleep(0)  # lets the loop run, which send() does and rejected lines do not

    async def _send_slice(self, source: str, first_line: int, lines: list[bytes]) -> None:
        """Send some lines, in a new group after each that is not a record."""
        while lines:
            group = self.tally.open_group(source, first_line)
            refusal: BadLineError | InvalidRecordError | None = None
            try:
                await self._send_run(source, first_line, lines, group.deliveries)
            except InvalidTopicError:
                raise
            except (BadLineError, InvalidRecordError) as error:
                refusal = error
            finally:
                sent = len(group.deliveries)
                self.tally.sent_bytes += sum(map(len, lines[:sent]))
                self.next_line = (self._place, first_line + sent)
            if refusal is None:
                return
            self._no_record(source, first_line + sent, lines[sent], refusal)
            lines = lines[sent + 1 :]
            first_line += sent + 1

    async def _send_run(
        self, source: str, first_line: int, lines: list[bytes], deliveries: list[Any]
    ) -> None:
        """Send lines that follow each other: the hot loop, one pass per line."""
        job = self._job
        send, topic, parse, restore = self._producer.send, job.topic, job.parse, job.restore
        partition, headers, failed_to = job.partition, job.headers, job.failed_to
        latency = self.tally.latency
        number = self.tally.sent
        key: bytes | None = None
        value: bytes | None
        for line in lines:
            if not line or line.isspace():
                raise BlankLineError
            if restore is not None:
                record = restore(line)
                key, value, partition, headers = record.key, record.value, record.partition, record.headers
            elif parse is None:
                value = line
            else:
                key, value = parse(line)
            on_delivery = None if number % latency.stride else latency.measure(number)
            if failed_to is not None:
                kept = FailedRecord(key, value, partition, headers)
                on_delivery = failed_to.watch(source, first_line + len(deliveries), kept, on_delivery)
            deliveries.append(
                await send(topic, value, key, partition=partition, headers=headers, on_delivery=on_delivery)
            )
            number += 1

    def _no_record(self, source: str, number: int, line: bytes, error: Exception) -> None:
        """Count a line that is blank, left out, or refused."""
        if isinstance(error, BlankLineError):
            self.tally.blank += 1
        elif isinstance(error, LeftOutError):
            self.tally.left_out += 1
        else:
            self._reject(source, number, error, line)
        self.next_line = (self._place, number + 1)

    def _reject(self, source: str, number: int, error: Exception, line: bytes | None) -> None:
        self.tally.reject(source, number, error)
        self.next_line = (self._place, number + 1)
        failed = self._job.failed_to
        if failed is not None:
            if line is not None and isinstance(error, BadLineError) and self._job.restore is not None:
                failed.copy(line)
            elif line is None or isinstance(error, BadLineError):
                failed.add_line(source, number, line, error)
            else:
                failed.add_record(source, number, self._record_of(line), error)
        if not self._job.skips:
            self._stop(error, ExitCode.BAD_INPUT, source, number)
            raise _StoppedError

    def _record_of(self, line: bytes) -> FailedRecord:
        job = self._job
        if job.restore is not None:
            return job.restore(line)
        key, value = (None, line) if job.parse is None else job.parse(line)
        return FailedRecord(key, value, job.partition, job.headers)

    async def _pace(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        if self._sending_since is None:
            self._sending_since = loop.time()
        # sleep(0) when it is late: catching up in a burst would starve the loop.
        await asyncio.sleep(max(0.0, self._sending_since + self.tally.sent / rate - loop.time()))
