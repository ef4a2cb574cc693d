"""Seeds with a cluster that asks for metrics (KIP-714): records fare as they do without, and close ends as soon.

The oracle is that of all seeds; faults hit questions and pushes as they hit everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.testing.fake_cluster.model import ClusterModel
from aioproduce.wire.api import ApiKey
from tests.simulation.case import make_case
from tests.simulation.run import run_case
from tests.simulation.shrink import describe

if TYPE_CHECKING:
    from tests.simulation.run import Outcome

pytest.importorskip("opentelemetry.proto", reason="needs the extra aioproduce[telemetry]")

PREFIX = "org.apache.kafka.producer.record."
"""Few metrics: a seed is to be quick."""


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[ClusterModel]:
    """Every cluster that is made asks for metrics each fifteen seconds."""
    made: list[ClusterModel] = []
    plain = ClusterModel.__init__

    def init(self: ClusterModel, *args: Any, **settings: Any) -> None:
        plain(self, *args, **settings)
        self.telemetry.subscribe((PREFIX,), 15.0, is_delta=True, codecs=("zstd",), max_bytes=10**6)
        self.set_api_versions({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)})
        made.append(self)

    monkeypatch.setattr(ClusterModel, "__init__", init)
    return made


def run(seed: int, weather: str) -> Outcome:
    return run_case(make_case(seed, is_bare=False, weather=weather))


@pytest.mark.parametrize("weather", ["storm", "squall", "fair"])
@pytest.mark.parametrize("seed", range(6))
def test_records_fare_as_without(seed: int, weather: str, models: list[ClusterModel]) -> None:
    outcome = run(seed, weather)
    assert not outcome.violations, f"{outcome.case}\n{describe(outcome.violations)}"
    (model,) = models
    # A storm may take every push with it.
    assert model.requests.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) > 0
    assert model.telemetry.pushes or weather != "fair"


def test_the_same_seed_is_the_same_run(models: list[ClusterModel]) -> None:
    assert run(3, "squall").trace_hash == run(3, "squall").trace_hash
    first, again = (model.telemetry.pushes for model in models)
    assert first == again
    assert first
