"""`aioproduce txn`: list and describe transactions, find those that hang, and end them.

Called by `app`, which adds the commands. `txn_cluster` asks the brokers, `txn_view` makes the tables.

Invariant: `abort` without a prepared transaction writes only after a confirmation, and only with `--force` if a
coordinator will end the transaction by itself.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from aioproduce.cli.display import as_json_line, complain, hushed_warnings, rendered, write_output
from aioproduce.cli.exit_codes import EPILOG, ExitCode
from aioproduce.cli.options import AsJson, Bootstrap, ConfigFile, Overrides, Timeout, failure
from aioproduce.cli.settings import build_config
from aioproduce.cli.txn_error import TxnError
from aioproduce.cli.txn_view import described_as_json, listed_as_json, open_as_json, pairs_view, rows_view
from aioproduce.errors import ConfigError, MissingExtraError, ProducerError, TransactionError
from aioproduce.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.cli.txn_cluster import ClusterTransactions
    from aioproduce.config import ProducerConfig
    from aioproduce.producer.prepared_transaction import PreparedTransaction
    from aioproduce.wire.messages import ActiveProducer

_DONE: Final = {"commit": "committed", "abort": "aborted"}
_HANGING_COLUMNS: Final = (
    "topic",
    "partition",
    "start_offset",
    "producer_id",
    "producer_epoch",
    "last_record_at",
    "why",
)

_Verdict: TypeAlias = Literal["commit", "abort"]

txn: Final = typer.Typer(name="txn", no_args_is_help=True, help="Show transactions, and end those that hang.")

Prepared = Annotated[
    Path | None,
    typer.Option(
        "--prepared", metavar="FILE", help="A file with the bytes of PreparedTransaction.to_bytes()."
    ),
]
OfTopic = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="The topic.", show_default=False)
]


def add_commands(app: typer.Typer) -> None:
    """Add `txn` with its commands."""
    app.add_typer(txn)


@contextmanager
def _expected_errors() -> Iterator[None]:
    """End the command with the exit code of an expected error."""
    try:
        with hushed_warnings():
            yield
    except TxnError as error:
        raise failure(error, error.exit_code) from None
    except (ConfigError, MissingExtraError) as error:
        raise failure(error) from None


def _config(
    bootstrap: str | None, file: str | None, overrides: list[str] | None, timeout: float
) -> ProducerConfig:
    return build_config(
        bootstrap=bootstrap,
        file=file,
        overrides=overrides or [],
        options={"max.block.ms": str(int(timeout * 1000))},
        client_id="aioproduce-txn",
    )


def _cluster(config: ProducerConfig, timeout: float) -> ClusterTransactions:
    from aioproduce.cli.txn_cluster import ClusterTransactions

    return ClusterTransactions(config, timeout)


def _show(values: object, view: Any) -> None:
    """Write the result to standard output, and end the command.

    Args:
        values: The document of `--json`; `None` without that option.
        view: The result for people.
    """
    raise typer.Exit(write_output(rendered(view) if values is None else as_json_line(values)))


@txn.command("list", epilog=EPILOG)
def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only transactions in this state, e.g. Ongoing; repeatable."
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only transactions of this producer; repeatable."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.0, max=1e12, help="Only transactions open for longer (Kafka 3.8)."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match it as a whole; RE2 syntax (Kafka 4.1)."),
    ] = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids of all coordinators, as far as this client may describe them."""
    with _expected_errors():
        cluster = _cluster(_config(bootstrap, config_file, overrides, timeout), timeout)
        found = cluster.list_transactions(
            states=states or [], producer_ids=producer_ids or [], duration=longer_than, pattern=pattern
        )
    rows = [listed_as_json(each) for each in found]
    columns = ("transactional_id", "state", "producer_id", "coordinator")
    _show({"transactions": rows} if as_json else None, rows_view(rows, columns))


