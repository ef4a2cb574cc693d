"""The exit codes: one table for all commands. Their help texts and docs/how-to/send-files.md show it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from aioproduce.errors import (
    AuthenticationError,
    ConfigError,
    InvalidTopicError,
    ListenError,
    MissingExtraError,
    PartitionOutOfRangeError,
    SpoolDirectoryError,
    SpoolInUseError,
    TlsError,
    TokenError,
    TopicAuthorizationError,
)


class ExitCode(IntEnum):
    """The outcome of a command.

    If several apply, the first in this order counts: a record that is not acknowledged (1), what stopped the
    command (2 to 5), a signal, rejected lines (6), a result that could not be written (7, 141).
    """

    DONE = 0
    NOT_ACKNOWLEDGED = 1
    BAD_INPUT = 2
    NO_TLS = 3
    NO_LOGIN = 4
    NOT_AUTHORIZED = 5
    LINES_REJECTED = 6
    NO_OUTPUT = 7
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


MEANINGS: Final = {
    ExitCode.DONE: "Everything is done. `send`, `perf`: every record is acknowledged.",
    ExitCode.NOT_ACKNOWLEDGED: "A record is not acknowledged, or what was asked for is out of reach or damaged.",
    ExitCode.BAD_INPUT: "Usage, configuration or input is wrong. `send`: all before it is acknowledged.",
    ExitCode.NO_TLS: "There is no encrypted channel to a broker.",
    ExitCode.NO_LOGIN: "A broker refused the login, or there is nothing to log in with.",
    ExitCode.NOT_AUTHORIZED: "The cluster does not allow this client to do it.",
    ExitCode.LINES_REJECTED: "`send --on-error skip`: all records are acknowledged, some lines were rejected.",
    ExitCode.NO_OUTPUT: "It is done, but the result cannot be written (disk full, output closed).",
    ExitCode.INTERRUPTED: "Ctrl-C (SIGINT) ended it. What was sent until then is acknowledged.",
    ExitCode.OUTPUT_CLOSED: "It is done, but nobody reads the result any more (`| head`).",
    ExitCode.TERMINATED: "SIGTERM ended it. What was sent until then is acknowledged.",
}

EPILOG: Final = "Exit codes:\n\n" + "\n".join(f"    {code:>3}  {text}" for code, text in MEANINGS.items())
"""The table as a help text."""

_OF_ERRORS: Final = (
    ((TlsError,), ExitCode.NO_TLS),
    ((AuthenticationError, TokenError), ExitCode.NO_LOGIN),
    ((TopicAuthorizationError,), ExitCode.NOT_AUTHORIZED),
    ((SpoolInUseError,), ExitCode.NOT_ACKNOWLEDGED),
    (
        (
            *(ConfigError, MissingExtraError, ListenError, InvalidTopicError, PartitionOutOfRangeError),
            SpoolDirectoryError,
        ),
        ExitCode.BAD_INPUT,
    ),
)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code of a command that this error stopped before any record failed."""
    for kinds, exit_code in _OF_ERRORS:
        if isinstance(error, kinds):
            return exit_code
    return ExitCode.NOT_ACKNOWLEDGED
