"""`aioproduce perf`: from its options, those of Kafka's tool and some more, to a job.

Called by `app`. It accepts the command lines of Kafka's `kafka-producer-perf-test`, with the same meaning. It does
not support transactions, and refuses their options by name.

Invariants:

1. Every option is checked before a broker is asked and before anything is sent.
2. With `--json` standard output is one JSON document; without, it is the lines of Kafka's tool and nothing else.
   The bar and the summary for people go to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import typer
from typer.core import TyperCommand

from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, record_size_upper_bound
from aioproduce.cli.display import as_json_line, complain, shows_bar, write_output
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.options import AsJson, ProgressFlag, Timeout, failure
from aioproduce.cli.perf_options import (
    BootstrapServer,
    CommandConfig,
    CommandProperty,
    NumRecords,
    PayloadDelimiter,
    PayloadFile,
    PayloadMonotonic,
    PerfTopic,
    Plot,
    PrintMetrics,
    ProducerConfigFile,
    ProducerProps,
    RecordSize,
    ReportingInterval,
    Throughput,
    TransactionalId,
    TransactionDuration,
    WarmupRecords,
)
from aioproduce.cli.perf_payloads import DrawnPayloads, Numbers, Payloads, RandomLetters, read_payloads
from aioproduce.cli.settings import PREFIX, require_servers
from aioproduce.config import ProducerConfig, load_environment, load_properties
from aioproduce.config.config_def import is_secret
from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    from aioproduce.cli.perf import PerfJob, PerfRun

_CLIENT_ID: Final = "perf-producer-client"
_MANY_VALUED: Final = frozenset({"--producer-props", "--command-property"})


class PerfCommand(TyperCommand):
    """A command that accepts several values after one `--producer-props`, as Kafka's tool does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write `--producer-props a=1 b=2` as `--producer-props a=1 --producer-props b=2`."""
        spread: list[str] = []
        option: str | None = None
        for argument in args:
            if argument in _MANY_VALUED:
                option = argument
            elif argument.startswith("-"):
                option = None
            elif option is not None and spread[-1] != option:
                spread.append(option)
            spread.append(argument)
        return super().parse_args(ctx, spread)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options as given, under Kafka's names."""

    topic: str
    num_records: int
    record_size: int | None
    payload_file: str | None
    payload_delimiter: str
    payload_monotonic: bool
    throughput: float
    bootstrap_server: str | None
    producer_props: list[str] | None
    command_property: list[str] | None
    producer_config: str | None
    command_config: str | None
    print_metrics: bool
    warmup_records: int
    reporting_interval: int
    transactional_id: str | None
    transaction_duration_ms: int | None
    plot: str | None
    timeout: float


def perf(
    topic: PerfTopic,
    num_records: NumRecords,
    record_size: RecordSize = None,
    payload_file: PayloadFile = None,
    payload_delimiter: PayloadDelimiter = "\\n",
    payload_monotonic: PayloadMonotonic = False,
    throughput: Throughput = -1.0,
    bootstrap_server: BootstrapServer = None,
    producer_props: ProducerProps = None,
    command_property: CommandProperty = None,
    producer_config: ProducerConfigFile = None,
    command_config: CommandConfig = None,
    print_metrics: PrintMetrics = False,
    warmup_records: WarmupRecords = 0,
    reporting_interval: ReportingInterval = 5000,
    transactional_id: TransactionalId = None,
    transaction_duration_ms: TransactionDuration = None,
    plot: Plot = None,
    timeout: Timeout = 10.0,
    progress: ProgressFlag = None,
    as_json: AsJson = False,
) -> None:
    """Measure this producer on a cluster, with the options and the output of kafka-producer-perf-test.

    Choose the payload by exactly one of --record-size, --payload-file and --payload-monotonic. A latency is from
    the call of send() to the acknowledgement; only acknowledged records count. docs/how-to/perf.md explains the
    figures.
    """
    options = locals()  # the parameters only: no other local is set yet
    given = Given(**{name: options[name] for name in Given.__slots__})
    lines = _Lines(is_silent=as_json)
    try:
        job = make_job(given, lines.tell)
        if plot is not None:
            _check_plot(plot)
    except ConfigError as error:
        raise failure(error) from None
    raise typer.Exit(_perform(given, job, lines, shows_progress=progress, as_json=as_json))


