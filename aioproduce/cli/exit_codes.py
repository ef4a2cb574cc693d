"""What the exit codes of the commands mean; the help text of `aioproduce send` shows the same table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The outcome of a command.

    Where several hold, an unacknowledged record (1) goes before bad input (2), and both before an interrupt.
    """

    DONE = 0
    """Every record is acknowledged; lines that `--on-error skip` passed over are not records."""
    NOT_ACKNOWLEDGED = 1
    """A record was not acknowledged, or no broker or topic could be reached."""
    BAD_INPUT = 2
    """Wrong usage, configuration or input. What was sent before the bad line is acknowledged."""
    NO_TLS = 3
    """`check`: no encrypted channel to a broker."""
    NO_LOGIN = 4
    """`check`: a broker refused the login, or there is nothing to log in with."""
    NOT_AUTHORIZED = 5
    """`check`: this client may not write to the topic."""
    INTERRUPTED = 130
    """Ended by SIGINT (Ctrl-C); everything sent until then is acknowledged."""
    TERMINATED = 143
    """Ended by SIGTERM; everything sent until then is acknowledged."""
