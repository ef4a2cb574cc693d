"""The command line: `aioproduce send`, `perf`, `dev`, `config`, `check`, `txn`, `dashboard` and `top`.

`main` is the console script. It needs the extra `aioproduce[cli]` (typer and rich), which are imported when it
runs and not before: the package can be imported without them, and says what to install when they are missing.

| module | what is there |
|---|---|
| `app` | the commands |
| `options`, `help_texts` | their options; how help is laid out |
| `settings` | options, environment and files into a `ProducerConfig` |
| `inputs` | the files and standard input, read by a thread and cut into lines |
| `line_format` | a line into key and value |
| `send_command`, `send` | `aioproduce send`: its options into a job; its run |
| `tally`, `causes` | what became of each record; latency; the root of a failure, to count by |
| `failed_records` | the file of `--failed-to` and `--from-failed` |
| `display` | progress bar, summary, messages |
| `perf_command` | `aioproduce perf`: its options into a job |
| `perf`, `perf_payloads` | its run; what the records hold |
| `perf_lines`, `perf_timeline` | Kafka's lines and their counts; the course of the run |
| `perf_report`, `perf_plot` | the JSON document, summary and bar; the picture |
| `run`, `signals` | what both runs have in common; SIGINT and SIGTERM |
| `config_command` | `aioproduce config` |
| `dev`, `dev_access` | `aioproduce dev`; how clients get into it |
| `txn`, `txn_view` | `aioproduce txn`: its commands; what they show |
| `txn_cluster`, `txn_error` | what they ask a cluster; why they cannot do what they were asked for |
| `look` | `aioproduce dashboard` and `aioproduce top` |
| `load` | what these show when no service is given: a load, and a demo's cluster with troubles |
| `top`, `top_view` | the samples of a dashboard in the terminal; what the screen looks like |
| `exit_codes` | what each exit code means |
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
    """Run the command line; ends by `SystemExit` with one of `exit_codes.ExitCode`.

    Args:
        arguments: What follows the program's name; `sys.argv` by default.
    """
    # Until a run listens to it, Ctrl-C ends the process at once, as SIGTERM does: nothing has begun, and a
    # traceback of imports helps nobody. A background job of a shell ignores it, which stays so.
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