@txn.command(epilog=EPILOG)
def describe(
    transactional_ids: Annotated[
        list[str] | None, typer.Argument(help="Transactional ids.", show_default=False)
    ] = None,
    prepared_file: Prepared = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show what the coordinators know about transactional ids: state, producer, time-out, partitions.

    With --prepared also show the outcome of that transaction: committed, aborted, open, or unknown.
    """
    rows = []
    with _expected_errors():
        config = _config(bootstrap, config_file, overrides, timeout)
        prepared = None if prepared_file is None else _read(prepared_file)
        ids = [*(transactional_ids or []), *([] if prepared is None else [prepared.transactional_id])]
        if not ids:
            raise TxnError("say which: one or more transactional ids, or --prepared FILE", ExitCode.BAD_INPUT)
        cluster = _cluster(config, timeout)
        rows = [described_as_json(*cluster.describe(each)) for each in ids]
        if prepared is not None:
            rows[-1]["outcome"] = _outcome_of(prepared, config)
    if as_json:
        _show({"transactions": rows}, None)
    for row in rows[:-1]:
        write_output(rendered(pairs_view(row)) + "\n")
    _show(None, pairs_view(rows[-1]))


def _read(path: Path) -> PreparedTransaction:
    from aioproduce.producer.prepared_transaction import PreparedTransaction

    try:
        return PreparedTransaction.from_bytes(path.read_bytes())
    except OSError as error:
        raise TxnError(f"cannot read {path}: {error.strerror or error}", ExitCode.BAD_INPUT) from None
    except ValueError as error:
        raise TxnError(f"{path}: {error}", ExitCode.BAD_INPUT) from None


def _outcome_of(prepared: PreparedTransaction, config: ProducerConfig) -> str:
    try:
        outcome = asyncio.run(prepared.outcome(config))
    except ProducerError as error:
        raise TxnError(str(error)) from None
    return "open" if outcome is None else outcome.value


@txn.command(epilog=EPILOG)
def find_hanging(
    topic: OfTopic = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end (KIP-664).

    They block readers of committed records for ever. This client needs Read on the topics and Describe on every
    transactional id: a transaction whose id it may not describe looks as if it hangs.
    """
    with _expected_errors():
        cluster = _cluster(_config(bootstrap, config_file, overrides, timeout), timeout)
        found = cluster.hanging(topic)
    for where in cluster.left_out:
        complain(f"warning: {where} has no leader now, so it was not checked")
    rows = [open_as_json(each) for each in found]
    if not rows:
        complain("no transaction hangs")
    else:
        complain("to end one: aioproduce txn abort --topic NAME --partition N --start-offset N")
    _show({"hanging": rows} if as_json else None, rows_view(rows, _HANGING_COLUMNS))


@txn.command(epilog=EPILOG)
def commit(
    prepared_file: Annotated[
        Path,
        typer.Option(
            "--prepared", metavar="FILE", help="A file with the bytes of PreparedTransaction.to_bytes()."
        ),
    ],
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Commit a transaction that its producer has prepared. It is safe to repeat."""
    with _expected_errors():
        _end(_read(prepared_file), _config(bootstrap, config_file, overrides, timeout), "commit", as_json)


def _end(prepared: PreparedTransaction, config: ProducerConfig, verdict: _Verdict, as_json: bool) -> None:
    row: dict[str, Any] = {"transactional_id": prepared.transactional_id}
    try:
        asyncio.run(prepared.commit(config) if verdict == "commit" else prepared.abort(config))
    except TransactionError as error:
        if as_json:
            known = None if error.outcome is None else error.outcome.value
            write_output(as_json_line(row | {"outcome": known, "error": str(error)}))
        raise TxnError(str(error)) from None
    except ProducerError as error:
        raise TxnError(str(error)) from None
    row["outcome"] = "nothing was sent" if prepared.is_empty else _DONE[verdict]
    _show(row if as_json else None, pairs_view(row))


@txn.command(epilog=EPILOG)
def abort(
    prepared_file: Prepared = None,
    topic: OfTopic = None,
    partition: Annotated[int | None, typer.Option(min=0, help="The partition.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The first offset of the transaction.")
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(min=0, metavar="ID", help="Instead of --start-offset: the producer that has it open."),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(min=0, max=32767, help="By default the one that the leader reports.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="By default the one that the leader reports.")
    ] = None,
    is_forced: Annotated[
        bool,
        typer.Option("--force", help="Abort it also if a coordinator has it open and will end it by itself."),
    ] = False,
    is_confirmed: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Abort a transaction that was prepared, or one that hangs in a partition.

    For one that hangs, the partition's leader writes an abort marker without its coordinator, as with
    kafka-transactions.sh. If a transaction does not hang, its other partitions may still be committed.
    """
    with _expected_errors():
        config = _config(bootstrap, config_file, overrides, timeout)
        if prepared_file is not None:
            if topic is not None:
                raise TxnError("say one of the two: --prepared FILE, or --topic", ExitCode.BAD_INPUT)
            _end(_read(prepared_file), config, "abort", as_json)
        if topic is None or partition is None or (start_offset is None) == (producer_id is None):
            raise TxnError(
                "say which: --prepared FILE, or --topic NAME --partition N with one of --start-offset and "
                "--producer-id",
                ExitCode.BAD_INPUT,
            )
        where = TopicPartition(topic, partition)
        found = _open_in(_cluster(config, timeout), where, start_offset, producer_id)
        if producer_epoch is not None:
            found = replace(found, producer_epoch=producer_epoch)
        if coordinator_epoch is not None:
            found = replace(found, coordinator_epoch=coordinator_epoch)
        elif found.coordinator_epoch < 0:  # no coordinator has written a marker of this producer there
            found = replace(found, coordinator_epoch=0)
        why = _cluster(config, timeout).why_hanging(where, found)
        _confirm(where, found, why, is_forced=is_forced, is_confirmed=is_confirmed)
        # A new time-out: the user may have thought for a minute.
        _cluster(config, timeout).write_abort(where, found)
    row = {
        "topic": topic,
        "partition": partition,
        "start_offset": found.open_from,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "outcome": "aborted",
    }
    _show(row if as_json else None, pairs_view(row))


def _confirm(
    where: TopicPartition, found: ActiveProducer, why: str, *, is_forced: bool, is_confirmed: bool
) -> None:
    """Show what will be aborted, and ask.

    Raises:
        TxnError: if its coordinator will end it, or the answer is no.
    """
    if not why and not is_forced:
        raise TxnError(
            f"the transaction of producer {found.producer_id} in {where} does not hang: its coordinator has it "
            "open, and ends it at the latest after its time-out (see `txn list --producer-id`). --force aborts "
            "this part of it nevertheless"
        )
    complain(
        f"producer {found.producer_id}, epoch {found.producer_epoch}, has a transaction open in {where} from "
        f"offset {found.open_from} on: {why or 'its coordinator has it open, too'}"
    )
    if is_confirmed:
        return
    complain("Abort it there? [y/N]")  # not typer's question, which writes to standard output
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if answer.strip().lower() not in {"y", "yes"}:
        raise TxnError("nothing was aborted: it was not confirmed (--yes does not ask)")


def _open_in(
    cluster: ClusterTransactions, where: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ActiveProducer:
    """Return the producer that has the transaction open."""
    opened = [each for each in cluster.producers(where) if each.open_from >= 0]
    for each in opened:
        if each.open_from == start_offset or each.producer_id == producer_id:
            return each
    there = ", ".join(f"producer {each.producer_id} from offset {each.open_from} on" for each in opened)
    raise TxnError(
        f"no such transaction is open in {where}; open there: {there or 'none'}", ExitCode.BAD_INPUT
    )
