"""`python -m aioproduce.verifiable`: Kafka's VerifiableProducer with this producer.

Programs that drive `org.apache.kafka.tools.VerifiableProducer` run it as a process: Kafka's system tests, and the
chaos run of this project. It sends increasing integers and prints one JSON line for each event. Options, lines and
exit codes are those of Kafka 4.3.1, found by running it.

Invariants:

1. Standard output has only JSON lines, and the one line about `--producer.config` that Kafka's tool also prints.
   `startup_complete` comes first, `shutdown_complete` and `tool_data` last, however the run ends.
2. Every record that was sent has exactly one line, `producer_send_success` or `producer_send_error`, between them.
3. SIGTERM and SIGINT stop the sending. The run then waits for the outcome of accepted records, bounded by
   `delivery.timeout.ms`. More signals change nothing.
4. As in Java, retries and idempotence are off unless the file of `--command-config` sets `retries`. The file
   overrides the options.

Differences from Java's tool: a key of the file that this producer does not know or cannot honour is an error;
`exception` names this package's classes; a standard output without a reader ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import time
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from aioproduce.config import ProducerConfig, load_properties
from aioproduce.errors import ConfigError, DeliveryError, ProducerError
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce.records import RecordMetadata

# Java's Integer and Long: larger numbers are wrong usage.
_INTEGER: Final = 31
_LONG: Final = 63

# A shorter sleep is postponed to the next record, as in Java's throttle.
_SHORTEST_SLEEP: Final = 0.002

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def _number(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not -(2**bits) <= number < 2**bits:
            raise ValueError(text)
        return number

    parse.__name__ = "Integer" if bits == _INTEGER else "Long"  # argparse puts it into its message
    return parse


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--topic": {"metavar": "TOPIC", "required": True, "help": "Produce messages to this topic."},
    "--bootstrap-server": {
        "metavar": "HOST1:PORT1[,HOST2:PORT2[...]]",
        "required": True,
        "help": "The servers to connect to, separated by commas.",
    },
    "--max-messages": {
        "metavar": "MAX-MESSAGES",
        "type": _number(_INTEGER),
        "default": -1,
        "help": "Produce this many messages; with -1, until the process is ended. (default: -1)",
    },
    "--throughput": {
        "metavar": "THROUGHPUT",
        "type": _number(_INTEGER),
        "default": -1,
        "help": "If it is 0 or more, send at most about this many messages per second. (default: -1)",
    },
    "--acks": {
        "metavar": "{0,1,-1}",
        "type": _number(_INTEGER),
        "default": -1,
        "choices": (0, 1, -1),
        "help": "Acknowledgements required of each message. (default: -1)",
    },
    "--producer.config": {
        "dest": "producer_config",
        "metavar": "CONFIG-FILE",
        "help": "The old name of --command-config.",
    },
    "--message-create-time": {
        "dest": "create_time",
        "metavar": "CREATE-TIME",
        "type": _number(_LONG),
        "default": -1,
        "help": "The creation time of the first message, in milliseconds since the epoch; for each later one the "
        "time of the run so far is added. (default: -1, the time of sending)",
    },
    "--value-prefix": {
        "metavar": "VALUE-PREFIX",
        "type": _number(_INTEGER),
        "help": "Put this number and a dot before each value.",
    },
    "--repeating-keys": {
        "metavar": "REPEATING-KEYS",
        "type": _number(_INTEGER),
        "help": "Give the messages keys: 0, 1, ... up to this number (exclusive), and again from 0.",
    },
    "--command-config": {
        "metavar": "CONFIG-FILE",
        "help": "A properties file with producer keys; they override the options.",
    },
    "--aioproduce-possibly-written": {
        "dest": "tells_possibly_written",
        "action": "store_true",
        "help": "Not in Kafka's tool: add possibly_written to producer_send_error, whether the record may be in "
        "the log.",
    },
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with 1 after wrong usage, as Java does."""
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m aioproduce.verifiable",
        description="Produce increasing integers to a topic, and print a JSON line about each to standard output: "
        "whether it was acknowledged. Options and lines are those of Kafka's VerifiableProducer.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "-h", "--help", action="store_true", help="Show this and exit (with 1, as Kafka's does)."
    )
    for name, settings in _OPTIONS.items():
        parser.add_argument(name, **settings)
    return parser


