"""The error of the commands of `aioproduce txn`. Raised by `txn` and `txn_cluster`."""

from __future__ import annotations

from typing import Final, final

from aioproduce.cli.exit_codes import ExitCode, exit_code_of
from aioproduce.wire import error_codes as codes

_DENIED: Final = {
    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant Describe on this transactional.id",
    codes.TOPIC_AUTHORIZATION_FAILED: "grant Read on the topic",
    codes.CLUSTER_AUTHORIZATION_FAILED: "grant ClusterAction or Alter on the cluster",
}
_BAD_INPUT: Final = frozenset({codes.INVALID_REGULAR_EXPRESSION})


@final
class TxnError(Exception):
    """A command of `aioproduce txn` fails; the message names the cause and the remedy.

    Attributes:
        exit_code: The exit code of the process.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.NOT_ACKNOWLEDGED) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    @classmethod
    def of_code(cls, what: str, code: int) -> TxnError:
        """Return the error for a broker's answer with this code."""
        remedy = f" ({_DENIED[code]})" if code in _DENIED else ""
        exit_code = ExitCode.NOT_ACKNOWLEDGED
        if code in _DENIED:
            exit_code = ExitCode.NOT_AUTHORIZED
        elif code in _BAD_INPUT:
            exit_code = ExitCode.BAD_INPUT
        return cls(f"{what}: {codes.name_of(code)}: {codes.message_of(code)}{remedy}", exit_code)

    @classmethod
    def of_connection(cls, what: str, error: Exception) -> TxnError:
        """Return the error for a broker that cannot be asked."""
        return cls(f"{what}: {error}", exit_code_of(error))
