"""The options of `aioproduce perf`: names, values, help texts. Kafka's tool has all but the marked one.

`perf_command` imports them as the types of its function's parameters, as typer requires.
"""

from __future__ import annotations

from typing import Annotated

import typer

from aioproduce.cli.settings import ENVIRONMENT

PerfTopic = Annotated[str, typer.Option("--topic", help="Produce records to this topic.")]
NumRecords = Annotated[int, typer.Option("--num-records", metavar="N", help="The number of records.")]
RecordSize = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Send random letters, this many in each record.")
]
PayloadFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Send payloads from this file, each drawn at random.")
]
PayloadDelimiter = Annotated[
    str, typer.Option(metavar="REGEX", help="The separator of the payloads; by default a line end.")
]
PayloadMonotonic = Annotated[bool, typer.Option("--payload-monotonic", help="Send the numbers 0, 1, 2, ...")]
Throughput = Annotated[
    float, typer.Option(metavar="N", help="At most about N records per second; -1: no limit.")
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", metavar="HOST:PORT,...", help=f"Brokers to try first; or {ENVIRONMENT}."
    ),
]
ProducerProps = Annotated[
    list[str] | None,
    typer.Option("--producer-props", metavar="KEY=VALUE ...", help="The old name of --command-property."),
]
CommandProperty = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE ...", help="Producer keys (see `aioproduce config`)."),
]
ProducerConfigFile = Annotated[
    str | None, typer.Option("--producer.config", metavar="FILE", help="The old name of --command-config.")
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config", "--config", metavar="FILE", help="A .properties file with producer keys."
    ),
]
PrintMetrics = Annotated[
    bool, typer.Option("--print-metrics", help="Print the producer's metrics at the end.")
]
WarmupRecords = Annotated[
    int, typer.Option(metavar="N", help="Print one more line, with the figures without the first N records.")
]
ReportingInterval = Annotated[int, typer.Option(metavar="MS", help="Milliseconds between two lines.")]
TransactionalId = Annotated[str | None, typer.Option(metavar="ID", help="Refused: perf has no transactions.")]
TransactionDuration = Annotated[
    int | None,
    typer.Option("--transaction-duration-ms", metavar="MS", help="Refused: perf has no transactions."),
]
Plot = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Draw the run over time, as .svg or .png (extra `plot`). Not in Kafka's tool."
    ),
]