@final
class _Lines:
    """Standard output, a line per event: lines are collected, and written in the loop's next iteration.

    A reader that does not read blocks the whole process, as with Java's tool. A record's line is dropped only if
    the reader is gone; then `on_broken` is called.
    """

    __slots__ = ("_is_scheduled", "_on_broken", "_pending", "_stream", "error")

    def __init__(self, stream: FileIO, on_broken: Callable[[], object]) -> None:
        self._stream = stream
        self._on_broken = on_broken
        self._pending: list[str] = []
        self._is_scheduled = False
        self.error: OSError | None = None

    def add(self, line: str) -> None:
        """Add a line, which ends with a newline."""
        self._pending.append(line)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Write the collected lines."""
        self._is_scheduled = False
        lines, self._pending = self._pending, []
        if self.error is not None or not lines:
            return
        try:
            # Bytes of the command line that are not UTF-8 become escapes, as in JSON.
            _write_all(self._stream, "".join(lines).encode(errors="backslashreplace"))
        except OSError as error:
            self.error = error
            self._on_broken()


def _write_all(stream: FileIO, content: bytes) -> None:
    """Write every byte: a signal can interrupt a write to a full pipe in the middle."""
    rest = memoryview(content)
    while rest:
        written = stream.write(rest)
        rest = rest[written:]


@final
class VerifiableProducer:
    """One run.

    Args:
        config: The producer's configuration.
        options: The options of the command line.
        stream: The unbuffered stream for the lines.
    """

    def __init__(self, config: ProducerConfig, options: argparse.Namespace, stream: FileIO) -> None:
        self._producer = Producer(config)
        self._options = options
        self._topic: str = options.topic
        self._topic_json = json.dumps(options.topic)
        self._stopped = asyncio.Event()
        self._lines = _Lines(stream, self._stopped.set)
        self._signal: signal.Signals | None = None
        self._sent = 0
        self._acked = 0

    async def run(self) -> int:
        """Send until everything is sent or a signal arrives.

        Returns:
            The exit code: 0, as in Java also if records failed; 130 after SIGINT and 143 after SIGTERM; 1 if
            standard output broke.
        """
        loop = asyncio.get_running_loop()
        started_at = time.time()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        await self._producer.start()
        sending = asyncio.create_task(self._send_all(), name="verifiable producer")
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopped.set()
            # This wakes a send() that waits for metadata or memory, and its record is reported as failed.
            await self._producer.close()
            await asyncio.wait([sending, stopping])
        sending.result()  # raises what only a bug can raise
        self._tell_end(time.time() - started_at)
        return self._exit_code()

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signal is None:
            self._signal = number
        self._stopped.set()

    def _exit_code(self) -> int:
        if self._lines.error is not None:
            print(f"error: cannot write to standard output: {self._lines.error.strerror}", file=sys.stderr)
            return 1
        return 0 if self._signal is None else 128 + self._signal

    # -- sending ---

    async def _send_all(self) -> None:
        self._lines.add(f'{{"timestamp":{_now_ms()},"name":"startup_complete"}}\n')
        options = self._options
        prefix = "" if options.value_prefix is None else f"{options.value_prefix}."
        limit: int | None = None if options.max_messages < 0 else options.max_messages
        throughput: int = options.throughput
        started_ms = _now_ms()
        began_at = time.monotonic()
        create_time: int | None = None if options.create_time == -1 else options.create_time
        number = 0
        key = 0
        is_stopped = self._stopped.is_set
        while (limit is None or number < limit) and not is_stopped():
            await self._send(
                f"{prefix}{number}", None if options.repeating_keys is None else f"{key}", create_time
            )
            key = 0 if key + 1 == options.repeating_keys else key + 1
            if create_time is not None:
                create_time += _now_ms() - started_ms
            if throughput >= 0:
                await self._throttle(number, throughput, began_at)
            number += 1

    async def _send(self, value: str, key: str | None, create_time: int | None) -> None:
        self._sent += 1
        try:
            await self._producer.send(
                self._topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp=create_time,
                on_delivery=partial(self._settled, key, value),
            )
        except ProducerError as error:
            self._tell_failed(key, value, error)

    async def _throttle(self, number: int, throughput: int, began_at: float) -> None:
        """Wait until record `number` is due; with a throughput of 0 only the first one ever is."""
        if throughput == 0 and number > 0:
            await self._stopped.wait()
            return
        ahead = 0.0 if throughput == 0 else began_at + number / throughput - time.monotonic()
        if ahead >= _SHORTEST_SLEEP:
            with contextlib.suppress(TimeoutError):  # the normal end of this wait
                await asyncio.wait_for(self._stopped.wait(), ahead)

    # -- lines ---

    def _settled(
        self, key: str | None, value: str, metadata: RecordMetadata, error: BaseException | None
    ) -> None:
        if error is not None:
            self._tell_failed(key, value, error)
            return
        self._acked += 1
        # Without json.dumps(), for a million of these: keys and values are digits and dots, which need no escape.
        key_json = "null" if key is None else f'"{key}"'
        self._lines.add(
            f'{{"timestamp":{_now_ms()},"name":"producer_send_success","key":{key_json},"value":"{value}",'
            f'"offset":{metadata.offset},"topic":{self._topic_json},"partition":{metadata.partition}}}\n'
        )

    def _tell_failed(self, key: str | None, value: str, error: BaseException) -> None:
        kind = type(error)
        event: dict[str, object] = {
            "topic": self._topic,
            "key": key,
            "value": value,
            "exception": f"class {kind.__module__}.{kind.__qualname__}",
            "message": str(error),
        }
        if self._options.tells_possibly_written:
            event["possibly_written"] = isinstance(error, DeliveryError) and error.possibly_written
        self._tell("producer_send_error", event)

    def _tell_end(self, seconds: float) -> None:
        self._tell("shutdown_complete", {})
        self._tell(
            "tool_data",
            {
                "sent": self._sent,
                "acked": self._acked,
                "target_throughput": self._options.throughput,
                "avg_throughput": self._acked / max(seconds, 0.001),
            },
        )
        self._lines.write()

    def _tell(self, name: str, fields: dict[str, object]) -> None:
        line = json.dumps(
            {"timestamp": _now_ms(), "name": name, **fields}, separators=(",", ":"), ensure_ascii=False
        )
        self._lines.add(line + "\n")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _config(options: argparse.Namespace) -> ProducerConfig:
    """Return the configuration as in Java's tool: no retries, and the file overrides the options.

    Raises:
        ConfigError: if a key or value is wrong, or the file cannot be read.
    """
    settings: dict[str, object] = {
        "bootstrap.servers": options.bootstrap_server,
        "acks": str(options.acks),
        "retries": "0",
    }
    file = options.command_config or options.producer_config
    if file is not None:
        settings.update(load_properties(file))
    # Keys and values are bytes already, whatever serializer the file names for Java.
    return dataclasses.replace(
        ProducerConfig.from_mapping(settings), key_serializer=None, value_serializer=None
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: The arguments after the program's name; those of `sys.argv` by default.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    if not words:
        parser.print_help()
        return 0
    if "-h" in words or "--help" in words:
        parser.print_help()
        return 1
    options = parser.parse_args(words)
    if options.producer_config is not None and options.command_config is not None:
        parser.error("Options --producer.config and --command-config are mutually exclusive.")
    try:
        config = _config(options)
    except ConfigError as error:
        parser.error(str(error))
    if options.producer_config is not None:
        print(
            "Option --producer.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        sys.stdout.flush()
    return asyncio.run(_run(config, options))


async def _run(config: ProducerConfig, options: argparse.Namespace) -> int:
    # Not sys.stdout: after a broken pipe Python would report the rest of its buffer once more at exit.
    with FileIO(sys.stdout.fileno(), "wb", closefd=False) as stream:
        code = await VerifiableProducer(config, options, stream).run()
    # When the loop ends, Python handles signals again: a later one would end the process with another exit code.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    return code
