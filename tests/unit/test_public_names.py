"""What an editor offers on the objects that users hold: calls that are for them, each with a description."""

from __future__ import annotations

import inspect

import pytest

import aioproduce
from aioproduce.blocking.transactions import BlockingTransaction

HELD = [
    aioproduce.BatchBuilder,
    aioproduce.BlockingDeliveries,
    aioproduce.BlockingDelivery,
    aioproduce.BlockingProducer,
    BlockingTransaction,
    aioproduce.Deliveries,
    aioproduce.DeliveryFuture,
    aioproduce.GroupCommit,
    aioproduce.PreparedTransaction,
    aioproduce.Producer,
    aioproduce.Transaction,
    aioproduce.TransactionalPool,
]
# What was offered once, and is between the classes of the package.
INTERNAL = {
    "add", "add_delivery_callback", "add_future", "add_span", "again", "accept", "being_sent", "closing", "drop",
    "handed_at", "heed_watch", "lend", "life", "open", "open_path", "owner", "put_turn_off", "record",
    "record_refused", "refuse", "shut_path", "task", "tell", "turn_is_due", "wait_done", "way_in",
}  # fmt: skip
# Set by `__init__`, or a field: documented by the class.
ATTRIBUTES = {
    "config",
    "topic",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "transaction_version",
    "is_empty",
}


@pytest.mark.parametrize("kind", HELD, ids=[kind.__name__ for kind in HELD])
def test_nothing_internal_is_offered(kind: type) -> None:
    assert INTERNAL.isdisjoint(dir(kind))


@pytest.mark.parametrize("kind", HELD, ids=[kind.__name__ for kind in HELD])
def test_what_is_offered_is_described_and_for_users(kind: type) -> None:
    names = [name for name in dir(kind) if not name.startswith("_") and name not in ATTRIBUTES]
    assert names
    for name in names:
        text = inspect.getdoc(getattr(kind, name))
        assert text, name
        assert "(for " not in text, name
