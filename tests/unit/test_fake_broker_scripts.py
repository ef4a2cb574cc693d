"""The model answers hand-built Produce requests as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import pytest

from tests.unit.fake_broker_peer import SCRIPTS, TRANSACTIONAL_ANSWERS, Peer, Step, init_producer_id, model


@pytest.mark.parametrize("steps", SCRIPTS.values(), ids=SCRIPTS)
def test_script(steps: tuple[Step, ...]) -> None:
    peer = Peer(model(topics={"t": 1}))

    answers = [peer.produce("t", step.content, version=step.version, acks=step.acks) for step in steps]

    assert [(answer.error_code.value, answer.base_offset) for answer in answers] == [
        (step.code, step.base_offset) for step in steps
    ]
    # What is wrong with a record is found at several places in Kafka, not all of which know the log.
    told = [answer.log_start_offset for answer in answers if answer.error_code.value != 87]
    assert told == [0 if step.code in (0, 32, 45, 47) else -1 for step in steps if step.code != 87]


def test_a_transactional_id_is_bumped_and_fenced() -> None:
    peer = Peer(model())
    first = peer.ask(init_producer_id("tx"))
    second = peer.ask(init_producer_id("tx"))
    third = peer.ask(init_producer_id("tx", producer=(second.producer_id, second.producer_epoch)))
    stale = peer.ask(init_producer_id("tx", producer=(first.producer_id, first.producer_epoch)))
    foreign = peer.ask(init_producer_id("tx-other", producer=(first.producer_id, 0)))

    answers = [first, second, third, stale, foreign]
    assert [(answer.error_code.value, answer.producer_epoch) for answer in answers] == TRANSACTIONAL_ANSWERS
    assert first.producer_id == second.producer_id == third.producer_id