def _perform(
    given: Given, job: PerfJob, lines: _Lines, *, shows_progress: bool | None, as_json: bool
) -> ExitCode:
    from aioproduce.cli.perf_report import document, problems, summary_table, to_stderr

    run = asyncio.run(_run(job, lines, shows_progress=shows_progress))
    values = document(run, job, given)
    exit_code = run.exit_code
    if as_json:
        lines.write(as_json_line(values))
    elif given.print_metrics and run.metrics is not None and run.total is not None:
        from aioproduce.cli.perf_lines import metric_lines

        lines.write("".join(f"{line}\n" for line in metric_lines(run.metrics)))
    for problem in problems(run):
        complain(f"error: {problem}")
    if run.total is not None and not as_json:
        to_stderr(summary_table(values))
    if given.plot is not None and run.timeline is not None:
        from aioproduce.cli.perf_plot import draw

        try:
            draw(given.plot, values)
        except OSError as error:
            complain(f"error: cannot write --plot {given.plot}: {error.strerror or error}")
            exit_code = exit_code or ExitCode.NO_OUTPUT
    return exit_code or lines.outcome


async def _run(job: PerfJob, lines: _Lines, *, shows_progress: bool | None) -> PerfRun:
    from aioproduce.cli.perf import PerfRun
    from aioproduce.cli.perf_report import PerfProgress

    run = PerfRun(job, lines.tell, complain)
    is_shown = shows_bar() if shows_progress is None else shows_progress
    async with PerfProgress(run, job).drawn() if is_shown else contextlib.nullcontext():
        await run.run()
    return run


@final
class _Lines:
    """Standard output: each line at once, until writing fails."""

    __slots__ = ("_is_silent", "outcome")

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self.outcome = ExitCode.DONE

    def tell(self, line: str) -> None:
        """Write a line of Kafka's tool."""
        if not self._is_silent:
            self.write(f"{line}\n")

    def write(self, text: str) -> None:
        """Write text at once; nothing after a failure."""
        if self.outcome is ExitCode.DONE:
            self.outcome = write_output(text)


# -- checking ---


def make_job(given: Given, tell: Any) -> PerfJob:
    """Return the job that the options ask for.

    Args:
        given: The options.
        tell: Called with lines about the payload file.

    Raises:
        ConfigError: if one of them is wrong; the text says what to give instead.
    """
    from aioproduce.cli.perf import PerfJob

    _check_transactions(given)
    _check_numbers(given)
    config = _config(given)
    payloads = _payloads(given, config, tell)
    return PerfJob(
        topic=given.topic,
        records=given.num_records,
        payloads=payloads,
        config=config,
        rate=given.throughput if given.throughput > 0 else None,
        warmup=given.warmup_records,
        interval=given.reporting_interval / 1000,
        timeout=given.timeout,
    )


def _check_transactions(given: Given) -> None:
    for option, value in (
        ("--transactional-id", given.transactional_id),
        ("--transaction-duration-ms", given.transaction_duration_ms),
    ):
        if value is not None:
            raise ConfigError(
                f"{option}: perf measures sending without transactions; leave it out (the idempotent producer is "
                "the default)"
            )


def _check_numbers(given: Given) -> None:
    if given.num_records <= 0:
        raise ConfigError(f"--num-records {given.num_records}: nothing to send; give 1 or more")
    if not 0 <= given.warmup_records < given.num_records:
        raise ConfigError(
            f"--warmup-records {given.warmup_records}: give 0 or more, and fewer than --num-records "
            f"{given.num_records}, so that some are left to measure"
        )
    if given.reporting_interval <= 0:
        raise ConfigError(f"--reporting-interval {given.reporting_interval}: give 1 millisecond or more")
    if given.throughput == 0 or not math.isfinite(given.throughput):
        raise ConfigError(
            f"--throughput {given.throughput:g}: nothing would ever be sent at that rate; give records per "
            "second, or -1 for no limit"
        )


