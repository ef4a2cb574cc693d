"""Transactions in the broker model: the scripts that real Kafka answers alike, and what only a model can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.fake_broker_peer import Peer, model
from tests.unit.transaction_script import CASES, Script

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing import ClusterModel

_NAMES = [case.__name__ for case, _, _ in CASES]


class FakePeer:
    """A connection to the one broker of a model, with a clock that moves when somebody waits."""

    def __init__(self, cluster: ClusterModel) -> None:
        self.cluster = cluster
        self.now = 0.0
        self._peer = Peer(cluster)

    def ask(self, request: Any) -> Any:
        self._peer.send(request, now=self.now)
        while not (answers := self._peer.answers()):
            if self._peer.is_closed:
                self._peer = Peer(self.cluster, now=self.now)
                return None
            at = self.cluster.next_timer()
            assert at is not None, "nobody will ever answer"
            self.pause(max(0.0, at - self.now))
        return answers[0]

    def pause(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self.cluster.next_timer()) is not None and at <= until:
            self.now = max(self.now, at)
            self.cluster.handle_timer(self.now)
        self.now = until


def script(version: int = 2, **settings: Any) -> Script:
    """A script against a model of its own."""
    cluster = model(topics={"t": 1}, transaction_version=version, auto_create_topics=False, **settings)
    return Script(FakePeer(cluster), version, "t")


@pytest.mark.parametrize(("case", "_", "expected"), CASES, ids=_NAMES)
def test_version_2(case: Callable[[Script], Any], _: Any, expected: Any) -> None:
    assert case(script(2)) == expected


@pytest.mark.parametrize(("case", "expected", "_"), CASES, ids=_NAMES)
def test_version_1(case: Callable[[Script], Any], expected: Any, _: Any) -> None:
    assert case(script(1)) == expected
