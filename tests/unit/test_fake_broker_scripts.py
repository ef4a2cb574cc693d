"""The model answers hand-built Produce requests as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import pytest

from tests.unit.fake_broker_peer import SCRIPTS, Peer, Step, model


@pytest.mark.parametrize("steps", SCRIPTS.values(), ids=SCRIPTS)
def test_script(steps: tuple[Step, ...]) -> None:
    peer = Peer(model(topics={"t": 1}))

    answers = [peer.produce("t", step.content, version=step.version, acks=step.acks) for step in steps]

    assert [(answer.error_code.value, answer.base_offset) for answer in answers] == [
        (step.code, step.base_offset) for step in steps
    ]