def _config(given: Given) -> ProducerConfig:
    if given.producer_props and given.command_property:
        raise ConfigError("--command-property and --producer-props are the same: give one of them")
    if given.producer_config is not None and given.command_config is not None:
        raise ConfigError("--command-config and --producer.config are the same: give one of them")
    settings: dict[str, object] = {"client.id": _CLIENT_ID, **load_environment(PREFIX)}
    file = given.command_config if given.command_config is not None else given.producer_config
    if file is not None:
        settings.update(load_properties(file))
    option = "--command-property" if given.command_property else "--producer-props"
    for text in given.command_property or given.producer_props or ():
        key, found, value = text.partition("=")
        if not found or not key.strip():
            what = "" if is_secret(text) else f", not {text!r}"  # may be a password without its `=`
            raise ConfigError(f"{option} takes key=value, e.g. linger.ms=20{what}")
        settings[key.strip()] = value
    if given.bootstrap_server is not None:
        settings["bootstrap.servers"] = given.bootstrap_server
    require_servers(settings, "--command-property or --command-config")
    if "transactional.id" in settings:
        raise ConfigError("transactional.id: perf measures sending without transactions; leave it out")
    # Kafka's tool also sends bytes, whatever serializers are configured.
    for key in ("key.serializer", "value.serializer"):
        settings.pop(key, None)
    return ProducerConfig.from_mapping(settings)


def _payloads(given: Given, config: ProducerConfig, tell: Any) -> Payloads:
    sources = {
        "--record-size": given.record_size is not None,
        "--payload-file": given.payload_file is not None,
        "--payload-monotonic": given.payload_monotonic,
    }
    wanted = [option for option, is_given in sources.items() if is_given]
    if len(wanted) != 1:
        what = f"{' and '.join(wanted)} were given" if wanted else "none was given"
        raise ConfigError(f"give exactly one of {', '.join(sources)}: {what}")
    payloads: Payloads
    if given.record_size is not None:
        if given.record_size <= 0:
            raise ConfigError(f"--record-size {given.record_size}: give 1 byte or more")
        _check_size("--record-size", given.record_size, config)
        try:
            payloads = RandomLetters(given.record_size, config.batch_size)
        except MemoryError as error:
            raise ConfigError(
                f"--record-size {given.record_size}: this machine has no memory for the records made before the "
                "run; make them smaller, or batch.size (at least twice batch.size is made)"
            ) from error
    elif given.payload_file is not None:
        tell(f"Reading payloads from: {os.path.abspath(given.payload_file)}")
        values = read_payloads(given.payload_file, given.payload_delimiter)
        tell(f"Number of records read: {len(values)}")
        payloads = DrawnPayloads(values)
        _check_size("the largest payload of --payload-file", payloads.largest, config)
    else:
        payloads = Numbers(given.num_records)
        _check_size("--payload-monotonic", payloads.largest, config)
    return payloads


def _check_size(what: str, size: int, config: ProducerConfig) -> None:
    needed = size + RECORD_BATCH_OVERHEAD + record_size_upper_bound(None, None)
    for key, limit in (
        ("max.request.size", config.max_request_size),
        ("buffer.memory", config.buffer_memory),
    ):
        if needed > limit:
            raise ConfigError(
                f"{what}: a record of {size} bytes takes up to {needed} in its batch, more than {key}={limit}: "
                f"make it smaller, or raise {key} (the topic's max.message.bytes bounds it, too)",
                key=key,
            )


def _check_plot(file: str) -> None:
    if not file.endswith((".svg", ".png")):
        raise ConfigError(f"--plot {file}: the name must end in .svg or .png, the format to draw")
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise ConfigError(f"--plot {file}: there is no folder {folder}; make it, or name another")
    if os.path.isdir(file):
        raise ConfigError(f"--plot {file} is a folder: name a file in it")
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib, which is not installed: pip install 'aioproduce[plot]'")
