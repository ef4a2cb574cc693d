"""docs/reference/states.md, made of the tables themselves: `python -m tests.states` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproduce.core.batching.buffer_pool import WAITER_STATES
from aioproduce.core.batching.producer_batch import BATCH_STATES
from aioproduce.core.batching.sequences import PRODUCER_ID_STATES
from aioproduce.core.cluster.authentication import AUTHENTICATION_STATES
from aioproduce.core.cluster.connection_states import CONNECTION_STATES
from aioproduce.core.exchanges.audit_marks import MARKS_STATES
from aioproduce.core.exchanges.telemetry import TELEMETRY_STATES
from aioproduce.core.sender import SENDER_STATES
from aioproduce.core.transactions.transaction_states import TRANSACTION_STATES
from aioproduce.producer.producer_states import PRODUCER_STATES

if TYPE_CHECKING:
    from aioproduce.core.state_table import StateTable

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "states.md"

TABLES: Final[list[tuple[str, str, StateTable[Any, Any]]]] = [
    ("The producer", "`start()` begins its life, `close()` ends it.", PRODUCER_STATES),
    (
        "A batch",
        "Its memory is free in DONE and not before. ABANDONED: its futures have failed, and its bytes may still be "
        "on the wire.",
        BATCH_STATES,
    ),
    (
        "A connection",
        "In CLOSING its requests wait for `connection_lost`: until then the transport may hold their bytes.",
        CONNECTION_STATES,
    ),
    (
        "The login of a connection",
        "SASL, and again before the broker ends the session (KIP-368). [More](../how-to/security.md)",
        AUTHENTICATION_STATES,
    ),
    (
        "Client telemetry",
        "KIP-714: a client asks what is wanted, and pushes it. [More](../how-to/client_telemetry.md)",
        TELEMETRY_STATES,
    ),
    (
        "The producer id",
        "`enable.idempotence=true` needs one before the first batch goes.",
        PRODUCER_ID_STATES,
    ),
    (
        "The transactions of a producer",
        "One at a time. In COMMITTING and ABORTING only the same again may be asked for.",
        TRANSACTION_STATES,
    ),
    ("A send() that waits for memory", "First come, first served.", WAITER_STATES),
    (
        "The audit marks of a producer",
        "Heartbeats, and one mark at the end. [More](../how-to/audit.md)",
        MARKS_STATES,
    ),
    ("The core", "CLOSED: every future is settled.", SENDER_STATES),
]
"""Title, a line on it, the table."""

HEAD: Final = """\
# States

The parts of a producer move along these tables. An event that a state does not expect is a bug in aioproduce: it
raises an error and changes nothing. `python -m tests.states` writes this page from the tables that run.
"""


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, line, table in TABLES:
        parts.append(f"\n## {title}\n\n{line}\n\n{rows(table)}")
    return "".join(parts)


def rows(table: StateTable[Any, Any]) -> str:
    """Return a state table in Markdown, one row for each next state."""
    lines = ["| state | event | next state |", "|---|---|---|"]
    for state, events in table.moves.items():
        name = f"{state.name} (first)" if state is table.start else state.name
        targets: dict[Any, list[str]] = {}
        for event, target in events.items():
            targets.setdefault(target, []).append(event)
        for target, labels in targets.items():
            lines.append(f"| {name} | {', '.join(labels)} | {target.name} |")
        if not events:
            lines.append(f"| {name} | none: it is final | |")
    return "\n".join(lines) + "\n"
