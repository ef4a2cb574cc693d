"""The command line: `aioproduce send`, `perf`, `dev`, `config`, `check`, `txn`, `spool`, `dashboard` and `top`.

`main` is the console script. It imports typer and rich (the extra `aioproduce[cli]`) when it runs. So the package
can be imported without them, and an error says what to install.

| module | contents |
|---|---|
| `app` | the commands |
| `options`, `help_texts` | options of several commands; layout of the help |
| `settings` | from options, environment and files to a `ProducerConfig` |
| `inputs` | the files and standard input, read by a thread and cut into lines |
| `line_format` | from a line to key and value |
| `send_command`, `send` | `aioproduce send`: from options to a job; the run |
| `tally`, `causes` | outcome of each record, latency; the root cause that failures are counted by |
| `failed_records` | the file of `--failed-to` and `--from-failed` |
| `display` | progress bar, summary, messages |
| `perf_command`, `perf_options` | `aioproduce perf`: from options to a job; the options |
| `perf`, `perf_payloads` | the run; the values of the records |
| `perf_lines`, `perf_timeline` | Kafka's lines and their counts; the run over time |
| `perf_report`, `perf_plot` | JSON document, summary and bar; the plot |
| `run`, `signals` | the common part of both runs; SIGINT and SIGTERM |
| `check`, `check_view` | `aioproduce check`: the attempts; the text for people |
| `config_command` | `aioproduce config` |
| `dev`, `dev_access` | `aioproduce dev`; TLS and login of its clients |
| `txn`, `txn_view` | `aioproduce txn`: the commands; the tables |
| `txn_cluster`, `txn_error` | requests to the cluster; the error of these commands |
| `spool`, `spool_view` | `aioproduce spool`: the commands; tables and mappings |
| `spool_verify`, `spool_dump`, `spool_replay` | the check with its bar; the rows of a dump; the run that sends |
| `look` | `aioproduce dashboard` and `aioproduce top` |
| `load` | a load to show without a service, and the demo's cluster with faults |
| `top`, `top_view` | the samples of a dashboard in the terminal; the screen |
| `exit_codes` | the meaning of each exit code |
| `verifiable` | `python -m aioproduce.verifiable`: Kafka's VerifiableProducer |
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_NEEDED = frozenset({"typer", "rich"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and raise `SystemExit` with one of `exit_codes.ExitCode`.

    Args:
        arguments: The arguments after the program's name; those of `sys.argv` by default.
    """
    # Until a run handles it, Ctrl-C ends the process at once, as SIGTERM does: nothing has begun, and a traceback
    # of imports helps nobody. A background job of a shell ignores SIGINT, and must continue to.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from aioproduce.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        print(
            f"error: the command line needs {error.name}, which is not installed: pip install 'aioproduce[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    run(arguments)
